"""python -m jasper.export_onnx: exports Jasper's stages to ONNX and checks them against PyTorch."""

from common.cli import run_command

if __name__ == "__main__":
    run_command("common.cli.export", model="jasper")

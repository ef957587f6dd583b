"""python -m melforge.jasper.export_onnx: exports Jasper's stages to ONNX and checks them against PyTorch."""

from melforge.common.cli import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.export", model="jasper")

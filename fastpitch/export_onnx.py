"""python -m fastpitch.export_onnx: exports FastPitch's stages to ONNX and checks them against PyTorch."""

from common.cli import run_command

if __name__ == "__main__":
    run_command("common.cli.export", model="fastpitch")

"""python -m fastpitch.export_onnx: exports FastPitch's stages to ONNX and checks them against PyTorch."""

from common import cli
from common.export_command import main

if __name__ == "__main__":
    cli.run(lambda: main("fastpitch"))

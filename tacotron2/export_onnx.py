"""python -m tacotron2.export_onnx: exports Tacotron 2's stages to ONNX and checks them against PyTorch."""

from common import cli
from common.export_command import main

if __name__ == "__main__":
    cli.run(lambda: main("tacotron2"))

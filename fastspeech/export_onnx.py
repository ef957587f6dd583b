"""python -m fastspeech.export_onnx: exports FastSpeech's stages to ONNX and checks them against PyTorch."""

from common import cli
from common.export_command import main

if __name__ == "__main__":
    cli.run(lambda: main("fastspeech"))

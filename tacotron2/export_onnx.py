"""python -m tacotron2.export_onnx: exports Tacotron 2's stages to ONNX and checks them against PyTorch."""

from common.cli import run
from common.cli.export import main

if __name__ == "__main__":
    run.run(lambda: main(model="tacotron2"))

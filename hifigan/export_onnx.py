"""python -m hifigan.export_onnx: exports HiFi-GAN's stages to ONNX and checks them against PyTorch."""

from common.cli import run
from common.cli.export import main

if __name__ == "__main__":
    run.run(lambda: main(model="hifigan"))

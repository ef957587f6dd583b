"""python -m hifigan.build_trt: builds TensorRT engines of HiFi-GAN's stages."""

from common.cli import run
from common.cli.build import main

if __name__ == "__main__":
    run.run(lambda: main(model="hifigan"))

"""python -m tacotron2.build_trt: builds TensorRT engines of Tacotron 2's stages."""

from common.cli import run
from common.cli.build import main

if __name__ == "__main__":
    run.run(lambda: main(model="tacotron2"))

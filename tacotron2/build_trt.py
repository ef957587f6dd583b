"""python -m tacotron2.build_trt: builds TensorRT engines of Tacotron 2's stages."""

from common import cli
from common.build_command import main

if __name__ == "__main__":
    cli.run(lambda: main("tacotron2"))

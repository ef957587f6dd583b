"""python -m fastspeech.build_trt: builds TensorRT engines of FastSpeech's stages."""

from common import cli
from common.build_command import main

if __name__ == "__main__":
    cli.run(lambda: main("fastspeech"))

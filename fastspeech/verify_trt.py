"""python -m fastspeech.verify_trt: compares FastSpeech on TensorRT (or ONNX Runtime) with PyTorch."""

from common import cli
from common.verify_command import main

if __name__ == "__main__":
    cli.run(lambda: main("fastspeech"))

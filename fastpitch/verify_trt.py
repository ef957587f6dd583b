"""python -m fastpitch.verify_trt: compares FastPitch on TensorRT (or ONNX Runtime) with PyTorch."""

from common import cli
from common.verify_command import main

if __name__ == "__main__":
    cli.run(lambda: main("fastpitch"))

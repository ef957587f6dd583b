"""python -m tacotron2.verify_trt: compares Tacotron 2 on TensorRT (or ONNX Runtime) with PyTorch."""

from common.cli import run
from common.cli.verify import main

if __name__ == "__main__":
    run.run(lambda: main(model="tacotron2"))

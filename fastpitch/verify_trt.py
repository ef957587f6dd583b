"""python -m fastpitch.verify_trt: compares FastPitch on TensorRT (or ONNX Runtime) with PyTorch."""

from common.cli import run_command

if __name__ == "__main__":
    run_command("common.cli.verify", model="fastpitch")

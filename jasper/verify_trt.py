"""python -m jasper.verify_trt: compares Jasper on TensorRT (or ONNX Runtime) with PyTorch."""

from common.cli import run_command

if __name__ == "__main__":
    run_command("common.cli.verify_recogniser", model="jasper")

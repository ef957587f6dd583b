"""python -m melforge.jasper.verify_trt: compares Jasper on TensorRT (or ONNX Runtime) with PyTorch."""

from melforge.common.cli import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.verify", model="jasper")

"""python -m melforge.tacotron2.verify_trt: compares Tacotron 2 on TensorRT (or ONNX Runtime) with PyTorch."""

from melforge.common.cli import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.verify", model="tacotron2")

"""python -m tacotron2.verify_trt: compares Tacotron 2 on TensorRT (or ONNX Runtime) with PyTorch."""

from common.cli import run_command

if __name__ == "__main__":
    run_command("common.cli.verify", model="tacotron2")

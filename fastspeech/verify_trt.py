"""python -m fastspeech.verify_trt: compares FastSpeech on TensorRT (or ONNX Runtime) with PyTorch."""

from common.cli import run_command

if __name__ == "__main__":
    run_command("common.cli.verify", model="fastspeech")

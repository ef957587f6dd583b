"""python -m waveglow.verify_trt: compares WaveGlow on TensorRT (or ONNX Runtime) with PyTorch."""

from common.cli import run_command

if __name__ == "__main__":
    run_command("common.cli.verify", model="waveglow")

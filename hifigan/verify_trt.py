"""python -m melforge.hifigan.verify_trt: compares HiFi-GAN on TensorRT (or ONNX Runtime) with PyTorch."""

from melforge.common.cli import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.verify", model="hifigan")

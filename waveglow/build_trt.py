"""python -m melforge.waveglow.build_trt: builds TensorRT engines of WaveGlow's stages."""

from melforge.common.cli import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.build", model="waveglow")

"""python -m melforge.fastpitch.build_trt: builds TensorRT engines of FastPitch's stages."""

from melforge.common.cli import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.build", model="fastpitch")

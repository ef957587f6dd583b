"""python -m fastpitch.build_trt: builds TensorRT engines of FastPitch's stages."""

from common.cli import run_command

if __name__ == "__main__":
    run_command("common.cli.build", model="fastpitch")

"""python -m jasper.build_trt: builds TensorRT engines of Jasper's stages."""

from common.cli import run_command

if __name__ == "__main__":
    run_command("common.cli.build", model="jasper")

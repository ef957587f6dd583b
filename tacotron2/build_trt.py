"""python -m melforge.tacotron2.build_trt: builds TensorRT engines of Tacotron 2's stages."""

from melforge.common.cli import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.build", model="tacotron2")

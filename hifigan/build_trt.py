"""python -m hifigan.build_trt: builds TensorRT engines of HiFi-GAN's stages."""

from common.cli import run_command

if __name__ == "__main__":
    run_command("common.cli.build", model="hifigan")

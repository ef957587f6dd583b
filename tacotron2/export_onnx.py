"""python -m tacotron2.export_onnx: exports Tacotron 2's stages to ONNX and checks them against PyTorch."""

from common.cli import run_command

if __name__ == "__main__":
    run_command("common.cli.export", model="tacotron2")

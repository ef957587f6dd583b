"""python -m melforge.waveglow.export_onnx: exports the stages to ONNX and checks them against PyTorch."""

from melforge.common.cli import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.export", model="waveglow")

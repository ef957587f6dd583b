"""Exports a voice's models, or published weights, to ONNX and checks every graph against PyTorch."""

from common import cli
from common.export_command import main

if __name__ == "__main__":
    cli.run(main)

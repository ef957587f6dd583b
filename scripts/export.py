"""Exports a voice's models, or published weights, to ONNX and checks every graph against PyTorch."""

from common.cli import run
from common.cli.export import main

if __name__ == "__main__":
    run.run(main)

"""Compares an acoustic model and a vocoder on another backend with PyTorch, layer by layer."""

from common.cli import run
from common.cli.verify import main

if __name__ == "__main__":
    run.run(main)

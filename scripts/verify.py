"""Compares an acoustic model and a vocoder on another backend with PyTorch, layer by layer."""

from common import cli
from common.verify_command import main

if __name__ == "__main__":
    cli.run(main)

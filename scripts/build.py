"""Builds TensorRT engines of a voice's models, or of published weights."""

from common.cli import run
from common.cli.build import main

if __name__ == "__main__":
    run.run(main)

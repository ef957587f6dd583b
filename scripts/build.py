"""Builds TensorRT engines of a voice's models, or of published weights."""

from common import cli
from common.build_command import main

if __name__ == "__main__":
    cli.run(main)

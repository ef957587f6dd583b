"""Trains the letter-to-sound network of the English frontend."""

from common.cli import run
from common.training.english.letters import main

if __name__ == "__main__":
    run.run(main)

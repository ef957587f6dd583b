"""Derives how the shipped voice's teacher reads frequent words: tables of the English frontend."""

from common.cli import run
from common.training.english.readings import main

if __name__ == "__main__":
    run.run(main)

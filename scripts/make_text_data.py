"""Makes common/text/data from the published dictionary."""

from common.cli import run
from common.training.english.dictionary import main

if __name__ == "__main__":
    run.run(main)

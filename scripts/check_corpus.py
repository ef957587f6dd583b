"""Compares the recordings of a corpus with their texts, as `melforge check-corpus` does."""

from checkout import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.check_corpus")

"""Proposes bucket lists for texts, as `melforge buckets` does."""

from checkout import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.buckets")

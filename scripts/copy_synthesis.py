"""Sends sound files through a vocoder, as `melforge copy-synthesis` does."""

from checkout import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.copy_synthesis")

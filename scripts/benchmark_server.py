"""Measures a speech server, as `melforge benchmark-server` does."""

from checkout import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.benchmark_server")

"""Measures a Triton Inference Server, as `melforge benchmark-triton` does."""

from checkout import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.benchmark_triton")

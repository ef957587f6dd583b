"""Checks TensorRT on a GPU, as `melforge check-gpu` does."""

from checkout import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.check_gpu")

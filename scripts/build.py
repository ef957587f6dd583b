"""Builds TensorRT engines, as `melforge build` does."""

from checkout import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.build")

"""Exports models to ONNX, as `melforge export` does."""

from checkout import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.export")

"""Exports models to ONNX, as `melforge export` does."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from melforge.common.cli import run_command

    run_command("melforge.common.cli.export")

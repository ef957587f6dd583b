"""For the scripts beside it: the commands of the checkout that they are in, installed or not."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from melforge.common.cli import run_command

__all__ = ["run_command"]

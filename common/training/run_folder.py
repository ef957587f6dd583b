"""A training run's folder: where a run may begin, and from what it may go on. Without PyTorch."""

from __future__ import annotations

from pathlib import Path

from melforge.common.errors import InputError
from melforge.common.weights.voices import WEIGHTS

LAST = "last.pt"  # everything, beside the run's weights
LOSSES = "losses.csv"


def require_free(folder: Path, resume: Path | None) -> None:
    """An InputError where a run would overwrite another: it goes on with its own only."""
    if not any((folder / name).exists() for name in (LAST, WEIGHTS, LOSSES)):
        return
    if resume is None or resume.resolve().parent != folder.resolve():
        go_on = f"go on with it by --resume {folder / LAST}, or " if (folder / LAST).is_file() else ""
        raise InputError(f"{folder} holds a run: {go_on}give another folder")


def require_checkpoint(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} not found: give the {LAST} in a run's folder")

"""What a training run shows: losses as a table and curves, mels and alignments as pictures."""

import csv
import time
from pathlib import Path

import numpy as np
import torch

from melforge.common.errors import install_command
from melforge.common.training.run_folder import LOSSES

MEL_RANGE = -11.5, 1.0  # of pictures: from silence to loud speech, natural logarithms


class Log:
    """losses.csv in the run's folder, a line on the terminal, and losses.png at the end."""

    def __init__(self, folder: Path):
        self.path = folder / LOSSES
        self.started = time.monotonic()

    def write(self, step: int, values: dict[str, float], note: str = "") -> None:
        seconds = time.monotonic() - self.started
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            if not file.tell():
                writer.writerow(["step", "seconds", *values])
            writer.writerow([step, round(seconds, 1), *(f"{v:.6g}" for v in values.values())])
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        print(f"step {step}  {note or f'{seconds:.0f} s'}  {shown}", flush=True)

    def plot(self) -> None:
        """One small curve per logged value; skipped where matplotlib is not installed."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            print(f"losses.png not drawn: matplotlib is not installed ({install_command('plot')})")
            return
        with self.path.open() as file:
            rows = list(csv.DictReader(file))
        names = list(rows[0])[2:]
        columns = min(3, len(names))
        lines = -(-len(names) // columns)
        figure = Figure(figsize=(4 * columns, 2.5 * lines), layout="tight")
        for axis, name in zip(figure.subplots(lines, columns, squeeze=False).flat, names, strict=False):
            axis.plot([int(r["step"]) for r in rows], [float(r[name]) for r in rows], linewidth=0.8)
            axis.set(title=name, xlabel="step")
        figure.savefig(self.path.with_suffix(".png"), dpi=100)


def save_mel_picture(path: Path, mel: np.ndarray) -> None:
    """A mel [n_mels, T] as an image, time to the right; skipped without matplotlib."""
    _save_picture(path, mel, "magma", MEL_RANGE)


def save_alignment_picture(path: Path, alignment: torch.Tensor) -> None:
    """Attention (steps, symbols) as an image, time to the right; skipped without matplotlib."""
    _save_picture(path, alignment.float().cpu().numpy().T, "viridis", (0, 1))


def _save_picture(path: Path, values: np.ndarray, colours: str, limits: tuple[float, float]) -> None:
    try:
        from matplotlib.image import imsave
    except ImportError:
        return
    imsave(path, values, origin="lower", cmap=colours, vmin=limits[0], vmax=limits[1])

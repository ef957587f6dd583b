"""The comparison of two tensors, and its tolerances."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from common.stages.choose import KERNELS

# The largest error of a tensor, as a part of its largest value. docs/verify.md gives the reasons.
TOLERANCES = {"onnx": {"fp32": 1e-4}, "trt": {"fp32": 3e-2, "fp16": 5e-2}, KERNELS: {"fp16": 5e-2}}
# What is taken for a tensor's largest value at least: almost zero needs no more digits than that.
SMALLEST_SCALE = 0.05
# A stage that takes up what its own steps made multiplies their rounding.
FEEDBACK = 10.0


@dataclass
class Comparison:
    """One tensor on both sides; of several calls of its stage, the one that is furthest out."""

    stage: str
    name: str
    layer: bool
    tolerance: float  # times `scale`
    calls: int = 0
    call: int = 0  # the one that the rest is about
    shape: tuple[int, ...] = ()
    max_error: float = 0.0
    mean_error: float = 0.0
    relative: float = 0.0  # root mean square of the error, over that of PyTorch's values
    scale: float = SMALLEST_SCALE
    at: tuple[int, ...] = ()
    values: tuple[float, float] = (0.0, 0.0)  # PyTorch's and the other's, there
    reason: str = ""  # why nothing could be compared

    @property
    def full_name(self) -> str:
        return f"{self.stage}: {self.name}"

    @property
    def share(self) -> float:
        """The largest error as a part of the largest value."""
        return self.max_error / self.scale

    @property
    def ok(self) -> bool:
        return not self.reason and self.max_error <= self.tolerance * self.scale  # false for NaN

    @property
    def snr(self) -> float:
        """In decibels."""
        return float("inf") if not self.relative else -20 * float(np.log10(self.relative))

    def add(self, wanted: np.ndarray, got: np.ndarray) -> None:
        """Takes in one call's values, and keeps the worse one."""
        self.calls += 1
        new = replace(self, call=self.calls, shape=wanted.shape, reason="")
        if got.shape != wanted.shape:
            new.reason = f"its shape is {list(got.shape)}, not {list(wanted.shape)}"
            new.max_error = float("inf")
        elif wanted.size:
            new._measure(wanted.astype(np.float64), got.astype(np.float64))
        else:
            new.max_error = 0.0
        worse = new.share / max(new.tolerance, 1e-12) >= self.share / max(self.tolerance, 1e-12)
        if self.calls == 1 or (worse and not self.reason):
            self.__dict__.update(new.__dict__)

    def _measure(self, wanted: np.ndarray, got: np.ndarray) -> None:
        error = np.abs(got - wanted)
        error = np.where(np.isfinite(error), error, np.inf)
        place = int(error.argmax())
        self.at = tuple(int(i) for i in np.unravel_index(place, error.shape))
        self.values = (float(wanted.flat[place]), float(got.flat[place]))
        self.max_error, self.mean_error = float(error.max()), float(error.mean())
        power = float(np.square(wanted).mean())
        with np.errstate(over="ignore", invalid="ignore"):
            self.relative = float(np.sqrt(np.square(error).mean() / power)) if power else float(error.max())
        self.scale = max(SMALLEST_SCALE, float(np.abs(wanted).max()))

    def row(self) -> dict[str, Any]:
        """As JSON can hold it."""
        row = dataclasses.asdict(self) | {"ok": self.ok, "share": self.share, "snr_db": self.snr}
        return {key: str(x) if isinstance(x, float) and not np.isfinite(x) else x for key, x in row.items()}

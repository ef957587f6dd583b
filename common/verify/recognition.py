"""Compares a recogniser on another backend with PyTorch: layers, stages, and what is heard."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from melforge.common.recognition.loading import form_of, make_recogniser
from melforge.common.recognition.long_recordings import hear_pieces
from melforge.common.recognition.recogniser import Recogniser
from melforge.common.recognition.transcript import greedy_text
from melforge.common.registry import get_model
from melforge.common.verify.compare import Comparison
from melforge.common.verify.report import out_of_tolerance, within_tolerance
from melforge.common.verify.stages import ComparedEngines, Setup, exact_products
from melforge.common.weights.voices import ModelSource


@dataclass(frozen=True, eq=False)
class Hearing:
    """The comparisons, and what both sides heard in each piece of the recordings."""

    setup: Setup
    texts: list[tuple[str, str]]  # PyTorch's, the other's
    errors: list[float]  # largest difference of log-probabilities that matter, of each piece

    @property
    def comparisons(self) -> list[Comparison]:
        return list(self.setup.comparisons.values())

    @property
    def first_wrong(self) -> Comparison | None:
        return next((one for one in self.comparisons if not one.ok), None)

    @property
    def other_texts(self) -> int:
        return sum(wanted != got for wanted, got in self.texts)

    @property
    def ok(self) -> bool:
        """Texts may differ by a label that rounding decides; in single precision none does."""
        exact = self.setup.precision == "fp32"
        return self.first_wrong is None and not (exact and self.other_texts)

    def report(self) -> dict[str, Any]:
        first = self.first_wrong
        return {
            "models": [self.setup.report()],
            "tensors": [one.row() for one in self.comparisons],
            "heard": [
                {"pytorch": wanted, "other": got, "max_log_prob_error": error}
                for (wanted, got), error in zip(self.texts, self.errors, strict=True)
            ],
            "first_wrong": first and first.full_name,
            "ok": self.ok,
        }

    def conclusion(self) -> list[str]:
        """The summary, in sentences."""
        compared, first = self.comparisons, self.first_wrong
        lines = [
            f"{len(self.texts)} pieces of audio heard by both; {self.other_texts} texts differ; largest "
            f"difference of likely log-probabilities {max(self.errors, default=0.0):.1e}"
        ]
        if first is None:
            return [*lines, within_tolerance(len(compared))]
        wrong, what = sum(not one.ok for one in compared), "layer" if first.layer else "output"
        return [
            *lines,
            out_of_tolerance(wrong, len(compared)),
            f"the first that went wrong: {what} {first.name} of {first.stage}",
        ]


LIKELY = -10.0  # log-probabilities below this decide nothing


def verify_recogniser(source: ModelSource, setup: Setup, audios: Sequence[np.ndarray]) -> Hearing:
    """Audio [S] at the recogniser's rate, heard by both sides. `source` is PyTorch's, `setup` the other's."""
    with exact_products():
        engines = ComparedEngines(setup, source, form_of(source))
        reference = cast(Recogniser, get_model(source.model).driver_class(source, engines))
        how = (setup.backend, setup.device, setup.threads, setup.deployment)
        wanted = list(hear_pieces(reference, audios))
        got = list(hear_pieces(make_recogniser(setup.source, *how), audios))
    labels = reference.labels
    texts, errors = [], []
    for (_, one), (_, other) in zip(wanted, got, strict=True):
        texts.append((greedy_text(one.labels, labels), greedy_text(other.labels, labels)))
        likely = one.log_probs > LIKELY
        errors.append(float(np.abs(one.log_probs - other.log_probs)[likely].max(initial=0)))
    return Hearing(setup, texts, errors)

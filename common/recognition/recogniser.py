"""A recogniser: from audio to log-probabilities and labels, on the engines of its three stages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from melforge.common.arrays import Array, read_later, read_together, to_device
from melforge.common.config.deployment import Bucket
from melforge.common.engines import Arrays, Engine
from melforge.common.recognition.language_model import LanguageModel, read_language_model
from melforge.common.stages import root
from melforge.common.synthesis.driver import Config, Driver
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.weights.voices import ModelSource

# What a recogniser does, in this order. The forms of its `StagePlan` name a stage for each.
STEPS = ("features", "encoder", "decoder")


@dataclass(frozen=True, eq=False)
class Heard:
    """A recogniser's result for one piece of audio, a row for each of its F outputs."""

    log_probs: np.ndarray  # float32 [F, labels + 1]; the last one is CTC's blank
    labels: np.ndarray  # int64 [F], the best of each
    scores: np.ndarray  # float32 [F], their log-probabilities


@dataclass(frozen=True, eq=False)
class Features:
    """What a recogniser takes of a batch of audio, on its engines' device."""

    values: Array  # float32 [B, n_mels, T], zeros behind an item's frames
    frames: Array  # int64 [B]
    outputs: np.ndarray  # int64 [B], on the host: rows of log-probabilities that an item will have


class Recogniser(Driver[Config]):
    """Audio to characters, by CTC (Graves and others 2006).

    One that is given a single stage's engine has that step alone.
    """

    def __init__(self, source: ModelSource, engines: StageEngines, names: Sequence[str]):
        """`names` are those of the stages that are its three steps, in the order of STEPS."""
        super().__init__(source, engines)
        self._names = dict(zip(STEPS, names, strict=True))
        self._stages = [engines[name].stage for name in names if name in engines]

    @cached_property
    def features(self) -> Engine:
        return self.engines[self._names["features"]]

    @cached_property
    def encoder(self) -> Engine:
        return self.engines[self._names["encoder"]]

    @cached_property
    def decoder(self) -> Engine:
        return self.engines[self._names["decoder"]]

    @cached_property
    def language_model(self) -> LanguageModel | None:
        """Of the words that its letters spell; read when it is first asked for."""
        path = self.source.language_model
        return None if path is None else read_language_model(path)

    @property
    @abstractmethod
    def labels(self) -> str:
        """The characters in the order of the outputs; the blank comes behind them."""

    @property
    @abstractmethod
    def step_seconds(self) -> float:
        """Of audio that an output stands for."""

    @property
    def delay(self) -> float:
        """Seconds by which its outputs come behind the sound, as its training has it."""
        return 0.0

    @property
    @abstractmethod
    def sampling_rate(self) -> int:
        """Hz of the audio that it takes."""

    @abstractmethod
    def longest_within(self, frames: int) -> int:
        """Samples of the longest audio that is padded to at most `frames` frames of features."""

    @property
    def longest_samples(self) -> int:
        """Samples that it takes at a time."""
        return self.longest_within(self.frame_limits[1])

    def hear(self, audios: Sequence[np.ndarray]) -> list[Heard]:
        """Audio float32 [S] of each item, in [-1, 1], of 1 to `longest_samples`, in one batch."""
        features = self.extract(audios)
        return self.decode(self.encode(features), features.outputs)

    @abstractmethod
    def extract(self, audios: Sequence[np.ndarray]) -> Features:
        """The features of such a batch, on the stage's engine."""

    @abstractmethod
    def gather(self, features: Sequence[Array], frames: Sequence[int]) -> Features:
        """Features of items that were extracted apart, float32 [n_mels, T], and of how many frames each."""

    @abstractmethod
    def encode(self, features: Features) -> Array:
        """Log-probabilities float32 [B, F, labels + 1] on its engine's device; more rows than `outputs`."""

    def decode(self, log_probs: Array, outputs: np.ndarray) -> list[Heard]:
        """The best labels of log-probabilities [B, F, labels + 1], of `outputs` [B] rows of each item."""
        lengths = to_device(outputs, self.decoder.device)
        return read_heard(log_probs, self.decoder(log_probs=log_probs, lengths=lengths), outputs)

    @property
    def prefers_batches(self) -> bool:
        return self.batch_safe

    @property
    def largest_batch(self) -> int:
        """The largest batch of its stages; one if batches would change an item's result."""
        if not self.batch_safe:
            return 1
        return min(stage.batch.max for stage in self._stages)

    @cached_property
    def frame_limits(self) -> tuple[int, int]:
        """The fewest and the most frames of features that all its stages take."""
        dims = [d for stage in self._stages for d in stage.dynamic_dims.values() if root(d) == "mel"]
        return max(d.min // d.times for d in dims), min(d.max // d.times for d in dims)

    def takes(self, batch: int, bucket: Bucket | None) -> bool:
        return batch <= self.largest_batch


def read_heard(log_probs: Array, best: Arrays, outputs: np.ndarray) -> list[Heard]:
    """Reads the log-probabilities, and the decoder's labels and scores [B, F]: `outputs` [B] rows each."""
    probabilities, scores = read_together([log_probs[:, : int(outputs.max())], best["scores"]])()
    return heard_of(probabilities, read_later(best["labels"])(), scores, outputs)


def heard_of(
    log_probs: np.ndarray, labels: np.ndarray, scores: np.ndarray, outputs: np.ndarray
) -> list[Heard]:
    """Each item's rows of [B, F, labels + 1] and [B, F]."""
    return [
        Heard(log_probs[row, :count], labels[row, :count], scores[row, :count])
        for row, count in enumerate(outputs.tolist())
    ]

"""The classes of a recogniser's three models that Triton's Python backend calls."""

from __future__ import annotations

import itertools
import json
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from melforge.common.arrays import Array, pad_rows, to_numpy
from melforge.common.engines import MEL_STEP
from melforge.common.errors import InputError
from melforge.common.recognition.long_recordings import LONGEST_PIECE, is_silent
from melforge.common.recognition.recogniser import Recogniser
from melforge.common.recognition.transcript import greedy_text
from melforge.common.synthesis.utterances import run_each
from melforge.common.triton import tensors
from melforge.common.triton.backend import BatchModel, padded
from melforge.common.triton.choice import pick_instance_device

USUAL_SECONDS = 7.0  # of a recording that warms up engines whose lengths are dynamic


class RecogniserModel(BatchModel):
    """One step of a recogniser; only its own engine is loaded."""

    ensemble = "recogniser"
    step: str  # one of STEPS

    def load(self) -> None:
        """Loads the step; with a warm-up it then runs at every length and batch."""
        device = pick_instance_device([self.choice.backend], *self.instance)
        self.recogniser = cast(Recogniser, self.choice.driver("recogniser", self.sources, device, self.step))
        if self.choice.warm_up:
            for frames, items in self.warm_up_runs():
                for one in self.make([self.padded_item(frames)] * items):
                    if isinstance(one, Exception):
                        raise one

    def example(self) -> Any:
        return self.padded_item(MEL_STEP)

    def warm_up_runs(self) -> list[tuple[int, int]]:
        """Frames and items of warm-up runs: every bucket; on CUDA kernels each padded length of recordings
        of up to LONGEST_PIECE; else one usual length. The largest comes first: the others reuse its memory.
        """
        recogniser = self.recogniser
        frame_rate = recogniser.sampling_rate / recogniser.config.hop_length  # Hz, of features
        if recogniser.engines.buckets:
            lengths = [bucket.mel for bucket in recogniser.engines.buckets]
        elif recogniser.engines.on_kernels:
            lengths = list(range(MEL_STEP, math.ceil(LONGEST_PIECE * frame_rate) + MEL_STEP, MEL_STEP))
        else:
            lengths = [round(USUAL_SECONDS * frame_rate)]
        most = min(self.max_batch_size, recogniser.largest_batch)
        batches = {self.padded_batch(items) for items in range(1, most + 1)}
        return sorted(itertools.product(lengths, batches), key=math.prod, reverse=True)

    @abstractmethod
    def padded_item(self, frames: int) -> Any:
        """An item that is padded to `frames` frames of features."""

    def padded_batch(self, items: int) -> int:
        return min(self.recogniser.padded_batch(items), self.recogniser.largest_batch)

    def in_batches(
        self, run: Callable[[Sequence[Any]], list[Any]], items: Sequence[Any], sizes: Sequence[int]
    ) -> list[Any]:
        """The results of `run` on the items, or exceptions; items of similar sizes share a batch.

        On CUDA kernels the last item is repeated, because a graph is captured for each number of items.
        """

        def run_padded(rows: Sequence[int]) -> list[Any]:
            batch = [items[row] for row in rows]
            return run([*batch, *batch[-1:] * (self.padded_batch(len(batch)) - len(batch))])[: len(batch)]

        order = sorted(range(len(items)), key=lambda row: -sizes[row])
        most = self.recogniser.largest_batch
        made: dict[int, Any] = {}
        for first in range(0, len(order), most):
            some = order[first : first + most]
            made.update(zip(some, run_each(run_padded, some), strict=True))
        return [made[row] for row in range(len(items))]


class AudioToFeatures(RecogniserModel):
    """Audio to features."""

    step, first = "features", True

    def padded_item(self, frames: int) -> np.ndarray:
        samples = self.recogniser.longest_within(frames)
        return 0.1 * np.random.default_rng(0).standard_normal(samples, np.float32)

    def items(self, request: Any) -> list[Any]:
        recogniser = self.recogniser
        rate, longest = recogniser.sampling_rate, recogniser.longest_samples
        items = []
        for audio, (count,) in rows_of(self, request, tensors.AUDIO_SIGNAL.name, tensors.NUM_SAMPLES.name):
            samples = length_of(count, audio.shape[0], "samples")
            if samples > longest:
                raise InputError(
                    f"{samples} samples, of {longest} at most ({longest / rate:.1f} s): cut the recording"
                )
            heard = to_numpy(audio[:samples]).astype(np.float32, copy=False)
            if not np.isfinite(heard).all():
                raise InputError("the samples are not all numbers")
            if is_silent(heard, rate):
                raise InputError("nothing can be heard: digital silence, or shorter than a word")
            items.append(heard)
        return items

    def make(self, items: Sequence[Any]) -> list[Any]:
        def run(audios: Sequence[np.ndarray]) -> list[Any]:
            made = self.recogniser.extract(audios)
            # Without masks the padding counts too.
            whole = 0 if self.recogniser.batch_safe else made.values.shape[2]
            counts = [whole or count for count in to_numpy(made.frames).tolist()]
            return [(values[:, :count], count) for values, count in zip(made.values, counts, strict=True)]

        return self.in_batches(run, items, [len(audio) for audio in items])

    def answer(self, made: Sequence[Any]) -> dict[str, Array]:
        counts = np.array([[count] for _, count in made], np.int32)
        features = padded([values for values, _ in made])
        return {tensors.AUDIO_FEATURES.name: features, tensors.NUM_FEATURES.name: counts}


class FeaturesToCharacters(RecogniserModel):
    """Features to the log-probabilities of characters."""

    step = "encoder"

    def padded_item(self, frames: int) -> tuple[Array, int]:
        return np.zeros((self.recogniser.config.n_mel_channels, frames), np.float32), frames

    def items(self, request: Any) -> list[Any]:
        longest = self.recogniser.encoder.stage.dynamic_dims["mel"].max
        items = []
        for values, (count,) in rows_of(
            self, request, tensors.AUDIO_FEATURES.name, tensors.NUM_FEATURES.name
        ):
            frames = length_of(count, values.shape[1], "frames")
            if frames > longest:
                raise InputError(f"{frames} frames, of {longest} at most")
            items.append((values[:, :frames], frames))
        return items

    def make(self, items: Sequence[Any]) -> list[Any]:
        def run(batch: Sequence[tuple[Array, int]]) -> list[Any]:
            features = self.recogniser.gather([x for x, _ in batch], [frames for _, frames in batch])
            made = self.recogniser.encode(features)
            return [row[:count] for row, count in zip(made, features.outputs.tolist(), strict=True)]

        return self.in_batches(run, items, [frames for _, frames in items])

    def answer(self, made: Sequence[Any]) -> dict[str, Array]:
        counts = np.array([[len(rows)] for rows in made], np.int32)
        together = stacked(made, int(counts.max()))
        return {tensors.CHARACTER_PROBABILITIES.name: together, tensors.NUM_OUTPUTS.name: counts}


class CharactersToText(BatchModel):
    """Log-probabilities to labels and text, on the host: it needs the characters alone."""

    ensemble, last = RecogniserModel.ensemble, True

    def choose(self, parameters: Mapping[str, str], folder: Path) -> None:
        self.labels = parameters["labels"]

    def load(self) -> None:
        pass

    def example(self) -> np.ndarray:
        return np.zeros((1, len(self.labels) + 1), np.float32)

    def items(self, request: Any) -> list[Any]:
        names = tensors.CHARACTER_PROBABILITIES.name, tensors.NUM_OUTPUTS.name
        return [
            to_numpy(values[: length_of(count, values.shape[0], "outputs")])
            for values, (count,) in rows_of(self, request, *names)
        ]

    def make(self, items: Sequence[np.ndarray]) -> list[Any]:
        return [rows.argmax(1) for rows in items]

    def answer(self, made: Sequence[np.ndarray]) -> dict[str, Array]:
        labels = np.full((len(made), max(map(len, made))), len(self.labels), np.int32)
        for row, one in zip(labels, made, strict=True):
            row[: len(one)] = one
        texts = [[" ".join(greedy_text(one, self.labels).split()).encode()] for one in made]
        return {tensors.TRANSCRIPT.name: labels, tensors.TRANSCRIPT_TEXT.name: np.array(texts, object)}


def rows_of(model: BatchModel, request: Any, *names: str) -> list[tuple[Array, ...]]:
    """A row of these tensors for each item; an InputError if the request has parameters."""
    if given := json.loads(request.parameters() or "{}"):
        raise InputError(f"unknown parameter {next(iter(given))!r}: a recogniser has none")
    return list(zip(*(model.read(request, name) for name in names), strict=True))


def length_of(count: Array, most: int, what: str) -> int:
    """An item's length in a tensor of `most` steps; an InputError if it is out of range."""
    length = int(count)
    if not 1 <= length <= most:
        raise InputError(f"{length} {what} of a tensor of {most}")
    return length


def stacked(rows: Sequence[Array], steps: int) -> Array:
    """Arrays [F, C] as one [B, steps, C], padded with zeros."""
    return pad_rows([row.T for row in rows], len(rows), steps).swapaxes(1, 2)

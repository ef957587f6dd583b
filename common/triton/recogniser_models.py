"""The classes of a recogniser's three models as Triton's python backend calls them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.arrays import Array, pad_rows, to_device, to_numpy
from common.errors import InputError
from common.recognition.listen import is_silent
from common.recognition.recogniser import Heard, Recogniser
from common.recognition.transcript import greedy_text
from common.synthesis.utterances import run_each
from common.triton import tensors
from common.triton.backend import BatchModel, padded
from common.triton.choice import EarChoice, pick_instance_device


class RecogniserModel(BatchModel):
    """One step of a recogniser, on its own engine: the others are not made."""

    def choose(self, parameters: Mapping[str, str], folder: Path) -> None:
        self.ear = EarChoice.read(parameters, folder)

    def load(self) -> None:
        self.recogniser: Recogniser = self.ear.recogniser(
            pick_instance_device([self.ear.backend], *self.instance)
        )

    def rows(self, request: Any, *names: str) -> list[tuple[Array, ...]]:
        """A row of these tensors for each item. An InputError where the request has parameters."""
        if given := json.loads(request.parameters() or "{}"):
            raise InputError(f"unknown parameter {next(iter(given))!r}: a recogniser has none")
        return list(zip(*(self.read(request, name) for name in names), strict=True))

    def in_batches(
        self, run: Callable[[Sequence[Any]], list[Any]], items: Sequence[Any], sizes: Sequence[int]
    ) -> list[Any]:
        """What `run` makes of the items, or its exceptions; items of alike sizes come together."""
        order = sorted(range(len(items)), key=lambda row: -sizes[row])
        most = self.recogniser.largest_batch
        made: dict[int, Any] = {}
        for first in range(0, len(order), most):
            some = order[first : first + most]
            made.update(
                zip(some, run_each(lambda rows: run([items[row] for row in rows]), some), strict=True)
            )
        return [made[row] for row in range(len(items))]


class Features(RecogniserModel):
    """Audio to features."""

    def items(self, request: Any) -> list[Any]:
        recogniser = self.recogniser
        rate, longest = recogniser.sampling_rate, recogniser.longest_samples
        items = []
        for audio, (count,) in self.rows(request, tensors.AUDIO_SIGNAL.name, tensors.NUM_SAMPLES.name):
            samples = length_of(count, audio.shape[0], "samples")
            if samples > longest:
                raise InputError(
                    f"{samples} samples, of {longest} at most ({longest / rate:.1f} s): cut the recording"
                )
            heard = to_numpy(audio[:samples])
            if not np.isfinite(heard).all():
                raise InputError("the samples are not all numbers")
            if is_silent(heard, rate):
                raise InputError("nothing can be heard: digital silence, or shorter than a word")
            items.append(heard)
        return items

    def make(self, items: Sequence[Any]) -> list[Any]:
        def run(audios: Sequence[np.ndarray]) -> list[Any]:
            made = self.recogniser.extract(audios)
            # Where padding is not masked, all of it counts.
            whole = made.values.shape[2] if self.recogniser.largest_batch == 1 else 0
            counts = [whole or count for count in to_numpy(made.frames).tolist()]
            return [(values[:, :count], count) for values, count in zip(made.values, counts, strict=True)]

        return self.in_batches(run, items, [len(audio) for audio in items])

    def answer(self, made: Sequence[Any]) -> dict[str, Array]:
        counts = np.array([[count] for _, count in made], np.int32)
        return {"AUDIO_FEATURES": padded([values for values, _ in made]), tensors.NUM_FEATURES.name: counts}


class Encoder(RecogniserModel):
    """Features to the log-probabilities of characters."""

    def items(self, request: Any) -> list[Any]:
        longest = self.recogniser.encoder.stage.dynamic_dims["mel"].max
        items = []
        for values, (count,) in self.rows(request, "AUDIO_FEATURES", tensors.NUM_FEATURES.name):
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
        return {"CHARACTER_PROBABILITIES": stacked(made), tensors.NUM_OUTPUTS.name: counts}


class Decoder(RecogniserModel):
    """Log-probabilities to labels and text."""

    def items(self, request: Any) -> list[Any]:
        names = "CHARACTER_PROBABILITIES", tensors.NUM_OUTPUTS.name
        return [
            values[: length_of(count, values.shape[0], "outputs")]
            for values, (count,) in self.rows(request, *names)
        ]

    def make(self, items: Sequence[Any]) -> list[Any]:
        def run(batch: Sequence[Array]) -> list[Any]:
            together = to_device(stacked(batch), self.recogniser.decoder.device)
            return self.recogniser.decode(together, np.array([len(rows) for rows in batch]))

        return self.in_batches(run, items, [len(rows) for rows in items])

    def answer(self, made: Sequence[Heard]) -> dict[str, Array]:
        characters = self.recogniser.labels
        labels = np.full((len(made), max(len(one.labels) for one in made)), len(characters), np.int32)
        for row, one in zip(labels, made, strict=True):
            row[: len(one.labels)] = one.labels
        texts = [[" ".join(greedy_text(one.labels, characters).split()).encode()] for one in made]
        return {tensors.TRANSCRIPT.name: labels, tensors.TRANSCRIPT_TEXT.name: np.array(texts, object)}


def length_of(count: Array, most: int, what: str) -> int:
    """An item's length of a tensor with so many steps. An InputError where it has no such length."""
    length = int(count)
    if not 1 <= length <= most:
        raise InputError(f"{length} {what} of a tensor of {most}")
    return length


def stacked(rows: Sequence[Array]) -> Array:
    """Arrays [F, C] of one kind as one [B, F, C], with zeros behind the shorter ones."""
    return pad_rows([row.T for row in rows], len(rows), max(len(row) for row in rows)).swapaxes(1, 2)

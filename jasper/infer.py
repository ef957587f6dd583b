"""Drives a recogniser's three stages: audio to features, to log-probabilities, to labels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from melforge.common.arrays import Array, pad_rows, to_device
from melforge.common.engines import MEL_STEP
from melforge.common.recognition.recogniser import Features, Heard, Recogniser, heard_of
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.weights.voices import ModelSource
from melforge.jasper.config import JasperConfig
from melforge.jasper.features import put_dithered
from melforge.jasper.stages import PLAN

if TYPE_CHECKING:
    from melforge.common.recognition.one_graph import RecogniserGraph


class JasperRecogniser(Recogniser[JasperConfig]):
    """With the form "masked" of its stages each item of a batch is what it is alone."""

    def __init__(self, source: ModelSource, engines: StageEngines):
        self.masked = not {"features", "encoder"} & set(engines)  # the decoder is the same in both forms
        super().__init__(source, engines, PLAN.forms["masked" if self.masked else "unmasked"])

    @property
    def batch_safe(self) -> bool:
        return self.masked

    @property
    def labels(self) -> str:
        return self.config.labels

    @property
    def step_seconds(self) -> float:
        return self.config.step_seconds

    @property
    def delay(self) -> float:
        return self.source.settings.delay

    @property
    def sampling_rate(self) -> int:
        return self.config.sampling_rate

    def longest_within(self, frames: int) -> int:
        return max(1, self.config.samples_within(frames))

    def hear(self, audios: Sequence[np.ndarray]) -> list[Heard]:
        if self._graph is None:
            return super().hear(audios)
        lengths, frames = self._lengths(audios)
        frames = min(-(-frames // MEL_STEP) * MEL_STEP, self.frame_limits[1])
        staged = self._graph.stage(len(audios), frames * self.config.hop_length)
        outputs = self._outputs([self.config.frames(int(length)) for length in lengths], frames)
        put_dithered(staged.audio.numpy(), audios, self.config)
        staged.lengths.numpy()[:], staged.outputs.numpy()[:] = lengths, outputs
        made = self._graph(staged)
        if made is None:
            return super().hear(audios)
        longest = int(outputs.max())
        return heard_of(**{name: rows[:, :longest].copy() for name, rows in made.items()}, outputs=outputs)

    @cached_property
    def _graph(self) -> RecogniserGraph | None:
        """All three stages in one, where their engines can be captured and lengths may be padded."""
        stages = self.features, self.encoder, self.decoder
        fitting = all(one.can_be_captured and not one.buckets for one in stages)
        if not (self.masked and self.engines.captures and fitting):
            return None
        from melforge.common.recognition.one_graph import RecogniserGraph

        return RecogniserGraph(*stages)

    def _lengths(self, audios: Sequence[np.ndarray]) -> tuple[np.ndarray, int]:
        """Samples of each item, and the frames that they are padded to."""
        lengths = np.array([len(audio) for audio in audios])
        return lengths, max(self.config.padded_frames(int(lengths.max())), self.frame_limits[0])

    def extract(self, audios: Sequence[np.ndarray]) -> Features:
        config, device = self.config, self.features.device
        lengths, frames = self._lengths(audios)
        audio = np.empty((len(audios), frames * config.hop_length), np.float32)
        put_dithered(audio, audios, config)
        made = self.features(audio=to_device(audio, device), lengths=to_device(lengths, device))
        counts = [config.frames(int(length)) for length in lengths]
        return Features(made["features"], made["frames"], self._outputs(counts, frames))

    def gather(self, features: Sequence[Array], frames: Sequence[int]) -> Features:
        steps = max(self.frame_limits[0], *(values.shape[1] for values in features))
        device = self.encoder.device
        values = to_device(pad_rows(features, len(features), steps), device)
        return Features(values, to_device(np.array(frames), device), self._outputs(frames, steps))

    def _outputs(self, frames: Sequence[int], padded: int) -> np.ndarray:
        """Without masks, what stands behind an item's end is decoded too, as published."""
        return np.array([self.config.steps(count if self.masked else padded) for count in frames])

    def encode(self, features: Features) -> Array:
        masked = {"lengths": features.frames} if self.masked else {}
        return self.encoder(features=features.values, **masked)["log_probs"]

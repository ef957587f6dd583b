"""Drives a recogniser's three stages: audio to features, to log-probabilities, to labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.arrays import pad_rows, read_later, read_together, to_device
from common.recognition.recogniser import Heard, Recogniser
from common.synthesis.stage_engines import StageEngines
from common.weights.voices import ModelSource
from jasper.config import JasperConfig
from jasper.features import dithered


class JasperRecogniser(Recogniser[JasperConfig]):
    """With the form "masked" of its stages each item of a batch is what it is alone."""

    def __init__(self, source: ModelSource, engines: StageEngines):
        self.masked = "masked_encoder" in engines
        names = ("masked_features", "masked_encoder") if self.masked else ("features", "encoder")
        super().__init__(source, engines, engines[names[0]], engines[names[1]], engines["decoder"])
        frames = self.encoder.stage.dynamic_dims["mel"]
        self.shortest, self.longest = frames.min, frames.max

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
    def sampling_rate(self) -> int:
        return self.config.sampling_rate

    @property
    def longest_samples(self) -> int:
        frames = self.longest if not self.config.pad_align else self.longest - self.config.pad_align
        return frames * self.config.hop_length

    def hear(self, audios: Sequence[np.ndarray]) -> list[Heard]:
        config, device = self.config, self.encoder.device
        lengths = np.array([len(audio) for audio in audios])
        frames = max(config.padded_frames(int(lengths.max())), self.shortest)
        rows = [dithered(audio, config) for audio in audios]
        audio = pad_rows(rows, len(rows), frames * config.hop_length)
        made = self.features(audio=to_device(audio, device), lengths=to_device(lengths, device))
        masked = {"lengths": made["frames"]} if self.masked else {}
        log_probs = self.encoder(features=made["features"], **masked)["log_probs"]
        # Without masks, what stands behind an item's end is decoded too, as published.
        counts = [config.steps(config.frames(int(n)) if self.masked else frames) for n in lengths]
        best = self.decoder(log_probs=log_probs, lengths=to_device(np.array(counts), device))
        probabilities, scores = read_together([log_probs[:, : max(counts)], best["scores"]])()
        labels = read_later(best["labels"])()
        return [
            Heard(probabilities[row, :count], labels[row, :count], scores[row, :count])
            for row, count in enumerate(counts)
        ]

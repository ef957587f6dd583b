"""Drives the HiFi-GAN generator and takes its hum out: whole mels, or in chunks with the same samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from common.arrays import Array, to_device, to_numpy
from common.denoiser import Denoiser, bias_spectrum
from common.engines import Engine
from common.speech import Controls
from common.voices import ModelSource
from hifigan.config import receptive_field


class HifiganVocoder:
    """Mel to audio, on whatever engine it is given.

    A voice says in its `denoising_strength` how much of the generator's hum is taken out (default 0).
    """

    controls = frozenset({"denoising_strength"})

    def __init__(self, source: ModelSource, engines: Mapping[str, Engine]):
        self.source = source
        self.config = source.config
        self.generator = engines["generator"]
        self.hop = source.config.hop_length
        self.context = receptive_field(source.config)
        self.longest_mel = self.generator.stage.dynamic_dims["mel"].max
        self.denoising_strength = float(source.extra.get("denoising_strength", 0.0))
        # A denoised sample depends on every window that holds it: so many frames on either side.
        self.denoiser_context = -(-source.mel.filter_length // self.hop)

    @cached_property
    def denoiser(self) -> Denoiser:
        """Measured on first use; its first frame needs the first frames of the silent mel only."""
        first = self.denoiser_context
        bias = bias_spectrum(
            lambda mel: next(self._generate_chunks(mel, first)), self.config.n_mel_channels, self.source.mel
        )
        return Denoiser(bias, self.source.mel)

    def vocode(self, mel: Array, lengths: np.ndarray, controls: Controls | None = None) -> list[np.ndarray]:
        """mel [B, n_mels, T_mel] -> audio float32 [lengths[b] * hop] for each item.

        Items run alone at their own length: behind its end a padded item would hear the padding, where the
        network pads with zeros in every layer.
        """
        return [
            np.concatenate(
                list(self.vocode_chunks(mel[b : b + 1, :, :length], self.longest_chunk, None, controls))
            )
            for b, length in enumerate(lengths.tolist())
        ]

    @property
    def longest_chunk(self) -> int:
        """Frames that fit the stage together with their context."""
        return self.longest_mel - 2 * (self.context + self.denoiser_context)

    def vocode_chunks(
        self,
        mel: Array,
        first_chunk: int,
        chunk: int | None = None,
        controls: Controls | None = None,
    ) -> Iterator[np.ndarray]:
        """mel [1, n_mels, T_mel] -> audio in chunks that join to the whole mel's audio.

        The first chunk has `first_chunk` frames, each further one twice as many, up to `chunk`. A chunk is
        computed with the frames around it that it depends on; the mel's true ends stay ends.
        Of the controls it takes `denoising_strength`.
        """
        strength = (controls or Controls()).denoising_strength
        strength = self.denoising_strength if strength is None else strength
        if mel.shape[2] * self.hop <= self.source.mel.filter_length // 2:
            strength = 0.0  # too short for a spectrum
        yield from self._generate_chunks(mel, first_chunk, chunk, strength)

    def _generate_chunks(
        self, mel: Array, first_chunk: int, chunk: int | None = None, strength: float = 0.0
    ) -> Iterator[np.ndarray]:
        mel = to_device(mel, self.generator.device)
        margin = self.denoiser_context if strength else 0
        limit = self.longest_chunk
        size, largest = min(first_chunk, limit), min(chunk or first_chunk, limit)
        frames = mel.shape[2]
        start = 0
        while start < frames:
            end = min(start + size, frames)
            first, last = max(0, start - margin), min(frames, end + margin)
            left, right = max(0, first - self.context), min(frames, last + self.context)
            audio = to_numpy(self.generator(mel=mel[:, :, left:right])["audio"])[0]
            audio = audio[(first - left) * self.hop : (last - left) * self.hop]
            if strength:
                audio = self.denoiser(audio, strength)
            yield audio[(start - first) * self.hop : (end - first) * self.hop]
            start, size = end, min(size * 2, largest)

"""Drives the HiFi-GAN generator: whole mels, or chunk by chunk with exactly the same samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from common.arrays import Array, to_device, to_numpy
from common.engines import Engine
from common.voices import ModelSource
from hifigan.config import receptive_field


class HifiganVocoder:
    """Mel to audio, on whatever engine it is given."""

    def __init__(self, source: ModelSource, engines: Mapping[str, Engine]):
        self.source = source
        self.config = source.config
        self.generator = engines["generator"]
        self.hop = source.config.hop_length
        self.context = receptive_field(source.config)
        self.longest_mel = self.generator.stage.dynamic_dims["mel"].max

    def vocode(self, mel: Array, lengths: np.ndarray) -> list[np.ndarray]:
        """mel [B, n_mels, T_mel] -> audio float32 [lengths[b] * hop] for each item.

        Items run alone at their own length: behind its end a padded item would hear the padding, where the
        network pads with zeros in every layer.
        """
        return [
            np.concatenate(list(self.vocode_chunks(mel[b : b + 1, :, :length], self.longest_chunk)))
            for b, length in enumerate(lengths.tolist())
        ]

    @property
    def longest_chunk(self) -> int:
        """Frames that fit the stage together with their context."""
        return self.longest_mel - 2 * self.context

    def vocode_chunks(self, mel: Array, first_chunk: int, chunk: int | None = None) -> Iterator[np.ndarray]:
        """mel [1, n_mels, T_mel] -> audio in chunks that join to the whole mel's audio.

        The first chunk has `first_chunk` frames, each further one twice as many, up to `chunk`. A chunk is
        computed with the frames around it that it depends on; the mel's true ends stay ends.
        """
        mel = to_device(mel, self.generator.device)
        limit = self.longest_chunk
        size, largest = min(first_chunk, limit), min(chunk or first_chunk, limit)
        frames = mel.shape[2]
        start = 0
        while start < frames:
            end = min(start + size, frames)
            left, right = max(0, start - self.context), min(frames, end + self.context)
            audio = to_numpy(self.generator(mel=mel[:, :, left:right])["audio"])[0]
            yield audio[(start - left) * self.hop : (end - left) * self.hop]
            start, size = end, min(size * 2, largest)

"""Drives the HiFi-GAN generator, which takes nothing but the mel."""

from __future__ import annotations

from collections.abc import Mapping

from common.engines import Engine
from common.synthesis.vocoder import Vocoder
from common.weights.voices import ModelSource
from hifigan.config import receptive_field


class HifiganVocoder(Vocoder):
    def __init__(self, source: ModelSource, engines: Mapping[str, Engine]):
        super().__init__(source, engines, receptive_field(source.config))

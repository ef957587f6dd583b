"""Drives the HiFi-GAN generator, which takes nothing but the mel."""

from __future__ import annotations

from common.synthesis.stage_engines import StageEngines
from common.synthesis.vocoder import Vocoder
from common.weights.voices import ModelSource
from hifigan.config import HifiganConfig, receptive_field


class HifiganVocoder(Vocoder[HifiganConfig]):
    piece = 360  # fewer take more time for their seams, more for what caches do not hold

    def __init__(self, source: ModelSource, engines: StageEngines):
        super().__init__(source, engines, receptive_field(source.config))

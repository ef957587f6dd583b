"""WaveGlow whose noise has harmonics of the mel's pitch: flows find phases there instead of making them up.

A harmonic source as in neural source-filter models (Wang, Takaki and Yamagishi 2019, arXiv:1904.12088), as a
part of z: the flows and their stage are WaveGlow's own, and waveglow/noise.py says what the harmonics are.
"""

from __future__ import annotations

from torch import Tensor

from melforge.common.audio.pitch_network import PitchNetwork
from melforge.waveglow.config import WaveglowConfig
from melforge.waveglow.model import Waveglow


class SourcedWaveglow(Waveglow):
    """The flows, and the network that finds the pitch."""

    def __init__(self, config: WaveglowConfig, weight_norm: bool = True) -> None:
        super().__init__(config, weight_norm)
        self.pitch = PitchNetwork(config)

    def find_pitch(self, mel: Tensor, lengths: Tensor | None = None) -> tuple[Tensor]:
        """The stage "pitch": mel (B, n_mels, T) -> cycles a sample (B, T)."""
        return self.pitch.find(mel, lengths)


def make_network(config: WaveglowConfig, weight_norm: bool = True) -> Waveglow:
    """The network of a configuration."""
    return (SourcedWaveglow if config.source else Waveglow)(config, weight_norm)

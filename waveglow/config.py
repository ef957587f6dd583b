"""Sizes of a WaveGlow vocoder, under their published names; those of WN_config have the prefix `wn_`."""

from __future__ import annotations

from dataclasses import dataclass

from melforge.common.audio.pitch import check_pitch
from melforge.common.errors import InputError


@dataclass(frozen=True)
class WaveglowConfig:
    """The published network's hyper-parameters (defaults: the one with 256 channels).

    `n_group` audio samples are grouped into channels. Before every `n_early_every`-th flow but the first,
    `n_early_size` channels are output to z. `upsample_kernel_size` and `hop_length` are the transposed
    convolution from the mel's to the audio's rate; no published file states these two.

    Two options for small networks, which the published ones do not use: `upsample_groups` 80 upsamples each
    mel band separately (82 thousand weights instead of 6.6 million). `cond_channels` projects the grouped
    mel, of n_mel_channels * n_group channels, to fewer channels once for all coupling nets.

    A third one: with `source` the noise has harmonics of the mel's pitch (waveglow/source.py), whose limits
    are `shortest_period` and `longest_period` in samples.
    """

    n_mel_channels: int = 80
    n_flows: int = 12
    n_group: int = 8
    n_early_every: int = 4
    n_early_size: int = 2
    wn_layers: int = 8
    wn_kernel_size: int = 3
    wn_channels: int = 256
    upsample_kernel_size: int = 1024
    hop_length: int = 256
    upsample_groups: int = 1
    cond_channels: int = 0  # 0: no projection of the grouped mel
    source: bool = False
    pitch_channels: int = 64
    pitch_bins: int = 64
    shortest_period: int = 52
    longest_period: int = 276

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < (0 if name in ("cond_channels", "source") else 1):
                raise InputError(f"{name} must be positive, not {value}")
        if self.source:
            check_pitch(self)
            if self.hop_length % (2 * self.n_group):
                raise InputError(
                    f"source: hop_length {self.hop_length} must be a multiple of 2 * n_group {self.n_group}"
                )
        for name in ("n_group", "n_early_size"):
            if (size := getattr(self, name)) % 2:
                raise InputError(f"{name} must be even, not {size}: each flow halves its channels")
        if self.wn_kernel_size % 2 == 0:
            raise InputError(f"wn_kernel_size must be odd, not {self.wn_kernel_size}")
        if self.n_mel_channels % self.upsample_groups:
            raise InputError(
                f"upsample_groups {self.upsample_groups} must divide n_mel_channels {self.n_mel_channels}"
            )
        if self.upsample_kernel_size < self.hop_length:
            raise InputError(
                f"upsample_kernel_size {self.upsample_kernel_size} must cover hop_length {self.hop_length}"
            )
        if self.n_early_size * self.n_early_outputs >= self.n_group:
            raise InputError(
                f"{self.n_early_outputs} early outputs of {self.n_early_size} channels leave nothing of "
                f"n_group {self.n_group}"
            )

    @property
    def wn_cond_channels(self) -> int:
        """Channels of the coupling nets' conditioning."""
        return self.cond_channels or self.n_mel_channels * self.n_group

    @property
    def n_early_outputs(self) -> int:
        return (self.n_flows - 1) // self.n_early_every

    @property
    def n_remaining(self) -> int:
        """Channels that pass through every flow."""
        return self.n_group - self.n_early_outputs * self.n_early_size

    def is_early(self, flow: int) -> bool:
        """Whether channels are output before this flow (when generating: added after it)."""
        return flow > 0 and flow % self.n_early_every == 0

    def flow_channels(self, flow: int) -> int:
        return self.n_group - flow // self.n_early_every * self.n_early_size

    def noise_length(self, frames: int) -> int:
        """Steps of z for `frames` mel frames."""
        return frames * self.hop_length // self.n_group


def receptive_field(config: WaveglowConfig) -> int:
    """Mel frames on each side that the audio of one frame depends on.

    A chunk of mel and z with this much context on both sides (less only at the mel's ends, where the network
    pads with zeros) gives the same audio for its centre as the whole mel.
    """
    steps = config.noise_length(1)
    flow = (config.wn_kernel_size - 1) // 2 * (2**config.wn_layers - 1)  # steps on each side
    reach = config.n_flows * flow
    # The mel enters a coupling net after its first dilated convolution. A sample depends on its own frame and
    # on the earlier ones that the upsampling kernel, rounded up to whole hops, covers.
    reach_of_mel = reach - (config.wn_kernel_size - 1) // 2
    earlier = -(-config.upsample_kernel_size // config.hop_length) - 1
    return max(-(-reach // steps), -(-reach_of_mel // steps) + earlier, (steps - 1 + reach) // steps)


@dataclass(frozen=True)
class WaveglowSettings:
    """What a voice says beside the sizes."""

    denoising_strength: float = 0.0  # how much of the vocoder's hum is taken out
    sigma: float | None = None  # the spread of the noise; None: the published 0.9

"""The pitch of a mel, for vocoders with a harmonic source: its stage, and the phase that it adds up to."""

from __future__ import annotations

from typing import Protocol

from melforge.common.arrays import Array, as_float32, concatenate, is_numpy
from melforge.common.errors import InputError
from melforge.common.stages import Dim, Stage, TensorSpec

PITCH_REACH = 4  # frames on each side that the pitch of a frame depends on


class PitchConfig(Protocol):
    """Sizes of the network. The two limits of the pitch are in samples."""

    @property
    def n_mel_channels(self) -> int: ...
    @property
    def pitch_channels(self) -> int: ...
    @property
    def pitch_bins(self) -> int: ...
    @property
    def shortest_period(self) -> int: ...
    @property
    def longest_period(self) -> int: ...


def check_pitch(config: PitchConfig) -> None:
    """An InputError where no network has these sizes."""
    if not 2 < config.shortest_period < config.longest_period:
        raise InputError(
            f"shortest_period {config.shortest_period} and longest_period {config.longest_period} must be in "
            "order, and above 2 samples"
        )
    if config.pitch_bins < 2:
        raise InputError(f"pitch_bins {config.pitch_bins}: the two limits of the pitch need one each")


def pitch_stages(model: str, network: str, config: PitchConfig, batch: Dim, mel: Dim) -> tuple[Stage, Stage]:
    """The pitch of each frame, of whole mels and of padded ones."""
    mels = TensorSpec("mel", "float32", (batch, config.n_mel_channels, mel))
    found = TensorSpec("pitch", "float32", (batch, mel), "cycles a sample at the centre of each frame")
    # What is rounded off a pitch adds up in the phase, which counts to a hundredth of a cycle of the highest
    # harmonic.
    stage = Stage(model, "pitch", network, "find_pitch", (mels,), (found,), float32_layers=("*",), exact=True)
    return stage, stage.masked()


def source_of(pitch: Array, hop: int) -> Array:
    """Pitch at the frames' centres, cycles a sample [B, T] -> phase, less whole cycles, and pitch [B, 2, T].

    The phase begins with 0 and is summed in float64.
    """
    exact = pitch.astype("float64") if is_numpy(pitch) else pitch.double()
    steps = 0.5 * hop * (exact[:, 1:] + exact[:, :-1])
    phase = concatenate([0 * exact[:, :1], steps.cumsum(1)], 1)
    return concatenate([as_float32(one)[:, None] for one in (phase - phase // 1, pitch)], 1)

"""Sizes of a Jasper or QuartzNet recogniser, its features and labels.

NVIDIA's files list the blocks one by one; here each of a block's keys is a list over the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

from melforge.common.audio.contract import MelContract
from melforge.common.config.typed import require_sizes
from melforge.common.errors import InputError

ACTIVATIONS = ("relu", "hardtanh", "selu")
NORMALISATIONS = ("per_feature", "all_features")
LETTERS = " abcdefghijklmnopqrstuvwxyz'"
LOG_FLOOR = 1e-20  # what is added to the mel before its logarithm, as published
DEVIATION_FLOOR = 1e-5  # what is added to a deviation before the division
LONGEST_DELAY = 1.0  # seconds


class Block(NamedTuple):
    """`repeats` convolutions with batch norm and activation; residuals come before the last activation."""

    filters: int
    kernel_size: int
    repeats: int
    stride: int
    dilation: int
    dropout: float
    residual: bool
    residual_dense: bool
    separable: bool

    @property
    def padding(self) -> int:
        return self.kernel_size // 2 * self.dilation

    def length(self, steps: int) -> int:
        """Steps after one of its convolutions, of so many before it."""
        return (steps + 2 * self.padding - self.dilation * (self.kernel_size - 1) - 1) // self.stride + 1


@dataclass(frozen=True)
class JasperConfig:
    """The defaults are Jasper 10x5dr (Li and others 2019, arXiv:1904.03288) as NVIDIA trains it.

    A block's padding keeps the length but for its stride. A residual block adds a 1x1 convolution of its
    input; a dense one of the input of each earlier dense block too. A separable block's convolutions are
    depthwise ones, each followed by a 1x1 one (QuartzNet, arXiv:1910.10261). `use_conv_masks` zeroes what
    lies behind an item's end before every convolution: an item of a batch then equals the same item alone.
    `labels` are the characters in the order of the outputs; behind them comes CTC's blank.
    """

    # Features: lengths in samples, frequencies in Hz
    sampling_rate: int = 16000
    filter_length: int = 512
    hop_length: int = 160
    win_length: int = 320
    n_mel_channels: int = 64
    mel_fmin: float = 0.0
    mel_fmax: float | None = 8000.0
    preemphasis: float = 0.97
    dither: float = 1e-5  # times normal noise, added to the audio
    normalize: str = "per_feature"
    pad_align: int = 16  # frames are padded to a multiple of so many; 0: not at all

    # The network, one value for each block
    filters: tuple[int, ...] = (256, 256, 256, 384, 384, 512, 512, 640, 640, 768, 768, 896, 1024)
    kernel_sizes: tuple[int, ...] = (11, 11, 11, 13, 13, 17, 17, 21, 21, 25, 25, 29, 1)
    repeats: tuple[int, ...] = (1, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 1, 1)
    strides: tuple[int, ...] = (2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    dilations: tuple[int, ...] = (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1)
    dropouts: tuple[float, ...] = (0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.3, 0.3, 0.3, 0.3, 0.4, 0.4)
    residual: tuple[bool, ...] = (False, *(True,) * 10, False, False)
    residual_dense: tuple[bool, ...] = (False, *(True,) * 10, False, False)
    separable: tuple[bool, ...] = (False,) * 13
    activation: str = "relu"
    use_conv_masks: bool = True
    labels: str = LETTERS

    def __post_init__(self) -> None:
        require_sizes(self, may_be_zero=("pad_align",))
        lists = {f.name: len(getattr(self, f.name)) for f in fields(self) if f.type.startswith("tuple")}
        if len(set(lists.values())) > 1 or not self.filters:
            counts = ", ".join(f"{name} has {count}" for name, count in lists.items())
            raise InputError(f"the blocks' lists need one value for each block: {counts}")
        for name, known in (("activation", ACTIVATIONS), ("normalize", NORMALISATIONS)):
            if getattr(self, name) not in known:
                raise InputError(f"{name} must be {' or '.join(known)}, not {getattr(self, name)!r}")
        for block in self.blocks:
            if block.kernel_size % 2 == 0:
                raise InputError(f"kernel_sizes {block.kernel_size} must be odd, to keep the length")
            if block.stride > 1 and (block.dilation > 1 or block.residual or block.repeats > 1):
                raise InputError(
                    "strides above 1 are for blocks of one convolution without dilation and residual"
                )
            if not 0 <= block.dropout < 1:
                raise InputError(f"dropouts must be from 0 to below 1, not {block.dropout}")
            if block.residual_dense and not block.residual:
                raise InputError("residual_dense is for blocks with residual")
        if len(set(self.labels)) != len(self.labels):
            raise InputError(f"labels {self.labels!r} holds a character twice")
        if self.dither < 0 or not 0 <= self.preemphasis < 1:
            raise InputError(
                f"dither {self.dither} must not be negative, preemphasis {self.preemphasis} from 0 to below 1"
            )
        _ = self.mel  # refuses frequencies that are none

    @property
    def blocks(self) -> tuple[Block, ...]:
        lists = self.filters, self.kernel_sizes, self.repeats, self.strides, self.dilations
        more = self.dropouts, self.residual, self.residual_dense, self.separable
        return tuple(Block(*values) for values in zip(*lists, *more, strict=True))

    @property
    def mel(self) -> MelContract:
        """The mel spectrogram under the features, natural logarithm."""
        return MelContract(
            sampling_rate=self.sampling_rate,
            filter_length=self.filter_length,
            hop_length=self.hop_length,
            win_length=self.win_length,
            n_mel_channels=self.n_mel_channels,
            mel_fmin=self.mel_fmin,
            mel_fmax=self.mel_fmax,
            mel_clamp=LOG_FLOOR,
        )

    @property
    def blank(self) -> int:
        """The output that stands for no character."""
        return len(self.labels)

    @property
    def step_seconds(self) -> float:
        """Of audio that an output stands for."""
        stride = 1
        for block in self.blocks:
            stride *= block.stride
        return stride * self.hop_length / self.sampling_rate

    def frames(self, samples: int) -> int:
        """Frames of features that stand for so many samples; the frames behind them are padding."""
        return -(-samples // self.hop_length)

    def padded_frames(self, samples: int) -> int:
        """Frames of features that so many samples give, with their padding."""
        frames = samples // self.hop_length + 1
        return frames if not self.pad_align else -(-frames // self.pad_align) * self.pad_align

    def samples_within(self, frames: int) -> int:
        """The most samples that `padded_frames` gives so many frames or fewer."""
        align = max(1, self.pad_align)
        return frames // align * align * self.hop_length - 1

    def steps(self, frames: int) -> int:
        """Outputs for so many frames of features."""
        for stride in self.strides:  # apart from its stride, a block keeps the length
            frames = -(-frames // stride)
        return frames


def residual_inputs(config: JasperConfig) -> Iterator[tuple[int, ...]]:
    """For each block the channels of the inputs that it adds, oldest first."""
    channels = config.n_mel_channels
    dense: tuple[int, ...] = ()
    for block in config.blocks:
        if block.residual_dense:
            dense = (*dense, channels)
        yield () if not block.residual else dense if block.residual_dense else (channels,)
        channels = block.filters


@dataclass(frozen=True)
class JasperSettings:
    """What an ear says beside the sizes: by how many seconds its outputs come behind the sound."""

    delay: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.delay <= LONGEST_DELAY:
            raise InputError(f"delay must be from 0 to {LONGEST_DELAY:g} seconds, not {self.delay:g}")

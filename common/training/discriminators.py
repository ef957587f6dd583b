"""The judges a vocoder trains against: periods of the waveform, and spectrograms at several resolutions.

Each takes audio (B, 1, S) and returns its members' scores and their feature maps. Periods are the paper's
(arXiv:2010.05646), spectrograms UnivNet's (arXiv:2106.07889).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

LEAKY_SLOPE = 0.1


class _ConvJudge(nn.Module, ABC):
    """Two-dimensional convolutions over an image of the audio; the last one scores."""

    def __init__(self, convs: list[nn.Conv2d], score: nn.Conv2d) -> None:
        super().__init__()
        self.convs = nn.ModuleList(weight_norm(conv) for conv in convs)
        self.score = weight_norm(score)

    @abstractmethod
    def image(self, audio: Tensor) -> Tensor:
        """audio (B, 1, S) -> (B, 1, height, width)."""

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = self.image(audio)
        features = []
        for index, conv in enumerate(self.convs):
            x = F.leaky_relu(conv(x), LEAKY_SLOPE)
            if index == 0:  # from here on in the layout of the tensor cores, not converted for every layer
                x = x.contiguous(memory_format=torch.channels_last)
            features.append(x)
        features.append(self.score(x))
        return features[-1].flatten(1), features


class PeriodDiscriminator(_ConvJudge):
    """Looks at every `period`-th sample: audio folded to a width of `period`, strided along the height."""

    def __init__(self, period: int, channels: int) -> None:
        widths = [1, channels, 4 * channels, 16 * channels, 32 * channels]
        convs = [nn.Conv2d(narrow, wide, (5, 1), (3, 1), padding=(2, 0)) for narrow, wide in pairwise(widths)]
        convs.append(nn.Conv2d(widths[-1], widths[-1], (5, 1), padding=(2, 0)))
        super().__init__(convs, nn.Conv2d(widths[-1], 1, (3, 1), padding=(1, 0)))
        self.period = period

    def image(self, audio: Tensor) -> Tensor:
        missing = -audio.shape[2] % self.period
        return F.pad(audio, (0, missing), mode="reflect").unflatten(2, (-1, self.period))


class SpectrogramDiscriminator(_ConvJudge):
    """Looks at the magnitude spectrogram of windows of so many samples, a quarter of a window apart."""

    def __init__(self, window: int, channels: int) -> None:
        convs = [nn.Conv2d(1, channels, (3, 9), padding=(1, 4))]
        convs += [nn.Conv2d(channels, channels, (3, 9), (1, 2), padding=(1, 4)) for _ in range(3)]
        convs.append(nn.Conv2d(channels, channels, 3, padding=1))
        super().__init__(convs, nn.Conv2d(channels, 1, 3, padding=1))
        self.register_buffer("window", torch.hann_window(window), persistent=False)

    def image(self, audio: Tensor) -> Tensor:
        size, hop = len(self.window), len(self.window) // 4
        padding = (size - hop) // 2
        with torch.autocast(audio.device.type, enabled=False):
            padded = F.pad(audio.float(), (padding, padding), mode="reflect")[:, 0]
            spectrum = torch.stft(padded, size, hop, window=self.window, center=False, return_complex=True)
            # Silence must not give the square root an infinite slope.
            return (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt()[:, None]


class _Panel(nn.Module):
    """Several judges of the same audio (B, 1, S): scores and feature maps, one entry a judge."""

    def __init__(self, judges: Iterable[_ConvJudge]) -> None:
        super().__init__()
        self.judges = nn.ModuleList(judges)

    def forward(self, audio: Tensor) -> tuple[tuple[Tensor, ...], tuple[list[Tensor], ...]]:
        scores, features = zip(*(judge(audio) for judge in self.judges), strict=True)
        return scores, features


class MultiPeriodDiscriminator(_Panel):
    """The paper's width is 32 `channels`."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__(PeriodDiscriminator(period, channels) for period in (2, 3, 5, 7, 11))


class MultiResolutionDiscriminator(_Panel):
    def __init__(self, channels: int = 32) -> None:
        super().__init__(SpectrogramDiscriminator(window, channels) for window in (512, 1024, 2048))

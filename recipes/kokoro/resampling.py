"""Sampling rates changed on a GPU, by a windowed sinc in as many phases as the ratio has."""

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from melforge.common.verify.stages import exact_products

HALF_WIDTH = 96  # samples of the slower rate on each side of the filter's middle
PASSED = 0.955  # share of the slower rate's Nyquist frequency in the middle of the slope
BETA = 10.0  # of the Kaiser window: about 100 dB


@lru_cache(maxsize=16)
def filters(up: int, down: int) -> tuple[Tensor, int]:
    """One filter for each of `up` output samples (up, 1, taps), and the samples they begin before them."""
    narrow = min(1.0, up / down)  # of the input's Nyquist frequency
    reach = math.ceil(HALF_WIDTH / narrow)
    at = torch.arange(-reach, down + reach + 1, dtype=torch.float64)
    distance = at[None] - torch.arange(up, dtype=torch.float64)[:, None] * down / up
    inside = (1 - (distance / reach).square()).clamp(min=0)
    window = torch.special.i0(BETA * inside.sqrt()) / torch.special.i0(
        torch.tensor(BETA, dtype=torch.float64)
    )
    cut = PASSED * narrow
    taps = cut * torch.sinc(cut * distance) * torch.where(distance.abs() < reach, window, 0.0)
    return taps.float()[:, None], reach


def resample(audio: Tensor, source: int, target: int) -> Tensor:
    """audio (B, S) of rate `source` -> (B, ceil(S * target / source)) of rate `target`."""
    divisor = math.gcd(source, target)
    up, down = target // divisor, source // divisor
    if up == down:
        return audio
    taps, reach = filters(up, down)
    blocks = -(-audio.size(1) // down)
    padded = F.pad(audio, (reach, blocks * down - audio.size(1) + reach + 1))
    with exact_products():  # a GPU would round what cuDNN takes to ten bits
        made = F.conv1d(padded[:, None], taps.to(audio.device), stride=down)
    return made.transpose(1, 2).flatten(1)[:, : -(-audio.size(1) * up // down)]

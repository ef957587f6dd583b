"""Makes the free spectrum of a trained HiFi-GAN with a harmonic source louder or quieter, by frequency:
`python -m recipes.hazel.equalise WEIGHTS --gain 0:-3 2205:-0.6 11025:1 -o equalised.safetensors`.

The free spectrum (`hifigan/source_filter.py`) is what is not voice: breath, friction, and the roughness of
what the network does not know. Its level is a bias of the last layer; the harmonic part stays as it is.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("recipes.hazel.equalise")

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from melforge.common.cli.options import finite
from melforge.common.cli.parser import Parser
from melforge.common.errors import InputError
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import rewrite_weights
from melforge.hifigan.source_filter import MAPS

BIAS = "conv_post.bias"
FREE = 2  # which of the last layer's maps has the free spectrum's log magnitude
DECIBEL = math.log(10) / 20

Point = tuple[float, float]


def point(text: str) -> Point:
    """`2205:-0.6` -> 2205 Hz, -0.6 dB."""
    frequency, colon, gain = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"must be HZ:DECIBELS, such as 2205:-0.6, not {text!r}")
    return finite(frequency), finite(gain)


def equalised(bias: np.ndarray, points: Sequence[Point], sampling_rate: int) -> np.ndarray:
    """The last layer's bias [4 * bins] with these gains, and those on straight lines between them."""
    maps = bias.astype(np.float32).reshape(MAPS, -1)
    frequencies = np.linspace(0, sampling_rate / 2, maps.shape[1])
    hertz, decibels = zip(*sorted(points), strict=True)
    maps[FREE] += DECIBEL * np.interp(frequencies, hertz, decibels)
    return maps.reshape(-1).astype(bias.dtype)


def main() -> None:
    parser = Parser(prog="python -m recipes.hazel.equalise", description=__doc__)
    parser.add_argument("weights", type=Path, help="weights.safetensors of a training run")
    what = "points between which, in Hz and dB, the change is linear; beyond them it is constant"
    parser.add_argument("--gain", type=point, nargs="+", required=True, metavar="HZ:DB", help=what)
    parser.add_argument("-o", "--output", type=Path, required=True, help="file to write")
    args = parser.parse_args()
    source = read_checkpoint(args.weights, "hifigan")
    if not source.config.source:
        raise InputError(f"{args.weights} has no harmonic source, and so no free spectrum beside it")
    rate = source.mel.sampling_rate
    rewrite_weights(
        args.weights, args.output, lambda state: {**state, BIAS: equalised(state[BIAS], args.gain, rate)}
    )

"""python -m trt_plugins.hifigan.benchmark: times the kernels and PyTorch's half precision on this GPU."""

from __future__ import annotations

from pathlib import Path

from common import cli
from common.bench.random_weights import random_source
from hifigan.config import HifiganConfig
from trt_plugins.hifigan.engine import Generator
from trt_plugins.vocoder_benchmark import COLUMNS, Timed, make_parser, parse


def operations(config: HifiganConfig, frames: int) -> float:
    """Floating-point operations of the published network for an item: its layers as they are."""
    channels, steps = config.upsample_initial_channel, frames
    count = 7 * config.n_mel_channels * channels * steps
    convolutions = 2 if config.resblock == "1" else 1
    taps = convolutions * sum(
        kernel * len(dilations)
        for kernel, dilations in zip(
            config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True
        )
    )
    for rate, kernel in zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True):
        count += kernel * channels * (channels // 2) * steps
        channels, steps = channels // 2, steps * rate
        count += taps * channels**2 * steps
    return 2.0 * (count + 7 * channels * steps)


def main() -> int:
    parser = make_parser("hifigan", __doc__)
    parser.add_argument(
        "--chunks",
        type=int,
        nargs="*",
        default=[32, 50, 100, 200],
        help="mel frames of single items beside these (default: 32 50 100 200)",
    )
    args = parse(parser)
    timed = Timed(random_source("hifigan", Path()), Generator, operations, digits=3)
    print(timed.title(args.frames))
    shapes = [(batch, args.frames) for batch in args.batch] + [(1, frames) for frames in args.chunks]
    rows = [
        (str(b), str(frames), *row) for b, frames in shapes for row in timed.measure(b, frames, args.runs)
    ]
    cli.print_table(("batch", "frames", *COLUMNS), rows)
    return 0


if __name__ == "__main__":
    cli.run(main)

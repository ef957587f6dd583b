"""python -m trt_plugins.waveglow.benchmark: times the kernels and PyTorch's half precision on this GPU."""

from __future__ import annotations

from pathlib import Path

from common import cli
from common.bench.random_weights import random_source
from trt_plugins.vocoder_benchmark import COLUMNS, Timed, make_parser, parse
from trt_plugins.waveglow.engine import Generator
from waveglow.config import WaveglowConfig


def operations(config: WaveglowConfig, frames: int) -> float:
    """Floating-point operations of the published network for an item: its layers as they are, unfolded."""
    channels, steps = config.wn_channels, config.noise_length(frames)
    layer = 2 * channels * (config.wn_kernel_size * channels + config.wn_cond_channels)
    res_skip = (2 * config.wn_layers - 1) * channels * channels
    flows = 0
    for flow in range(config.n_flows):
        size = config.flow_channels(flow)
        flows += config.wn_layers * layer + res_skip + size // 2 * channels + channels * size + size * size
    upsampling = config.n_mel_channels**2 // config.upsample_groups * config.upsample_kernel_size * frames
    return 2.0 * (flows * steps + upsampling)


def main() -> int:
    parser = make_parser("waveglow", __doc__)
    parser.add_argument("--channels", type=int, default=256, help="WN channels (default: 256)")
    args = parse(parser)
    source = random_source("waveglow", Path(), {"wn_channels": args.channels})
    timed = Timed(source, Generator, operations, digits=2)
    print(timed.title(args.frames))
    rows = [
        (str(batch), *row) for batch in args.batch for row in timed.measure(batch, args.frames, args.runs)
    ]
    cli.print_table(("batch", *COLUMNS), rows)
    return 0


if __name__ == "__main__":
    cli.run(main)

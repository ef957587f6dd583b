"""python -m trt_plugins.hifigan.benchmark: times the kernels and PyTorch's half precision on this GPU."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch

from common import cli
from common.arrays import to_device
from common.audio import MelContract
from common.engines.torch_engine import build_network
from common.seeded import random_source
from common.voices import ModelSource
from hifigan.config import HifiganConfig
from hifigan.examples import example_inputs
from hifigan.stages import stages
from trt_plugins.hifigan.engine import Generator
from trt_plugins.timing import time_calls

RUNS = 20
SAMPLING_RATE = MelContract().sampling_rate
HEADINGS = ("batch", "frames", "what", "first s", "median ms", "p95 ms", "x real time", "TFLOP/s", "error")


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


def measure(source: ModelSource, batch: int, frames: int, runs: int) -> list[tuple[str, ...]]:
    """The rows of one shape: the kernels and the network in half precision, against float32."""
    stage = stages(source.config)[0]
    inputs = example_inputs(stage, source.config, {"batch": batch, "mel": frames}, np.random.default_rng(0))
    mel = to_device(inputs["mel"], "cuda")
    kernels = Generator(stage, source)
    network = build_network(stage, source).cuda()
    rows = []
    with torch.inference_mode():
        wanted = network.generate(mel)[0]
        network.half()
        half = mel.half()
        ways = {
            "kernels": lambda: kernels(mel=mel)["audio"],
            "PyTorch, float16": lambda: network.generate(half)[0],
        }
        for name, call in ways.items():
            first, median, p95 = time_calls(call, runs)
            error = float((call().float() - wanted).abs().max() / wanted.abs().max())
            seconds = batch * frames * source.config.hop_length / SAMPLING_RATE
            rate = batch * operations(source.config, frames) / median / 1e9
            times = (f"{first:.2f}", f"{median:.3f}", f"{p95:.3f}", f"{seconds / median * 1000:.0f}")
            rows.append((str(batch), str(frames), name, *times, f"{rate:.0f}", f"{error:.1e}"))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="trt_plugins.hifigan.benchmark", description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 8], help="items (default: 1 4 8)")
    parser.add_argument("--frames", type=int, default=640, help="mel frames of an item (default: 640)")
    parser.add_argument(
        "--chunks",
        type=int,
        nargs="*",
        default=[32, 50, 100, 200],
        help="mel frames of single items beside these (default: 32 50 100 200)",
    )
    parser.add_argument("--runs", type=int, default=RUNS, help=f"timed calls (default: {RUNS})")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise ValueError("PyTorch sees no GPU here")
    for setting in (torch.backends.cudnn, torch.backends.cuda.matmul):
        setting.allow_tf32 = False
    with tempfile.TemporaryDirectory() as folder:
        source = random_source("hifigan", Path(folder))
    config = source.config
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {args.frames} frames,", end=" ")
    print(f"{operations(config, args.frames) / 1e12:.3f} TFLOP an item; errors are of the largest value")
    shapes = [(batch, args.frames) for batch in args.batch] + [(1, frames) for frames in args.chunks]
    rows = [row for batch, frames in shapes for row in measure(source, batch, frames, args.runs)]
    cli.print_table(HEADINGS, rows)
    return 0


if __name__ == "__main__":
    cli.run(main)

"""What the benchmarks of HiFi-GAN's and WaveGlow's kernels share: their options, and what they time.

The transformers' have these options too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from common.arrays import to_device
from common.engines.torch_engine import build_network
from common.registry import get_model
from common.weights.voices import ModelSource
from trt_plugins.graphs import ShapedGenerator
from trt_plugins.timing import time_calls

RUNS = 20
COLUMNS = ("what", "first s", "median ms", "p95 ms", "x real time", "TFLOP/s", "error")


def make_parser(model: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"trt_plugins.{model}.benchmark", description=description)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 8], help="items (default: 1 4 8)")
    parser.add_argument("--frames", type=int, default=640, help="mel frames of an item (default: 640)")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line; from then on PyTorch's float32 is all of it."""
    parser.add_argument("--runs", type=int, default=RUNS, help=f"timed calls (default: {RUNS})")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise ValueError("PyTorch sees no GPU here")
    for setting in (torch.backends.cudnn, torch.backends.cuda.matmul):
        setting.allow_tf32 = False
    return args


@dataclass(frozen=True)
class Timed:
    """A network, its kernels, and what there is to compute."""

    source: ModelSource
    engine: type[ShapedGenerator]
    operations: Callable[[Any, int], float]  # of an item of so many frames, by the config
    digits: int  # behind the point, of milliseconds and TFLOP

    def title(self, frames: int) -> str:
        work = self.operations(self.source.config, frames) / 1e12
        return (
            f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {frames} frames, "
            f"{work:.{self.digits}f} TFLOP an item; errors are of the largest value"
        )

    def measure(self, batch: int, frames: int, runs: int) -> list[tuple[str, ...]]:
        """The rows of one shape: the kernels and the network in half precision, against float32."""
        source, config, model = self.source, self.source.config, get_model(self.source.model)
        stage = model.module("stages").stages(config)[0]
        sizes = {"batch": batch, "mel": frames}
        drawn = model.module("examples").example_inputs(stage, config, sizes, np.random.default_rng(0))
        inputs = {name: to_device(value, "cuda") for name, value in drawn.items()}
        kernels = self.engine(stage, source)
        network = build_network(stage, source).cuda()
        rows = []
        with torch.inference_mode():
            wanted = network.generate(**inputs)[0]
            network.half()
            half = {name: value.half() for name, value in inputs.items()}
            ways = {
                "kernels": lambda: kernels(**inputs)["audio"],
                "PyTorch, float16": lambda: network.generate(**half)[0],
            }
            for name, call in ways.items():
                first, median, p95 = time_calls(call, runs)
                error = float((call().float() - wanted).abs().max() / wanted.abs().max())
                seconds = batch * frames * config.hop_length / source.mel.sampling_rate
                rate = batch * self.operations(config, frames) / median / 1e9
                times = (f"{median:.{self.digits}f}", f"{p95:.{self.digits}f}")
                speed = (f"{seconds / median * 1000:.0f}", f"{rate:.0f}")
                rows.append((name, f"{first:.2f}", *times, *speed, f"{error:.1e}"))
        return rows

"""python -m trt_plugins.transformer.benchmark: times the kernels and PyTorch's half precision on this GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common import cli
from common.arrays import to_device
from common.bench.random_weights import random_source
from common.bench.torch_modes import in_mode
from common.engines import KERNELS, make_engine
from common.engines.captured import WARM_UPS, record
from common.registry import get_model
from common.stages import Stage
from common.verify import SMALLEST_SCALE
from common.voices import ModelSource
from trt_plugins.timing import time_calls
from trt_plugins.vocoder_benchmark import make_parser, parse

MODELS = ("fastpitch", "fastspeech")
CALLS = 5  # in one graph, the launch of which takes a part of what one call takes
HEADINGS = ("stage", "batch", "what", "median us", "p95 us", "error")


def time_graph(run: Callable[[], dict[str, Tensor]], runs: int) -> tuple[float, float, dict[str, Tensor]]:
    """Median and 95th percentile in microseconds a call, of `runs` CUDA graphs, and what a call gives."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.inference_mode():
        for _ in range(WARM_UPS):
            run()
        replay, outputs = record(lambda: [run() for _ in range(CALLS)][-1], stream)
        _, median, p95 = time_calls(replay, runs)
        return median / CALLS * 1000, p95 / CALLS * 1000, {n: out.clone() for n, out in outputs.items()}


def measure(
    source: ModelSource, stage: Stage, batches: list[int], text: int, mel: int, runs: int
) -> Iterator[tuple[str, ...]]:
    """The rows of a stage: the kernels and the network in half precision, against float32."""
    examples = get_model(source.model).module("examples")
    network, kernels = (make_engine(stage, source, backend, "cuda") for backend in ("torch", KERNELS))
    halved = in_mode(make_engine(stage, replace(source, networks={}), "torch", "cuda"), None, half=True)
    alone = kernels.alone()
    for batch in batches:
        sizes = {"batch": batch, "text": text, "mel": mel}
        drawn = examples.example_inputs(stage, source.config, sizes, np.random.default_rng(0))
        inputs = {name: to_device(value, "cuda") for name, value in drawn.items()}
        wanted = network(**inputs)
        ways = {"kernels": partial(alone, inputs), "PyTorch, float16": partial(halved, **inputs)}
        for name, run in ways.items():
            median, p95, found = time_graph(run, runs)
            error = max(
                float((found[output] - value).abs().max() / value.abs().max().clamp(min=SMALLEST_SCALE))
                for output, value in wanted.items()
            )
            yield stage.full_name, str(batch), name, f"{median:.0f}", f"{p95:.0f}", f"{error:.1e}"


def main() -> int:
    parser = make_parser("transformer", __doc__)
    parser.add_argument("--symbols", type=int, default=128, help="symbols of an item (default: 128)")
    parser.add_argument(
        "--model", choices=MODELS, nargs="+", default=MODELS, help=f"whose (default: {' '.join(MODELS)})"
    )
    args = parse(parser)
    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {args.symbols} symbols, "
        f"{args.frames} frames; all in CUDA graphs; errors are of the largest value"
    )
    rows = []
    for model in args.model:
        source, module = random_source(model, Path()), get_model(model).module("stages")
        for stage in module.stages(source.config):
            if stage.name in module.KERNELS:
                rows += measure(source, stage, args.batch, args.symbols, args.frames, args.runs)
    cli.print_table(HEADINGS, rows)
    return 0


if __name__ == "__main__":
    cli.run(main)

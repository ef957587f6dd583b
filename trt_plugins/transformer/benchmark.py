"""python -m trt_plugins.transformer.benchmark: times the kernels and PyTorch's half precision on this GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common.arrays import to_device
from common.bench.torch_modes import in_mode
from common.cli import run
from common.engines import make_engine
from common.engines.cuda_graphs import WARM_UPS, record
from common.export.examples import examples_of
from common.seeded import random_source
from common.stages import Stage, plan_of
from common.stages.choose import KERNELS
from common.verify.compare import SMALLEST_SCALE
from common.weights.voices import ModelSource
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
    examples = examples_of(source.model)
    network, kernels = (make_engine(stage, source, backend, "cuda") for backend in ("torch", KERNELS))
    halved = in_mode(make_engine(stage, replace(source, networks={}), "torch", "cuda"), None, half=True)
    alone = kernels.capturable()
    for batch in batches:
        sizes = {"batch": batch, "text": text, "mel": mel}
        drawn = examples.example_inputs(stage, source.config, sizes, np.random.default_rng(0))
        inputs = {name: to_device(value, "cuda") for name, value in drawn.items()}
        wanted = network(**inputs)
        ways = {"kernels": partial(alone, inputs), "PyTorch, float16": partial(halved, **inputs)}
        for name, way in ways.items():
            median, p95, found = time_graph(way, runs)
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
        source, plan = random_source(model, Path()), plan_of(model)
        for stage in plan.stages(source.config):
            if stage.name in plan.kernels:
                rows += measure(source, stage, args.batch, args.symbols, args.frames, args.runs)
    run.print_table(HEADINGS, rows)
    return 0


if __name__ == "__main__":
    run.run(main)

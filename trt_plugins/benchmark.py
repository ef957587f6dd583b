"""python -m melforge.trt_plugins.benchmark NAME: times kernels, and PyTorch beside them, on this GPU."""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.trt_plugins.benchmark")

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from melforge.common.bench.models import example_inputs
from melforge.common.bench.random_weights import random_source
from melforge.common.bench.timer import elapsed, mark, summary, timed
from melforge.common.bench.torch_modes import in_mode
from melforge.common.cli import options
from melforge.common.cli.run import print_table
from melforge.common.engines import as_capturable
from melforge.common.engines.backends import make_engine
from melforge.common.engines.cuda_graphs import record
from melforge.common.errors import InputError
from melforge.common.stages import plan_of
from melforge.common.stages.choose import KERNELS
from melforge.common.weights.voices import load_voice
from melforge.fastspeech.config import FastSpeechConfig
from melforge.fastspeech.operations import DECOMPOSED
from melforge.trt_plugins.operations import KERNELS as OPERATIONS
from melforge.trt_plugins.operations import KernelOperation
from melforge.trt_plugins.tacotron2_decoder.engine import DecoderLoop, steps_made

WARM_UP = 5
SMALLEST_SCALE = 0.05  # of a tensor: almost zero needs no more digits than that
# Batch, symbols and frames of single operations; the channels are the published network's.
SIZES = ((1, 128, 640), (8, 128, 640), (16, 512, 2048))
OPERATION_CALLS = 20  # that are timed together: one is shorter than what the GPU's clock can tell
STAGE_CALLS = 5  # in one graph, the launch of which takes a part of what one call takes
CHUNKS = (32, 50, 100, 200)  # mel frames of a stream's chunks, of vocoders
# By name: what is timed in half precision, and the models whose stages these are.
BENCHMARKS: dict[str, tuple[str, ...]] = {
    "operations": (),  # the plugins' kernels and PyTorch's decompositions
    "hifigan": ("hifigan",),
    "waveglow": ("waveglow",),
    "transformer": ("fastpitch", "fastspeech"),  # all in CUDA graphs
    "tacotron2_decoder": (),  # the launch of its kernel alone, and a driver's call
}
HEADINGS = ("what", "sizes", "how", "first s", "median us", "p95 us", "rate", "x real time", "error")

Rows = Iterator[tuple[str, ...]]


def times(seconds: Sequence[float]) -> tuple[float, float]:
    """Median and 95th percentile, in microseconds."""
    found = summary(seconds)
    return found["p50"] * 1e6, found["p95"] * 1e6


def time_together(
    call: Callable[[], Any], calls: int, runs: int, graph: bool = True, queued: bool = False
) -> tuple[float, float, Any]:
    """Median and 95th percentile in microseconds a call, of `runs` groups of calls, and a call's output.

    A group is a CUDA graph, or launched call by call. With `queued` it does not wait for the group before it,
    and kernels may overlap.
    """

    def group() -> Any:
        for _ in range(calls - 1):
            call()
        return call()

    run: Callable[[], Any] = group
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.inference_mode():
        output = group()
        if graph:
            run, output = record(group, stream, in_order=not queued)
        median, p95 = times(timed(run, runs, "cuda", warm_up=WARM_UP, events=True, queued=queued))
    return median / calls, p95 / calls, output


def on_current_stream(launch: Callable[[int], None]) -> None:
    launch(torch.cuda.current_stream().cuda_stream)


def operation_rows(args: argparse.Namespace) -> Rows:
    """`repeat` and `add_pos_enc`, each in every way that it can be launched.

    TB/s: all inputs and the result, once, by the time; small ones lie in the GPU's cache.
    """
    channels = FastSpeechConfig().d_model
    for dtype, (batch, symbols, frames) in itertools.product((torch.float32, torch.float16), SIZES):
        x = torch.randn(batch, symbols, channels, device="cuda").to(dtype)
        counts = torch.full((batch, symbols), frames // symbols, device="cuda")
        positions, lengths = torch.arange(frames, device="cuda"), counts.sum(1)
        table = torch.randn(frames + 1, channels, device="cuda").to(dtype)
        out, placed = (torch.empty(batch, frames, channels, device="cuda", dtype=dtype) for _ in range(2))
        for name, given in (
            ("repeat", (x, counts, positions, out)),
            ("add_pos_enc", (out, lengths, table, placed)),
        ):
            *inputs, result = given
            own, decomposed = getattr(OPERATIONS, name), getattr(DECOMPOSED, name)
            assert isinstance(own, KernelOperation)
            bound = partial(on_current_stream, own.bind(*given))
            bound()
            if not torch.equal(result, decomposed(*inputs)):
                raise RuntimeError(f"{name} differs from its decomposition")
            ways = {
                "PyTorch's decomposition": partial(decomposed, *inputs),
                "kernel, as an operation": partial(own, *inputs),
                "kernel, bound": bound,
            }
            moved = sum(tensor.nbytes for tensor in given)
            for way, graph in itertools.product(ways, (False, True)):
                median, p95, _ = time_together(ways[way], OPERATION_CALLS, args.runs, graph, queued=True)
                speed = f"{moved / median / 1e6:.2f} TB/s" if graph else ""
                sizes = f"{str(dtype)[6:]} {batch}, {symbols}, {frames}"
                yield name, sizes, way + ", graph" * graph, "", f"{median:.1f}", f"{p95:.1f}", speed, "", ""


def stage_rows(model: str, args: argparse.Namespace) -> Rows:
    """A model's kernels and its network in half precision, against float32."""
    shapes = [(batch, args.frames) for batch in args.batch]
    vocoder = args.name != "transformer"
    shapes += [(1, frames) for frames in CHUNKS] if vocoder else []
    source = random_source(model, sizes={"wn_channels": args.channels} if model == "waveglow" else None)
    plan, calls = plan_of(model), 1 if vocoder else STAGE_CALLS
    for stage in plan.stages(source.config):
        if stage.name not in plan.kernels or stage.name.startswith("masked_"):
            continue
        network, kernels = (make_engine(stage, source, backend, "cuda") for backend in ("torch", KERNELS))
        halved = in_mode(make_engine(stage, replace(source, networks={}), "torch", "cuda"), None, half=True)
        for batch, frames in shapes:
            given = {"batch": batch, "text": args.symbols, "mel": frames}
            inputs = example_inputs(source, stage, given, "cuda")
            audio = batch * frames * source.mel.hop_length / source.mel.sampling_rate
            with FlopCounterMode(display=False) as counter:
                wanted = network(**inputs)
            flops = counter.get_total_flops()
            ways = {
                "kernels": partial(kernels, **inputs)
                if vocoder
                else partial(as_capturable(kernels).capturable(), inputs),
                "PyTorch, float16": partial(halved, **inputs),
            }
            for way, call in ways.items():
                (first,) = timed(call, 1, "cuda")
                median, p95, found = time_together(call, calls, args.runs, graph=not vocoder)
                error = max(largest_error(found[name], value) for name, value in wanted.items())
                spent = f"{first:.2f}", f"{median:.0f}", f"{p95:.0f}", f"{flops / median / 1e6:.0f} TFLOP/s"
                sizes = f"{batch}, {args.symbols}, {frames}"
                yield stage.full_name, sizes, way, *spent, f"{audio / median * 1e6:.0f}", f"{error:.1e}"


def largest_error(found: Tensor, wanted: Tensor) -> float:
    """Relative to the largest value."""
    return float((found.float() - wanted).abs().max() / wanted.abs().max().clamp(min=SMALLEST_SCALE))


def decoder_rows(args: argparse.Namespace) -> Rows:
    """Tacotron 2's decoder: its launch alone, and a driver's call, with products of the memory and copies."""
    sources = {"published": random_source("tacotron2"), "hazel": load_voice("hazel").source("tacotron2")}
    batches: list[int] = args.batch
    for name, batch in itertools.product(sources, batches):
        source, config, symbols = sources[name], sources[name].config, args.symbols
        (stage,) = (one for one in plan_of("tacotron2").stages(config) if one.name == "decoder_loop")
        engine = DecoderLoop(stage, source, "cuda")
        torch.manual_seed(0)
        inputs = {
            "memory": torch.rand(batch, symbols, config.encoder_embedding_dim, device="cuda") * 2 - 1,
            "processed_memory": torch.randn(batch, symbols, config.attention_dim, device="cuda") / 2,
            "lengths": torch.full((batch,), symbols, device="cuda"),
            "prenet_noise": torch.rand(args.steps, 2, batch, config.prenet_dim, device="cuda"),
            "prenet_dropout": torch.full((1,), 0.5, device="cuda"),
            "gate_threshold": torch.ones(1, device="cuda"),  # which no gate passes: all steps are made
        }
        with torch.inference_mode():
            launches = [launch_time(engine, inputs) for _ in range(WARM_UP + args.runs)][WARM_UP:]
            called = timed(partial(engine, **inputs), args.runs, "cuda", warm_up=WARM_UP)
        for way, (median, p95) in {"launch alone": times(launches), "call": times(called)}.items():
            rate = f"{median / args.steps:.3f} us a step"
            sizes = f"{batch}, {symbols}, {args.steps} steps"
            yield f"decoder, {name}", sizes, way, "", f"{median:.0f}", f"{p95:.0f}", rate, "", ""


def launch_time(engine: DecoderLoop, inputs: dict[str, Tensor]) -> float:
    """Seconds of the launch alone."""
    launch, made = engine.prepare(**inputs)
    start = mark("cuda")
    on_current_stream(launch)
    end = mark("cuda")
    assert steps_made(made.status) == len(inputs["prenet_noise"])
    return elapsed(start, end)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m melforge.trt_plugins.benchmark", description=__doc__)
    parser.add_argument("name", choices=BENCHMARKS, metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    models = BENCHMARKS["transformer"]
    text = "of the transformer's stages (default: both)"
    parser.add_argument("--model", nargs="+", choices=models, default=models, help=text)
    for option, default, text in (
        ("runs", 20, "timed runs"),
        ("frames", 640, "mel frames of an item"),
        ("symbols", 128, "symbols of an item"),
        ("steps", 600, "decoder steps"),
        ("channels", 256, "WaveGlow's WN channels"),
    ):
        how = {"type": options.positive, "default": default, "metavar": "N"}
        parser.add_argument(f"--{option}", help=f"{text} (default: {default})", **how)
    text = "items, once for each number (default: 1 4 8)"
    parser.add_argument(
        "--batch", nargs="+", type=options.positive, default=[1, 4, 8], metavar="N", help=text
    )
    return parser


def main() -> int:
    args = make_parser().parse_args()
    if not torch.cuda.is_available():
        raise InputError("PyTorch sees no GPU here")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {args.runs} runs", flush=True)
    if args.name == "operations":
        with torch.inference_mode():
            rows = list(operation_rows(args))
    else:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        models = args.model if args.name == "transformer" else BENCHMARKS[args.name]
        rows = [row for model in models for row in stage_rows(model, args)] or list(decoder_rows(args))
    print_table(HEADINGS, rows)
    return 0

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

from melforge.common.bench.flops import count_flops
from melforge.common.bench.models import example_inputs
from melforge.common.bench.random_weights import random_source
from melforge.common.bench.timer import elapsed, mark, sizes_of, summary, timed
from melforge.common.bench.torch_modes import in_mode
from melforge.common.cli import options
from melforge.common.cli.run import print_table
from melforge.common.engines.backends import make_engine
from melforge.common.engines.cuda_graphs import record
from melforge.common.errors import InputError
from melforge.common.stages import Stage, plan_of
from melforge.common.stages.choose import KERNELS
from melforge.common.weights.voices import ModelSource, load_voice
from melforge.fastspeech.config import FastSpeechConfig
from melforge.fastspeech.operations import DECOMPOSED
from melforge.trt_plugins.operations import KERNELS as OPERATIONS
from melforge.trt_plugins.operations import KernelOperation
from melforge.trt_plugins.tacotron2_decoder.engine import DecoderLoop, steps_made

WARM_UP = 5
BATCHES = [1, 4, 8]
SMALLEST_SCALE = 0.05  # of a tensor: almost zero needs no more digits than that
# Batch, symbols and frames of single operations; the channels are the published network's.
SIZES = ((1, 128, 640), (8, 128, 640), (16, 512, 2048))
OPERATION_CALLS = 20  # that are timed together: one is shorter than what the GPU's clock can tell
STAGE_CALLS = 5  # in one graph, the launch of which takes a part of what one call takes

Rows = Iterator[tuple[str, ...]]


def times(seconds: Sequence[float]) -> list[float]:
    """Median and 95th percentile, in milliseconds."""
    return [summary(seconds)[key] * 1e3 for key in ("p50", "p95")]


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
    return median / calls * 1e3, p95 / calls * 1e3, output


def on_current_stream(launch: Callable[[int], None]) -> None:
    launch(torch.cuda.current_stream().cuda_stream)


def operation_rows(sizes: tuple[int, int, int], dtype: torch.dtype, samples: int) -> Rows:
    """`repeat` and `add_pos_enc`, each in every way that it can be launched."""
    batch, symbols, frames = sizes
    channels = FastSpeechConfig().d_model
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
            median, p95, _ = time_together(ways[way], OPERATION_CALLS, samples, graph, queued=True)
            speed = f"{moved / median / 1e6:.2f}" if graph else ""
            how = way + ", CUDA graph" * graph
            yield name, str(dtype)[6:], str(sizes), how, f"{median:.1f}", f"{p95:.1f}", speed


def time_operations(args: argparse.Namespace) -> None:
    title(f"{args.samples} x {OPERATION_CALLS} calls")
    print("TB/s: all inputs and the result, once, by the time; small ones lie in the GPU's cache")
    headings = ("operation", "type", "batch, symbols, frames", "how", "median us", "p95 us", "TB/s")
    with torch.inference_mode():
        for dtype in (torch.float32, torch.float16):
            rows = [row for sizes in SIZES for row in operation_rows(sizes, dtype, args.samples)]
            print_table(headings, rows)


def stage_rows(
    source: ModelSource, stage: Stage, shapes: Sequence[tuple[int, int]], args: argparse.Namespace
) -> Rows:
    """A stage's kernels and its network in half precision, against float32, for batches and mel lengths."""
    in_graphs = args.name == "transformer"
    network, kernels = (make_engine(stage, source, backend, "cuda") for backend in ("torch", KERNELS))
    halved = in_mode(make_engine(stage, replace(source, networks={}), "torch", "cuda"), None, half=True)
    for batch, frames in shapes:
        inputs = example_inputs(source, stage, {"batch": batch, "text": args.symbols, "mel": frames}, "cuda")
        sizes = tuple(sizes_of(network, inputs).items())
        flops = count_flops(source.model, source.config, stage.name, sizes)["flops"]
        audio = batch * frames * source.mel.hop_length / source.mel.sampling_rate
        wanted = network(**inputs)
        ways = {
            "kernels": partial(kernels.capturable(), inputs) if in_graphs else partial(kernels, **inputs),
            "PyTorch, float16": partial(halved, **inputs),
        }
        for way, call in ways.items():
            (first,) = timed(call, 1, "cuda")
            median, p95, found = time_together(call, STAGE_CALLS if in_graphs else 1, args.runs, in_graphs)
            error = max(largest_error(found[name], value) for name, value in wanted.items())
            rates = (f"{audio / median * 1e6:.0f}", f"{flops / median / 1e6:.0f}", f"{error:.1e}")
            spent = (f"{first:.2f}", f"{median / 1e3:.3f}", f"{p95 / 1e3:.3f}")
            yield stage.full_name, str(batch), str(frames), f"{flops / 1e9:.1f}", way, *spent, *rates


def largest_error(found: Tensor, wanted: Tensor) -> float:
    """Relative to the largest value."""
    return float((found.float() - wanted).abs().max() / wanted.abs().max().clamp(min=SMALLEST_SCALE))


def time_stages(args: argparse.Namespace) -> None:
    title(f"{args.runs} runs; errors are of the largest value; x real time: of so many frames of mel")
    shapes = [(batch, args.frames) for batch in args.batch] + [(1, frames) for frames in args.chunks]
    rows: list[tuple[str, ...]] = []
    for model in args.model:
        source = random_source(model, sizes={"wn_channels": args.channels} if model == "waveglow" else None)
        plan = plan_of(model)
        for stage in plan.stages(source.config):
            if stage.name in plan.kernels and not stage.name.startswith("masked_"):
                rows += stage_rows(source, stage, shapes, args)
    headings = ("stage", "batch", "frames", "GFLOP", "what", "first s", "median ms", "p95 ms", "x real time")
    print_table((*headings, "TFLOP/s", "error"), rows)


def decoder_rows(name: str, source: ModelSource, args: argparse.Namespace) -> Rows:
    """The kernel's launch alone, and a driver's call, with products of the memory and copies."""
    config = source.config
    (stage,) = (one for one in plan_of("tacotron2").stages(config) if one.name == "decoder_loop")
    engine = DecoderLoop(stage, source, "cuda")
    for batch in BATCHES:
        torch.manual_seed(0)
        inputs = {
            "memory": torch.rand(batch, args.text, config.encoder_embedding_dim, device="cuda") * 2 - 1,
            "processed_memory": torch.randn(batch, args.text, config.attention_dim, device="cuda") / 2,
            "lengths": torch.full((batch,), args.text, device="cuda"),
            "prenet_noise": torch.rand(args.steps, 2, batch, config.prenet_dim, device="cuda"),
            "prenet_dropout": torch.full((1,), 0.5, device="cuda"),
            "gate_threshold": torch.ones(1, device="cuda"),  # which no gate passes: all steps are made
        }
        with torch.inference_mode():
            launches = [launch_time(engine, inputs) for _ in range(WARM_UP + args.runs)][WARM_UP:]
            called = times(timed(partial(engine, **inputs), args.runs, "cuda", warm_up=WARM_UP))
        alone = times(launches)
        values = (*alone, alone[0] * 1000 / args.steps, *called)
        yield name, f"{batch}, {args.text}, {args.steps}", *(f"{value:.3f}" for value in values)


def launch_time(engine: DecoderLoop, inputs: dict[str, Tensor]) -> float:
    """Seconds of the launch alone."""
    launch, made = engine.prepare(**inputs)
    start = mark("cuda")
    on_current_stream(launch)
    end = mark("cuda")
    assert steps_made(made.status) == len(inputs["prenet_noise"])
    return elapsed(start, end)


def time_decoder(args: argparse.Namespace) -> None:
    title(f"{WARM_UP} + {args.runs} runs")
    sources = {
        "published sizes": random_source("tacotron2"),
        "hazel": load_voice("hazel").source("tacotron2"),
    }
    rows = [row for name, source in sources.items() for row in decoder_rows(name, source, args)]
    headings = ("network", "batch, symbols, steps", "launch ms", "p95", "us a step", "call ms", "p95")
    print_table(headings, rows)


def title(text: str) -> None:
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {text}", flush=True)


# By name: the function, its help, and the options with their defaults.
BESIDE = "kernels and PyTorch's half precision"
STAGES: dict[str, Any] = {"frames": 640, "runs": 20, "batch": BATCHES}
TRANSFORMER = {**STAGES, "symbols": 128, "model": ["fastpitch", "fastspeech"]}
LOOP = {"runs": 20, "text": 128, "steps": 600}
COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], None], str, dict[str, Any]]] = {
    "operations": (time_operations, "the plugins' kernels and PyTorch's decompositions", {"samples": 100}),
    "hifigan": (time_stages, f"HiFi-GAN's {BESIDE}", {**STAGES, "chunks": [32, 50, 100, 200]}),
    "waveglow": (time_stages, f"WaveGlow's {BESIDE}", {**STAGES, "channels": 256}),
    "transformer": (time_stages, f"FastPitch's and FastSpeech's {BESIDE}, all in CUDA graphs", TRANSFORMER),
    "tacotron2_decoder": (time_decoder, "the kernel of Tacotron 2's decoder", LOOP),
}
OPTIONS = {
    "samples": f"groups of {OPERATION_CALLS} calls",
    "frames": "mel frames of an item",
    "runs": "timed runs",
    "batch": "items",
    "chunks": "mel frames of single items beside these",
    "channels": "WN channels",
    "symbols": "symbols of an item",
    "model": "whose",
    "text": "symbols",
    "steps": "decoder steps",
}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m melforge.trt_plugins.benchmark", description=__doc__)
    names = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, (call, about, defaults) in COMMANDS.items():
        one = names.add_parser(name, help=about, description=about)
        one.set_defaults(run=call, model=[name], symbols=0, chunks=[])
        for key, default in defaults.items():
            how: dict[str, Any] = {"default": default, "help": f"{OPTIONS[key]} (default: %(default)s)"}
            how |= {"choices": default} if key == "model" else {"type": options.positive, "metavar": "N"}
            if isinstance(default, list):
                how |= {"nargs": "*" if key == "chunks" else "+"}
            one.add_argument(f"--{key}", **how)
    return parser


def main() -> int:
    args = make_parser().parse_args()
    if not torch.cuda.is_available():
        raise InputError("PyTorch sees no GPU here")
    if args.name != "operations":
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    args.run(args)
    return 0

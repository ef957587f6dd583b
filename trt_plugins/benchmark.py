"""python -m trt_plugins.benchmark NAME: times kernels, and PyTorch beside them, on this GPU."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import cli
from common.bench.flops import count_flops
from common.bench.models import example_inputs
from common.bench.random_weights import random_source
from common.bench.stage_times import sizes_of
from common.bench.timer import elapsed, mark, summary, timed
from common.bench.torch_modes import in_mode
from common.engines import KERNELS, make_engine
from common.engines.captured import record
from common.engines.tensorrt_module import load_tensorrt
from common.engines.torch_engine import build_network
from common.operations import DECOMPOSED, Operations
from common.registry import get_model
from common.stages import Stage
from common.verify import SMALLEST_SCALE
from common.voices import ModelSource, load_voice
from fastspeech.config import FastSpeechConfig
from fastspeech.model import FastSpeech
from trt_plugins.add_pos_enc import launch as add_pos_enc
from trt_plugins.operations import KERNELS as OPERATIONS
from trt_plugins.repeat import launch as repeat
from trt_plugins.tacotron2_decoder.engine import DecoderLoop, steps_made

WARM_UP = 5
BATCHES = [1, 4, 8]
# Batch, symbols and frames of single operations; the channels are the published network's.
SIZES = ((1, 128, 640), (8, 128, 640), (16, 512, 2048))
OPERATION_CALLS = 20  # that are timed together: one is shorter than what the GPU's clock can tell
STAGE_CALLS = 5  # in one graph, the launch of which takes a part of what one call takes

Rows = Iterator[tuple[str, ...]]


def times(seconds: Sequence[float]) -> tuple[float, float]:
    """Median and 95th percentile, in milliseconds."""
    found = summary(seconds)
    return found["p50"] * 1e3, found["p95"] * 1e3


def time_together(
    call: Callable[[], Any], calls: int, runs: int, graph: bool = True, queued: bool = False
) -> tuple[float, float, Any]:
    """Median and 95th percentile in microseconds a call, of `runs` groups of calls, and what a call gives.

    Each group is a CUDA graph, or launched anew. With `queued` it does not wait for the group before it, and
    kernels overlap as far as they were launched to.
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


def largest_error(found: Tensor, wanted: Tensor, least: float = 0.0) -> float:
    """Of the largest value, which counts as `least` if it is below that."""
    return float((found.float() - wanted).abs().max() / wanted.abs().max().clamp(min=least))


def on_current_stream(launch: Callable[[int], None]) -> None:
    launch(torch.cuda.current_stream().cuda_stream)


def enqueue(name: str, tensors: tuple[Tensor, ...]) -> Callable[[], object] | None:
    """The plugin's own enqueue() on these tensors; None where there is no TensorRT to make the plugin."""
    try:
        trt = load_tensorrt().api
    except ValueError:
        return None
    from trt_plugins.plugin import TYPE_NAMES
    from trt_plugins.registry import register

    register()
    types = {name: kind for kind, name in TYPE_NAMES.items()}

    def describe(tensor: Tensor):
        described = trt.PluginTensorDesc()
        described.type = types[str(tensor.dtype).removeprefix("torch.")]
        described.dims, described.format = trt.Dims(tuple(tensor.shape)), trt.TensorFormat.LINEAR
        return described

    creator = trt.get_plugin_registry().get_creator(name, "1", "melforge")
    plugin = creator.create_plugin(name, trt.PluginFieldCollection([]), trt.TensorRTPhase.RUNTIME)
    described, pointers = [describe(t) for t in tensors], [t.data_ptr() for t in tensors]
    given = described[:3], described[3:], pointers[:3], pointers[3:], 0
    return partial(on_current_stream, partial(plugin.enqueue, *given))


def operation_rows(sizes: tuple[int, int, int], dtype: torch.dtype, samples: int) -> Rows:
    """`repeat` and `add_pos_enc`, each in every way that it can be launched."""
    batch, symbols, frames = sizes
    channels = FastSpeechConfig().d_model
    x = torch.randn(batch, symbols, channels, device="cuda").to(dtype)
    counts = torch.full((batch, symbols), frames // symbols, device="cuda")
    positions, lengths = torch.arange(frames, device="cuda"), counts.sum(1)
    table = torch.randn(frames + 1, channels, device="cuda").to(dtype)
    out, placed = (torch.empty(batch, frames, channels, device="cuda", dtype=dtype) for _ in range(2))
    for name, plugin, module, given in (
        ("repeat", "Repeat", repeat, (x, counts, positions, out)),
        ("add_pos_enc", "AddPosEnc", add_pos_enc, (out, lengths, table, placed)),
    ):
        *inputs, result = given
        bound = module.bind(*given)
        own, theirs = getattr(OPERATIONS, name), getattr(DECOMPOSED, name)
        on_current_stream(bound)
        if not torch.equal(result, theirs(*inputs)):
            raise RuntimeError(f"{name} differs from its decomposition")
        ways = {
            "PyTorch's decomposition": partial(theirs, *inputs),
            "kernel, as an operation": partial(own, *inputs),
            "kernel, bound": partial(on_current_stream, bound),
            "plugin's enqueue()": enqueue(plugin, given),
        }
        moved = sum(tensor.nbytes for tensor in given)
        yield from operation_ways(name, sizes, dtype, ways, samples, moved)


def network_rows(sizes: tuple[int, int, int], dtype: torch.dtype, samples: int) -> Rows:
    """FastSpeech of the published sizes with random weights, symbols to mel."""
    batch, symbols, frames = sizes
    ids = torch.randint(1, 100, (batch, symbols), device="cuda")
    lengths = torch.full((batch,), symbols, device="cuda")
    alpha, positions = torch.ones(1, device="cuda", dtype=dtype), torch.arange(frames, device="cuda")
    for name, chosen in (("decompositions", DECOMPOSED), ("kernels", OPERATIONS)):
        call = partial(fastspeech(chosen, dtype).synthesise, ids, lengths, alpha, positions)
        yield from operation_ways("FastSpeech", sizes, dtype, {name: call}, max(samples // 10, 5))


def fastspeech(chosen: Operations, dtype: torch.dtype) -> FastSpeech:
    torch.manual_seed(0)
    network = FastSpeech(FastSpeechConfig(), chosen).eval().requires_grad_(False)
    network.length_regulator.duration_predictor.linear_layer.bias += 1.6  # about five frames a symbol
    return network.to("cuda", dtype)


def operation_ways(
    name: str,
    sizes: tuple[int, int, int],
    dtype: torch.dtype,
    ways: dict[str, Callable[[], Any] | None],
    samples: int,
    moved: int = 0,
) -> Rows:
    """Two rows for each way there is: launched anew, and as a CUDA graph."""
    for how, call in ways.items():
        for graph in (False, True) if call else ():
            median, p95, _ = time_together(call, OPERATION_CALLS, samples, graph, queued=True)
            speed = f"{moved / median / 1e6:.2f}" if graph and moved else ""
            way = how + (", CUDA graph" if graph else "")
            yield name, str(dtype)[6:], str(sizes), way, f"{median:.1f}", f"{p95:.1f}", speed


def time_operations(args: argparse.Namespace) -> None:
    title(f"{args.samples} x {OPERATION_CALLS} calls")
    print("TB/s: all inputs and the result, once, by the time; small ones lie in the GPU's cache")
    headings = ("operation", "type", "batch, symbols, frames", "how", "median us", "p95 us", "TB/s")
    with torch.inference_mode():
        for dtype in (torch.float32, torch.float16):
            rows = [row for sizes in SIZES for row in operation_rows(sizes, dtype, args.samples)]
            cli.print_table(headings, [*rows, *network_rows(SIZES[0], dtype, args.samples)])


def vocoder_rows(source: ModelSource, batch: int, frames: int, runs: int, digits: int) -> Rows:
    """The kernels and the network in half precision, against float32."""
    stage = generator_of(source)
    inputs = example_inputs(source, stage, {"batch": batch, "mel": frames}, "cuda")
    kernels, network = make_engine(stage, source, KERNELS, "cuda"), build_network(stage, source).cuda()
    seconds = batch * frames * source.config.hop_length / source.mel.sampling_rate
    with torch.inference_mode():
        wanted = network.generate(**inputs)[0]
        network.half()
        half = {name: value.half() for name, value in inputs.items()}
        ways = {
            "kernels": lambda: kernels(**inputs)["audio"],
            "PyTorch, float16": lambda: network.generate(**half)[0],
        }
        for name, call in ways.items():
            (first,) = timed(call, 1, "cuda")
            median, p95 = times(timed(call, runs, "cuda", warm_up=WARM_UP, events=True))
            error = largest_error(call(), wanted)
            rate = operations_of(source, stage, inputs) / median / 1e9
            spent = (f"{first:.2f}", f"{median:.{digits}f}", f"{p95:.{digits}f}")
            yield name, *spent, f"{seconds / median * 1000:.0f}", f"{rate:.0f}", f"{error:.1e}"


def generator_of(source: ModelSource) -> Stage:
    return get_model(source.model).module("stages").stages(source.config)[0]


def operations_of(source: ModelSource, stage: Stage, inputs: dict[str, Tensor]) -> float:
    """Floating-point operations of the network's layers as they are, unfolded."""
    sizes = tuple(sizes_of(stage.inputs, inputs).items())
    return count_flops(source.model, source.config, stage.name, sizes)["flops"]


def time_vocoder(args: argparse.Namespace) -> None:
    sizes, digits = ({"wn_channels": args.channels}, 2) if args.name == "waveglow" else ({}, 3)
    source = random_source(args.name, Path(), sizes)
    stage = generator_of(source)
    item = example_inputs(source, stage, {"batch": 1, "mel": args.frames}, "cpu")
    work = operations_of(source, stage, item) / 1e12
    title(f"{args.frames} frames, {work:.{digits}f} TFLOP an item; errors are of the largest value")
    shapes = [(batch, args.frames) for batch in args.batch] + [(1, frames) for frames in args.chunks]
    headings = (
        "batch",
        "frames",
        "what",
        "first s",
        "median ms",
        "p95 ms",
        "x real time",
        "TFLOP/s",
        "error",
    )
    rows = [
        (str(batch), str(frames), *row)
        for batch, frames in shapes
        for row in vocoder_rows(source, batch, frames, args.runs, digits)
    ]
    cli.print_table((*headings, "error"), rows)


def transformer_rows(source: ModelSource, stage: Stage, args: argparse.Namespace) -> Rows:
    """A stage's kernels and the network in half precision, against float32."""
    network, kernels = (make_engine(stage, source, backend, "cuda") for backend in ("torch", KERNELS))
    halved = in_mode(make_engine(stage, replace(source, networks={}), "torch", "cuda"), None, half=True)
    alone = kernels.alone()
    for batch in args.batch:
        sizes = {"batch": batch, "text": args.symbols, "mel": args.frames}
        inputs = example_inputs(source, stage, sizes, "cuda")
        wanted = network(**inputs)
        ways = {"kernels": partial(alone, inputs), "PyTorch, float16": partial(halved, **inputs)}
        for way, call in ways.items():
            median, p95, found = time_together(call, STAGE_CALLS, args.runs)
            error = max(largest_error(found[name], value, SMALLEST_SCALE) for name, value in wanted.items())
            yield stage.full_name, str(batch), way, f"{median:.0f}", f"{p95:.0f}", f"{error:.1e}"


def time_transformers(args: argparse.Namespace) -> None:
    title(
        f"{args.symbols} symbols, {args.frames} frames; all in CUDA graphs; errors are of the largest value"
    )
    rows: list[tuple[str, ...]] = []
    for model in args.model:
        source, module = random_source(model, Path()), get_model(model).module("stages")
        for stage in module.stages(source.config):
            if stage.name in module.KERNELS:
                rows += transformer_rows(source, stage, args)
    cli.print_table(("stage", "batch", "what", "median us", "p95 us", "error"), rows)


def decoder_inputs(engine: DecoderLoop, batch: int, text: int, limit: int) -> dict[str, Tensor]:
    """A threshold that no gate passes: all steps are made."""
    config = engine.config
    torch.manual_seed(0)
    return {
        "memory": torch.rand(batch, text, config.encoder_embedding_dim, device="cuda") * 2 - 1,
        "processed_memory": torch.randn(batch, text, config.attention_dim, device="cuda") / 2,
        "lengths": torch.full((batch,), text, device="cuda"),
        "prenet_noise": torch.rand(limit, 2, batch, config.prenet_dim, device="cuda"),
        "prenet_dropout": torch.full((1,), 0.5, device="cuda"),
        "gate_threshold": torch.ones(1, device="cuda"),
    }


def launch_times(engine: DecoderLoop, inputs: dict[str, Tensor], runs: int) -> list[float]:
    """Seconds of the launch alone."""
    found = []
    for _ in range(WARM_UP + runs):
        run, made = engine.prepare(**inputs)
        start = mark("cuda")
        on_current_stream(run)
        end = mark("cuda")
        assert steps_made(made.status) == len(inputs["prenet_noise"])
        found.append(elapsed(start, end))
    return found[WARM_UP:]


def decoder_rows(name: str, source: ModelSource, args: argparse.Namespace) -> Rows:
    """The launch alone, and a call as a driver makes it, with products of the memory and copies."""
    stages = get_model("tacotron2").module("stages").stages(source.config)
    engine = DecoderLoop(next(stage for stage in stages if stage.name == "decoder_loop"), source, "cuda")
    for batch in BATCHES:
        inputs = decoder_inputs(engine, batch, args.text, args.steps)
        with torch.inference_mode():
            alone = times(launch_times(engine, inputs, args.runs))
            called = times(timed(partial(engine, **inputs), args.runs, "cuda", warm_up=WARM_UP))
        values = (*alone, alone[0] * 1000 / args.steps, *called)
        yield name, f"{batch}, {args.text}, {args.steps}", *(f"{value:.3f}" for value in values)


def time_decoder(args: argparse.Namespace) -> None:
    title(f"{WARM_UP} + {args.runs} runs")
    rows = [
        *decoder_rows("published sizes", random_source("tacotron2", Path()), args),
        *decoder_rows("hazel", load_voice("hazel").source("tacotron2"), args),
    ]
    headings = ("network", "batch, symbols, steps", "launch ms", "p95", "us a step", "call ms", "p95")
    cli.print_table(headings, rows)


def title(text: str) -> None:
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {text}", flush=True)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trt_plugins.benchmark", description=__doc__)
    names = parser.add_subparsers(dest="name", required=True, metavar="NAME")

    def add(name: str, run: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        made = names.add_parser(name, help=text, description=text)
        made.set_defaults(run=run, chunks=[])
        return made

    def number(to: argparse.ArgumentParser, name: str, default: int, text: str) -> None:
        to.add_argument(
            name, type=cli.positive, default=default, metavar="N", help=f"{text} (default: {default})"
        )

    operations = add("operations", time_operations, "the plugins' kernels and PyTorch's decompositions")
    number(operations, "--samples", 100, f"groups of {OPERATION_CALLS} calls")
    hifigan = add("hifigan", time_vocoder, "HiFi-GAN's kernels and PyTorch's half precision")
    waveglow = add("waveglow", time_vocoder, "WaveGlow's kernels and PyTorch's half precision")
    transformer = add(
        "transformer", time_transformers, "FastPitch's and FastSpeech's kernels and PyTorch's half precision"
    )
    decoder = add("tacotron2_decoder", time_decoder, "the kernel of Tacotron 2's decoder")
    for one in (hifigan, waveglow, transformer):
        one.add_argument("--batch", type=int, nargs="+", default=BATCHES, help="items (default: 1 4 8)")
        number(one, "--frames", 640, "mel frames of an item")
    for one in (hifigan, waveglow, transformer, decoder):
        number(one, "--runs", 20, "timed calls")
    hifigan.add_argument(
        "--chunks",
        type=int,
        nargs="*",
        default=[32, 50, 100, 200],
        help="mel frames of single items beside these (default: 32 50 100 200)",
    )
    number(waveglow, "--channels", 256, "WN channels")
    number(transformer, "--symbols", 128, "symbols of an item")
    models = ("fastpitch", "fastspeech")
    transformer.add_argument(
        "--model", choices=models, nargs="+", default=models, help=f"whose (default: {' '.join(models)})"
    )
    number(decoder, "--text", 128, "symbols")
    number(decoder, "--steps", 600, "decoder steps")
    return parser


def main() -> int:
    args = make_parser().parse_args()
    if not torch.cuda.is_available():
        raise ValueError("PyTorch sees no GPU here")
    if args.name != "operations":
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    args.run(args)
    return 0


if __name__ == "__main__":
    cli.run(main)

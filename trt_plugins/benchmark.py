"""python -m trt_plugins.benchmark: times the kernels and PyTorch's decompositions on this GPU."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial

import torch

from common.cli import run
from common.engines.tensorrt.api import load_tensorrt
from fastspeech.config import FastSpeechConfig
from fastspeech.model import FastSpeech
from fastspeech.operations import DECOMPOSED, Operations
from trt_plugins.add_pos_enc import launch as add_pos_enc
from trt_plugins.operations import KERNELS
from trt_plugins.repeat import launch as repeat

CALLS = 20  # that are timed together: one is shorter than what the GPU's clock can tell
# Batch, symbols and frames; the channels are the published network's.
SIZES = ((1, 128, 640), (8, 128, 640), (16, 512, 2048))
HEADINGS = ("operation", "type", "batch, symbols, frames", "how", "median us", "p95 us", "TB/s")


def time_calls(call: Callable[[], object], samples: int, graph: bool) -> tuple[float, float]:
    """Median and 95th percentile in microseconds a call, of `samples` groups of CALLS."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(CALLS):
            call()

        def calls() -> None:
            for _ in range(CALLS):
                call()

        group = calls
        if graph:
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured, stream=stream):
                calls()
            group = captured.replay
            for _ in range(5):
                group()
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(samples)]
        for start, end in events:
            start.record()
            group()
            end.record()
    stream.synchronize()
    found = sorted(start.elapsed_time(end) * 1000 / CALLS for start, end in events)
    return statistics.median(found), found[int(0.95 * (len(found) - 1))]


def on_current_stream(launch: Callable[[int], None]) -> None:
    launch(torch.cuda.current_stream().cuda_stream)


def enqueue(name: str, tensors: tuple[torch.Tensor, ...]) -> Callable[[], object] | None:
    """The plugin's own enqueue() on these tensors; None where there is no TensorRT to make the plugin."""
    try:
        trt = load_tensorrt().api
    except ValueError:
        return None
    from trt_plugins.plugin import TYPE_NAMES
    from trt_plugins.registry import register

    register()
    types = {name: kind for kind, name in TYPE_NAMES.items()}

    def describe(tensor: torch.Tensor):
        described = trt.PluginTensorDesc()
        described.type = types[str(tensor.dtype).removeprefix("torch.")]
        described.dims, described.format = trt.Dims(tuple(tensor.shape)), trt.TensorFormat.LINEAR
        return described

    creator = trt.get_plugin_registry().get_creator(name, "1", "melforge")
    plugin = creator.create_plugin(name, trt.PluginFieldCollection([]), trt.TensorRTPhase.RUNTIME)
    described, pointers = [describe(t) for t in tensors], [t.data_ptr() for t in tensors]
    given = described[:3], described[3:], pointers[:3], pointers[3:], 0
    return partial(on_current_stream, partial(plugin.enqueue, *given))


def operations(sizes: tuple[int, int, int], dtype: torch.dtype, samples: int) -> Iterator[tuple[str, ...]]:
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
        own, theirs = getattr(KERNELS, name), getattr(DECOMPOSED, name)
        on_current_stream(bound)
        if not torch.equal(result, theirs(*inputs)):
            raise RuntimeError(f"{name} differs from its decomposition")
        ways = (
            ("PyTorch's decomposition", partial(theirs, *inputs)),
            ("kernel, as an operation", partial(own, *inputs)),
            ("kernel, bound", partial(on_current_stream, bound)),
            ("plugin's enqueue()", enqueue(plugin, given)),
        )
        moved = sum(tensor.nbytes for tensor in given)
        for way, call in ways:
            for graph in (False, True):
                if call is not None:
                    median, p95 = time_calls(call, samples, graph)
                    shown = f"{moved / median / 1e6:.2f}" if graph else ""
                    how = way + (", CUDA graph" if graph else "")
                    yield name, str(dtype)[6:], str(sizes), how, f"{median:.1f}", f"{p95:.1f}", shown


def networks(sizes: tuple[int, int, int], dtype: torch.dtype, samples: int) -> Iterator[tuple[str, ...]]:
    """FastSpeech of the published sizes with random weights, symbols to mel."""
    batch, symbols, frames = sizes
    ids = torch.randint(1, 100, (batch, symbols), device="cuda")
    lengths = torch.full((batch,), symbols, device="cuda")
    alpha, positions = torch.ones(1, device="cuda", dtype=dtype), torch.arange(frames, device="cuda")
    for name, chosen in (("decompositions", DECOMPOSED), ("kernels", KERNELS)):
        network = build(chosen, dtype)
        for graph in (False, True):
            call = partial(network.synthesise, ids, lengths, alpha, positions)
            median, p95 = time_calls(call, max(samples // 10, 5), graph)
            how = name + (", CUDA graph" if graph else "")
            yield "FastSpeech", str(dtype)[6:], str(sizes), how, f"{median:.1f}", f"{p95:.1f}", ""


def build(chosen: Operations, dtype: torch.dtype) -> FastSpeech:
    torch.manual_seed(0)
    network = FastSpeech(FastSpeechConfig(), chosen).eval().requires_grad_(False)
    network.length_regulator.duration_predictor.linear_layer.bias += 1.6  # about five frames a symbol
    return network.to("cuda", dtype)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Times the kernels and PyTorch's decompositions on this GPU."
    )
    parser.add_argument(
        "--samples", type=int, default=100, metavar="N", help=f"groups of {CALLS} calls (default: 100)"
    )
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise ValueError("PyTorch sees no GPU here")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {args.samples} x {CALLS} calls")
    print("TB/s: all inputs and the result, once, by the time; small ones lie in the GPU's cache")
    with torch.inference_mode():
        for dtype in (torch.float32, torch.float16):
            rows = [row for sizes in SIZES for row in operations(sizes, dtype, args.samples)]
            run.print_table(HEADINGS, [*rows, *networks(SIZES[0], dtype, args.samples)])
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    run.run(main)

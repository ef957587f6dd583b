"""python -m trt_plugins.tacotron2_decoder.benchmark: times the decoder's kernel on this GPU."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from common import cli
from common.bench.random_weights import random_source
from common.voices import ModelSource, load_voice
from tacotron2.stages import stages
from trt_plugins.tacotron2_decoder.engine import DecoderLoop, steps_made

WARM_UP = 5
BATCHES = (1, 4, 8)
HEADINGS = ("network", "batch, symbols, steps", "launch ms", "p95", "us a step", "call ms", "p95")


def decoder(source: ModelSource) -> DecoderLoop:
    stage = next(stage for stage in stages(source.config) if stage.name == "decoder_loop")
    return DecoderLoop(stage, source, "cuda")


def seeded_inputs(engine: DecoderLoop, batch: int, text: int, limit: int) -> dict[str, torch.Tensor]:
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


def launch_times(engine: DecoderLoop, inputs: dict[str, torch.Tensor], runs: int) -> list[float]:
    """Milliseconds of the launch alone, sorted."""
    found = []
    for _ in range(WARM_UP + runs):
        run, made = engine.prepare(**inputs)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run(torch.cuda.current_stream().cuda_stream)
        end.record()
        steps = steps_made(made.status)
        assert steps == len(inputs["prenet_noise"])
        found.append(start.elapsed_time(end))
    return sorted(found[WARM_UP:])


def call_times(engine: DecoderLoop, inputs: dict[str, torch.Tensor], runs: int) -> list[float]:
    """Milliseconds of a call as a driver makes it, products of the memory and copies included, sorted."""
    found = []
    for _ in range(WARM_UP + runs):
        torch.cuda.synchronize()
        start = time.perf_counter()
        engine(**inputs)
        torch.cuda.synchronize()
        found.append((time.perf_counter() - start) * 1000)
    return sorted(found[WARM_UP:])


def rows(name: str, engine: DecoderLoop, text: int, limit: int, runs: int) -> Iterator[tuple[str, ...]]:
    for batch in BATCHES:
        inputs = seeded_inputs(engine, batch, text, limit)
        with torch.inference_mode():
            alone, called = launch_times(engine, inputs, runs), call_times(engine, inputs, runs)
        values = [statistics.median(alone), percentile(alone)]
        values += [values[0] * 1000 / limit, statistics.median(called), percentile(called)]
        yield name, f"{batch}, {text}, {limit}", *(f"{value:.3f}" for value in values)


def percentile(ordered: list[float]) -> float:
    """The 95th of sorted values."""
    return ordered[round(0.95 * (len(ordered) - 1))]


def main() -> int:
    parser = argparse.ArgumentParser(description="Times the decoder's kernel on this GPU.")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="timed runs (default: 20)")
    parser.add_argument("--text", type=int, default=128, metavar="N", help="symbols (default: 128)")
    parser.add_argument("--steps", type=int, default=600, metavar="N", help="decoder steps (default: 600)")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise ValueError("PyTorch sees no GPU here")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {WARM_UP} + {args.runs} runs")
    networks = {
        "published sizes": decoder(random_source("tacotron2", Path())),
        "hazel": decoder(load_voice("hazel").source("tacotron2")),
    }
    found = [row for each in networks.items() for row in rows(*each, args.text, args.steps, args.runs)]
    cli.print_table(HEADINGS, found)
    return 0


if __name__ == "__main__":
    cli.run(main)

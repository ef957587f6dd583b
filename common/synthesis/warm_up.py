"""Runs every engine once before anybody waits for it.

TensorRT for RTX compiles for the GPU at hand when a shape first runs, for seconds, and keeps what it compiled
in a file beside the engine. Other backends read weights and plan memory then.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from melforge.common.arrays import to_device, to_numpy
from melforge.common.config.deployment import Bucket
from melforge.common.engines import MEL_STEP, SHORT, SHORT_STEP, TEXT_STEP, Engine
from melforge.common.export.examples import examples_of
from melforge.common.stages import Stage, bucket_roots, root
from melforge.common.synthesis.acoustic import AcousticModel
from melforge.common.synthesis.chunks import ChunkSizes
from melforge.common.synthesis.vocoder import Vocoder
from melforge.common.weights.voices import ModelSource

TEXT = "Printing was the first of the arts that anybody could afford, and it has never been dear since then."
KERNELS_LONGEST = 1280  # some 15 s, and 250 letters at a usual pace
FEWEST_FRAMES, MOST_FRAMES = 4.5, 10.0  # of a symbol, on average over a text: fast speech and slow
RunSize = tuple[Bucket | None, int]  # lengths, None for typical ones, and items
HEADINGS = ("warm-up", "lengths", "batch", "first ms", "again ms")


@dataclass(frozen=True)
class Warmed:
    """What a first and a second run took, in seconds."""

    what: str
    lengths: str
    batch: int
    first: float
    again: float

    @property
    def row(self) -> tuple[str, ...]:
        """As HEADINGS has it."""
        return (
            self.what,
            self.lengths,
            str(self.batch),
            f"{self.first * 1e3:.1f}",
            f"{self.again * 1e3:.1f}",
        )


class Warmable(Protocol):
    """What is warmed up: a `TextToSpeech`."""

    acoustic: AcousticModel
    vocoder: Vocoder
    batch_size: int | None

    def speak(self, text: str) -> object: ...


def warm_up(
    tts: Warmable, batch_sizes: Sequence[int] = (), streams: int = 1, sizes: ChunkSizes | None = None
) -> Iterator[Warmed]:
    """Every stage of both models in every bucket, then a sentence; in batches too, where a model runs them.

    Without buckets, stages run at the lengths that they call typical; on CUDA kernels, at those that texts
    of up to KERNELS_LONGEST frames are padded to. Beside single items there are batches of `batch_sizes`,
    or as large as a deployment says, and batches of the chunks, of these `sizes`, of up to so many `streams`.
    The largest run first: the others do with their memory.
    """
    batches = batch_sizes or [tts.batch_size or 1]
    yield from warm_up_model(tts.acoustic, batches)
    yield from warm_up_model(tts.vocoder, batches, chunk_runs(tts.vocoder, streams, sizes or ChunkSizes()))
    yield _timed("a sentence", "", 1, lambda: tts.speak(TEXT))
    for driver in (tts.acoustic, tts.vocoder):
        driver.engines.count_anew()


def warm_up_model(
    driver: AcousticModel | Vocoder, batch_sizes: Sequence[int], chunks: Sequence[RunSize] = ()
) -> Iterator[Warmed]:
    """The stages of one model, for single items, batches of these sizes, and these runs."""
    batches = sorted({1, *batch_sizes})
    lengths: Sequence[Bucket | None] = driver.engines.buckets or (None,)
    if driver.engines.on_kernels and not driver.engines.buckets:
        longest = min(KERNELS_LONGEST, driver.longest_mel)
        if isinstance(driver, AcousticModel):
            lengths = padded_texts(longest, driver.longest_text)
        else:
            lengths = [Bucket(0, mel) for mel in padded_mels(longest)]
    runs: list[RunSize] = [
        (b, n) for b, n in itertools.product(lengths, batches) if n == 1 or driver.takes(n, b)
    ]
    runs += [run for run in chunks if run not in runs]
    if driver.engines.on_kernels:
        runs.sort(key=_work, reverse=True)
    for name in driver.engines:
        engine = driver.engines[name]
        if not driver.captures_all:
            for bucket, batch in runs:
                yield _run_stage(engine, driver.source, bucket, batch)
    for bucket, batch in runs:
        for one in driver.warm_ups(bucket, batch):
            yield _timed(one.what, one.lengths, batch, one.run)


def _work(run: RunSize) -> tuple[int, int]:
    bucket, batch = run
    return (batch * bucket.mel, batch * bucket.text) if bucket else (0, batch)


def chunk_runs(vocoder: Vocoder, streams: int, sizes: ChunkSizes) -> list[RunSize]:
    """The lengths and batches in which a vocoder on CUDA kernels makes the next chunks of several streams."""
    if not vocoder.prefers_batches or not vocoder.engines.on_kernels:
        return []
    batches = {vocoder.padded_batch(items) for items in range(2, streams + 1)}
    longest = -(-vocoder.longest_window(sizes.longest) // MEL_STEP) * MEL_STEP
    lengths = [Bucket(0, mel) for mel in padded_mels(longest)]
    return [(b, n) for b, n in itertools.product(lengths, sorted(batches)) if vocoder.takes(n, b)]


def padded_mels(longest: int = KERNELS_LONGEST) -> list[int]:
    """What vocoders on CUDA kernels pad mels to."""
    return sorted({*range(MEL_STEP, longest + 1, MEL_STEP), *range(SHORT_STEP, SHORT, SHORT_STEP)})


def padded_texts(longest: int = KERNELS_LONGEST, longest_text: int = KERNELS_LONGEST) -> list[Bucket]:
    """What acoustic models on CUDA kernels pad texts and mels to, at any usual pace; long mels first."""
    found = []
    for mel in range(longest // MEL_STEP * MEL_STEP, 0, -MEL_STEP):
        fewest, most = (mel - MEL_STEP + 1) / MOST_FRAMES, mel / FEWEST_FRAMES
        texts = range(TEXT_STEP, math.ceil(most / TEXT_STEP) * TEXT_STEP + 1, TEXT_STEP)
        found += [Bucket(text, mel) for text in texts if fewest <= text <= longest_text]
    return found


def _run_stage(engine: Engine, source: ModelSource, bucket: Bucket | None, batch: int) -> Warmed:
    stage = engine.stage
    sizes = sizes_of(stage, bucket, batch)
    inputs = examples_of(stage.model).example_inputs(stage, source.config, sizes, np.random.default_rng(0))
    inputs = {name: to_device(value, engine.device) for name, value in inputs.items()}
    roots = {root(dim): dim for dim in stage.dynamic_dims.values()}
    lengths = [f"{name} {sizes[dim.name] // dim.times}" for name, dim in roots.items() if name != "batch"]

    def run() -> None:
        for value in engine(**inputs).values():
            to_numpy(value)  # which waits for a GPU

    return _timed(stage.full_name, ", ".join(lengths), batch, run)


def _timed(what: str, lengths: str, batch: int, run: Callable[[], object]) -> Warmed:
    start = time.perf_counter()
    run()
    middle = time.perf_counter()
    run()
    return Warmed(what, lengths, batch, middle - start, time.perf_counter() - middle)


def sizes_of(stage: Stage, bucket: Bucket | None, batch: int) -> dict[str, int]:
    """Each dynamic dimension's size in a bucket, or the typical one."""
    sizes = {}
    for name, dim in stage.dynamic_dims.items():
        length = getattr(bucket, root(dim)) if bucket and root(dim) in bucket_roots(stage) else 0
        sizes[name] = length * dim.times if length else min(dim.typical, dim.max)
    return sizes | {"batch": batch}

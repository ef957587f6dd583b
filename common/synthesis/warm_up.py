"""Runs every engine once before anybody waits for it.

TensorRT for RTX compiles for the GPU at hand when a shape first runs, for seconds, and keeps what it compiled
in a file beside the engine. Other backends read weights and plan memory then.
"""

import atexit
import importlib
import itertools
import math
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from melforge.common.arrays import to_device, to_numpy
from melforge.common.config.deployment import Bucket
from melforge.common.engines import MEL_STEP, SHORT, SHORT_STEP, TEXT_STEP, Engine
from melforge.common.export.examples import examples_of
from melforge.common.stages import Stage, bucket_roots, plan_of, root
from melforge.common.synthesis.acoustic import AcousticModel
from melforge.common.synthesis.chunks import ChunkSizes
from melforge.common.synthesis.jobs import seconds_idle
from melforge.common.synthesis.vocoder import Vocoder
from melforge.common.weights.voices import ModelSource

# With a word that no dictionary has: the network for those is loaded.
TEXT = "Printing was the first art that anybody in Quillinborough could afford, and it was never dear again."
KERNELS_LONGEST = 1280  # some 15 s, and 250 letters at a usual pace
FEWEST_FRAMES, MOST_FRAMES = 4.5, 10.0  # of a symbol, on average over a text: fast speech and slow
RunSize = tuple[Bucket | None, int]  # lengths, None for typical ones, and items
Step = tuple[str, Bucket | None, int]  # a stage's name, "" for what a driver runs beside single stages
IDLE, PAUSE = 1.0, 0.01  # seconds without a call before a warm-up in the background begins, and between steps
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
    models_turn: AbstractContextManager[Any]

    def analyse(self, text: str) -> object: ...

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
    batches, chunks = batch_sizes or [tts.batch_size or 1], (streams, sizes or ChunkSizes())
    steps = itertools.chain(
        warm_up_model(tts.acoustic, batches),
        warm_up_model(tts.vocoder, batches, chunk_runs(tts.vocoder, *chunks)),
    )
    while True:
        with tts.models_turn:
            if (one := next(steps, None)) is None:
                break
        yield one
    yield _timed("a sentence", "", 1, lambda: tts.speak(TEXT))
    for driver in (tts.acoustic, tts.vocoder):
        driver.engines.count_anew()


def warm_up_model(
    driver: AcousticModel | Vocoder, batch_sizes: Sequence[int], chunks: Sequence[RunSize] = ()
) -> Iterator[Warmed]:
    """The stages of one model, for single items, batches of these sizes, and these runs."""
    for step in steps_of(driver, batch_sizes, chunks):
        yield from run_step(driver, step)


def steps_of(
    driver: AcousticModel | Vocoder, batch_sizes: Sequence[int] = (), chunks: Sequence[RunSize] = ()
) -> list[Step]:
    """What `warm_up_model` runs, one after the other."""
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
    names = () if driver.captures_all else driver.engines
    return [(name, *run) for name in (*names, "") for run in runs]


def run_step(driver: AcousticModel | Vocoder, step: Step) -> Iterator[Warmed]:
    name, bucket, batch = step
    if name:
        yield _run_stage(driver.engines[name], driver.source, bucket, batch)
        return
    for one in driver.warm_ups(bucket, batch):
        yield _timed(one.what, one.lengths, batch, one.run)


def load_kernels(tts: Warmable) -> None:
    """Compiles the kernels of a short text, or loads them from the cache: those of both models together."""
    if ahead := plan_of(tts.acoustic.source.model).ahead:
        with tts.models_turn, tts.acoustic.on_its_stream():
            importlib.import_module(ahead).load_kernels((tts.acoustic, tts.vocoder))


class IdleWarmUp:
    """Warms up for single texts in a thread: a step at a time, while no model was used for IDLE seconds.

    It ends with the object that is warmed up, or when it is told so.
    """

    def __init__(self, tts: Warmable):
        self._steps = [
            (kind, step) for kind in ("acoustic", "vocoder") for step in steps_of(getattr(tts, kind))
        ]
        self._stopped = threading.Event()
        weakref.finalize(tts, self._stopped.set)
        self._thread = threading.Thread(
            target=self._run, args=(weakref.ref(tts),), name="warm-up", daemon=True
        )
        atexit.register(self._end)  # nothing is captured while Python ends
        self._thread.start()

    def stop(self) -> None:
        """After the step under way."""
        self._stopped.set()

    def _end(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self, there: weakref.ref[Warmable]) -> None:
        try:
            if self._stopped.wait(IDLE):  # the first text is on its way
                return
            if tts := there():
                tts.analyse(TEXT)
            del tts
            for number, (kind, step) in enumerate(self._steps):
                while not self._made(there, kind, step, number):
                    if self._stopped.wait(IDLE / 4):
                        return
                if self._stopped.wait(PAUSE):
                    return
        except Exception as error:  # speaking does without
            warnings.warn(f"the warm-up in the background ended: {error}", stacklevel=1)
        finally:
            atexit.unregister(self._end)

    def _made(self, there: weakref.ref[Warmable], kind: str, step: Step, number: int) -> bool:
        """Whether a step was made: nobody was speaking. The object is held no longer than that."""
        tts = there()
        if tts is None or seconds_idle() < IDLE:
            return False
        with tts.models_turn, tts.acoustic.on_its_stream():
            if seconds_idle() < IDLE:  # who had the turn
                return False
            if not number:
                print(f"warming up in the background, {len(self._steps)} steps", file=sys.stderr)
            driver, name = getattr(tts, kind), step[0]
            if not (name and driver.engines[name].stage.small_steps):  # which take long, one after the other
                for _ in run_step(driver, step):
                    pass
        return True


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

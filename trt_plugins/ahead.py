"""Compiles the Triton kernels of stages before they run: for a GPU that is not here, or the one at hand."""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, get_args

import numpy as np
import torch

from melforge.common.arrays import to_device
from melforge.common.config.deployment import Bucket
from melforge.common.engines.backends import kernel_kind
from melforge.common.engines.limits import Limits, elsewhere
from melforge.common.engines.torch_engine import META
from melforge.common.export.examples import examples_of
from melforge.common.noise import Distribution
from melforge.common.stages import plan_of, stages_of
from melforge.common.stages.choose import kernel_stages
from melforge.common.synthesis.warm_up import RunSize, sizes_of, steps_of
from melforge.common.weights.voices import ModelSource
from melforge.trt_plugins.graphs import (
    TritonLaunch,
    collecting,
    compile_missing,
    compiling_together,
    result_of,
)
from melforge.trt_plugins.hifigan.source_filter import join_source
from melforge.trt_plugins.noise import draw
from melforge.trt_plugins.transformer.length_regulator import expanding, regulating
from melforge.trt_plugins.triton_setup import compiling_for, set_up

# Bytes of a thread's stack that cost nothing: a few spilled registers, or tables of a sine. More are a sign
# of slowness, unless a tile was measured with them, as HiFi-GAN's on sm_80 (its engine.py).
STACK = 64


def compiled(launches: Iterable[TritonLaunch], limits: Limits) -> dict[str, Any]:
    """Triton's compiled kernels of these launches, by what distinguishes them, for a GPU of these limits."""
    made = {}
    with compiling_for(limits), compiling_together():
        for launch in launches:
            kernel = launch.kernel.warmup(*launch.for_triton, grid=launch.grid, **launch.options)
            made[id(kernel)] = launch.kernel.__name__, kernel
    found = [(name, result_of(kernel)) for name, kernel in made.values()]
    return {f"{name}-{kernel.hash}": kernel for name, kernel in found}


class Resources(NamedTuple):
    """What a block or a thread of a compiled kernel takes."""

    shared_bytes: int
    registers: int
    stack_bytes: int  # of a thread, in memory: what did not fit registers, and the tables of sines


def resources(kernel: Any) -> Resources:
    """By the disassembler that comes with Triton."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    used = dict(re.findall(r"\b(REG|STACK):(\d+)", said))
    return Resources(kernel.metadata.shared, int(used["REG"]), int(used["STACK"]))


def launches_for(source: ModelSource, runs: Sequence[RunSize], limits: Limits) -> list[TritonLaunch]:
    """What a model's stages launch on a GPU of these limits. Tensors are on the device "meta"."""
    stages = {stage.name: stage for stage in stages_of(source.model, source.config)}
    with elsewhere(limits):
        engines = []
        for name in kernel_stages(source.model):
            kind: Any = kernel_kind(stages[name], source, META)[0] if name in stages else None
            if launches_triton(kind, source):
                engines.append(kind(stages[name], source, META))
        return launches_of(engines, source, runs, META)


def launches_triton(kind: Any, source: ModelSource) -> bool:
    """Whether engines of a kind launch Triton's kernels."""
    return hasattr(kind, "needs") and kind.needs(source.config).triton


def launches_of(
    engines: Iterable[Any], source: ModelSource, runs: Sequence[RunSize], device: str
) -> list[TritonLaunch]:
    """What these engines of a model launch in such runs, with what is launched between them."""
    between, config = plan_of(source.model).between, source.config
    stages = {stage.name: stage for stage in stages_of(source.model, config)}
    with collecting() as launches, torch.inference_mode():
        for bucket, batch in runs:
            for engine in engines:
                run_once(engine, source, bucket, batch, "regulation" in between)
            if "join_source" in between and config.source:
                frames = bucket.mel if bucket else stages["generator"].dynamic_dims["mel"].typical
                noise = torch.empty(batch, config.noise_channels * frames, device=device)
                join_source(noise.new_empty(batch, frames), noise, config.hop_length)
        for distribution in get_args(Distribution):
            draw(device, distribution, (0,), 0, 1)
    return launches


def load_kernels(drivers: Sequence[Any]) -> None:
    """Compiles what models on the GPU at hand launch for a short text, all together, or loads it from the
    cache: each stage alone would wait for its own.
    """
    device, launches = next(iter(drivers[0].engines.values())).device, []
    with torch.cuda.device(device):
        for driver in drivers:
            engines = [e for e in driver.engines.values() if launches_triton(type(e), driver.source)]
            if engines:
                launches += launches_of(engines, driver.source, [steps_of(driver)[-1][1:]], device)
        compile_missing(launches)


@cache
def begin() -> None:
    """Has Triton's compiler named in a thread: `set_up` says how."""
    set_up()
    with suppress(ImportError):
        from triton.runtime.cache import triton_key

        threading.Thread(target=triton_key, name="triton-key", daemon=True).start()


def run_once(engine: Any, source: ModelSource, bucket: Bucket | None, batch: int, regulates: bool) -> None:
    """Of any stage on kernels; `regulates`: with what the length regulator adds to it."""
    stage = engine.stage
    sizes = sizes_of(stage, bucket, batch)
    made = examples_of(stage.model).example_inputs(stage, source.config, sizes, np.random.default_rng(0))
    inputs = {name: to_device(value, engine.device) for name, value in made.items()}
    run = engine.capturable()  # of Tacotron 2's decoder a step
    if regulates and stage.name == "encoder":
        numbers = 3 if any(tensor.name == "pitch" for tensor in stage.outputs) else 1
        inputs["settings"] = torch.zeros(batch, numbers, sizes["text"], device=engine.device)
        run = regulating(run)
    elif regulates:
        inputs["repeats"] = inputs["encoded"].new_zeros(inputs["encoded"].shape[:2], dtype=torch.int64)
        inputs["frames"] = inputs.pop("repeat_index").new_zeros(sizes["mel"])
        del inputs["mel_lengths"]
        run = expanding(run)
    run(inputs)


def compile_ahead(source: ModelSource, runs: Sequence[RunSize], limits: Limits) -> set[str]:
    """Compiles what a model's stages launch into Triton's cache; what distinguishes the kernels."""
    set_up()
    return set(compiled(launches_for(source, runs, limits), limits))

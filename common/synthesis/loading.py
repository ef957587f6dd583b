"""From names to drivers: which weights speak, on which backends, with which stages."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from melforge.common.audio.contract import MelContract
from melforge.common.config.deployment import Deployment
from melforge.common.config.hparams import shown
from melforge.common.engines import Engine
from melforge.common.errors import InputError, require_torch, unknown, with_article
from melforge.common.registry import KIND_WORDS, MODELS, get_model
from melforge.common.stages import plan_of
from melforge.common.stages.choose import (
    KERNELS,
    choose_stages,
    kernel_advice,
    kernel_stages,
    kernels_of,
    pads_masked,
    stages_on_cpu,
)
from melforge.common.synthesis.driver import Driver
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.weights.voices import ModelSource, list_voices, load_voice


def choose_sources(
    wanted: Mapping[str, str | None],
    voice: str | Path | None,
    checkpoints: str | Path | Sequence[str | Path] = (),
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    lexicon: str | Path | None = None,
) -> dict[str, ModelSource]:
    """The source of each kind that is wanted: from checkpoints where given, else from the voice.

    `wanted` names the acoustic model, the vocoder or both; a name that is None leaves the choice open. The
    words of a file `lexicon` come before those of the voice's.
    """
    for kind, name in wanted.items():
        if name is not None:
            if name not in MODELS and name in list_voices():
                raise InputError(f"{name} is a voice, no {KIND_WORDS[kind]}: give voice {name}")
            get_model(name, kind)
    sources = {}
    for text in [checkpoints] if isinstance(checkpoints, str | Path) else checkpoints:
        from melforge.common.weights.published import parse_checkpoint, read_checkpoint

        word, path = parse_checkpoint(text)
        source = read_checkpoint(path, word)
        kind = get_model(source.model).kind
        if kind not in wanted:
            asked = " or ".join(with_article(KIND_WORDS[one]) for one in wanted)
            found = f"{source.model}, {with_article(KIND_WORDS[kind])}"
            raise InputError(f"checkpoint {path} is a {found}: give {asked}")
        if kind in sources:
            raise InputError(f"two checkpoints for the {kind} model: {sources[kind].weights} and {path}")
        if wanted[kind] not in (None, source.model):
            raise InputError(f"checkpoint {path} is a {source.model}, not a {wanted[kind]}")
        sources[kind] = source
    if len(sources) < len(wanted):
        loaded = load_voice(voice)
        for kind in wanted:
            if kind not in sources:
                models = loaded.models_of(kind)
                if not models and wanted[kind] is None:
                    raise InputError(f"voice {loaded.name!r} has no {kind} model")
                sources[kind] = loaded.source(wanted[kind] or models[0])
    overrides = overrides or {}
    return {
        kind: override(sources[kind], overrides.get(sources[kind].model, {})).with_lexicon(lexicon)
        for kind in wanted
    }


def override(source: ModelSource, values: Mapping[str, Any]) -> ModelSource:
    """The source with other values in its config or, of a published checkpoint, its mel contract.

    A graph holds what was configured when it was exported: with another config it is exported again.
    """
    if not values:
        return source
    parts = (source.config, source.mel)
    for name in values:
        known = [f.name for part in parts for f in fields(part)]
        if name not in known:
            raise InputError(unknown(f"hyper-parameter of {source.model}", name, known))
    config, mel = (
        replace(part, **{f.name: values[f.name] for f in fields(part) if f.name in values}) for part in parts
    )
    _require_trained_contract(source, mel)
    graphs = source.graphs if config == source.config else {}
    sets = (
        word for key, value in values.items() for word in ("--set", f"{source.model}.{key}={shown(value)}")
    )
    words = (*source.words, *sets)
    return replace(
        source, config=config, mel=mel, graphs=graphs, words=words, networks=type(source.networks)()
    )


def _require_trained_contract(source: ModelSource, mel: MelContract) -> None:
    """An InputError for weights whose own files say another mel: published ones may not say theirs."""
    if source.given_state is not None or not (different := mel.differences(source.mel)):
        return
    pairs = [f"{name} {shown(own)}, not {shown(asked)}" for name, (asked, own) in different.items()]
    raise InputError(
        f"{source.weights} was trained with {', '.join(pairs)}: leave that setting out "
        "(it can be set for published checkpoints)"
    )


def make_driver(
    source: ModelSource,
    backend: str,
    device: str = "auto",
    threads: int | None = None,
    decoder: str | None = None,
    watch: Callable[[Engine], Engine] | None = None,
    deployment: Deployment | None = None,
    only: Collection[str] | None = None,
) -> Driver:
    """The model of a source, on engines of this backend; the rest as in `load`.

    `only` names the stages that it has, where the driver can do with some of them.
    """
    model = get_model(source.model)
    if backend in ("torch", "trt", KERNELS):
        require_torch(f"the {backend} backend")
    deployment = deployment or Deployment()
    if backend == "onnx" and deployment.onnx_provider:
        from melforge.common.engines.onnx_engine import require_provider

        require_provider(deployment.onnx_provider, device)  # before a device is picked without it
    device = pick_device(backend) if device == "auto" else device
    if not re.fullmatch(r"cpu|cuda(:\d+)?", str(device)):
        raise InputError(f"unknown device {device!r}: use cpu, cuda, cuda:N or auto")
    if backend == KERNELS:
        backend, deployment = "torch", replace(deployment, kernels=kernel_stages(source.model))
    try:
        buckets = deployment.buckets(model.kind)
    except InputError as error:
        raise InputError(f"{model.name}: {error}") from None
    if backend == "trt" or (buckets and device != "cpu"):
        require_gpu(backend, device)
    if deployment.kernels:
        require_kernels(source, deployment.kernels, device)
        if ahead := plan_of(source.model).ahead:
            importlib.import_module(ahead).begin()
    if deployment.engine_memory_limit and not buckets:
        raise InputError(
            f"engine_memory_limit of {source.model}: without buckets every engine is needed; "
            "give the trt_max_..._seq_len_list too"
        )
    masked = pads_masked(source, deployment)
    stages = choose_stages(source, decoder, bool(buckets), masked, backend, deployment.kernels)
    if only is not None:
        stages = [stage for stage in stages if stage.name in only]
    if backend == "onnx" and device == "cpu" and not buckets:
        stages = stages_on_cpu(source, stages)
    engines = StageEngines(stages, source, backend, device, threads, watch, deployment)
    return model.driver_class(source, engines)


def require_gpu(backend: str, device: str) -> None:
    """Before anything is exported; a bucket's engine is made when inputs are on the GPU already."""
    if not importlib.import_module("torch").cuda.is_available():
        way_out = "the backend onnx" if backend == "trt" else "the device cpu"
        raise InputError(f"the backend {backend} on {device}: PyTorch sees no GPU here; use {way_out}")


def require_kernels(source: ModelSource, kernels: Sequence[str], device: str) -> None:
    """That there is a kernel for each of these stages, and a GPU for it."""
    for stage in kernels:
        if stage not in kernels_of(source.model):
            raise InputError(f"kernels of {source.model}: {kernel_advice({'': source.model})}")
    require_torch("a kernel's engine")
    if device == "cpu" or not importlib.import_module("torch").cuda.is_available():
        where = "--device cpu" if device == "cpu" else "no GPU that PyTorch sees"
        raise InputError(
            f"{source.model}'s {', '.join(kernels)} on {KERNELS} with {where}: kernels run on an NVIDIA GPU; "
            "use another backend, such as onnx"
        )


def pick_device(backend: str) -> str:
    """A GPU where there is one that the backend can use, else the CPU."""
    if backend in ("trt", KERNELS):
        return "cuda"
    if backend == "onnx":
        providers = importlib.import_module("onnxruntime").get_available_providers()
        if "CUDAExecutionProvider" not in providers or importlib.util.find_spec("torch") is None:
            return "cpu"
    return "cuda" if importlib.import_module("torch").cuda.is_available() else "cpu"

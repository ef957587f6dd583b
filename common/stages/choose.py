"""Which stages of a model run, and on which backend each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from melforge.common.config.deployment import Deployment
from melforge.common.errors import InputError, unknown
from melforge.common.stages import Stage, plan_of, stages_of

BACKENDS = ("torch", "onnx", "trt")
# CUDA kernels instead of a runtime: of all stages of a model, or of single ones (its `StagePlan.kernels`).
KERNELS = "cuda"
KINDS = ("acoustic", "vocoder")  # what speaking takes one model of


class StageSource(Protocol):
    """What the choice reads of a `ModelSource`."""

    @property
    def model(self) -> str: ...
    @property
    def config(self) -> Any: ...
    @property
    def given_state(self) -> Mapping[str, Any] | None: ...
    @property
    def graphs(self) -> Mapping[str, Path]: ...


def parse_backends(text: str, models: Mapping[str, str]) -> dict[str, str]:
    """ "onnx", or "acoustic=onnx,vocoder=torch" (a model's name does as well) -> the backend of each kind.

    Stages with kernels, as in "trt,decoder_loop=cuda", are what `parse_kernels` gives.
    """
    words = {**{kind: kind for kind in models}, **{model: kind for kind, model in models.items()}}
    chosen = dict.fromkeys(models, "onnx")
    for word, backend in _backend_parts(text):
        if backend == KERNELS and word in kernels_of(*models.values()):
            continue
        if backend not in (*BACKENDS, KERNELS):
            raise InputError(unknown("backend", backend, (*BACKENDS, KERNELS)))
        if word and word not in words and backend == KERNELS:
            raise InputError(f"--backend {text}: {kernel_advice(models)}")
        if word and word not in words:
            raise InputError(unknown("model in --backend", word, words))
        chosen.update(dict.fromkeys([words[word]] if word else models, backend))
    return chosen


def parse_kernels(text: str, model: str) -> tuple[str, ...]:
    """The stages of a model that `--backend` gives to kernels: "trt,decoder_loop=cuda"."""
    words = [w for w, backend in _backend_parts(text) if backend == KERNELS and w in kernels_of(model)]
    return with_companions(model, words)


def with_companions(model: str, kernels: Sequence[str]) -> tuple[str, ...]:
    """These stages, or all of the model's where their kernels come together."""
    return kernel_stages(model) if kernels and plan_of(model).kernels_together else tuple(kernels)


def kernel_stages(model: str) -> tuple[str, ...]:
    """The stages that run where all of a model runs on kernels."""
    plan = plan_of(model)
    if not plan.on_cuda:
        raise InputError(f"{model} has no {KERNELS} kernels: use onnx, torch or trt for it")
    return plan.forms[plan.on_cuda]


def deployment_of(model: str, deployments: Mapping[str, Deployment], backend: str) -> Deployment:
    """How a model's engines are run: what `deployments` say, with the kernels that `--backend` asks for."""
    how = deployments.get(model, Deployment())
    return replace(how, kernels=parse_kernels(backend, model) or with_companions(model, how.kernels))


def kernels_of(*models: str) -> dict[str, str]:
    """Stages of these models that have a CUDA kernel, and the engines that run it."""
    return {stage: engine for model in models for stage, engine in plan_of(model).kernels.items()}


def _backend_parts(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        word, equals, backend = (x.strip() for x in part.partition("="))
        yield (word, backend) if equals else ("", word)


def kernel_advice(models: Mapping[str, str]) -> str:
    stages = ", ".join(f"{stage}={KERNELS}" for stage in kernels_of(*models.values()))
    have = f"of these models there are {stages}" if stages else "these models have none"
    return f"{KERNELS} is for whole models or for single stages; {have}"


def pads_masked(source: StageSource, deployment: Deployment) -> bool:
    """Whether a vocoder's buckets mask padding. The published programs do not."""
    masked = deployment.mask_padding
    return source.given_state is None if masked is None else masked


def choose_stages(
    source: StageSource,
    decoder: str | None,
    bucketed: bool = False,
    masked: bool = True,
    backend: str = "onnx",
    kernels: Sequence[str] = (),
) -> list[Stage]:
    """A model's stages; of those that come in several forms the ones asked for, or that buckets need.

    `masked` chooses whether padding is masked, where a model has both forms. Stages with `kernels` are
    among those chosen: they decide the form.
    """
    plan = plan_of(source.model)
    stages = stages_of(source.model, source.config)
    forms = plan.forms
    if len(forms) == 1:
        if decoder:
            raise InputError(f"{source.model} has no choice of decoders: leave out {decoder!r}")
        return list(stages)
    if decoder and decoder not in forms:
        raise InputError(unknown(f"decoder of {source.model}", decoder, forms))
    form = (plan.on_trt if backend == "trt" else "") or plan.default
    unmasked = form
    if bucketed:
        form = plan.bucketed or form
        unmasked = plan.bucketed_unmasked or form
        form = form if masked else unmasked
    if not set(kernels) <= set(forms[decoder or form]):
        fitting = [name for name in (unmasked, *forms) if set(kernels) <= set(forms[name])]
        if decoder or not fitting:
            raise InputError(f"the decoder {decoder!r} of {source.model} has no stage {', '.join(kernels)}")
        form = fitting[0]
    names = forms[decoder or form]
    return [stage for stage in stages if stage.name in names]


def stages_on_cpu(source: StageSource, stages: Sequence[Stage]) -> list[Stage]:
    """The stages, with those in their place that ONNX Runtime takes less time for on a CPU (`on_cpu`)."""
    every = {stage.name: stage for stage in stages_of(source.model, source.config)}
    others = {name: other for name, other in plan_of(source.model).on_cpu.items() if other in source.graphs}
    return [every[others.get(stage.name, stage.name)] for stage in stages]

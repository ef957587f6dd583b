"""From an ear or a checkpoint to a recogniser on its engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from melforge.common.config.deployment import Deployment
from melforge.common.engines import Engine
from melforge.common.errors import InputError
from melforge.common.recognition.recogniser import STEPS, Recogniser
from melforge.common.registry import get_model
from melforge.common.stages import plan_of
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights.voices import ModelSource


def form_of(source: ModelSource) -> str | None:
    """The form of its stages that a recogniser runs: padding is masked unless its config says otherwise."""
    return None if source.config.use_conv_masks else "unmasked"


def make_recogniser(
    source: ModelSource,
    backend: str = "onnx",
    device: str = "auto",
    threads: int | None = None,
    deployment: Deployment | None = None,
    watch: Callable[[Engine], Engine] | None = None,
    step: str | None = None,
) -> Recogniser:
    """The driver of a recogniser's source; `watch` may wrap its engines.

    With a `step`, one of STEPS, only that step is loaded, and only the weights that it needs are read.
    An InputError if the source is no recogniser.
    """
    if get_model(source.model).kind != "recogniser":
        raise InputError(f"{source.weights} is a {source.model}, which does not hear: give a recogniser's")
    forms = plan_of(source.model).forms.values()
    only = {form[STEPS.index(step)] for form in forms} if step else None
    made = make_driver(source, backend, device, threads, form_of(source), watch, deployment, only)
    return cast(Recogniser, made)


def load_recogniser(
    ear: str | Path | None = None,
    checkpoint: str | Path | None = None,
    backend: str = "onnx",
    device: str = "auto",
    threads: int | None = None,
) -> Recogniser:
    """An ear by its name or folder (default: the shipped one), or a published or trained checkpoint."""
    from melforge.common.weights.ears import read_recogniser

    return make_recogniser(
        read_recogniser(ear, [] if checkpoint is None else [str(checkpoint)]), backend, device, threads
    )

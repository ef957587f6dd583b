"""Makes an ear's folder of a recogniser's weights: 16 or 8 bits, ONNX graphs, checks, ear.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from melforge.common.errors import InputError
from melforge.common.files import draft_in
from melforge.common.registry import KIND_WORDS, get_model
from melforge.common.stages.choose import choose_stages
from melforge.common.training.model_folders import put_in_place, require_place, write_model
from melforge.common.weights.ears import EAR_FILE
from melforge.common.weights.voices import ModelSource

if TYPE_CHECKING:
    from melforge.common.export.to_onnx import Check


def write_ear(
    folder: Path,
    source: ModelSource,
    about: Mapping[str, str] | None = None,
    in_int8: bool = False,
    delay: float = 0.0,
) -> list[Check]:
    """Makes `folder` an ear of a recogniser; its other files stay. Nothing is written unless all is well.

    `delay`: seconds by which its outputs come behind the sound.
    """
    if (kind := get_model(source.model).kind) != "recogniser":
        raise InputError(
            f"{source.weights} is a {source.model} ({KIND_WORDS[kind]}): an ear is a recogniser's"
        )
    if delay:
        source = replace(source, settings=replace(source.settings, delay=delay))
    require_place(folder, EAR_FILE, "ear")
    with draft_in(folder.parent) as draft:
        entry, checks = write_model(draft, source, choose_stages(source, None), in_int8)
        content = {"name": folder.name, **(about or {}), "model": source.model, **entry}
        put_in_place(draft, folder, [source.model], EAR_FILE, content)
    return checks

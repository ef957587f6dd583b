"""Makes a voice folder of trained or published weights: half precision, ONNX graphs, checks, voice.yaml."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from melforge.common.audio.contract import require_same_contract
from melforge.common.errors import InputError, unknown
from melforge.common.files import draft_in
from melforge.common.registry import KIND_WORDS, get_model
from melforge.common.speech import Controls
from melforge.common.stages.choose import KINDS
from melforge.common.training.model_folders import entry_of, put_in_place, require_place, write_model
from melforge.common.weights.voices import VOICE_FILE, WEIGHTS, FrontendSpec, ModelSource, Voice, load_voice

if TYPE_CHECKING:
    from melforge.common.export.to_onnx import Check

SETTINGS = {  # controls that a voice may set
    "denoising_strength": "how much of the vocoder's hum is taken out",
    "sigma": "spread of WaveGlow's noise",
    "sharpness": "contrast added to Tacotron 2's mel",
}


def weights_of(run: Path) -> list[Path]:
    """The weights in a run's folder or, of a run of several models, in the folders in it."""
    found = [run / WEIGHTS] if (run / WEIGHTS).is_file() else sorted(run.glob(f"*/{WEIGHTS}"))
    if not found:
        raise FileNotFoundError(f"{run} holds no {WEIGHTS}: give the folder of a training run")
    return found


def start_of(trained: Sequence[ModelSource]) -> Voice | None:
    """The voice that the first of these runs began with; None where it was a file, or there was none."""
    from melforge.common.training.card import run_info

    words = str(run_info(trained[0]).get("start", "")) if trained else ""
    name = words.removeprefix("--voice ")
    return load_voice(name) if name and name != words else None


def completed(sources: Sequence[ModelSource], begun: Voice | None) -> list[ModelSource]:
    """With the voice's first model of each kind that there is none of."""
    if begun is None:
        return list(sources)
    kinds = {get_model(source.model).kind for source in sources}
    missing = [name for kind in KINDS if kind not in kinds for name in begun.models_of(kind)[:1]]
    return [*sources, *map(begun.source, missing)]


def write_voice(
    folder: Path,
    sources: Sequence[ModelSource],
    frontend: FrontendSpec | None = None,
    about: Mapping[str, str] | None = None,
    in_int8: Sequence[str] = (),
) -> list[Check]:
    """Makes `folder` a voice of these models; its other files stay, and so do the models that are in it with
    their graphs. Nothing is written unless all is well.

    The weights of the models `in_int8` are stored in 8 bits.
    """
    for name in in_int8:
        if name not in (given := [source.model for source in sources]):
            raise InputError(unknown("model to store in int8", name, given))
    for source in sources:
        if (kind := get_model(source.model).kind) not in KINDS:
            what = f"{source.weights} is a {source.model}, a {KIND_WORDS[kind]}"
            raise InputError(f"{what}: a voice has acoustic models and vocoders")
    require_place(folder, VOICE_FILE, "voice")
    first, *others = sources
    for other in others:
        require_same_contract(first.mel, other.mel, (first.model, other.model))
    frontend = frontend or next((source.frontend for source in sources if source.frontend), None)
    if frontend is None:
        raise InputError("a voice needs an acoustic model, or --frontend")
    check_symbols(frontend, sources)
    entries, checks = {}, []
    with draft_in(folder.parent) as draft:
        for source in sources:
            in_8_bits = source.model in in_int8
            if source.graphs and source.weights.is_relative_to(folder) and not in_8_bits:
                entries[source.model] = entry_of(source, folder)
                continue
            entries[source.model], made = write_model(draft, source, in_int8=in_8_bits)
            checks += made
        content = {
            "name": folder.name,
            **(about or {}),
            "frontend": {"name": frontend.name, **frontend.options},
            "mel": dataclasses.asdict(first.mel),
            "models": entries,
        }
        drafted = [model for model in entries if (draft / model).is_dir()]
        put_in_place(draft, folder, drafted, VOICE_FILE, content)
    return checks


def with_setting(sources: Sequence[ModelSource], setting: str, text: str) -> list[ModelSource]:
    """The sources with a model's control set for the voice: `text` is a value, or "model=value"."""
    word, equals, number = text.rpartition("=")
    takers = [s.model for s in sources if setting in get_model(s.model).controls]
    if not takers:
        models = ", ".join(source.model for source in sources)
        raise InputError(f"{setting} {text!r}: none of {models} has this setting")
    if equals and word not in takers:
        raise InputError(f"{setting} {text!r}: {unknown('model with this setting', word, takers)}")
    try:
        value = float(number)
    except ValueError:
        raise InputError(f"{setting} {text!r}: {number!r} is not a number") from None
    dataclasses.replace(Controls(), **{setting: value})  # refuses what is out of range
    chosen = [word] if equals else takers

    def changed(source: ModelSource) -> ModelSource:
        settings = dataclasses.replace(source.settings, **{setting: value})
        return dataclasses.replace(source, settings=settings)

    return [changed(source) if source.model in chosen else source for source in sources]


def check_symbols(frontend: FrontendSpec, sources: Sequence[ModelSource]) -> None:
    symbols = len(frontend.build().symbols)
    for source in sources:
        known = getattr(source.config, "n_symbols", symbols)
        if known < symbols:
            raise InputError(
                f"{source.weights} knows {known} symbols, the frontend {frontend.name!r} has {symbols}: "
                "it was trained with another frontend"
            )

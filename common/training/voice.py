"""Makes a voice folder of trained or published weights: half precision, ONNX graphs, checks, voice.yaml."""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from melforge.common.audio.contract import require_same_contract
from melforge.common.cli import options, run
from melforge.common.errors import InputError, require_torch, unknown
from melforge.common.registry import KIND_WORDS, get_model
from melforge.common.speech import Controls
from melforge.common.stages.choose import KINDS
from melforge.common.synthesis.loading import override
from melforge.common.training.model_folders import print_size, put_in_place, require_place, write_model
from melforge.common.weights.ears import find_ear
from melforge.common.weights.published import parse_checkpoint, read_checkpoint
from melforge.common.weights.voices import (
    VOICE_FILE,
    WEIGHTS,
    FrontendSpec,
    ModelSource,
    Voice,
    load_voice,
    read_voice,
    voices_folder,
)

if TYPE_CHECKING:
    from melforge.common.export.to_onnx import Check

SETTINGS = {  # controls that a voice may set
    "denoising_strength": "how much of the vocoder's hum is taken out",
    "sigma": "spread of WaveGlow's noise",
    "sharpness": "contrast added to Tacotron 2's mel",
}
ABOUT = ("description", "language", "licence")


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    ear = find_ear(args.ear)  # before the long part

    require_torch("making a voice")
    from melforge.common.export.to_onnx import HEADINGS

    folder = folder_of(args)
    trained = [read_checkpoint(path) for run in args.run for path in weights_of(run)]
    begun = start_of(trained)
    sources = [read_checkpoint(path, word) for word, path in map(parse_checkpoint, args.checkpoint)] + trained
    sources = completed(sources, begun if args.run and not args.add else None)
    sources = [override(source, args.overrides.get(source.model, {})) for source in sources]
    about = {key: getattr(args, key) for key in ABOUT}
    if args.add:
        voice = read_voice(folder)
        given = {source.model for source in sources}
        sources = [source for source in voice.models.values() if source.model not in given] + sources
        about = {key: value or getattr(voice, key) for key, value in about.items()}
    for setting in SETTINGS:
        for value in getattr(args, setting):
            sources = with_setting(sources, setting, value)
    about["language"] = about["language"] or "en"
    checks = write_voice(folder, sources, FrontendSpec(args.frontend) if args.frontend else None, about)
    run.print_table(HEADINGS, [check.row() for check in checks])
    if trained:
        from melforge.common.training.card import run_info, write_card

        write_card(folder, {source.model: run_info(source) for source in trained}, begun, ear)
    print_size(folder)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__, kinds=("acoustic", "vocoder"), choose=models_of)
    parser.add_argument("name", help="name of the voice; a path makes the folder there instead of in voices/")
    several = {"action": "append", "default": []}
    what = "weights.safetensors of a training run, or a published file; once for each model"
    parser.add_argument("--checkpoint", **several, metavar="FILE", help=what)
    what = "folder of melforge voice train: its models, and the others of the voice that it began with; "
    what += "writes a model card with their scores too"
    parser.add_argument("--run", **several, type=Path, metavar="RUN", help=what)
    what = "ear that hears the held-out sentences for the model card of --run; none for none (default: the "
    parser.add_argument("--ear", metavar="NAME", help=f"{what}shipped one)")
    parser.add_argument("--frontend", help="text frontend (default: the acoustic model's)")
    parser.add_argument("--description", default="", help="one sentence about the voice")
    parser.add_argument("--language", default="", help="language code (default: en)")
    kept = "keep the models that the folder holds, but for those given anew"
    parser.add_argument("--add", action="store_true", help=kept)
    for setting, what in SETTINGS.items():
        option = f"--{setting.replace('_', '-')}"
        what += "; once for each model, or for all"
        parser.add_argument(option, **several, metavar="[MODEL=]X", help=what)
    parser.add_argument("--licence", default="", help="licence of the weights")
    args = parser.parse_args(argv)
    if not (args.checkpoint or args.run):
        parser.error("--checkpoint or --run is missing")
    if args.ear and not args.run:
        raise InputError("--ear is for the model card of --run: without one no card is written")
    return args


def folder_of(args: argparse.Namespace) -> Path:
    """The voice's, which is there if something is added to it."""
    folder = Path(args.name) if "/" in args.name else voices_folder() / args.name
    if args.add and not (folder / VOICE_FILE).is_file():
        raise InputError(f"--add is for a voice that is there, and {folder} is none: leave it out")
    return folder


def models_of(args: argparse.Namespace) -> list[str]:
    if args.name:  # --print-hparams alone has none
        folder_of(args)  # before any checkpoint is read
    given = [*map(parse_checkpoint, args.checkpoint)]
    given += [(None, path) for run in args.run for path in weights_of(run)]
    return [read_checkpoint(path, word).model for word, path in given]


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
) -> list[Check]:
    """Makes `folder` a voice of these models; its other files stay. Nothing is written unless all is well."""
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
    folder.parent.mkdir(parents=True, exist_ok=True)
    entries, checks = {}, []
    with tempfile.TemporaryDirectory(prefix=".voice-", dir=folder.parent) as name:
        for source in sources:
            entries[source.model], made = write_model(Path(name), source)
            checks += made
        content = {
            "name": folder.name,
            **(about or {}),
            "frontend": {"name": frontend.name, **frontend.options},
            "mel": dataclasses.asdict(first.mel),
            "models": entries,
        }
        put_in_place(Path(name), folder, entries, VOICE_FILE, content)
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

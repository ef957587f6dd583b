"""Makes a voice folder of trained or published weights: half precision, ONNX graphs, checks, voice.yaml."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from melforge.common.cli import options, run
from melforge.common.errors import InputError, require_torch
from melforge.common.remote import is_address, sent
from melforge.common.synthesis.loading import override
from melforge.common.text import ACCENTS
from melforge.common.training.model_folders import print_size
from melforge.common.training.voice import (
    SETTINGS,
    completed,
    start_of,
    weights_of,
    with_setting,
    write_voice,
)
from melforge.common.weights.ears import find_ear
from melforge.common.weights.published import parse_checkpoint, read_checkpoint
from melforge.common.weights.voices import VOICE_FILE, FrontendSpec, place_of, read_voice

ABOUT = ("description", "language", "licence")


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    ear = find_ear(args.ear)  # before the long part

    require_torch("making a voice")
    from melforge.common.export.to_onnx import HEADINGS

    place = target_of(args)
    trained = [read_checkpoint(path) for run in args.run for path in weights_of(run)]
    begun = start_of(trained)
    sources = [read_checkpoint(path, word) for word, path in map(parse_checkpoint, args.checkpoint)] + trained
    sources = completed(sources, begun if args.run and not args.add else None)
    sources = [override(source, args.overrides.get(source.model, {})) for source in sources]
    about = {key: getattr(args, key) for key in ABOUT}
    if args.add:
        voice = read_voice(Path(place))
        given = {source.model for source in sources}
        sources = [source for source in voice.models.values() if source.model not in given] + sources
        about = {key: value or getattr(voice, key) for key, value in about.items()}
    for setting in SETTINGS:
        for value in getattr(args, setting):
            sources = with_setting(sources, setting, value)
    frontend = next((source.frontend for source in sources if source.frontend), None)
    frontend = FrontendSpec(args.frontend) if args.frontend else frontend
    is_british = frontend is not None and frontend.name == ACCENTS["en-GB"]
    about["language"] = about["language"] or ("en-GB" if is_british else "en")
    with sent(place) as folder:
        checks = write_voice(folder, sources, frontend, about, args.int8)
        run.print_table(HEADINGS, [check.row() for check in checks])
        if trained:
            from melforge.common.training.card import run_info, write_card

            write_card(folder, {source.model: run_info(source) for source in trained}, begun, ear)
        print_size(folder)
    return 0


OPTIONS = """
  name NAME            name of the voice; a path or s3://... makes the folder there, not in the folder of
        voices
  --checkpoint FILE...  weights.safetensors of a training run, or a published file; once for each model
  --run DIR...         folder of melforge voice train: its models, and the others of the voice that it began
        with; writes a model card with their scores too
  --ear NAME           ear that hears the held-out sentences for the model card of --run; none for none
        (default: the shipped one)
  --frontend NAME      text frontend (default: the acoustic model's)
  --description TEXT=  one sentence about the voice
  --language CODE=     language code (default: en, or en-GB with the frontend english-gb)
  --licence TEXT=      licence of the weights
  --int8 MODEL...      store these models' weights in 8 bits, with a scale a row: half the size
  --add                keep the models that the folder holds, but for those given anew
"""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__, kinds=("acoustic", "vocoder"), choose=models_of)
    options.add_table(parser, OPTIONS)
    for setting, what in SETTINGS.items():
        option = f"--{setting.replace('_', '-')}"
        what += "; once for each model, or for all"
        parser.add_argument(option, action="append", default=[], metavar="[MODEL=]X", help=what)
    args = parser.parse_args(argv)
    if not (args.checkpoint or args.run):
        parser.error("--checkpoint or --run is missing")
    if args.ear and not args.run:
        raise InputError("--ear is for the model card of --run: without one no card is written")
    return args


def target_of(args: argparse.Namespace) -> str:
    """Where the voice will be; where something is added to it, it is there."""
    if is_address(args.name) and not args.add:
        return args.name
    folder = place_of("voices", args.name)
    if args.add and not (folder / VOICE_FILE).is_file():
        raise InputError(f"--add is for a voice that is there, and {folder} is none: leave it out")
    return str(folder)


def models_of(args: argparse.Namespace) -> list[str]:
    if args.name:  # --print-hparams alone has none
        target_of(args)  # before any checkpoint is read
    given = [*map(parse_checkpoint, args.checkpoint)]
    given += [(None, path) for run in args.run for path in weights_of(run)]
    return [read_checkpoint(path, word).model for word, path in given]

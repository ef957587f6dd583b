"""Goes on training a voice's models on another corpus: `melforge voice train CORPUS -o RUN`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from melforge.common.audio.contract import MelContract, require_same_contract
from melforge.common.cli import options
from melforge.common.config.hparams import ROOT, load_hparams
from melforge.common.errors import InputError, require_torch, unknown
from melforge.common.registry import get_model
from melforge.common.synthesis.loading import make_driver
from melforge.common.training.corpus.dataset import HOP, RATE, Labels, load_labels
from melforge.common.training.run_folder import LAST
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import ModelSource, Voice, load_voice

FILE = "train_finetune.yaml"  # the recipe of a model that can be fine-tuned, in hparams/<model>/
LEAST_SECONDS = 60.0  # of speech
FRONTEND = "english"  # whose symbols a prepared corpus has
SENTENCES = 8  # held-out texts that the model card's scores are of
EPILOG = """examples:
  melforge voice train corpus -o runs/ann --minutes 10
  melforge voice train corpus -o runs/ann --minutes 10 --resume     # after an interruption
  melforge voice make ann --run runs/ann --licence CC-BY-4.0"""


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    require_torch("training")
    from melforge.common.training import ranks

    if ranks.asked() > 1:
        raise InputError("melforge voice train is one process: begin it without torchrun")
    models = args.model or [tunable(*load_voice(args.start).models)[0]]
    for model in models:
        if model not in tunable(model):
            raise InputError(unknown("model to train", model, tunable()))
    labels = load_labels(args.corpus)
    seconds = float(labels.frames.sum() * HOP / RATE)
    if seconds < LEAST_SECONDS:
        raise InputError(
            f"{args.corpus} has {seconds:.0f} s of speech: training needs {LEAST_SECONDS:.0f} s at least, "
            "and ten minutes are better"
        )
    sources = [find_start(args.start, model) for model in models]
    for source in sources:
        require_fitting(source, args.corpus)
        run = args.out / source.model
        saved = (run / LAST).is_file()
        if run.exists() and not args.resume:
            go_on = "holds a run: add --resume to go on with it" if saved else "is there: remove it"
            raise InputError(f"{run} {go_on}, or give another folder")
        if args.resume and not saved:
            other = " and give another folder" if run.exists() else ""
            raise InputError(f"{run} holds no run to go on with: leave --resume out{other}")
    for source in sources:
        tune(args, source, facts_of(args, labels, seconds, source))
    runs = f"melforge voice make NAME --run {args.out}"
    print(f"{runs} makes a voice of it")
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__, epilog=EPILOG)
    option = parser.add_argument
    option("corpus", type=Path, metavar="CORPUS", help="folder that melforge voice prepare wrote")
    option("-o", "--out", type=Path, required=True, metavar="RUN", help="folder of the run, a folder a model")
    what = "voice, by name or folder, or weights file that it starts from (default: the shipped voice)"
    option("--from", dest="start", metavar="VOICE", help=what)
    what = f"model to train, one of {', '.join(tunable())}; may be repeated (default: the acoustic one)"
    option("--model", action="append", default=[], metavar="NAME", help=what)
    option("--minutes", type=float, help="of training, for each model (default: 10, or as --steps say)")
    option("--steps", type=options.positive, metavar="N", help="stop after so many steps")
    option("--resume", action="store_true", help="go on with a run that was interrupted")
    option("--learning-rate", type=float, metavar="X", help=f"the highest (default: hparams/MODEL/{FILE}'s)")
    option("--sample-minutes", type=float, default=2.0, metavar="M", help="between samples (default: 2)")
    option("--save-minutes", type=float, default=1.0, metavar="M", help="between checkpoints (default: 1)")
    options.add_options(parser, "align")
    option("--seed", type=options.not_negative, default=0, help="of the batches (default: 0)")
    option("--device", default="auto", help="cpu or cuda (default: a GPU if there is one)")
    args = parser.parse_args(argv)
    for name in ("minutes", "learning_rate", "sample_minutes", "save_minutes"):
        value = getattr(args, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"--{name.replace('_', '-')} must be a number above 0, not {value:g}")
    if args.minutes is None and args.steps is None:
        args.minutes = 10.0
    return args


def tunable(*models: str) -> list[str]:
    """Those of these models, or of all, that have a recipe for it."""
    found = sorted(path.parent.name for path in (ROOT / "hparams").glob(f"*/{FILE}"))
    return [model for model in models if model in found] if models else found


def find_start(start: str | None, model: str) -> ModelSource:
    """The weights of a voice, or of a file."""
    if start is not None and Path(start).is_file() and Path(start).suffix != ".yaml":
        return read_checkpoint(Path(start), model)
    return load_voice(start).source(model)


def require_fitting(source: ModelSource, corpus: Path) -> None:
    """An InputError where the weights expect other symbols or mels than the corpus has."""
    if source.frontend and source.frontend.name != FRONTEND:
        raise InputError(
            f"{source.weights} was trained with the text frontend {source.frontend.name!r}, but {corpus} has "
            f"the symbols of {FRONTEND!r}: start from a voice with that one"
        )
    mel = source.mel
    if (mel.sampling_rate, mel.hop_length) != (RATE, HOP):
        raise InputError(
            f"{source.weights} is for {mel.sampling_rate} Hz and a hop of {mel.hop_length} samples, but "
            f"{corpus} was prepared for {RATE} Hz and {HOP}: start from a voice with these"
        )


def facts_of(args: argparse.Namespace, labels: Labels, seconds: float, source: ModelSource) -> dict[str, Any]:
    """What the model card tells of a run."""
    from melforge.common.training.corpus.batches import held_out_utterances

    held_out = [labels.texts[row] for row in np.flatnonzero(held_out_utterances(labels.speaker))]
    return {
        "start": " ".join(source.words),
        "corpus": args.corpus.name,
        "speech_minutes": round(seconds / 60, 1),
        "corpus_speakers": minutes_of_speakers(labels),
        "device": args.device,
        "sentences": held_out[:SENTENCES],
    }


def minutes_of_speakers(labels: Labels) -> dict[str, float]:
    counts = np.bincount(labels.speaker, labels.frames, minlength=len(labels.speakers))
    return {
        name: round(float(frames) * HOP / RATE / 60, 1)
        for name, frames in zip(labels.speakers, counts, strict=False)
    }


def tune(args: argparse.Namespace, source: ModelSource, facts: dict[str, Any]) -> None:
    """Trains one model in its folder of the run."""
    import torch

    from melforge.common.training.tuning import Tuning

    module = get_model(source.model).module("train")
    classes = get_model(source.model).config_class, MelContract, module.RECIPE
    given = {} if args.learning_rate is None else {"learning_rate": args.learning_rate}
    path = f"hparams/{source.model}/{FILE}"
    *_, recipe = load_hparams(path, *classes, model=source.model, overrides=given)
    device = args.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    out = args.out / source.model
    how = argparse.Namespace(
        **vars(args) | {"out": out, "device": device, "init": None, "mels": [], "durations": None}
    )
    how.built = source.config, source.mel, recipe
    how.resume = out / LAST if args.resume else None
    trainer = module.make_trainer(how, source)
    print(f"{source.model} on {device}: {out}", flush=True)
    Tuning(how, trainer, {**facts, "device": device}, sampling_vocoder(args.start, source)).run()


def sampling_vocoder(start: str | None, source: ModelSource):
    """What speaks an acoustic model's samples: the start's vocoder, or the shipped voice's."""
    if get_model(source.model).kind != "acoustic":
        return None
    voice: Voice = load_voice(None if source.words[:1] == ("--checkpoint",) else start)
    vocoder = voice.source(voice.models_of("vocoder")[0])
    require_same_contract(source.mel, vocoder.mel, (source.model, vocoder.model))
    return make_driver(vocoder, "onnx", "cpu", threads=1)

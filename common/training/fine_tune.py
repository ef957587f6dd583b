"""Goes on training a voice's models on another corpus: `melforge voice train CORPUS -o RUN`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from melforge.common.audio.contract import MelContract, require_same_contract
from melforge.common.cli import options
from melforge.common.config.hparams import ROOT, load_hparams
from melforge.common.errors import InputError, require_torch, unknown
from melforge.common.registry import get_model
from melforge.common.synthesis.loading import make_driver
from melforge.common.synthesis.vocoder import Vocoder
from melforge.common.training.corpus.dataset import HOP, RATE, Labels, load_labels
from melforge.common.training.run_folder import LAST
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import ModelSource, Voice, load_voice

if TYPE_CHECKING:
    from melforge.common.training.tuning import TuningSettings

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
    from melforge.common.training.tuning import TuningSettings

    taken = [field.name for field in fields(TuningSettings) if field.name not in ("resume", "init")]
    settings = TuningSettings(**{name: getattr(args, name) for name in taken})
    fine_tune(
        args.corpus, settings, args.start, args.model, args.resume, args.learning_rate, align=args.align
    )
    print(f"melforge voice make NAME --run {args.out} makes a voice of it")
    return 0


def fine_tune(
    corpus: Path,
    settings: TuningSettings,
    start: str | None = None,
    models: Sequence[str] = (),
    resume: bool = False,
    learning_rate: float | None = None,
    align: str = "corpus",
) -> None:
    """Trains models, by default the acoustic one, each in a folder of its name in `settings.out`.

    They begin with the weights of `start`, a voice or a file, or go on with their runs (`resume`).
    """
    from melforge.common.training import ranks

    if ranks.asked() > 1:
        raise InputError("melforge voice train is one process: begin it without torchrun")
    models = models or [tunable(*load_voice(start).models)[0]]
    for model in models:
        if model not in tunable(model):
            raise InputError(unknown("model to train", model, tunable()))
    labels = load_labels(corpus)
    seconds = float(labels.frames.sum() * HOP / RATE)
    if seconds < LEAST_SECONDS:
        raise InputError(
            f"{corpus} has {seconds:.0f} s of speech: training needs {LEAST_SECONDS:.0f} s at least, "
            "and ten minutes are better"
        )
    sources = [find_start(start, model) for model in models]
    for source in sources:
        require_fitting(source, corpus)
        run = settings.out / source.model
        saved = (run / LAST).is_file()
        if run.exists() and not resume:
            go_on = "holds a run: add --resume to go on with it" if saved else "is there: remove it"
            raise InputError(f"{run} {go_on}, or give another folder")
        if resume and not saved:
            other = " and give another folder" if run.exists() else ""
            raise InputError(f"{run} holds no run to go on with: leave --resume out{other}")
    for source in sources:
        out = settings.out / source.model
        own = replace(settings, out=out, resume=out / LAST if resume else None)
        tune(corpus, own, source, facts_of(corpus, labels, source), start, learning_rate, align)


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


def facts_of(corpus: Path, labels: Labels, source: ModelSource) -> dict[str, Any]:
    """What the model card tells of a run."""
    from melforge.common.training.corpus.batches import held_out_utterances

    held_out = [labels.texts[row] for row in np.flatnonzero(held_out_utterances(labels.speaker))]
    return {
        "start": " ".join(source.words),
        "corpus": corpus.name,
        "speech_minutes": round(float(labels.frames.sum() * HOP / RATE) / 60, 1),
        "corpus_speakers": minutes_of_speakers(labels),
        "sentences": held_out[:SENTENCES],
    }


def minutes_of_speakers(labels: Labels) -> dict[str, float]:
    counts = np.bincount(labels.speaker, labels.frames, minlength=len(labels.speakers))
    return {
        name: round(float(frames) * HOP / RATE / 60, 1)
        for name, frames in zip(labels.speakers, counts, strict=False)
    }


def tune(
    corpus: Path,
    settings: TuningSettings,
    source: ModelSource,
    facts: dict[str, Any],
    start: str | None,
    learning_rate: float | None,
    align: str,
) -> None:
    """Trains one model in its folder of the run."""
    from melforge.common.training.tuning import Tuning

    spec = get_model(source.model)
    module = spec.module("train")
    classes = spec.config_class, MelContract, module.RECIPE
    given = {} if learning_rate is None else {"learning_rate": learning_rate}
    path = f"hparams/{source.model}/{FILE}"
    *_, recipe = load_hparams(path, *classes, model=source.model, overrides=given)
    how = {"align": align} if spec.kind == "acoustic" else {}
    trainer = module.make_trainer(source.config, source.mel, recipe, corpus, settings, source, **how)
    device = trainer.device.type
    print(f"{source.model} on {device}: {settings.out}", flush=True)
    Tuning(settings, trainer, {**facts, "device": device}, sampling_vocoder(start, source)).run()


def sampling_vocoder(start: str | None, source: ModelSource) -> Vocoder | None:
    """What speaks an acoustic model's samples: the start's vocoder, or the shipped voice's."""
    if get_model(source.model).kind != "acoustic":
        return None
    voice: Voice = load_voice(None if source.words[:1] == ("--checkpoint",) else start)
    vocoder = voice.source(voice.models_of("vocoder")[0])
    require_same_contract(source.mel, vocoder.mel, (source.model, vocoder.model))
    driver = make_driver(vocoder, "onnx", "cpu", threads=1)
    assert isinstance(driver, Vocoder)
    return driver

"""Goes on training a voice's models on another corpus: `melforge voice train CORPUS -o RUN`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from melforge.common.audio.contract import MelContract, require_same_contract
from melforge.common.config.hparams import ROOT, load_hparams
from melforge.common.errors import InputError, unknown
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
    from melforge.common.training.loop import TrainingPlan
    from melforge.common.training.tuning import Tuning

    spec = get_model(source.model)
    module = spec.module("train")
    classes = spec.config_class, MelContract, module.RECIPE
    given = {} if learning_rate is None else {"learning_rate": learning_rate}
    path = f"hparams/{source.model}/{FILE}"
    *_, recipe = load_hparams(path, *classes, model=source.model, overrides=given)
    how = {"align": align} if spec.kind == "acoustic" else {}
    plan = TrainingPlan(source.config, source.mel, recipe)
    trainer = module.make_trainer(plan, corpus, settings, source, **how)
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

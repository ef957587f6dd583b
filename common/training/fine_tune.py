"""Goes on training a voice's models on another corpus: `melforge voice train CORPUS -o RUN`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from melforge.common.audio.contract import MelContract, require_same_contract
from melforge.common.audio.mel import mel_spectrogram
from melforge.common.audio.sound_files import read_audio
from melforge.common.config.hparams import ROOT, load_hparams
from melforge.common.errors import InputError, counted, install_command, unknown
from melforge.common.registry import get_model
from melforge.common.synthesis.loading import make_driver
from melforge.common.synthesis.vocoder import Vocoder
from melforge.common.text.frontends import frontend_class
from melforge.common.training.corpus.dataset import HOP, RATE, Labels, load_labels, too_short
from melforge.common.training.corpus.pitch import can_measure_pitch, pitch_contour
from melforge.common.training.run_folder import LAST
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import ModelSource, Voice, list_voices, load_voice

if TYPE_CHECKING:
    from melforge.common.training.tuning import Tuning, TuningSettings

FILE = "train_finetune.yaml"  # the recipe of a model that can be fine-tuned, in hparams/<model>/
COPIES = 6  # held-out lines whose copies are measured
OFF, OFF_LIMIT = 2.0, 0.25  # semitones, and the share of voiced frames that may be further off, or voiceless
SENTENCES = 8  # held-out texts that the model card's scores are of


def fine_tune(
    corpus: Path,
    settings: TuningSettings,
    start: str | None = None,
    models: Sequence[str] = (),
    resume: bool = False,
    learning_rate: float | None = None,
    align: str = "corpus",
    progress: Callable[[float], object] = lambda share: None,
) -> None:
    """Trains models, by default the acoustic one, each in a folder of its name in `settings.out`.

    They begin with the weights of `start`, a voice or a file, or go on with their runs (`resume`). `progress`
    is told the share of the work that is done. On several devices the mean of their gradients is learnt from.
    """
    from melforge.common.training import ranks
    from melforge.common.training.side_by_side import devices_of, work_on

    if ranks.asked() > 1:
        raise InputError(
            "melforge voice train is one process: begin it without torchrun; --device cuda:all takes all GPUs"
        )
    start = start or widest_voice()
    sources = find_starts(start, models, settings.device)
    labels = load_labels(corpus)
    if why := too_short(labels.seconds):
        raise InputError(f"{corpus} has {why}")
    for source in sources:
        require_fitting(source, corpus, labels.frontend)
        run = settings.out / source.model
        saved = (run / LAST).is_file()
        if run.exists() and not resume:
            go_on = "holds a run: add --resume to go on with it" if saved else "is there: remove it"
            raise InputError(f"{run} {go_on}, or give another folder")
        if resume and not saved:
            other = " and give another folder" if run.exists() else ""
            raise InputError(f"{run} holds no run to go on with: leave --resume out{other}")
    devices, names = devices_of(settings.device), [source.model for source in sources]
    settings = replace(settings, device=devices[0] if len(devices) == 1 else devices[0].partition(":")[0])
    train = partial(_train, corpus, settings, start, names, resume, learning_rate, align)
    if len(devices) == 1:
        train(progress)
    else:
        work_on(devices, train, progress)


def _train(
    corpus: Path,
    settings: TuningSettings,
    start: str | None,
    models: Sequence[str],
    resume: bool,
    learning_rate: float | None,
    align: str,
    progress: Callable[[float], object],
) -> None:
    """What each process of `fine_tune` does."""
    from melforge.common.training import ranks

    labels = load_labels(corpus)
    vocodes = any(get_model(model).kind == "vocoder" for model in models)
    for number, source in enumerate(find_start(start, model) for model in models):
        out = settings.out / source.model
        own = replace(settings, out=out, resume=out / LAST if resume else None)
        run = tuning(corpus, own, source, facts_of(corpus, labels, source), learning_rate, align)
        if ranks.is_first() and (found := vocoder_beside(start, source)):
            run.vocoder = found
            if not vocodes:
                tell_copies(corpus, labels, found)
        run.run(lambda share, before=number: progress((before + share) / len(models)))


def widest_voice() -> str | None:
    """The name of the voice with the most speakers, of whom one is near any; the first of equal ones."""
    names = list_voices()
    speakers = (max(len(source.speakers) for source in load_voice(name).models.values()) for name in names)
    return max(zip(names, speakers, strict=True), key=lambda found: found[1])[0] if names else None


def tunable(*models: str) -> list[str]:
    """Those of these models, or of all, that have a recipe for it."""
    found = sorted(path.parent.name for path in (ROOT / "hparams").glob(f"*/{FILE}"))
    return [model for model in models if model in found] if models else found


def find_starts(start: str | None, models: Sequence[str], device: str) -> list[ModelSource]:
    """What a training begins with: these models of a voice, or without names its acoustic one or a file's.

    An InputError also for a device that is not there.
    """
    from melforge.common.training.side_by_side import devices_of

    devices_of(device)
    if not models:
        file = weights_file(start)
        models = [read_checkpoint(file).model] if file else tunable(*load_voice(start).models)[:1]
    for model in models:
        if model not in tunable(model):
            raise InputError(unknown("model to train", model, tunable()))
    return [find_start(start, model) for model in models]


def weights_file(start: str | None) -> Path | None:
    """The file that a start names, if it is no voice."""
    path = Path(start or "")
    return path if path.is_file() and path.suffix != ".yaml" else None


def find_start(start: str | None, model: str) -> ModelSource:
    """The weights of a voice, or of a file."""
    file = weights_file(start)
    return read_checkpoint(file, model) if file else load_voice(start).source(model)


def require_fitting(source: ModelSource, corpus: Path, frontend: str) -> None:
    """An InputError where the weights expect other symbols or mels than the corpus has."""
    if source.frontend:
        theirs, ours = frontend_class(source.frontend.name), frontend_class(frontend)
        # British symbols stand behind the American ones.
        if not (issubclass(ours, theirs) or issubclass(theirs, ours)):
            raise InputError(
                f"{source.weights} was trained with the text frontend {source.frontend.name!r}, but {corpus} "
                f"has the symbols of {frontend!r}: start from a voice with that one"
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
        "speech_minutes": round(labels.seconds / 60, 1),
        "corpus_speakers": minutes_of_speakers(labels),
        "sentences": held_out[:SENTENCES],
    }


def minutes_of_speakers(labels: Labels) -> dict[str, float]:
    counts = np.bincount(labels.speaker, labels.frames, minlength=len(labels.speakers))
    return {
        name: round(float(frames) * HOP / RATE / 60, 1)
        for name, frames in zip(labels.speakers, counts, strict=False)
    }


def tuning(
    corpus: Path,
    settings: TuningSettings,
    source: ModelSource,
    facts: dict[str, Any],
    learning_rate: float | None,
    align: str,
) -> Tuning:
    """The training of one model, in its folder of the run."""
    from melforge.common.training import ranks
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
    device = f"{ranks.count()} x {trainer.device.type}" if ranks.count() > 1 else trainer.device.type
    print(f"{source.model} on {device}: {settings.out}", flush=True)
    return Tuning(settings, trainer, {**facts, "device": device})


def vocoder_beside(start: str | None, source: ModelSource) -> Vocoder | None:
    """What speaks an acoustic model's samples, and in the end: the start's, or the shipped voice's."""
    if get_model(source.model).kind != "acoustic":
        return None
    voice: Voice = load_voice(None if source.words[:1] == ("--checkpoint",) else start)
    vocoder = voice.source(voice.models_of("vocoder")[0])
    require_same_contract(source.mel, vocoder.mel, (source.model, vocoder.model))
    driver = make_driver(vocoder, "onnx", "cpu", threads=1)
    assert isinstance(driver, Vocoder)
    return driver


def tell_copies(corpus: Path, labels: Labels, vocoder: Vocoder) -> None:
    """Says how well the vocoder, which is not trained, keeps the pitch of some held-out lines."""
    from melforge.common.training.corpus.batches import held_out_utterances

    rows = np.flatnonzero(held_out_utterances(labels.speaker))
    chosen = rows[np.linspace(0, len(rows) - 1, min(COPIES, len(rows))).round().astype(int)]
    sounds = [read_audio(corpus / "wavs" / f"{labels.names[row]}.wav")[0] for row in chosen]
    if not can_measure_pitch():
        print(f"copies are not measured: pyworld is not installed ({install_command('train')})")
        return
    off = off_pitch(vocoder, sounds)
    model = vocoder.source.model
    print(
        f"{model} copies {counted(len(sounds), 'held-out line')} with {100 * off:.1f} % of the voiced frames "
        f"voiceless or more than {OFF:.0f} semitones off"
    )
    if off > OFF_LIMIT:
        print(f"so it does not speak this pitch well: add --model {model}, or another voice with --from")


def off_pitch(vocoder: Vocoder, sounds: Sequence[np.ndarray]) -> float:
    """The share of the voiced frames of sounds [S] at `RATE` whose pitch is another in the vocoder's copy,
    or that are not voiced there.
    """
    mels = [mel_spectrogram(sound, vocoder.source.mel).astype(np.float32) for sound in sounds]
    wrong = voiced = 0
    for sound, copy in zip(sounds, vocoder.vocode_each(mels), strict=True):
        own, theirs = pitch_contour(sound), pitch_contour(np.asarray(copy))
        own, theirs = (one[: min(len(own), len(theirs))] for one in (own, theirs))
        spoken = own > 0
        near = np.abs(12 * np.log2(np.maximum(theirs[spoken], 1.0) / own[spoken])) <= OFF
        wrong, voiced = wrong + int((~near).sum()), voiced + len(near)
    return wrong / max(1, voiced)

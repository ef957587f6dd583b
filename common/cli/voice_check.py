"""Checks a voice, which speaks test sentences for it, or the corpus that one is trained on."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from melforge.common.cli import options
from melforge.common.cli.run import print_table
from melforge.common.cli.voice_prepare import print_report
from melforge.common.errors import InputError, install_command
from melforge.common.recognition.listener import Listener
from melforge.common.recognition.loading import make_recogniser
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Audio, Controls
from melforge.common.training.corpus.dataset import HOP, LABELS, RATE, Labels, load_labels
from melforge.common.training.corpus.pitch import pitch_contour
from melforge.common.training.corpus.quality import Measures, measure
from melforge.common.training.corpus.report import NOBODY, REPORT, read_report
from melforge.common.weights.ears import NO_EAR, find_ear
from melforge.common.weights.voices import VOICE_FILE, Voice, list_voices, load_voice

SENTENCES = (
    "The morning train to the coast was late again.",
    "Could you tell me where the library is?",
    "She bought three apples, a loaf of bread and some cheese.",
    "On the fourth of July, we watched the fireworks from the roof.",
    "He paid twenty five dollars for the old green chair.",
    "Nobody had expected such a heavy storm in the middle of June.",
    "Turn left at the church, then follow the river.",
    "Yes, I think so.",
    "The children were playing quietly behind the house.",
    "What a beautiful garden you have!",
)
PITCH_LIMIT, PACE_LIMIT = 1.15, 1.25  # times the corpus's, or its inverse
OVERLOAD = 0.001  # share of samples at full scale
EPILOG = """A voice: its files are there and whole; it speaks ten sentences with each of its speakers, whose
pace and pitch are compared with those of --corpus; an ear, if one is installed, says how many words it hears
as others: too many are a fault where --ear names it, as an ear may not know the voice. A corpus: its report
again, and whether its sound files are those of its labels. The exit status is 1 where something is wrong."""


OPTIONS = """
  what VOICE           name or folder of a voice, or a corpus's folder
  --corpus DIR         corpus that the voice was trained on, to compare it with
  acoustic vocoder threads
  --ear NAME           name or folder of an ear; none for none (default: the shipped one)
  listen-limit
"""


def main(argv: Sequence[str] | None = None) -> int:
    args = options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG).parse_args(argv)
    if args.ear == NO_EAR and args.listen_limit is not None:
        raise InputError(f"--listen-limit is for an ear: leave out --ear {NO_EAR}, or the limit")
    folder = Path(args.what)
    if (folder / LABELS).is_file():
        faults = list(check_corpus(folder))
    elif folder.is_dir() and not (folder / VOICE_FILE).is_file() and args.what not in list_voices():
        raise InputError(f"{folder} is neither a voice ({VOICE_FILE}) nor a prepared corpus ({LABELS})")
    else:
        voice, ear = load_voice(args.what), find_ear(args.ear)  # before the long part
        labels = load_labels(args.corpus) if args.corpus else None
        faults = list(check_files(voice))
        if not faults:
            listener = Listener(make_recogniser(ear.only), options.listen_limit(args)) if ear else None
            tts = TextToSpeech.load(args.acoustic, args.vocoder, voice.folder, threads=args.threads)
            faults = list(check_speech(tts, listener, labels, judged=bool(args.ear)))
    for fault in faults:
        print(f"wrong: {fault}")
    print("something is wrong" if faults else "ok")
    return 1 if faults else 0


def check_corpus(corpus: Path) -> Iterator[str]:
    """Prints what the corpus holds; yields what is wrong with its files."""
    import soundfile

    labels = load_labels(corpus)
    if (corpus / REPORT).is_file():
        print_report(read_report(corpus), corpus)
    else:
        rows = []
        for number, name in enumerate(labels.speakers or [NOBODY]):
            manner, lines, seconds = manner_of_labels(labels, number)
            rows.append([name, str(lines), f"{seconds / 60:.1f}", *manner.cells()])
        print_table(("speaker", "lines", "minutes", "phones/s", "pitch"), rows)
    for name, frames in zip(labels.names, labels.frames, strict=True):
        path = corpus / "wavs" / f"{name}.wav"
        try:
            about = soundfile.info(path)
        except soundfile.LibsndfileError:
            yield f"{path} is missing or cannot be read: prepare the corpus again"
            continue
        if about.samplerate != RATE:
            yield f"{path} has {about.samplerate} Hz, not {RATE}: prepare the corpus again"
        elif about.frames < frames * HOP:
            yield f"{path} is shorter than its labels: prepare the corpus again"


def check_files(voice: Voice) -> Iterator[str]:
    """Prints the voice's files; yields which are missing or damaged."""
    rows = []
    for source in voice.models.values():
        missing = [path for path in (source.weights, *source.graphs.values()) if not path.is_file()]
        yield from (f"{path} is missing" for path in missing)
        try:
            count = sum(value.size for value in source.state.values())
        except InputError as error:
            if source.weights not in missing:
                yield str(error)
            continue
        size = source.weights.stat().st_size / 1e6
        rows.append([source.model, f"{count / 1e6:.2f} M", f"{size:.1f} MB", ", ".join(source.graphs) or "-"])
    print_table(("model", "parameters", "weights", "graphs"), rows)
    if not (voice.folder / "README.md").is_file():
        print("note: the voice has no model card (README.md)")
    if not voice.licence:
        print("note: voice.yaml names no licence")


@dataclass(frozen=True)
class Manner:
    """How somebody speaks: medians of phones a second and of Hz; None where that is not known."""

    pace: float | None
    pitch: float | None

    def cells(self) -> list[str]:
        return [
            "-" if self.pace is None else f"{self.pace:.1f}",
            "-" if self.pitch is None else f"{self.pitch:.0f} Hz",
        ]


def is_pitch_measured() -> bool:
    return importlib.util.find_spec("pyworld") is not None


def manner_of_labels(labels: Labels, speaker: int) -> tuple[Manner, int, float]:
    """Of a speaker's lines; how many there are, and their seconds."""
    own = np.flatnonzero(labels.speaker == speaker)
    if not len(own):
        return Manner(None, None), 0, 0.0
    phones = phone_ids()
    spoken = [labels.durations[i][1:-1].sum() * HOP / RATE for i in own]  # without the silence at the edges
    pace = [np.isin(labels.ids[i], phones).sum() / max(s, 0.1) for i, s in zip(own, spoken, strict=True)]
    pitch = np.concatenate([labels.pitch[i] for i in own])
    voiced = pitch[pitch > 0]
    manner = Manner(float(np.median(pace)), float(np.median(voiced)) if len(voiced) else None)
    return manner, len(own), float(labels.frames[own].sum() * HOP / RATE)


def phone_ids() -> np.ndarray:
    from melforge.common.text.frontends import get_frontend
    from melforge.common.training.corpus.alignment import is_phone

    return np.flatnonzero([is_phone(symbol) for symbol in get_frontend("english").symbols])


def check_speech(
    tts: TextToSpeech, listener: Listener | None, labels: Labels | None, judged: bool
) -> Iterator[str]:
    """Prints how each speaker of a voice speaks; yields what is wrong with it.

    More words misheard than the listener's limit are wrong where they are `judged`.
    """
    names = tts.acoustic.source.speakers
    same: dict[int, int] = {}
    if labels:
        try:
            same = speakers_of_corpus(names, labels.speakers)
        except InputError as error:
            yield str(error)
    headings = ["speaker", "seconds", "phones/s", "pitch", *(["in corpus", ""] if same else [])]
    rows, faults = [], []
    for number, name in enumerate(names or [NOBODY]):
        who = f"speaker {name}: " if names else ""
        audios = tts.speak_many(SENTENCES, Controls(speaker=number))
        found = [measure(audio.samples, audio.sampling_rate) for audio in audios]
        pairs = zip(audios, found, strict=True)
        wrong = [f"{audio.text!r}: {fault}" for audio, one in pairs for fault in faults_of(audio, one)]
        manner = manner_of_speech(audios, found)
        rows.append([name, f"{sum(audio.seconds for audio in audios):.1f}", *manner.cells()])
        if labels and same:
            own = manner_of_labels(labels, same[number])[0] if number in same else Manner(None, None)
            rows[-1] += own.cells()
            wrong += differences(manner, own)
        if listener:
            one = listen(listener, audios, who)
            rows[-1].append(f"{100 * one.rate:.1f} %")
            wrong += [one.summary()] if judged and not one.ok else []
        faults += [f"{who}{fault}" for fault in wrong]
    print_table([*headings, *(["words misheard"] if listener else [])], rows)
    if not is_pitch_measured():
        print(f"note: pitch is not measured without pyworld ({install_command('train')})")
    if not listener:
        print("note: no ear hears it (docs/recognition.md)")
    yield from faults


def listen(listener: Listener, audios: Sequence[Audio], who: str) -> Listener:
    """A listener of a speaker's sentences alone, which prints what it hears otherwise; `who` begins lines."""
    own = Listener(listener.recogniser, listener.limit)
    for audio in audios:
        if heard := own.listen(audio).describe():
            print(f"{who}{audio.text!r}: {heard}")
    return own


def speakers_of_corpus(voice: Sequence[str], corpus: Sequence[str]) -> dict[int, int]:
    """Ids of a voice's speakers and those of the same in a corpus, by names; empty ones have one speaker.

    An InputError where the voice lacks one of the corpus.
    """
    if not voice and not corpus:
        return {0: 0}
    if not voice or not corpus:
        raise InputError(f"speakers: {len(corpus) or 1} in the corpus, {len(voice) or 1} in the voice")
    if lacking := [name for name in corpus if name not in voice]:
        raise InputError(f"the voice lacks speakers of the corpus: {', '.join(lacking)}")
    return {voice.index(name): number for number, name in enumerate(corpus)}


def faults_of(audio: Audio, found: Measures) -> Iterator[str]:
    if not np.isfinite(audio.samples).all():
        yield "NaN or infinite samples"
    elif found.silent:
        yield "nothing is heard"
    elif np.mean(np.abs(audio.samples) >= 1) > OVERLOAD:
        yield f"overloaded, peak {found.peak:.2f}"
    yield from (f"{problem.what} ({problem.advice})" for problem in audio.problems)


def manner_of_speech(audios: Sequence[Audio], found: Sequence[Measures]) -> Manner:
    from melforge.common.audio.sound_files import resample

    pairs = [(audio, one) for audio, one in zip(audios, found, strict=True) if not one.silent]
    paces = [
        sum(symbol.startswith("@") for part in audio.utterances for symbol in part.symbols) / one.speech
        for audio, one in pairs
    ]
    voiced = np.zeros(0)
    if is_pitch_measured():
        tracks = [pitch_contour(resample(audio.samples, audio.sampling_rate, RATE)) for audio, _ in pairs]
        voiced = np.concatenate([track[track > 0] for track in tracks] or [voiced])
    spoken = any(paces)  # a frontend of letters has no phones
    return Manner(
        float(np.median(paces)) if spoken else None, float(np.median(voiced)) if len(voiced) else None
    )


def differences(voice: Manner, corpus: Manner) -> Iterator[str]:
    """What the voice does otherwise than those whose speech it learnt."""
    for what, unit, limit, own, other in (
        ("pace", "phones a second", PACE_LIMIT, voice.pace, corpus.pace),
        ("pitch", "Hz", PITCH_LIMIT, voice.pitch, corpus.pitch),
    ):
        if own and other and max(own / other, other / own) > limit:
            yield f"its {what} is {own:.1f} {unit}, and {other:.1f} in the corpus"

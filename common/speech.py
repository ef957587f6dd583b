"""What goes into speaking and what comes out: controls, the acoustic model's answer, audio, timings."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from melforge.common.arguments import checked
from melforge.common.arrays import Array
from melforge.common.audio.sound_files import write_audio
from melforge.common.errors import InputError, close_matches
from melforge.common.registry import MODELS
from melforge.common.text import Unspoken, Utterance
from melforge.common.text.split import BREAK, Pause


@dataclass(frozen=True)
class Control:
    """A control's range and words, for whatever offers it: command lines, files, requests."""

    help: str
    low: float = 0  # of numbers, inclusive
    high: float = math.inf
    unit: str = ""
    negated: str = ""  # the option's name where it turns the control off


def control(default: Any, help: str, *details: Any, **options: Any) -> Any:
    return field(default=default, metadata={"control": Control(help, *details, **options)})


@dataclass(frozen=True)
class Controls:
    """How to speak. The defaults leave everything as the models predict it; None is as the voice says.

    This is the one table of controls: options, keys of files and checks are made of it (`control_fields`).
    """

    pace: float = control(1.0, "speed, as a multiple of the usual one (default: 1)", 0.1, 10)
    pitch_shift: float = control(0.0, "raise the pitch by so many hertz", -1000, 1000, unit="HZ")
    pitch_semitones: float = control(
        0.0, "raise it by so many semitones, the same interval for low and high voices", -48, 48, unit="N"
    )
    pitch_amplify: float = control(1.0, "livelier above 1, flatter below", -10, 10, unit="FACTOR")
    pitch_flatten: bool = control(False, "one pitch throughout")
    pitch_invert: bool = control(False, "mirror the pitch at its mean")
    denoising_strength: float | None = control(
        None, "how much of the vocoder's hum is taken out (default: the voice's; 0: off)", 0, 10, unit="X"
    )
    sharpness: float | None = control(
        None, "contrast between neighbouring mel bands, 0 adds none (default: the voice's)", 0, 2, unit="X"
    )
    sigma: float | None = control(None, "spread of its noise (default: the voice's)", 0, 10, unit="X")
    gate_threshold: float | None = control(
        None, "how certain it must be to stop, 0 to 1 (default: the model's)", 0, 1, unit="P"
    )
    step_limit: int | None = control(
        None, "decoder steps for an utterance at most (default: the model's)", 1, unit="N"
    )
    dropout: bool = control(True, "the same speech for every seed, but flatter", negated="no_dropout")
    volume: float = control(1.0, "loudness, as a multiple of the usual amplitude (default: 1)", 0, 10)
    pause_factor: float = control(1.0, "times the usual pauses between sentences, clauses, paragraphs", 0, 10)
    clause_pause: float | None = control(None, "silence where a long sentence is divided", 0, 20, unit="S")
    sentence_pause: float | None = control(None, "silence between sentences", 0, 20, unit="S")
    paragraph_pause: float | None = control(None, "silence between paragraphs", 0, 20, unit="S")
    seed: int = control(0, "seed of models that draw noise (default: 0)")
    speaker: int | str = control(
        0, "name or id of the speaker, or a mix as ann:0.3,ben:0.7 (default: the first)"
    )

    def __post_init__(self) -> None:
        for name, (kind, about, default) in control_fields().items():
            value: Any = getattr(self, name)
            if isinstance(value, np.generic):  # of an array of seeds, or paces
                object.__setattr__(self, name, value := value.item())
            if value is None and default is None:
                continue
            if kind is bool:
                right, wanted = isinstance(value, bool), "true or false"
            elif kind in (int, str):
                right = isinstance(value, int) and not isinstance(value, bool) and about.low <= value
                wanted = f"a whole number from {about.low} on"
                if kind is str:
                    right, wanted = right or (isinstance(value, str) and bool(value)), f"{wanted} or a name"
            else:
                number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
                right = about.low <= number <= about.high
                wanted = f"a number from {about.low:g} to {about.high:g}"
            if not right:
                raise InputError(f"{name} must be {wanted}, not {value!r}")

    def silence(self, pause: float) -> tuple[float, bool]:
        """Seconds for the pause behind an utterance; whether the silence of the speech is a part of them."""
        kind = pause.kind if isinstance(pause, Pause) else ""
        if kind == BREAK:
            return float(pause), pause > 0
        asked: float | None = getattr(self, f"{kind}_pause") if kind else None
        return (pause * self.pause_factor, False) if asked is None else (asked, True)

    def asked(self) -> list[str]:
        """The names of the controls that differ from their defaults."""
        # A command line has "0" for the first speaker.
        return [f.name for f in fields(self) if getattr(self, f.name) not in (f.default, str(f.default))]


@cache
def usual_controls() -> Controls:
    """The defaults, made and checked once."""
    return Controls()


@cache
def control_fields() -> dict[str, tuple[type, Control, Any]]:
    """Type, range and default of each control by its name. The type of a name or whole number is text.

    The help of one that a single model has begins with that model's name.
    """
    hints, table = get_type_hints(Controls), {}
    for f in fields(Controls):
        kinds = get_args(hints[f.name]) or (hints[f.name],)
        about, models = f.metadata["control"], [m.name for m in MODELS.values() if f.name in m.controls]
        if len(models) == 1:
            about = replace(about, help=f"{models[0]}: {about.help}")
        table[f.name] = (str if str in kinds else kinds[0], about, f.default)
    return table


def speaker_shares(speaker: int | str, names: Sequence[str]) -> np.ndarray:
    """Each speaker's share of a voice, float32 [speakers], read only; `names` are in the order of ids.

    A speaker is given by id or by name, a mix as "ann:0.3,ben:0.7", whose shares are made to sum to 1.
    Where a name is a number too, text means the name and a whole number the id. An InputError for a speaker
    that is not there lists all; one for a share says what it must be.
    """
    return _shares(speaker, tuple(names))


@lru_cache(256, typed=True)  # each utterance of a server asks several times for the same few
def _shares(speaker: int | str, names: tuple[str, ...]) -> np.ndarray:
    ids = [*map(str, range(len(names)))]

    def number(given: int | str) -> int | None:
        orders = (names, ids) if isinstance(given, str) else (ids, names)
        return next((known.index(str(given)) for known in orders if str(given) in known), None)

    shares = np.zeros(len(names))
    mixed = isinstance(speaker, str) and number(speaker) is None and any(sign in speaker for sign in ":,")
    for part in str(speaker).split(",") if mixed else [speaker]:
        who, share = part, 1.0
        if mixed:
            who, _, text = (word.strip() for word in str(part).rpartition(":"))
            try:
                share = float(text) if who else math.nan
            except ValueError:
                share = math.nan
            if not 0 <= share <= 1e9:
                raise InputError(f"speaker {part!r} is no NAME:SHARE, with a share of 0 to 1e9")
        if (found := number(who)) is None:
            all_of = f"0 to {len(names) - 1}" if list(names) == ids else ", ".join(names)
            near = close_matches(str(who), names, 0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InputError(f"speaker {who!r} does not exist: {hint}this model has {len(names)} ({all_of})")
        shares[found] += share
    if not shares.any():
        raise InputError(f"speaker {speaker!r}: all shares are 0")
    made = (shares / shares.sum()).astype(np.float32)
    made.setflags(write=False)
    return made


def speaker_name(speaker: int | str, names: Sequence[str]) -> str:
    """Of a speaker, or of the one who has most of a mix; "" where the voice has one."""
    return names[int(speaker_shares(speaker, names).argmax())] if names else ""


def controls_of_each(controls: Controls | Sequence[Controls] | None, count: int) -> list[Controls]:
    """The controls of each of so many texts, of one for all (None: the defaults) or of one for each.

    An InputError where there are more or fewer than texts.
    """
    if controls is None or isinstance(controls, Controls):
        return [controls or usual_controls()] * count
    require_as_many(controls, count)
    return list(controls)


def require_as_many(controls: Sequence[Controls], count: int) -> None:
    """An InputError unless there are as many controls as texts."""
    if len(controls) != count:
        raise InputError(f"{len(controls)} controls for {count} texts: give one for each, or one for all")


@dataclass(frozen=True, eq=False)
class AcousticOutput:
    """A batch from an acoustic model. `mel` stays on the model's device; the rest is numpy."""

    mel: Array  # float32 [B, n_mels, T_mel]
    mel_lengths: np.ndarray  # int64 [B]
    durations: np.ndarray  # int64 [B, T_text], frames; where attention decides, those that each symbol got
    pitch: np.ndarray | None = None  # float32 [B, T_text], Hz
    alignment: np.ndarray | None = None  # float32 [B, decoder steps, T_text]: attention; rows sum to 1
    alignment_lengths: np.ndarray | None = None  # int64 [B], decoder steps
    problems: tuple[str, ...] = ()  # what went wrong with each item ("": nothing), [B]


class MelTooLong(ValueError):
    """Items of a batch, by their rows, whose mel is longer than the model can make. None was made."""

    def __init__(self, message: str, rows: Sequence[int]):
        super().__init__(message, rows)  # all of them: it is made of these again in another process
        self.rows = tuple(rows)

    def __str__(self) -> str:
        return self.args[0]


def check_ids(ids: Sequence[np.ndarray], n_symbols: int, longest_text: int) -> None:
    """Raises where an utterance's symbol ids, int64 [T_text], are none that a model takes.

    An InputError for a text or a frontend that does not suit the model.
    """
    for row in ids:
        if not len(row):
            raise ValueError("an utterance without symbols cannot be spoken")
        if len(row) > longest_text:
            raise InputError(f"an utterance of {len(row)} symbols; this model goes up to {longest_text}")
        if row.min() < 0 or row.max() >= n_symbols:
            raise InputError(
                f"symbol ids from {row.min()} to {row.max()}, but the model has {n_symbols} "
                "symbols: text frontend and model do not belong together"
            )


@dataclass
class Timings:
    """Seconds spent in each stage of one call, and what they made."""

    stages: dict[str, float] = field(default_factory=dict)
    audio: float = 0.0  # seconds of audio made
    first_audio: float = 0.0  # seconds of work until the first samples left
    # Told what a stage has just taken, of a batch all of it.
    watch: Callable[[str, float], None] | None = field(default=None, repr=False, compare=False)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._add(name, time.perf_counter() - start, 1.0)

    def add(self, other: Timings, share: float) -> None:
        """Adds this text's share of a batch's work."""
        for name, seconds in other.stages.items():
            self._add(name, seconds, share)

    def _add(self, name: str, seconds: float, share: float) -> None:
        self.stages[name] = self.stages.get(name, 0.0) + seconds * share
        if self.watch is not None:
            self.watch(name, seconds)

    @property
    def total(self) -> float:
        """Seconds of work; of a batch, this text's share by length."""
        return sum(self.stages.values())

    @property
    def rtf(self) -> float:
        """Seconds of audio for each second of work."""
        return self.audio / self.total if self.total else 0.0

    def summary(self) -> dict[str, float]:
        named = {f"{name}_s": seconds for name, seconds in self.stages.items()}
        work = {"total_s": self.total, "first_audio_s": self.first_audio}
        return {**named, **work, "audio_s": self.audio, "rtf": self.rtf}


@dataclass(frozen=True)
class Problem:
    """An utterance that the acoustic model may not have spoken as written."""

    utterance: int  # its number, from 0
    text: str  # as written
    what: str  # what happened
    advice: str  # what to do about it

    def __str__(self) -> str:
        return f"{shown(self.text)}: {self.what}; {self.advice}"


def shown(text: str, longest: int = 48) -> str:
    """A text in quotes, in one line, with dots for what is too long."""
    text = " ".join(text.split())
    return f'"{text if len(text) <= longest else text[: longest - 3].rstrip() + "..."}"'


@dataclass(frozen=True, eq=False)
class Audio:
    """A spoken text, with everything on the way to it, one entry for each utterance.

    `pitches` and `alignments` are None where the acoustic model has none.
    """

    text: str
    samples: np.ndarray  # float32 [T_audio] in [-1, 1]
    sampling_rate: int
    hop_length: int  # samples of a mel frame
    utterances: tuple[Utterance, ...]
    unspoken: tuple[Unspoken, ...]
    starts: tuple[float, ...]  # seconds at which each utterance begins
    mels: tuple[np.ndarray, ...]  # float32 [n_mels, T_mel]
    durations: tuple[np.ndarray, ...]  # int64 [T_text], frames
    pitches: tuple[np.ndarray, ...] | None  # float32 [T_text], Hz
    alignments: tuple[np.ndarray, ...] | None  # float32 [decoder steps, T_text]: attention; rows sum to 1
    notes: tuple[str, ...]  # how an utterance that was spoken again was; "" for most
    problems: tuple[Problem, ...]  # what may not be as written; empty if all is well
    timings: Timings
    warnings: tuple[str, ...] = ()  # what of the text's marks changes nothing

    def __repr__(self) -> str:
        return f"<Audio of {shown(self.text)}, {self.seconds:.2f} s at {self.sampling_rate} Hz>"

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sampling_rate

    @property
    def frame_seconds(self) -> float:
        return self.hop_length / self.sampling_rate

    @checked
    def save(self, path: str | Path) -> None:
        """Writes the samples as a sound file, in the format of the path's suffix.

        `.wav` and `.flac` have 16 bits; `.ogg` (Vorbis), `.mp3`, `.opus` and `.aac` (by ffmpeg) are
        compressed. The file appears only when it is whole. An InputError where the suffix names no format, or
        one that cannot be written here; an OSError where the path cannot be written.
        """
        write_audio(path, self.samples, self.sampling_rate)

    @property
    def mel(self) -> np.ndarray:
        """All utterances' mels in a row, float32 [n_mels, T_mel], without the pauses."""
        return np.concatenate(self.mels, axis=1)

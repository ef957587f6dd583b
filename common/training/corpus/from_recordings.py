"""Makes a training corpus of a folder of recordings with their texts, and reports what is wrong with them."""

import dataclasses
import hashlib
import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import numpy as np
from tqdm import tqdm

from melforge.common.audio.pcm import to_pcm16
from melforge.common.audio.sound_files import (
    c_libraries_silenced,
    decode_audio,
    read_audio,
    resample,
    write_audio,
)
from melforge.common.errors import InputError
from melforge.common.files import write_bytes
from melforge.common.text.english.pronounce import Phones, is_guessed
from melforge.common.text.frontends import get_frontend
from melforge.common.training.corpus.alignment import Aligner, durations_of, is_phone, line_symbols, words_of
from melforge.common.training.corpus.cutting import cut_long
from melforge.common.training.corpus.dataset import (
    FRONTEND,
    HOP,
    LABELS,
    METADATA,
    RATE,
    Labels,
    save_labels,
    too_short,
    write_metadata,
)
from melforge.common.training.corpus.defects import LONGEST, Line, find_defects, require_kinds, usable
from melforge.common.training.corpus.denoising import (
    AT_ONCE,
    Quiet,
    denoised,
    noise_to_remove,
    quiet_moments,
    room_noise,
)
from melforge.common.training.corpus.pitch import pitch_per_symbol
from melforge.common.training.corpus.processes import in_processes
from melforge.common.training.corpus.quality import Fit, Measures, fit_of, measure, prepared
from melforge.common.training.corpus.report import Report, make_report, save_report
from melforge.common.training.corpus.takes import CONVERTED, Take, convert, find_takes

LINES = "lines"  # folder of a JSON file for each line that was worked on: the next run takes it from there
CUTS = "cuts"  # of a file for each long recording: where its lines begin and end
METHOD = 3  # to be raised when what is done to a recording changes
LONGEST_READ = 600.0  # seconds
HEARD_IN_A_ROOM = 16  # lines by which a room's noise is known


def prepare_recordings(
    folder: Path,
    out: Path,
    speaker_from: str | None = None,
    keep: Sequence[str] = (),
    ear: str | None = None,
    workers: int = 1,
    progress: Callable[[float], object] = lambda share: None,
    frontend: str = FRONTEND,
    denoise: bool = True,
) -> Report:
    """Writes a corpus of a folder's recordings, see `find_takes`; an InputError where no line is usable.

    `progress` is told the share of the work that is done. `frontend` makes the symbols of the texts.
    `denoise` takes steady noise out of recordings that have it.
    """
    begun = time.monotonic()
    takes = find_takes(folder, speaker_from)
    if out.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"-o {out} lies in {folder}, which is read: give a folder beside it")
    if (out / LABELS).exists() and not (out / LINES).is_dir():
        raise InputError(f"{out} holds a corpus that was made otherwise: give a new folder")
    hear = listener(ear)
    takes = cut_long(takes, LONGEST, out / CUTS, key_of, ear)
    require_kinds(keep, {take.name for take in takes})
    for name in ("wavs", LINES):
        (out / name).mkdir(parents=True, exist_ok=True)
    known = {
        take.name: line for take in takes if (line := read_line(out, take, frontend, denoise)) is not None
    }
    finished = {name: line for name, line in known.items() if not line.error}
    left = [take for take in takes if take.name not in finished]
    rooms = rooms_of(takes) if denoise else None
    new = in_processes(_make, left, workers, "preparing", _start_worker, out, frontend, rooms)
    for number, line in enumerate(new, start=1):
        finished[line.name] = line
        progress(number / len(left))
    lines = [finished[take.name] for take in takes]
    remove_others(out, set(finished))
    if hear:
        hear(out, lines)
    defects = find_defects(lines, keep)
    used = usable(lines, defects)
    report = make_report(lines, defects, used, time.monotonic() - begun, len(takes) - len(known))
    if not used:
        save_report(out, report)
        reasons = "; ".join(f"{one.source}: {one.sentence}" for one in defects[:2])
        raise InputError(f"no line of {folder} is usable ({reasons}): {out / 'report.md'} lists all reasons")
    random.Random(0).shuffle(used)  # the recipes validate on the last ones
    labels = labels_of(used, frontend)
    write_metadata(out, labels)
    save_labels(out, labels)
    report["too_short"] = too_short(labels.seconds)
    save_report(out, report)
    return report


def labels_of(lines: Sequence[Line], frontend: str) -> Labels:
    """Lines that are labelled; their speakers are numbered where there are several."""
    speakers = sorted({line.speaker for line in lines})
    several = len(speakers) > 1
    return Labels(
        names=[line.name for line in lines],
        texts=[line.text for line in lines],
        ids=[np.array(line.ids) for line in lines],
        durations=[np.array(line.durations) for line in lines],
        pitch=[np.array(line.pitch, np.float32) for line in lines],
        speakers=speakers if several else [],
        speaker=np.array([speakers.index(line.speaker) for line in lines] if several else [], np.int64),
        frontend=frontend,
    )


# What was made of a line


def key_of(take: Take, frontend: str = FRONTEND, denoise: bool = True) -> str:
    """Changes with whatever a line is made of."""
    about: list[object] = [METHOD, take.source, take.text, *(take.piece or ()), *take.turns]
    about += [frontend] * (frontend != FRONTEND) + [denoise] * (not denoise)
    if take.sound is not None:
        status = take.sound.stat()
        about += [status.st_size, status.st_mtime_ns]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


def read_line(out: Path, take: Take, frontend: str, denoise: bool) -> Line | None:
    """What an earlier run made of a take that is the same still; one that failed is tried again."""
    try:
        content = json.loads((out / LINES / f"{take.name}.json").read_bytes())
        if content["key"] != key_of(take, frontend, denoise):
            return None
        for name, kind in (("measures", Measures), ("fit", Fit)):
            content[name] = content[name] and kind(**content[name])
        line = Line(**content)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    line.speaker = take.speaker
    return line if not line.sound or (out / "wavs" / f"{line.name}.wav").is_file() else None


def save_line(out: Path, line: Line) -> None:
    content = json.dumps(dataclasses.asdict(line), ensure_ascii=False)
    write_bytes(out / LINES / f"{line.name}.json", content.encode())


def remove_others(out: Path, names: set[str]) -> None:
    """Takes away what earlier runs made of lines that are no more."""
    for path in (out / LINES).glob("*.json"):
        if path.stem not in names:
            (out / "wavs" / f"{path.stem}.wav").unlink(missing_ok=True)
            path.unlink()


# Rooms

Room = tuple[str, Path | None]


def room_of(take: Take) -> Room:
    """The same for recordings that have been made together, as it seems."""
    return take.speaker, take.sound if take.piece or not take.sound else take.sound.parent


def rooms_of(takes: Sequence[Take]) -> dict[Room, list[Take]]:
    """Some takes of each room, from its first to its last."""
    rooms: defaultdict[Room, list[Take]] = defaultdict(list)
    for take in takes:
        rooms[room_of(take)].append(take)
    return {room: own[:: -(-len(own) // HEARD_IN_A_ROOM)] for room, own in rooms.items()}


# In the processes

_worker: dict = {}


def _start_worker(out: Path, frontend: str, rooms: Mapping[Room, Sequence[Take]] | None) -> None:
    _worker.clear()
    _worker.update(out=out, frontend=get_frontend(frontend), aligner=Aligner(), rooms=rooms)
    _noise_of.cache_clear()


@lru_cache(4)
def _noise_of(room: Room) -> np.ndarray | None:
    found: list[Quiet] = []
    for take in _worker["rooms"][room]:
        with suppress(InputError):
            audio, rate = _read(take, AT_ONCE / RATE)
            if (quiet := quiet_moments(resample(audio, rate, RATE))) is not None:
                found.append(quiet)
    return room_noise(found)


def _sound_of(take: Take) -> Path:
    if take.sound is None:
        raise InputError("its sound file is missing")
    if take.sound.suffix.lower() in CONVERTED:
        raise InputError(convert(take.sound))
    return take.sound


def _read(take: Take, longest: float = math.inf) -> tuple[np.ndarray, int]:
    """Its samples, of so many seconds at most."""
    start, end = take.piece or (0.0, math.inf)
    with c_libraries_silenced():
        return decode_audio(_sound_of(take), LONGEST_READ, start, min(end - start, longest))


def _denoised(audio: np.ndarray, rate: int, take: Take, level: float) -> np.ndarray | None:
    """A recording at `RATE` without its noise, where that is worth it."""
    if _worker["rooms"] is None:
        return None
    audio = resample(audio, rate, RATE)
    noise = noise_to_remove(quiet_moments(audio), _noise_of(room_of(take)), level)
    return None if noise is None else denoised(audio, noise)


def _make(take: Take) -> Line:
    """A line of a take: its wav, its labels, and all that is said about it."""
    key = key_of(take, _worker["frontend"].name, _worker["rooms"] is not None)
    line = Line(take.name, take.source, take.text or "", take.speaker, key)
    try:
        _fill(line, take)
    except InputError as error:
        line.error = str(error)
    save_line(_worker["out"], line)
    return line


def _fill(line: Line, take: Take) -> None:
    sound = _sound_of(take)
    if not take.text:
        what = "is empty" if take.text == "" else "is missing"
        raise InputError(f"its text {what}: write it to {METADATA}, or to {sound.stem}.txt beside it")
    with _timed(line, "read"):
        audio, rate = _read(take)
        line.measures = found = measure(audio, rate)
        if found.silent:
            return
        if (quieter := _denoised(audio, rate, take, found.level)) is not None:
            audio, rate, found = quieter, RATE, measure(quieter, RATE)
            line.noise = found.noise
        samples = to_pcm16(resample(prepared(audio, rate, found), rate, RATE))
        audio = samples.astype(np.float32) / 32768
        write_audio(_worker["out"] / "wavs" / f"{line.name}.wav", audio, RATE)
        line.sound = hashlib.sha256(samples.tobytes()).hexdigest()[:16]
    with _timed(line, "text"):
        analysis = _worker["frontend"](take.text)
        symbols, ids = line_symbols(analysis.utterances)
        line.phones = sum(map(is_phone, symbols))
        line.unspoken = sorted({one.symbol for one in analysis.unspoken})
        normalised = " ".join(utterance.normalised for utterance in analysis.utterances)
        line.guessed = guessed_words(normalised, _worker["frontend"].pronunciation.of_word)
    try:
        with _timed(line, "align"):
            words = words_of(symbols)
            found = _worker["aligner"].phone_times(audio, RATE, words)
            durations = durations_of(found.times, audio, RATE, HOP, symbols)
            line.fit = fit_of(audio, RATE, words, found)
        with _timed(line, "pitch"):
            pitch = pitch_per_symbol(audio, durations)
    except (ValueError, RuntimeError) as error:
        line.misaligned = str(error)
        return
    line.ids, line.durations = ids.tolist(), durations.tolist()
    line.pitch = np.round(pitch.astype(np.float64), 2).tolist()


@contextmanager
def _timed(line: Line, step: str) -> Iterator[None]:
    begun = time.process_time()
    try:
        yield
    finally:
        line.took[step] = round(time.process_time() - begun, 4)


def guessed_words(text: str, of_word: Callable[[str], Phones]) -> list[str]:
    """Words of a normalised text that are read by their letters, with their phones."""
    found = dict.fromkeys(
        word for token in text.split() if (word := token.strip(".,;:?!-'")).isalpha() and len(word) > 1
    )
    words = [word for word in found if not word.isupper() and is_guessed(word.lower())]
    return [f"{word} {{{' '.join(of_word(word.lower()))}}}" for word in words]


# Heard again


def listener(name: str | None) -> Callable[[Path, Sequence[Line]], None] | None:
    """What hears lines by an ear and notes in them what it heard; None where none is wanted or there."""
    from melforge.common.weights.ears import find_ear

    if (ear := find_ear(name)) is None:
        return None
    from melforge.common.recognition.listener import hear_again
    from melforge.common.recognition.loading import make_recogniser

    def hear(out: Path, lines: Sequence[Line]) -> None:
        left = [line for line in lines if line.sound and (line.heard or {}).get("ear") != ear.name]
        if not left:
            return
        recogniser = make_recogniser(ear.only)
        for line in tqdm(left, desc="checking", unit=" files", leave=False, disable=None):
            found = hear_again(recogniser, *read_audio(out / "wavs" / f"{line.name}.wav"), line.text)
            line.heard = {"ear": ear.name, "text": " ".join(found.heard), "wer": round(found.rate, 4)}
            save_line(out, line)

    return hear

"""Cuts long recordings into lines of their texts: an ear finds the words, and lines end at pauses."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import accumulate
from pathlib import Path

import numpy as np
from tqdm import tqdm

from melforge.common.audio.sound_files import c_libraries_silenced, decode_blocks, read_audio, resample_blocks
from melforge.common.files import write_bytes
from melforge.common.recognition.alignment import AlignedWord
from melforge.common.recognition.loading import make_recogniser
from melforge.common.recognition.long_recordings import alignment_of, hear_blocks
from melforge.common.recognition.recogniser import Recogniser
from melforge.common.recognition.transcript import reference_words
from melforge.common.text.split import split_sentences
from melforge.common.training.corpus.quality import frame_levels
from melforge.common.training.corpus.takes import Take
from melforge.common.weights.ears import find_ear

TOGETHER = 4  # pieces of a recording that are aligned at a time
FASTEST = 6  # words a second
PAUSE = 0.12  # seconds between words, as the ear hears them, in which a line may end
# Seconds: shorter lines go on behind a sentence, or a phrase, if they do not become longer than the last.
SHORT, LONG, LONGEST_LINE = 3.0, 6.0, 9.0
HEARD = 0.6  # of a phrase's words that the ear finds at least
MARGIN = 0.4  # seconds that a line has at most before its first word and behind its last


@dataclass(frozen=True)
class Cut:
    """A line of a long recording, in seconds from its beginning."""

    start: float
    end: float
    text: str
    speaker: str = ""  # where the text names several


def cut_long(
    takes: Sequence[Take], longest: float, folder: Path, key: Callable[[Take], str], ear: str | None
) -> list[Take]:
    """The takes, where in the place of each that lasts more than `longest` seconds there are its lines.

    Without an ear, or where it does not hear the text, a take stays. What was found is kept in `folder`,
    under the take's `key`.
    """
    whole = [take for take in takes if take.text and not take.piece]
    long = [take for take in whole if take.turns or seconds_of(take) > longest]
    if not long or (voice := find_ear(ear)) is None:
        return list(takes)
    recogniser = cache(partial(make_recogniser, voice.only))
    found: dict[str, list[Take]] = {}
    for take in tqdm(long, "cutting", unit=" recordings", leave=False, disable=None):
        path = folder / f"{take.name}.json"
        try:
            content = json.loads(path.read_bytes())
            lines = [Cut(**one) for one in content["lines"]] if content["key"] == key(take) else None
        except (OSError, ValueError, KeyError, TypeError):
            lines = None
        if lines is None:
            lines = cut_recording(recogniser(), take)
            folder.mkdir(parents=True, exist_ok=True)
            content = {"key": key(take), "lines": [asdict(line) for line in lines]}
            write_bytes(path, json.dumps(content, ensure_ascii=False).encode())
        found[take.name] = [
            replace(
                take,
                name=f"{take.name}-{number:0{len(str(len(lines)))}d}",
                source=f"{take.source} from {line.start:.1f} s",
                text=line.text,
                speaker=line.speaker or take.speaker,
                turns=(),
                piece=(line.start, line.end),
            )
            for number, line in enumerate(lines, start=1)
        ] or [take]
    return [line for take in takes for line in found.get(take.name, [take])]


def seconds_of(take: Take) -> float:
    """How long its sound lasts; 0 where that cannot be read, which is said later."""
    import soundfile

    try:
        seconds = soundfile.info(take.sound).duration if take.sound else 0.0
    except soundfile.LibsndfileError:
        return 0.0
    start, end = take.piece or (0.0, np.inf)
    return max(0.0, min(end, seconds) - start)


def cut_recording(recogniser: Recogniser, take: Take) -> list[Cut]:
    """The lines of a recording's text that are heard in it."""
    sound = take.sound
    assert sound is not None
    turns = take.turns or ((take.speaker, take.text or ""),)
    spoken = [(name, phrase) for name, said in turns for phrase in phrases_of(said)]
    phrases = [phrase for _, phrase in spoken]
    words = [reference_words(phrase, recogniser.labels) for phrase, _ in phrases]
    edges = [0, *accumulate(map(len, words))]  # numbers of the phrases' first words
    times = word_times(recogniser, sound, [word for some in words for word in some])
    lines: list[list[int]] = [[]]  # numbers of phrases
    begin = 0.0  # of the last line
    for number, (_, ends_sentence) in enumerate(phrases):
        span = range(edges[number], edges[number + 1])
        found = sorted(times.keys() & span)
        if lines[-1] and spoken[lines[-1][-1]][0] != spoken[number][0]:
            lines.append([])  # another speaks
        if len(found) < max(1, HEARD * len(span)):
            times = {word: time for word, time in times.items() if word not in span}
            lines.append([])  # it is not said
            continue
        lines[-1].append(number)
        if len(lines[-1]) == 1:
            begin = times[found[0]][0]
        end = times.get(span[-1])
        following = times.get(edges[number + 1])
        if end and following and following[0] - end[1] >= PAUSE:
            next_end = times.get(edges[min(number + 2, len(phrases))] - 1, following)[1]
            least = SHORT if ends_sentence else LONG
            if end[1] - begin >= least or next_end - begin > LONGEST_LINE:
                lines.append([])
    cuts: list[Cut] = []
    said = sorted(times)
    for line in filter(None, lines):
        first, behind = (bisect_left(said, edges[number]) for number in (line[0], line[-1] + 1))
        begin, end = times[said[first]][0], times[said[behind - 1]][1]
        before = times[said[first - 1]][1] if first else 0.0
        after = times[said[behind]][0] if behind < len(said) else np.inf
        start = _quietest(sound, max(before, begin - MARGIN), begin)
        stop = _quietest(sound, end, min(after, end + MARGIN))
        text = " ".join(phrases[number][0] for number in line)
        cuts.append(Cut(round(start, 3), round(stop, 3), text, spoken[line[0]][0]))
    return cuts


def phrases_of(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text between its punctuation marks, and whether each ends a sentence."""
    for sentence, _ in split_sentences(text):
        *inner, last = re.split(r"(?<=[,;:])\s+", sentence.strip())
        yield from ((phrase, False) for phrase in inner)
        yield last, True


def word_times(recogniser: Recogniser, sound: Path, words: Sequence[str]) -> dict[int, tuple[float, float]]:
    """When each word of a text is said, in seconds, by its number; what is not said is not there."""
    rate, times = recogniser.sampling_rate, {}
    blocks, rates = _blocks(sound)
    pieces = hear_blocks(recogniser, resample_blocks(blocks, rates, rate))
    group: list = []
    place = 0
    for piece in _with_end(pieces):
        group += [piece] if piece else []
        if not group or (piece and len(group) < TOGETHER):
            continue
        seconds = (group[-1][0].end - group[0][0].start) / rate
        some = words[place : place + int(FASTEST * seconds) + 1]
        # The last piece may end in a word, or its beginning may be heard as more of the text than it has.
        until = group[-1][0].start / rate if piece else np.inf
        said: list[AlignedWord] = [
            one for one in alignment_of(recogniser, group, some).words if one.end <= until
        ]
        for one in said:
            times[place + one.number] = (one.start, one.end)
        place += max((one.number + 1 for one in said), default=0)
        group = group[-1:]
    return times


def _with_end(pieces: Iterator[tuple]) -> Iterator[tuple | None]:
    yield from pieces
    yield None


def _blocks(sound: Path) -> tuple[Iterator[np.ndarray], int]:
    blocks = decode_blocks(sound)
    first, rate = next(blocks)

    def samples() -> Iterator[np.ndarray]:
        yield first
        yield from (block for block, _ in blocks)

    return samples(), rate


def _quietest(sound: Path, start: float, end: float) -> float:
    """The middle of the quietest 50 ms between two times in seconds."""
    if end - start < 0.05:
        return (start + end) / 2
    with c_libraries_silenced():
        levels = frame_levels(*read_audio(sound, start, end - start))
    if len(levels) < 5:
        return (start + end) / 2
    return start + (int(np.convolve(levels, np.ones(5), "valid").argmin()) + 2.5) / 100

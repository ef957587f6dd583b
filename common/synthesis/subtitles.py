"""Subtitles of what was spoken: SubRip, WebVTT, and JSON with the times of words and phonemes."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from melforge.common.arguments import checked
from melforge.common.speech import Audio
from melforge.common.synthesis.timestamps import (
    Spoken,
    Word,
    as_rows,
    bookmark_rows,
    bookmarks,
    utterance_timestamps,
)
from melforge.common.text.words import common_breaks

LINE = 42  # characters of a line, of which a cue has two
LONGEST = 2 * LINE
LONGEST_SECONDS = 7.0
SHORTEST = LINE // 2  # characters before a mark where a cue may end
_MARKS = (".", "!", "?", ",", ";", ":", "…", "—", "–")


@dataclass(frozen=True)
class Cue:
    """Some words as written, and the seconds from and to which they are spoken."""

    text: str
    start: float
    end: float


@checked
def cues(audio: Spoken) -> list[Cue]:
    """The text as written in cues that a viewer can read: two lines and seven seconds at most, where the text
    can be cut so; they end at marks if possible, and never span two utterances.
    """
    made = zip(audio.utterances, utterance_timestamps(audio), strict=True)
    return [cue for utterance, words in made if words for cue in _cues(utterance.text, words)]


def _cues(written: str, words: Sequence[Word]) -> list[Cue]:
    breaks = common_breaks(written, [word.text for word in words])
    found = []
    first = 0
    while first < len(breaks) - 1:
        last = _last(written, words, breaks, first)
        (start, word), (end, following) = breaks[first], breaks[last]
        text = " ".join(written[start:end].split())
        if following > word:
            found.append(Cue(text, words[word].start, words[following - 1].end))
        elif found:  # what nothing speaks stays with what is before it
            found[-1] = Cue(f"{found[-1].text} {text}", found[-1].start, found[-1].end)
        first = last
    return found


def _last(written: str, words: Sequence[Word], breaks: Sequence[tuple[int, int]], first: int) -> int:
    """The break where the cue that begins at `first` ends."""
    start, word = breaks[first]
    fitting = [first + 1]
    for place in range(first + 2, len(breaks)):
        end, following = breaks[place]
        seconds = words[following - 1].end - words[min(word, following - 1)].start
        if len(written[start:end].rstrip()) > LONGEST or seconds > LONGEST_SECONDS:
            break
        fitting.append(place)
    if fitting[-1] == len(breaks) - 1:
        return fitting[-1]
    texts = {place: written[start : breaks[place][0]].rstrip().rstrip("\"')”’") for place in fitting}
    marked = [place for place, text in texts.items() if text.endswith(_MARKS) and len(text) >= SHORTEST]
    return (marked or fitting)[-1]


@checked
def srt(audio: Spoken) -> str:
    """SubRip."""
    return srt_of(cues(audio))


@checked
def vtt(audio: Spoken) -> str:
    """WebVTT."""
    return vtt_of(cues(audio))


def srt_of(cues: Iterable[Cue]) -> str:
    """SubRip."""
    blocks = []
    for number, cue in enumerate(cues, start=1):
        text = _lines(cue.text).replace("-->", "->")
        blocks.append(f"{number}\n{_clock(cue.start, ',')} --> {_clock(cue.end, ',')}\n{text}\n")
    return "\n".join(blocks)


def vtt_of(cues: Iterable[Cue]) -> str:
    """WebVTT."""
    blocks = [
        f"{_clock(cue.start, '.')} --> {_clock(cue.end, '.')}\n{_escaped(_lines(cue.text))}\n" for cue in cues
    ]
    return "\n".join(["WEBVTT\n", *blocks])


@checked
def words_json(audio: Audio) -> str:
    """JSON: the utterances with their words and phonemes."""
    made = zip(audio.utterances, utterance_timestamps(audio), strict=True)
    rows = [{"text": u.text, "normalised": u.normalised, "words": as_rows(words)} for u, words in made]
    content = {"text": audio.text, "seconds": round(audio.seconds, 4), "utterances": rows}
    content["marks"] = bookmark_rows(bookmarks(audio))
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


WRITERS: dict[str, Callable[[Audio], str]] = {"srt": srt, "vtt": vtt, "json": words_json}


def _clock(seconds: float, point: str) -> str:
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    minutes, whole = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{whole:02}{point}{milliseconds:03}"


def _lines(text: str) -> str:
    """One line, or two that are about equally long; more only where a cue could not be cut."""
    if len(text) <= LINE:
        return text
    for width in range(-(-len(text) // 2), LINE + 1):
        if len(lines := _wrapped(text, width)) == 2:
            return "\n".join(lines)
    return "\n".join(_wrapped(text, LINE))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

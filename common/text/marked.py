"""Texts that say how they are to be spoken: their passages, and what becomes of these in a frontend.

SSML (`ssml.py`) and marks in brackets (`brackets.py`) are two ways to write the same. Both are read into
passages, which end where a pause or another speaker is asked for; a frontend reads each as it reads a text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from melforge.common.text import Analysis, Frontend, SaidAs, Unspoken, Utterance, spoken_by
from melforge.common.text.lexicon import possessive
from melforge.common.text.split import BREAK, CLAUSE_PAUSE, NO_PAUSE, SENTENCE_PAUSE, Pause
from melforge.common.text.style import PLAIN, Style
from melforge.common.text.words import common_breaks, words_of

_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*\s*\Z")
_POSSESSIVE = re.compile(r"['’]s\b")
BLANK, FULL_STOP, COMMA = " ", ".", ","


@dataclass(eq=False)
class Passage:
    """A part of a marked text that is spoken without a break."""

    text: str = ""
    origins: list[tuple[int, int]] = field(default_factory=list)  # from this index on: that of the given text
    styles: list[tuple[int, Style]] = field(default_factory=list)  # from this index on
    said: list[SaidAs] = field(default_factory=list)
    bookmarks: deque[tuple[int, str]] = field(default_factory=deque)  # index and name, until it is placed
    speaker: str = ""
    pause: Pause = NO_PAUSE  # behind it
    goes_on: bool = False  # the sentence does, behind the pause

    def origin(self, index: int) -> int:
        """Where in the given text the character at this index stands."""
        start, origin = self.origins[max(0, bisect_right(self.origins, (index, 1 << 62)) - 1)]
        return origin + index - start

    def style(self, index: int) -> Style:
        return self.styles[max(0, bisect_right(self.styles, index, key=lambda entry: entry[0]) - 1)][1]

    def analyses(self, frontend: Frontend) -> Iterator[Analysis]:
        """What the frontend makes of it, with what the marks ask for."""
        end = 0
        for analysis in spoken_by(frontend, self.speaker).sentences(self.text, self.said):
            utterances = []
            for utterance in analysis.utterances:
                start = self.text.find(utterance.text, end)
                if start < 0:  # two speak the same part, which stands for many words
                    start = max(0, self.text.rfind(utterance.text))
                end = start + len(utterance.text)
                places = places_of(utterance, start)
                spoken = [i for i, symbol in enumerate(utterance.symbols) if symbol != BLANK]
                found = []
                while self.bookmarks and self.bookmarks[0][0] < end:
                    index, name = self.bookmarks.popleft()
                    found.append((next((i for i in spoken if places[i][0] >= index), len(places)), name))
                styles = tuple(self.style(first) for first, _ in places)
                utterances.append(
                    replace(
                        utterance,
                        places=tuple(
                            (self.origin(a), self.origin(max(a, b - 1)) + (b > a)) for a, b in places
                        ),
                        styles=styles if any(style != PLAIN for style in styles) else (),
                        bookmarks=tuple(found),
                        speaker=self.speaker,
                    )
                )
            unspoken = [Unspoken(u.symbol, self.origin(u.position), u.text) for u in analysis.unspoken]
            yield replace(analysis, utterances=tuple(utterances), unspoken=tuple(unspoken))


class PassageBuilder:
    """Takes a marked text from its beginning to its end, and makes its passages."""

    def __init__(self) -> None:
        self.passages: list[Passage] = [Passage()]
        self.lead = NO_PAUSE  # before the first passage
        self.warnings: list[str] = []
        self.style, self.speaker = PLAIN, ""
        self._parts: list[str] = []  # of the last passage's text
        self._length = 0
        self._is_blank = True
        self._is_whole = False  # a sentence was closed behind the last passage's words

    def write(self, text: str, at: int, said: list[tuple[int, int, str]] | None = None) -> None:
        """Text that stands at this index; `said`: how parts of it are said, as `SaidAs`."""
        if not text.strip() and self._is_blank:
            return
        passage = self.passages[-1]
        if passage.speaker != self.speaker and any(map(str.isalnum, text)):
            if not self._is_blank:
                self.close(SENTENCE_PAUSE if self._ends_sentence() else CLAUSE_PAUSE)
                passage = self.passages[-1]
            passage.speaker = self.speaker
        if self._is_blank:
            cut = len(text) - len(text.lstrip())
            text, at = text[cut:], at + cut
            said = [(start - cut, end - cut, spoken) for start, end, spoken in said or ()]
            if len(self.passages) > 1:
                is_word = any(map(str.isalnum, text)) and text[0] not in ".!?…"
                self.passages[-2].goes_on = is_word and not self._is_whole
        self._is_blank = self._is_whole = False
        passage.origins.append((self._length, at))
        passage.styles.append((self._length, self.style))
        for start, end, spoken in said or ():
            passage.said.append(SaidAs(self._length + start, self._length + end, spoken))
        self._parts.append(text)
        self._length += len(text)

    def bookmark(self, name: str) -> None:
        self.passages[-1].bookmarks.append((self._length, name))

    def pause(self, seconds: float) -> None:
        """A break. One of no time only takes away the pause behind a sentence."""
        if seconds or self._is_blank or self._ends_sentence():
            self.close(Pause(seconds, BREAK))

    def close(self, pause: Pause, is_whole: bool = False) -> None:
        """Ends the passage. Breaks add up; beside them no other pause counts. `is_whole`: a sentence ends."""
        self._is_whole |= is_whole
        if self._is_blank:
            if len(self.passages) > 1:
                self.passages[-2].pause = longer(self.passages[-2].pause, pause)
            elif pause.kind == BREAK:
                self.lead = longer(self.lead, pause)
            return
        passage = self.passages[-1]
        passage.text, passage.pause = "".join(self._parts).rstrip(), pause
        starts = {one.start for one in passage.said}
        passage.said = [
            one if one.end in starts else with_possessive(one, passage.text) for one in passage.said
        ]
        self._is_whole |= self._ends_sentence()
        self.passages.append(Passage())
        self._parts, self._length, self._is_blank = [], 0, True

    def finish(self) -> None:
        """Ends the text: only a break is heard behind it."""
        self.close(NO_PAUSE, is_whole=True)
        *_, last, empty = [Passage(), *self.passages]
        last.bookmarks += [(len(last.text), name) for _, name in empty.bookmarks]
        self.passages.pop()
        if self.passages and last.pause.kind != BREAK:
            last.pause = NO_PAUSE

    def _ends_sentence(self) -> bool:
        return _SENTENCE_END.search("".join(part[-8:] for part in self._parts[-3:])) is not None

    def analyses(self, frontend: Frontend) -> Iterator[Analysis]:
        """The analysis of each sentence, in order."""
        yield Analysis((), (), tuple(dict.fromkeys(self.warnings)))
        held, lead = (), self.lead  # the last utterances: what follows decides on the pause behind them
        for passage in self.passages:
            is_silent = True
            for analysis in passage.analyses(frontend):
                if analysis.utterances:
                    yield Analysis(held)
                    first, *others = analysis.utterances
                    held = (replace(first, lead=float(lead)), *others)
                    is_silent, lead = False, NO_PAUSE
                yield Analysis((), analysis.unspoken)
            if held:
                *others, last = held
                pause = longer(last.pause, passage.pause) if is_silent else passage.pause
                last = replace(_open(last, frontend) if passage.goes_on else last, pause=pause)
                end = tuple((len(last.symbols), name) for _, name in passage.bookmarks)
                held = (*others, replace(last, bookmarks=last.bookmarks + end))
            elif passage.pause.kind == BREAK:
                lead = longer(lead, passage.pause)
        yield Analysis(held)


def with_possessive(one: SaidAs, text: str) -> SaidAs:
    """With the 's that stands behind it: read by itself, this would be a letter."""
    if not _POSSESSIVE.match(text, one.end):
        return one
    return SaidAs(one.start, one.end + 2, possessive(one.spoken.rstrip()))


def longer(one: float, other: Pause) -> Pause:
    """Two pauses at the same place."""
    kinds = [pause.kind if isinstance(pause, Pause) else "" for pause in (one, other)]
    if kinds == [BREAK, BREAK]:
        return Pause(one + other, BREAK)
    if BREAK in kinds:
        return Pause(one, BREAK) if kinds[0] == BREAK else other
    return other if other > one or not isinstance(one, Pause) else one


def _open(utterance: Utterance, frontend: Frontend) -> Utterance:
    """With a comma at its end, where nobody wrote another mark."""
    if not utterance.text[-1:].isalnum():
        return utterance
    end = len(utterance.symbols) - (utterance.symbols[-1] == FULL_STOP)  # our own frontend sets one
    return replace(
        utterance,
        symbols=(*utterance.symbols[:end], COMMA),
        ids=np.append(utterance.ids[:end], frontend.symbols.index(COMMA)),
        places=(*utterance.places[:end], utterance.places[-1]),
        styles=(*utterance.styles[:end], *utterance.styles[-1:]),
    )


def places_of(utterance: Utterance, start: int) -> tuple[tuple[int, int], ...]:
    """Where what each symbol speaks stands in the passage, in which the utterance begins at `start`.

    A frontend that does not tell has words that are the same as written and as spoken.
    """
    if utterance.places:
        return utterance.places
    words = words_of(utterance.normalised, utterance.symbols)
    breaks = common_breaks(utterance.text, [word.text for word in words])
    place = (start, start + len(utterance.text))
    places, following = [place] * len(utterance.symbols), 0
    for number, word in enumerate(words):
        while following < len(breaks) and breaks[following][1] <= number:
            following += 1
        first, end = breaks[max(0, following - 1)][0], breaks[min(following, len(breaks) - 1)][0]
        place = (start + first, start + max(first, end))
        # A blank before a word is a part of it, as in our own frontend; a mark of the word before it.
        begin = word.start - (word.start > 0 and utterance.symbols[word.start - 1] == BLANK)
        places[begin:] = [place] * (len(places) - begin)
    return tuple(places)

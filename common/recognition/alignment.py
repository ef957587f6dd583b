"""Does a recording say an expected text? CTC alignment in which words may be left out or repeated.

A path through the text's characters and CTC's blanks may also jump from a word's end to a later word, or back
to an earlier one, at a price. Probabilities are summed over all paths to a state (the forward variables of
Graves and others 2006), and the path is traced back along the most probable of these sums: words run together
or heard badly are spread over many paths, each of which is improbable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# Natural logarithms: what a path pays for a word that it leaves out, for words said again, and for words
# without a space between them. Of 540 sentences, prices of 1, 3, 5 and 7 found 98.9, 96.7, 96.1 and 92.2 % of
# the words said twice, and all that were left out; of right ones 3.9, 1.1, 0.6 and 0.6 % were false alarms.
LEFT_OUT, AGAIN, NO_SPACE = -3.0, -3.0, -2.0
FARTHEST = 8  # words that a path leaves out, or says again, at a time
# Words on each side of the likeliest at each output: others are left out of its sums. Without this, an hour
# of speech took dozens of gigabytes.
NEAR = 200
STAY, STEP, OVER_BLANK, ENTER = range(4)
FLOOR = -30.0  # of a log-probability: one output alone rules nothing out
NEVER = -1e9
# Offsets from a word's last character of the states in which it may end: the blank behind its space, its
# space, its last blank, its last character.
ENDS = (3, 2, 1, 0)
END_PRICES = np.array((0.0, 0.0, NO_SPACE, NO_SPACE))


@dataclass(frozen=True)
class AlignedWord:
    """A word of the expected text as it was found, with seconds; `score` is the mean probability of its
    characters, each where it is highest.
    """

    word: str
    number: int  # in the text, from 0
    start: float
    end: float
    score: float
    again: bool  # whether it was said before


@dataclass(frozen=True)
class WordLeftOut:
    """A word of the expected text that was not said, and the second at which it should have been."""

    word: str
    number: int
    time: float


@dataclass(frozen=True)
class Alignment:
    """What was said of a text, in the order of the recording."""

    words: tuple[AlignedWord, ...]
    left_out: tuple[WordLeftOut, ...]

    @property
    def again(self) -> tuple[AlignedWord, ...]:
        """The words that were said before."""
        return tuple(word for word in self.words if word.again)

    @property
    def as_expected(self) -> bool:
        return not self.left_out and not self.again


class Origins(NamedTuple):
    """For each output where the best path into a state comes from, of the W words that are near."""

    first: np.ndarray  # int64 [F]: the first of these words
    way: np.ndarray  # uint8 [F, their states]: STAY, STEP, OVER_BLANK or ENTER
    jump: np.ndarray  # int8 [F, W]: from how many words back a path enters the word; 1 is the one before
    # uint8 [F, W + 1]: in which of its ENDS the word was that a path leaves; the first is before these words.
    end: np.ndarray


class TextStates:
    """The states of a text: a blank, then for each word its characters, each with a blank behind it, and a
    space with a blank behind it.
    """

    def __init__(self, words: Sequence[str], labels: str):
        self.words = words
        blank, space = len(labels), labels.index(" ")
        ids, first, last = [blank], [], []
        for word in words:
            first.append(len(ids))
            for character in word:
                ids += [labels.index(character), blank]
            last.append(len(ids) - 2)
            ids += [space, blank]
        self.ids = np.array(ids)
        self.first, self.last = np.array(first), np.array(last)
        self.may_step = np.ones(len(ids), bool)
        self.may_step[0] = False
        self.may_step[self.first] = False
        over = np.zeros(len(ids), bool)
        over[2:] = (self.ids[2:] != blank) & (self.ids[2:] != self.ids[:-2])
        over[self.first] = False
        self.may_skip_blank = over

    def states_of(self, first: int, count: int) -> slice:
        """The states of so many words; the blank before all words is of the first."""
        last = first + count
        return slice(
            self.first[first] if first else 0, self.first[last] if last < len(self.first) else len(self.ids)
        )


def align(
    log_probs: np.ndarray, words: Sequence[str], labels: str, times: np.ndarray, step: float
) -> Alignment:
    """log_probs [F, labels + 1] of outputs that begin at `times` [F] seconds and last `step` each.

    `words` are of the characters `labels`, without spaces; an empty list aligns nothing.
    """
    if not words or not len(log_probs):
        at = float(times[0]) if len(times) else 0.0
        return Alignment((), tuple(WordLeftOut(word, number, at) for number, word in enumerate(words)))
    text = TextStates(words, labels)
    outputs = np.maximum(log_probs, FLOOR)
    path, numbers = best_path(outputs, text)
    return _words_on(path, numbers, outputs, text, times, step)


def best_path(outputs: np.ndarray, text: TextStates) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities [F, labels + 1] -> the states of the best path int64 [F], empty where no word is
    said, and the number of the word visit that each output belongs to [F], 0 before the first.
    """
    frames, words = len(outputs), len(text.first)
    near = min(words, 2 * NEAR + 1)
    widest = max(
        part.stop - part.start for part in (text.states_of(i, near) for i in range(words - near + 1))
    )
    jumps = np.arange(FARTHEST, -FARTHEST - 1, -1)  # from the next word in the text
    prices = np.where(jumps < 0, AGAIN, jumps * LEFT_OUT)
    origins = Origins(
        np.zeros(frames, np.int64),
        np.zeros((frames, widest), np.uint8),
        np.zeros((frames, near), np.int8),
        np.zeros((frames, near + 1), np.uint8),
    )
    ends = np.full(near + 1 + 2 * FARTHEST, NEVER)
    inner = ends[FARTHEST : FARTHEST + near + 1]  # the first of which is before the first word
    behind = np.lib.stride_tricks.sliding_window_view(ends, len(jumps))[:near]  # of each word, by its jump

    padded = np.full(len(text.ids) + 2, NEVER)
    score = padded[2:]
    score[0] = outputs[0, text.ids[0]]
    reach = min(words, FARTHEST + 1)
    score[text.first[:reach]] = outputs[0, text.ids[text.first[:reach]]] + LEFT_OUT * np.arange(reach)
    origins.way[0] = ENTER
    origins.jump[0, :reach] = np.arange(reach)
    likeliest = 0
    for frame in range(1, frames):
        first = min(max(likeliest - NEAR, 0), words - near)
        part, some = text.states_of(first, near), slice(first, first + near)
        start, stop = part.start, part.stop
        origins.first[frame] = first
        inner[:], origins.end[frame, :] = word_ends(score, text, some)
        entry = (behind + prices).T
        origins.jump[frame] = jumps[entry.argmax(0)]
        ways = np.full((len((STAY, STEP, OVER_BLANK, ENTER)), stop - start), NEVER)
        ways[STAY] = score[part]
        ways[STEP] = np.where(text.may_step[part], padded[start + 1 : stop + 1], NEVER)
        ways[OVER_BLANK] = np.where(text.may_skip_blank[part], padded[start:stop], NEVER)
        ways[ENTER, text.first[some] - start] = log_sum(entry)
        origins.way[frame, : stop - start] = ways.argmax(0)
        found = log_sum(ways) + outputs[frame, text.ids[part]]
        score[:] = NEVER
        score[part] = found
        likeliest = int(np.searchsorted(text.first, start + found.argmax(), side="right")) - 1
    return trace_back(score, text, origins)


def log_sum(values: np.ndarray) -> np.ndarray:
    """Logarithms [N, M] -> the logarithms [M] of the sums of what they stand for."""
    highest = values.max(0)
    return highest + np.log(np.exp(values - highest).sum(0))


def word_ends(score: np.ndarray, text: TextStates, some: slice) -> tuple[np.ndarray, np.ndarray]:
    """Scores of states [S] -> the score of being behind each of some words [W + 1], the first of which stands
    for the beginning, and in which of its last states that is most likely.
    """
    ways = np.stack([score[text.last[some] + offset] for offset in ENDS]) + END_PRICES[:, None]
    ends = np.concatenate(([NEVER if some.start else score[0]], log_sum(ways)))
    return ends, np.concatenate(([0], ways.argmax(0))).astype(np.uint8)


def trace_back(score: np.ndarray, text: TextStates, origins: Origins) -> tuple[np.ndarray, np.ndarray]:
    """Scores of states [S] at the last output -> the best path and its word visits, as of `best_path`.

    A recording may end in the middle of a text, and without the space behind its last word.
    """
    words, frames = len(text.first), len(origins.way)
    ways = np.stack([score[text.last + offset] for offset in reversed(ENDS)])
    finals = np.concatenate(([score[0]], log_sum(ways))) + LEFT_OUT * np.arange(words, -1, -1)
    if (said := int(finals.argmax())) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    state = int(text.last[said - 1] + ways[:, said - 1].argmax())
    path, entries = np.zeros(frames, np.int64), np.zeros(frames, np.int64)
    for frame in range(frames - 1, -1, -1):
        path[frame] = state
        if frame == 0:
            entries[0] = state != 0
            break
        first = int(origins.first[frame])
        way = origins.way[frame, state - text.states_of(first, 1).start]
        if way == ENTER:
            entries[frame] = 1
            visited = int(np.searchsorted(text.first, state))
            before = visited - int(origins.jump[frame, visited - first])  # words; 0: the beginning
            state = (
                0 if before == 0 else int(text.last[before - 1] + ENDS[origins.end[frame, before - first]])
            )
        else:
            state -= int(way)
    return path, np.cumsum(entries)


def _words_on(
    path: np.ndarray,
    numbers: np.ndarray,
    outputs: np.ndarray,
    text: TextStates,
    times: np.ndarray,
    step: float,
) -> Alignment:
    """The words of a path with their times, and those that it leaves out."""
    words = text.words
    found: list[AlignedWord] = []
    said: set[int] = set()
    left_out: list[WordLeftOut] = []
    expected = 0

    def skip(until: int, time: float) -> None:
        for number in range(expected, until):
            if number not in said:
                left_out.append(WordLeftOut(words[number], number, time))

    for visit in range(1, int(numbers[-1]) + 1 if len(numbers) else 1):
        frames = np.flatnonzero(numbers == visit)
        number = int(np.searchsorted(text.first, path[frames[0]], side="right")) - 1
        first, last = text.first[number], text.last[number]
        own = frames[(path[frames] >= first) & (path[frames] <= last)]
        characters = range(first, last + 1, 2)
        scores = [outputs[own[path[own] == state], text.ids[state]].max() for state in characters]
        start, end = float(times[own[0]]), float(times[own[-1]]) + step
        skip(number, found[-1].end if found else start)
        score = float(np.exp(np.mean(scores)))
        found.append(AlignedWord(words[number], number, start, end, score, number in said))
        said.add(number)
        expected = number + 1
    skip(len(words), found[-1].end if found else float(times[0]))
    return Alignment(tuple(found), tuple(left_out))

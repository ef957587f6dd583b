"""What a recogniser's letters most probably spell: a beam search over beginnings of texts, by CTC and by a
language model (Graves and Jaitly 2014; Hannun and others 2014, arXiv:1408.2873).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from melforge.common.recognition.language_model import START, UNKNOWN, LanguageModel
from melforge.common.recognition.recogniser import Heard

WIDTH = 24  # texts that are gone on with
BEHIND = 16.0  # of the best one, in log-probability, at most
FAINTEST = math.exp(-8.0)  # probability of a letter that a text may have
A_WORD = 2.0  # what each word adds: probabilities fall with the number of words
NO_WORD, NO_WORDS_LETTER = (
    -12.0,
    -1.3,
)  # log-probability of a word that is not known, and of each of its letters


class _Beginning:
    """A text so far; those that go on from it are its `children` by their next label."""

    __slots__ = ("children", "label", "letters", "parent", "score", "told", "words")

    def __init__(
        self, parent: _Beginning | None, label: int, letters: str, words: tuple[int, int], told: float
    ):
        self.parent, self.label, self.children = parent, label, {}
        self.letters = letters  # of its last word, as far as it goes
        self.words = words  # the numbers of the last two whole ones
        self.told = self.score = (
            told  # by the language model of its whole words; with the last one's beginning
        )


class BeamSearch:
    """Texts of a recogniser's `labels`, which hold the space; the blank comes behind them."""

    def __init__(self, language: LanguageModel, labels: str):
        self.language, self.labels, self.space = language, labels, labels.index(" ")

    def __call__(self, heard: Heard) -> Heard:
        """The same with the labels of the best text, each where it is most probable, and their scores."""
        found = self.search(np.exp(heard.log_probs))
        labels = best_path(heard.log_probs, found)
        scores = heard.log_probs[np.arange(len(labels)), labels]
        return replace(heard, labels=labels, scores=scores)

    def search(self, probabilities: np.ndarray) -> list[int]:
        """probabilities [F, labels + 1] -> the best text's labels."""
        blank = len(self.labels)
        # Each text with the probabilities, on one scale, that it ends in a blank and in its last letter.
        beam = [(self.beginning(), 1.0, 0.0)]
        for row in probabilities.tolist():
            likely = [(label, p) for label, p in enumerate(row[:blank]) if p > FAINTEST]
            made: dict[_Beginning, list[float]] = {}
            for text, silent, sounding in beam:
                either, last = silent + sounding, text.label
                ends = made.setdefault(text, [0.0, 0.0])
                ends[0] += either * row[blank]
                if last != UNKNOWN:
                    ends[1] += sounding * row[last]
                for label, p in likely:
                    if label not in text.children:
                        text.children[label] = self.longer(text, label)
                    if (child := text.children[label]) is not None:
                        made.setdefault(child, [0.0, 0.0])[1] += (silent if label == last else either) * p
            ranked = [
                (math.log(ends[0] + ends[1]) + text.score, text, ends)
                for text, ends in made.items()
                if ends[0] + ends[1] > 0
            ]
            ranked.sort(key=lambda one: -one[0])
            best, _, ends = ranked[0]
            scale = 1 / (ends[0] + ends[1])
            kept = sum(score > best - BEHIND for score, _, _ in ranked[:WIDTH])
            beam = [(text, ends[0] * scale, ends[1] * scale) for _, text, ends in ranked[:kept]]
            for _, text, _ in ranked[kept:]:
                text.children.clear()  # they know their parent: a circle would keep all of them for long
        for text, _, _ in beam:
            text.children.clear()
        text: _Beginning | None = max(beam, key=lambda one: math.log(one[1] + one[2]) + self.whole(one[0]))[0]
        labels = []
        while text is not None and text.parent is not None:
            labels.append(text.label)
            text = text.parent
        return labels[::-1]

    @staticmethod
    def beginning() -> _Beginning:
        return _Beginning(None, UNKNOWN, "", (UNKNOWN, START), 0.0)

    def longer(self, text: _Beginning, label: int) -> _Beginning | None:
        """A text with one more label; None where a space follows no word."""
        if label != self.space:
            letters = text.letters + self.labels[label]
            made = _Beginning(text, label, letters, text.words, text.told)
            known = self.language.best_beginning(letters)
            made.score += unknown(letters) if known is None else max(known, unknown(letters))
            return made
        if not text.letters:
            return None
        number = self.language.number(text.letters)
        number = UNKNOWN if number is None else number
        return _Beginning(text, label, "", (text.words[1], number), self.whole(text))

    def whole(self, text: _Beginning) -> float:
        """What the language model tells of a text whose last word is at its end."""
        if not text.letters:
            return text.told
        number = self.language.number(text.letters)
        told = unknown(text.letters) if number is None else self.language.score(*text.words, number)
        return text.told + told + A_WORD


def unknown(letters: str) -> float:
    """The log-probability of a word that the language model does not know."""
    return NO_WORD + NO_WORDS_LETTER * len(letters)


def best_path(log_probs: np.ndarray, found: list[int]) -> np.ndarray:
    """log_probs [F, labels + 1] -> the most probable labels int64 [F] that spell these."""
    frames, blank = len(log_probs), log_probs.shape[1] - 1
    states = np.full(2 * len(found) + 1, blank)
    states[1::2] = found
    over = np.zeros(len(states), bool)  # may come from two before, over a blank
    over[3::2] = states[3::2] != states[1:-2:2]
    emitted = log_probs[:, states]
    score = np.full(len(states), -np.inf)
    score[:2] = emitted[0, :2]
    ways = np.zeros((3, len(states)))
    back = np.zeros((frames, len(states)), np.int8)
    for frame in range(1, frames):
        ways[0], ways[1:] = score, -np.inf
        ways[1, 1:] = score[:-1]
        ways[2, 2:] = np.where(over[2:], score[:-2], -np.inf)
        back[frame] = ways.argmax(0)
        score = ways.max(0) + emitted[frame]
    state = len(states) - 1 - int(len(states) > 1 and score[-2] > score[-1])
    path = np.empty(frames, np.int64)
    for frame in range(frames - 1, -1, -1):
        path[frame] = states[state]
        state -= int(back[frame, state])
    return path

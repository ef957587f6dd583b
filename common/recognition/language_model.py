"""Which words follow which: a trigram model that backs off (Katz 1987), in a file of about a megabyte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from melforge.common.errors import InputError

STEPS = 16.0  # of a stored byte in a natural logarithm
HIGHEST = 4.0  # logarithm of a backing-off weight that is stored as 0
START = 0  # the number of a sentence's beginning; words count from 1
UNKNOWN = -1  # of a word of which nothing is known but, for a rare one, that there is such a word
RARE = -15.5  # log-probability of each rare word
CACHED = 1 << 14


class LanguageModel:
    """Log-probabilities of words after the two before them.

    `words` and `rare` ascend. Of `bigrams` int64 [N] each is first * (words + 1) + second, of `trigrams`
    int64 [M] the place of its first two words in `bigrams` * (words + 1) + third; both ascend. `logs` are the
    n-grams' log-probabilities, `weights` the logarithms of backing off from a word and from a bigram.
    """

    def __init__(
        self,
        words: Sequence[str] | np.ndarray,
        rare: Sequence[str] | np.ndarray,
        bigrams: np.ndarray,
        trigrams: np.ndarray,
        logs: tuple[np.ndarray, np.ndarray, np.ndarray],
        weights: tuple[np.ndarray, np.ndarray],
    ):
        # Arrays of bytes: of 140,000 strings, and a table of them, a process would grow by 20 MB.
        self.words, self.rare = (np.asarray(some, "S") for some in (words, rare))
        self.bigrams, self.trigrams, self.logs, self.weights = bigrams, trigrams, logs, weights
        self.number = lru_cache(CACHED)(self._number)
        self.score = lru_cache(CACHED)(self._score)
        self.best_beginning = lru_cache(CACHED)(self._best_beginning)

    def _number(self, word: str) -> int | None:
        """A word's number, UNKNOWN for a rare one; None where there is no such word."""
        for words, number in ((self.words, None), (self.rare, UNKNOWN)):
            at = int(words.searchsorted(word.encode()))
            if at < len(words) and words[at] == word.encode():
                return at + 1 if number is None else number
        return None

    def _score(self, first: int, second: int, word: int) -> float:
        """The log-probability of a word by its number, after two by theirs."""
        if word == UNKNOWN:
            return RARE
        single = float(self.logs[0][word])
        if second == UNKNOWN:
            return single
        paid = 0.0
        if first != UNKNOWN and (context := self._place(self.bigrams, first, second)) is not None:
            if (at := self._place(self.trigrams, context, word)) is not None:
                return float(self.logs[2][at])
            paid = float(self.weights[1][context])
        if (at := self._place(self.bigrams, second, word)) is not None:
            return paid + float(self.logs[1][at])
        return paid + float(self.weights[0][second]) + single

    def _place(self, keys: np.ndarray, before: int, word: int) -> int | None:
        key = before * (len(self.words) + 1) + word
        at = int(keys.searchsorted(key))
        return at if at < len(keys) and keys[at] == key else None

    def _best_beginning(self, letters: str) -> float | None:
        """The log-probability of the most frequent word that begins so; None where none does."""
        first, last = (int(self.words.searchsorted(edge.encode())) for edge in (letters, letters + "~"))
        if last > first:
            return float(self.logs[0][first + 1 : last + 1].max())
        at = int(self.rare.searchsorted(letters.encode()))
        return RARE if at < len(self.rare) and self.rare[at].startswith(letters.encode()) else None

    def save(self, path: Path) -> None:
        size = len(self.words) + 1
        rows, nexts = zip(
            _rows(self.bigrams, size, size), _rows(self.trigrams, size, len(self.bigrams)), strict=True
        )
        stored = {f"rows{n}": _planes(row) for n, row in enumerate(rows, 2)}
        stored |= {f"next{n}": _planes(following) for n, following in enumerate(nexts, 2)}
        stored |= {f"logs{n}": _bytes(-log) for n, log in enumerate(self.logs, 1)}
        stored |= {f"weights{n}": _bytes(HIGHEST - weight) for n, weight in enumerate(self.weights, 1)}
        np.savez_compressed(path, allow_pickle=False, words=self.words, rare=self.rare, **stored)


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.rint(values * STEPS).clip(0, 255).astype(np.uint8)


def _planes(values: np.ndarray) -> np.ndarray:
    """Numbers [N] below 65536 as bytes [2, N], which compress better so."""
    return np.ascontiguousarray(values.astype("<u2").view(np.uint8).reshape(-1, 2).T)


def _numbers(planes: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(planes.T).view("<u2")[:, 0].astype(np.int64)


def _rows(keys: np.ndarray, size: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Ascending keys, each row * size + number -> how many each row has, and each one's distance from the one
    before.
    """
    row, number = np.divmod(keys, size)
    same = np.diff(row, prepend=-1) == 0
    return np.bincount(row, minlength=rows), np.where(same, np.diff(number, prepend=0), number)


def _keys(stored: Mapping[str, np.ndarray], order: int, size: int) -> np.ndarray:
    """What `_rows` was given."""
    counts, steps = _numbers(stored[f"rows{order}"]), _numbers(stored[f"next{order}"])
    row = np.repeat(np.arange(len(counts)), counts)
    total = np.cumsum(steps)
    before = np.concatenate(([0], total))[np.cumsum(counts) - counts]  # behind the end of the row before
    return row * size + total - before[row]


def read_language_model(path: Path) -> LanguageModel:
    """A file as `save` writes it; an InputError where it is none."""
    try:
        with np.load(path) as file:
            stored = dict(file)
        size = len(stored["words"]) + 1
        return LanguageModel(
            stored["words"],
            stored["rare"],
            _keys(stored, 2, size),
            _keys(stored, 3, size),
            tuple((stored[f"logs{n}"] / -STEPS).astype(np.float16) for n in (1, 2, 3)),
            tuple((HIGHEST - stored[f"weights{n}"] / STEPS).astype(np.float16) for n in (1, 2)),
        )
    except (BadZipFile, KeyError, ValueError, EOFError, IndexError) as error:
        raise InputError(f"{path} is no whole language model: {error}") from None

"""A small network that tells the two readings of a homograph apart by the sentence around it.

It sees the words on both sides, and of the homograph its ending and capital only: so what it learnt of nouns
and verbs at large holds for every homograph, and each has a vector of its own beside.
`recipes/english/train_homographs.py` trains it and has the same network in PyTorch.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors import safe_open

from melforge.common.text.cmudict import DATA

WEIGHTS = DATA / "homographs.safetensors"
# Words to each side that are seen in their places; that are seen in a bag; that one neighbour is seen with.
REACH, AROUND, KERNEL = 8, 20, 5
EDGE = 45  # the shape of what is no word of the sentence
_MARKS = frozenset(".?!:;")


class ReadingNetwork:
    def __init__(self, path: Path = WEIGHTS) -> None:
        meta, self._weights = _read(path)
        # In blocks of fewer than 9,216 weights: larger ones OpenBLAS hands to threads of its own, which wait
        # for milliseconds where cores are busy. A limit for them would be the whole process's.
        self._mix = np.ascontiguousarray(np.split(self._weights.pop("mix").T, 4, axis=1))  # [4, K, 16]
        self._homographs = {word: row for row, word in enumerate(meta["homographs"].split())}
        self._parts = meta["parts"].split()
        self._rows = Vocabulary(meta["words"].split(), int(meta["tails"]))

    def __contains__(self, word: str) -> bool:
        return word in self._homographs

    def is_second(self, word: str, sentence: Sequence[str], index: int, cue: int) -> bool:
        """Whether `sentence[index]`, a form of `word`, is read the second way; `cue`: of `cue_for`."""
        weights, row = self._weights, self._homographs[word]
        score = weights["reading"][row] @ self._hidden(sentence, index) + weights["reading.bias"][row]
        # What cues call for is rarer in corpora than in speech: it weighs twice what training gives it.
        return score + weights["cue"][row] * (2 * cue if cue > 0 else cue) > 0

    def part_of_speech(self, sentence: Sequence[str], index: int) -> str:
        """Which part of speech fits in the place of `sentence[index]`, by Penn Treebank's names ("NNS").

        "" behind the end.
        """
        if index >= len(sentence):
            return ""
        scores = self._weights["part"] @ self._hidden(sentence, index) + self._weights["part.bias"]
        return self._parts[scores.argmax()]

    def _hidden(self, sentence: Sequence[str], index: int) -> np.ndarray:
        weights = self._weights
        rows, shapes, bag = self._rows.window(sentence, index)
        x = weights["word"].take(rows, 0) + weights["shape"].take(shapes, 0)
        near = np.concatenate([x[i : i + 2 * REACH + 1] for i in range(KERNEL)], 1)
        near = np.maximum(near @ weights["near"].T + weights["near.bias"], 0)
        around = weights["bag"].take(bag, 0).sum(0) / np.float32((len(bag) + 3) ** 0.5)
        beside = x[len(x) // 2 - 1 : len(x) // 2 + 2]
        h = np.concatenate([near.ravel(), around, beside.ravel()])
        h = np.maximum((h[None] @ self._mix).ravel() + weights["mix.bias"], 0)
        return h + np.maximum(weights["deep"] @ h + weights["deep.bias"], 0)


class Vocabulary:
    """The rows of the network's tables: known words, other words' last letters, an edge, homographs."""

    def __init__(self, words: Sequence[str], tails: int) -> None:
        self._known = {word: row for row, word in enumerate(words)}
        self._tails = tails
        self.edge = len(words) + tails
        self.size = self.edge + 6

    def window(self, sentence: Sequence[str], index: int) -> tuple[list[int], list[int], list[int]]:
        """Rows and shapes of the words around `sentence[index]` and of itself, and the rows of the bag."""
        reach = REACH + KERNEL // 2
        first, last = max(index - reach, 0), min(index + reach + 1, len(sentence))
        left, right = reach - index + first, index + reach + 1 - last
        before = [self.row(word) for word in sentence[max(index - AROUND, 0) : index]]
        behind = [self.row(word) for word in sentence[index + 1 : index + AROUND + 1]]
        own = self.edge + 1 + _ending(sentence[index].lower().rstrip("-"))
        shapes = [self.shape(sentence, i) for i in range(first, last)]
        return (
            [self.edge] * left + before[-reach:] + [own] + behind[:reach] + [self.edge] * right,
            [EDGE] * left + shapes + [EDGE] * right,
            before + behind,
        )

    def row(self, token: str) -> int:
        word = token.lower().rstrip("-") or token
        known = self._known.get(word)
        return len(self._known) + zlib.crc32(word[-3:].encode()) % self._tails if known is None else known

    @staticmethod
    def shape(sentence: Sequence[str], index: int) -> int:
        """A mark, or how a word is written (small, with a capital, in capitals) and ends."""
        token = sentence[index]
        kind = 0
        if token[:1].isalpha() or token[:1] == "'":
            is_name = token[:1].isupper() and (len(token) == 1 or not token.isupper())
            kind = 3 if is_name else 4 if token.isupper() else 1
            if is_name and (index == 0 or sentence[index - 1] in _MARKS):
                kind = 2
        return (kind + 4 * token.endswith("-")) * 5 + _ending(token.lower().rstrip("-"))


def _ending(word: str) -> int:
    if word.endswith("s"):
        return int(not word.endswith(("ss", "us", "is")))
    return 2 if word.endswith("ed") else 3 if word.endswith("ing") else 4 * word.endswith("ly")


def _read(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """A file's metadata, and its weights in float32: they are kept in bytes with a scale a row or column."""
    with safe_open(path, "numpy") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return file.metadata(), {
            name: value.astype(np.float32) * stored.get(f"{name}.scale", np.float32(1))
            for name, value in stored.items()
            if not name.endswith(".scale")
        }


@lru_cache(maxsize=1)
def load_network() -> ReadingNetwork:
    """The network; read from disk once."""
    return ReadingNetwork()

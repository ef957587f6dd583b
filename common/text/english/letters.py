"""Letters to sounds, for words that no dictionary has: a small network of our own in plain NumPy.

`recipes/english/train_g2p.py` trains it on CMUdict and has the same network in PyTorch. It is loaded at the
first unknown word.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors import safe_open

from melforge.common.text.cmudict import DATA

WEIGHTS = DATA / "letters.safetensors"
MAX_LETTERS = 64  # attention takes quadratic time


class LetterReader:
    """A word's letters to ARPAbet phones with stress."""

    def __init__(self, path: Path = WEIGHTS) -> None:
        with safe_open(path, "numpy") as file:
            meta = file.metadata()
            self._weights = {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118
        self._letters = {letter: i + 1 for i, letter in enumerate(meta["letters"])}
        self._chunks = [tuple(chunk.split()) for chunk in meta["chunks"].split(",")]
        self._heads = int(meta["heads"])
        self._blocks = len({name.split(".")[1] for name in self._weights if name.startswith("blocks.")})

    def __call__(self, word: str) -> tuple[str, ...]:
        """`word`: lower-case letters and apostrophes, others are ignored; () where no letter is left."""
        letters = [letter for letter in word if letter in self._letters]
        phones: list[str] = []
        for start in range(0, len(letters), MAX_LETTERS):
            phones += self._read(letters[start : start + MAX_LETTERS])
        return with_primary_stress(phones)

    def _read(self, letters: list[str]) -> list[str]:
        weights, edge = self._weights, len(self._letters) + 1
        x = weights["embed.weight"][[edge, *(self._letters[letter] for letter in letters), edge]]
        kernel = weights["context.weight"].shape[1] // x.shape[1]
        wide = np.pad(x, ((kernel // 2, kernel // 2), (0, 0)))
        windows = np.concatenate([wide[k : k + len(x)] for k in range(kernel)], -1)
        x = x + _gelu(self._linear("context", windows))
        reach = weights["blocks.0.bias"].shape[1] // 2
        place = np.arange(len(x))
        distance = np.clip(place[None] - place[:, None], -reach, reach) + reach
        for block in range(self._blocks):
            x = self._block(f"blocks.{block}.", x, distance)
            logits = self._linear("head", self._norm("norm", x))
            if block == 0:  # the later blocks also attend to the first one's output
                x = x + _softmax(logits) @ weights["thought.weight"].T
        phones = [phone for chunk in logits[1:-1].argmax(-1) for phone in self._chunks[chunk]]
        # Both letters of a pair sometimes get a phone, but no word has a sound twice in a row ...
        pairs = zip(phones, ["", *phones], strict=False)
        phones = [phone for phone, before in pairs if phone.rstrip("012") != before.rstrip("012")]
        # ... and none ends in a lone "r" or "l" behind another consonant.
        if len(phones) > 1 and phones[-1] in ("R", "L") and not phones[-2][-1].isdigit():
            phones[-1:] = ["ER0"] if phones[-1] == "R" else ["AH0", "L"]
        return phones

    def _block(self, name: str, x: np.ndarray, distance: np.ndarray) -> np.ndarray:
        qkv = self._linear(name + "qkv", self._norm(name + "norm1", x))
        q, k, v = qkv.reshape(len(x), 3, self._heads, -1).transpose(1, 2, 0, 3)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]) + self._weights[name + "bias"][:, distance]
        mixed = (_softmax(scores) @ v).transpose(1, 0, 2).reshape(len(x), -1)
        x = x + self._linear(name + "out", mixed)
        up = _gelu(self._linear(name + "up", self._norm(name + "norm2", x)))
        return x + self._linear(name + "down", up)

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self._weights[name + ".weight"].T + self._weights[name + ".bias"]

    def _norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return centred / scale * self._weights[name + ".weight"] + self._weights[name + ".bias"]


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _gelu(x: np.ndarray) -> np.ndarray:
    """The exact form's normal distribution through a rational erf (Abramowitz and Stegun 7.1.26, 1.5e-7)."""
    z = np.abs(x) * np.float32(np.sqrt(0.5))
    t = 1.0 / (1.0 + 0.3275911 * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return x * 0.5 * (1.0 + np.sign(x) * (1.0 - poly * np.exp(-z * z)))


def with_primary_stress(phones: list[str]) -> tuple[str, ...]:
    vowels = [i for i, phone in enumerate(phones) if phone[-1].isdigit()]
    if vowels and not any(phones[i][-1] == "1" for i in vowels):
        at = next((i for i in vowels if phones[i][-1] == "2"), vowels[0])
        phones[at] = phones[at][:-1] + "1"
    return tuple(phones)


@lru_cache(maxsize=1)
def load_letter_reader() -> LetterReader:
    """The network; read from disk once."""
    return LetterReader()

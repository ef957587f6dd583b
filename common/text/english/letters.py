"""Letters to sounds, for words that no dictionary has: a small network of our own in plain NumPy.

`recipes/english/train_g2p.py` trains it on CMUdict and misaki's lexicon and has the same network in PyTorch.
It is loaded at the first unknown word.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from melforge.common.text.cmudict import DATA
from melforge.common.text.english.small_networks import Matrix, read_weights

WEIGHTS = DATA / "letters.safetensors"
BEAM = 4
CMUDICT, WORDS, NAMES = range(3)  # in whose manner a word is said: misaki's of words, and of names


class LetterReader:
    """A word's letters to ARPAbet phones with stress.

    Each letter stands for nought to two phones, a chunk. Two layers of LSTM see the word from both ends; a
    third goes from letter to letter and sees the chunk before, so that a beam of chunks can be followed.
    """

    def __init__(self, path: Path = WEIGHTS) -> None:
        meta, weights = read_weights(path)
        self._letters = {letter: i for i, letter in enumerate(meta["letters"])}
        self._chunks = [tuple(chunk.split()) for chunk in meta["chunks"].split(",")]
        self._with_vowel = {i for i, chunk in enumerate(self._chunks) if any(p[-1].isdigit() for p in chunk)}
        self._embed = weights["embed.weight"]
        self._encoder = [_both_ways(weights, layer) for layer in range(2)]
        at, own, self._bias = _gates(weights, "decoder", "l0")
        given = len(at) - weights["previous.weight"].shape[1]  # of what the layers before give for a letter
        self._at_letter, self._own = Matrix(at[:given]), Matrix(own)
        self._at_chunk = weights["previous.weight"] @ Matrix(at[given:])
        self._head, self._head_at_letter = map(Matrix, np.split(weights["head.weight"].T, [len(own)]))
        self._head_bias = weights["head.bias"]

    def __call__(self, word: str, is_name: bool = False) -> tuple[str, ...]:
        """`word`: lower-case letters and apostrophes, others are ignored; () where no letter is left."""
        letters = [self._letters[letter] for letter in word if letter in self._letters]
        if not letters:
            return ()
        paths = self._read(letters, is_name)
        chunks = next((path for path in paths if self._with_vowel.intersection(path)), paths[0])
        return with_primary_stress([phone for chunk in chunks for phone in self._chunks[chunk]])

    def _read(self, letters: list[int], is_name: bool) -> list[list[int]]:
        """The likeliest chunks of all letters, and the next ones."""
        seen = self._encoded(letters, is_name)
        gates, scores = seen @ self._at_letter + self._bias, seen @ self._head_at_letter + self._head_bias
        h = c = np.zeros((1, gates.shape[1] // 4), np.float32)
        total, last, steps = np.zeros(1, np.float32), np.array([len(self._chunks)]), []
        for at in range(len(letters)):
            h, c = _cell(gates[at] + self._at_chunk[last] + h @ self._own, c)
            chances = h @ self._head + scores[at]
            chances -= np.log(np.exp(chances).sum(1, keepdims=True))  # logits are small
            ahead = (total[:, None] + chances).ravel()  # by what was read before, and the next chunk
            best = np.argpartition(-ahead, BEAM - 1)[:BEAM]
            before, last = np.divmod(best, chances.shape[1])
            steps.append((before, last))
            total, h, c = ahead[best], h[before], c[before]
        return [_path(steps, int(row)) for row in np.argsort(-total)]

    def _encoded(self, letters: list[int], is_name: bool) -> np.ndarray:
        """What the layers that see the whole word give for each letter: float32 [letters, width]."""
        end = len(self._letters)
        begin = end + 1 + (NAMES if is_name else CMUDICT)
        x = self._embed[[begin, *letters, end]]
        for given, own, bias in self._encoder:
            gates = np.stack([x, x[::-1]]) @ given + bias  # [directions, letters, 4 * width]
            width = gates.shape[-1] // 4
            h = c = np.zeros((2, 1, width), np.float32)
            out = np.empty((2, len(x), width), np.float32)
            for at in range(len(x)):
                h, c = _cell(gates[:, at, None] + h @ own, c)
                out[:, at] = h[:, 0]
            x = np.concatenate([out[0], out[1][::-1]], 1)
        return x[1:-1]


def _path(steps: list[tuple[np.ndarray, np.ndarray]], row: int) -> list[int]:
    """The chunks that led to a row of the beam."""
    path = list[int]()
    for before, chunks in reversed(steps):
        path.append(int(chunks[row]))
        row = before[row]
    return path[::-1]


def _both_ways(weights: dict[str, np.ndarray], layer: int) -> tuple[Matrix, Matrix, np.ndarray]:
    """The weights of a layer in both directions: of its input, of its own last output, and the bias."""
    ways = [_gates(weights, "encoder", f"l{layer}{way}") for way in ("", "_reverse")]
    given, own, bias = (np.stack(part) for part in zip(*ways, strict=True))
    return Matrix(given), Matrix(own), bias[:, None]


def _gates(
    weights: dict[str, np.ndarray], name: str, layer: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same of one direction. What goes into a sigmoid is halved: sigmoid(x) = (1 + tanh(x / 2)) / 2."""
    bias = weights[f"{name}.bias_ih_{layer}"] + weights[f"{name}.bias_hh_{layer}"]
    half = np.repeat(np.array([0.5, 0.5, 1.0, 0.5], np.float32), len(bias) // 4)
    given, own = (weights[f"{name}.weight_{part}_{layer}"].T * half for part in ("ih", "hh"))
    return given, own, bias * half


def _cell(gates: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A step of an LSTM: its output and its memory."""
    width, gates = c.shape[-1], np.tanh(gates)
    put, keep, new, give = (gates[..., i * width : (i + 1) * width] for i in range(4))
    c = 0.5 * ((1 + keep) * c + (1 + put) * new)
    return 0.5 * (1 + give) * np.tanh(c), c


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

"""Letters to sounds, for words that no dictionary has: a small network of our own.

`recipes/english/train_g2p.py` trains it on CMUdict and misaki's lexicon and has the same network in PyTorch.
It is loaded at the first unknown word.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from melforge.common.text.cmudict import DATA

GRAPH = DATA / "letters.onnx"
CMUDICT, WORDS, NAMES = range(3)  # in whose manner a word is said: misaki's of words, and of names


class LetterReader:
    """A word's letters to ARPAbet phones with stress.

    Each letter stands for nought to two phones, a chunk. Two layers of LSTM see the word from both ends; a
    third goes from letter to letter and sees the chunk before, so that a beam of chunks can be followed.
    """

    def __init__(self, path: Path = GRAPH) -> None:
        import onnxruntime  # few texts need it

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # the caller's
        self._graph = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        about = self._graph.get_modelmeta().custom_metadata_map
        self._letters = {letter: i for i, letter in enumerate(about["letters"])}
        self._chunks = [tuple(chunk.split()) for chunk in about["chunks"].split(",")]
        self._with_vowel = {i for i, chunk in enumerate(self._chunks) if any(p[-1].isdigit() for p in chunk)}

    def __call__(self, word: str, is_name: bool = False) -> tuple[str, ...]:
        """`word`: lower-case letters and apostrophes, others are ignored; () where no letter is left."""
        letters = [self._letters[letter] for letter in word if letter in self._letters]
        if not letters:
            return ()
        paths = self.paths(letters, is_name)
        chunks = next((path for path in paths if self._with_vowel.intersection(path)), paths[0])
        return with_primary_stress([phone for chunk in chunks for phone in self._chunks[chunk]])

    def paths(self, letters: list[int], is_name: bool) -> list[list[int]]:
        """The likeliest chunks of all letters, and the next ones."""
        end = len(self._letters)
        begin = end + 1 + (NAMES if is_name else CMUDICT)
        given = {"symbols": np.array([begin, *letters, end])}
        before, chunks = map(np.asarray, self._graph.run(["rows", "chunks"], given))
        return [_path(before, chunks, row) for row in range(chunks.shape[1])]


def _path(before: np.ndarray, chunks: np.ndarray, row: int) -> list[int]:
    """The chunks that led to a row of the beam; `before` are the rows of the step before."""
    path = list[int]()
    for step in range(len(chunks) - 1, -1, -1):
        path.append(int(chunks[step, row]))
        row = before[step, row]
    return path[::-1]


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

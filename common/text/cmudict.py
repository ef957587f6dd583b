"""CMUdict 0.7b: North American pronunciations of 125 000 words, searched without being parsed.

The file holds one line a word, sorted by bytes: the word, then each pronunciation with one character a phone.
Its first line lists the phones. A lookup is a search of the few lines behind one of many that are known, so
that loading costs little more than a decompression. `recipes/english/dictionary.py` makes the file.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from functools import lru_cache
from pathlib import Path

DATA = Path(__file__).parent / "data"
DICTIONARY = DATA / "cmudict-0.7b.gz"
RARE_WORDS = DATA / "rare_words.gz"

FIRST_PHONE_CODE = 33  # the first phone of the list is "!", the next one '"', ...
_SEARCHED = 1000  # bytes: fewer take longer to load


class CmuDict:
    """Pronunciations by word. Case does not matter."""

    def __init__(self, data: bytes):
        """`data`: the decompressed file."""
        phones, newline, lines = data.partition(b"\n")
        self._lines = newline + lines  # a newline before every word
        edges = [0]
        while (edge := self._lines.find(b"\n", edges[-1] + _SEARCHED)) > 0:
            edges.append(edge)
        self._edges = [*edges, len(self._lines)]  # of blocks of lines
        self._firsts = [self._lines[edge : self._lines.find(b" ", edge) + 1] for edge in edges]
        self._phones = {FIRST_PHONE_CODE + i: p for i, p in enumerate(phones.decode("ascii").split())}

    def pronunciations(self, word: str) -> tuple[tuple[str, ...], ...]:
        """Every pronunciation in the dictionary's order, phones with stress: `(("R", "EH1", "D"), ...)`."""
        phones = self._phones
        return tuple([tuple([phones[code] for code in codes]) for codes in self._find(word).split()])

    def __contains__(self, word: str) -> bool:
        return bool(self._find(word))

    def words(self) -> list[str]:
        """Every word, in upper case."""
        return [line.split(b" ", 1)[0].decode("latin-1") for line in self._lines.split(b"\n") if line]

    def _find(self, word: str) -> bytes:
        """What stands behind a word on its line; empty where there is no such word."""
        try:
            key = b"\n%b " % word.upper().encode("latin-1")
        except UnicodeEncodeError:
            return b""
        if len(key.split()) != 1:  # a blank would let the key match inside a line
            return b""
        block = bisect_right(self._firsts, key)
        if block == 0:
            return b""
        end = self._edges[block]
        found = self._lines.find(key, self._edges[block - 1], end)
        return b"" if found < 0 else self._lines[found + len(key) : end].partition(b"\n")[0]


@lru_cache(maxsize=1)
def load_cmudict() -> CmuDict:
    """The dictionary; read once."""
    return CmuDict(zlib.decompress(DICTIONARY.read_bytes(), wbits=31))  # 31: gzip framing


@lru_cache(maxsize=1)
def load_rare_words() -> CmuDict:
    """Words of misaki's lexicon that CMUdict lacks and that are not said as their letters tell; read once."""
    return CmuDict(zlib.decompress(RARE_WORDS.read_bytes(), wbits=31))


@lru_cache(maxsize=1)
def load_heteronyms() -> frozenset[str]:
    """Words that are said in two ways (read, lead), which the published frontends leave in letters.

    The list is the published one: a few of its words are capitalised, and two entries are phrases.
    """
    return frozenset((DATA / "heteronyms.txt").read_text(encoding="ascii").splitlines())

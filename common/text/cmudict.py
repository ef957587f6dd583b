"""CMUdict 0.7b: North American pronunciations of 125 000 words, searched without being parsed.

The file holds one line a word, sorted by bytes: the word, then each pronunciation with one character a phone.
Its first line lists the phones. A lookup is a binary search over the bytes, so that loading costs one
decompression. `recipes/english/dictionary.py` makes the file.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from pathlib import Path

DATA = Path(__file__).parent / "data"
DICTIONARY = DATA / "cmudict-0.7b.gz"
RARE_WORDS = DATA / "rare_words.gz"

FIRST_PHONE_CODE = 33  # the first phone of the list is "!", the next one '"', ...


class CmuDict:
    """Pronunciations by word. Case does not matter."""

    def __init__(self, data: bytes):
        """`data`: the decompressed file."""
        phones, _, self._lines = data.partition(b"\n")
        self._phones = {FIRST_PHONE_CODE + i: p for i, p in enumerate(phones.decode("ascii").split())}

    def pronunciations(self, word: str) -> tuple[tuple[str, ...], ...]:
        """Every pronunciation in the dictionary's order, phones with stress: `(("R", "EH1", "D"), ...)`."""
        return tuple(tuple(self._phones[code] for code in codes) for codes in self._find(word).split())

    def __contains__(self, word: str) -> bool:
        return bool(self._find(word))

    def words(self) -> list[str]:
        """Every word, in upper case."""
        return [line.split(b" ", 1)[0].decode("latin-1") for line in self._lines.splitlines()]

    def _find(self, word: str) -> bytes:
        """What stands behind a word on its line; empty where there is no such word."""
        try:
            key = word.upper().encode("latin-1") + b" "
        except UnicodeEncodeError:
            return b""
        if len(key.split()) != 1:  # a blank would let the key match inside a line
            return b""
        lines = self._lines
        low, high = 0, len(lines)  # both at the start of a line, or at the end of the data
        while low < high:
            start = lines.rfind(b"\n", low, (low + high) // 2) + 1 or low
            end = lines.find(b"\n", start, high)
            end = high if end < 0 else end
            if lines.startswith(key, start):
                return lines[start + len(key) : end]
            if lines[start:end] < key:
                low = end + 1
            else:
                high = start
        return b""


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

"""Words with letters beyond a-z, in those; letters of other scripts are told."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cursor import Cursor, LeftOut

_MAX_NAME = 2000  # characters of the longest address


def is_term(word: str) -> bool:
    """Whether Greek letters stand beside a Latin one, as in a formula: "πr", "Δx"."""
    is_mixed = len(word) < 5 and any(letter.isascii() for letter in word)
    return is_mixed and all(letter.isascii() or letter.lower() in tables.GREEK for letter in word)


def in_latin(word: str) -> str:
    """A word of Latin letters in a-z; "" where it has letters of another script, which are reported."""
    return word if word.isascii() else "" if scripts_of(word) else "".join(latin_parts(word))


def latin_parts(word: str) -> list[str]:
    from anyascii import anyascii

    return re.findall(r"'*[A-Za-z][A-Za-z']*", anyascii(word))


def scripts_of(word: str) -> set[str]:
    """The scripts of a word other than the Latin one: "GREEK", "CJK"."""
    names = (unicodedata.name(char, "UNKNOWN") for char in word if not char.isascii())
    return {name.split(" ")[0] for name in names} - {"LATIN"}


def left_out_of(cursor: Cursor, parts: Sequence[str]) -> tuple[LeftOut, ...]:
    """The words among the parts of what is read that are in another script, or have no Latin letters."""
    left_out = []
    for word in parts:
        if word.isascii() or word.lower() in tables.GREEK or is_term(word):
            continue
        scripts = scripts_of(word)
        if scripts or not latin_parts(word):
            place = cursor.text.find(word, cursor.at, cursor.at + _MAX_NAME)
            left_out.append(LeftOut(word[:40], max(place, cursor.at), min(scripts, default=word)))
    return tuple(left_out)

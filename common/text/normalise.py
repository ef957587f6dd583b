"""Written English to words, in one pass that remembers where each word came from."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """Words and marks as spoken, and the part of the text that they stand for."""

    text: str
    start: int
    end: int


_TITLES = {
    "mr": "Mr",
    "mrs": "Mrs",
    "ms": "Ms",
    "dr": "Doctor",
    "st": "Saint",
    "co": "Company",
    "jr": "Junior",
    "sr": "Senior",
    "gen": "General",
    "lt": "Lieutenant",
    "rev": "Reverend",
    "hon": "Honorable",
    "capt": "Captain",
    "no": "number",
    "col": "Colonel",
    "esq": "Esquire",
    "i.e": "I E",
    "e.g": "E G",
    "p.m": "PM",
    "a.m": "AM",
    "mss": "manuscripts",
}
_WORD = re.compile(r"[A-Za-z]\.(?:[A-Za-z]\.)*(?![A-Za-z])|[^\W\d_]+(?:['’][^\W\d_]+)*['’]?\.?|--|[-–—]|\S")
_MARKS = {"(": ",", ")": ",", "[": ",", "]": ",", "--": "-", "—": "-", "–": "-", "…": "."}


def normalise(text):
    from anyascii import anyascii

    pieces = []
    for m in _WORD.finditer(text):
        w = m[0]
        last = m.end() == len(text)
        if w[0].isalpha():
            stem = w.rstrip(".")
            key = stem.lower()
            end = "." if w.endswith(".") else ""
            if end and key in _TITLES:
                spoken = _TITLES[key] + ("." if last else "")
            elif "." in stem or (end and len(stem) == 1):
                spoken = stem.replace(".", "").upper()
                spoken += ("-" if len(spoken) == 1 else "") + ("." if last else "")
            else:
                spoken = anyascii(stem) + end
            if (
                text[m.end() : m.end() + 1] == "-"
                and text[m.end() + 1 : m.end() + 2].isalpha()
                and spoken[-1].isalpha()
            ):
                spoken += "-"
        elif (
            w == "-" and text[m.end() : m.end() + 1].isalpha() and m.start() and text[m.start() - 1].isalnum()
        ):
            continue
        elif w == ":" and text[m.end() : m.end() + 1].isalpha():
            continue
        else:
            spoken = _MARKS.get(w, w if w in ",.;:?!-" else "")
        if spoken:
            pieces.append(Piece(spoken, m.start(), m.end()))
    return pieces, []

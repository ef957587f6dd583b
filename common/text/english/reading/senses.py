"""Abbreviations that mean one thing here and another there: what stands around them tells.

Their rows are in data/senses.tsv.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cursor import Cursor, Reading
from melforge.common.text.english.reading.word_classes import CLOSED
from melforge.common.text.english.word_parts import read_rows

_LOOK_BACK = 30  # characters
_NAMED = re.compile("«([A-Z_]+)»")
_STATES = {*tables.STATES_CUT_SHORT, *tables.STATES_WITH_STOP.values(), *tables.STATES}
_STATE = rf",\s(?:{'|'.join(sorted(_STATES))})\b"

# Of rows for several words: what each is, where it is not its letters.
_IN_FULL = {
    **{key.lower(): name for key, name in tables.STATES_WITH_STOP.items()},
    **{"dx": "diagnosis", "tx": "treatment", "rx": "prescription"},
    **{"bx": "boxes", "cs": "cases", "rl": "rolls", "rls": "rolls"},
    **{"pl": "Plaintiff", "def": "Defendant", "ext": "exterior", "int": "interior"},
    **{"mons": "Mondays", "sats": "Saturdays", "fris": "Fridays"},
    **{"hr": "hour", "wk": "week"},
    **{"sqn": "Squadron", "wg": "Wing", "bn": "Battalion"},
    **{"inf": "Infantry", "plt": "Platoon", "cav": "Cavalry", "arty": "Artillery", "plts": "platelets"},
}


class _Sense(NamedTuple):
    before: str
    behind: str
    spoken: str
    needs_stop: bool


def _senses() -> dict[str, list[_Sense]]:
    """The rows of data/senses.tsv by their words."""
    named = {"STATE": _STATE, "STATES": " ".join(tables.STATES_WITH_STOP), "CLOSED": "|".join(sorted(CLOSED))}
    table: dict[str, list[_Sense]] = {}
    for name, *row in read_rows("senses.tsv"):
        words, *patterns = (
            _NAMED.sub(lambda use: named[use[1]], column) if "«" in column else column
            for column in (name, *row)
        )
        if len(row) == 1:
            named[name] = patterns[0]
            continue
        before, behind, spoken = patterns
        for word in words.split():
            one = _Sense(before, behind, spoken.removeprefix("."), word[-1] != "*")
            table.setdefault(word.rstrip("*"), []).append(one)
    return table


_SENSES = _senses()
WITH_SENSES = frozenset(key.lower() for key in _SENSES)
IN_SMALL_LETTERS = frozenset(filter(str.islower, _SENSES))
_pattern = cache(re.compile)


def is_told_behind(word: str, text: str, at: int) -> bool:
    """Whether what stands behind the full stop of a word tells its meaning: no sentence ends there."""
    end = at + len(word) + 1
    return any(one.behind and _fits(one, text, at, end) for one in _rows_of(word))


def _rows_of(word: str) -> Iterator[_Sense]:
    yield from _SENSES.get(word, ())
    if len(word) > 1 and not word.islower():
        yield from _SENSES.get(word.lower(), ())


def _fits(one: _Sense, text: str, at: int, end: int) -> bool:
    before = _pattern(f"(?:{one.before})$") if one.before else None
    return bool(
        _pattern(one.behind).match(text, end)
        and (not before or before.search(text, max(at - _LOOK_BACK, 0), at))
    )


def sense_of(cursor: Cursor, key: str, end: int) -> str:
    """What a word with a slash means by its neighbours ("w/e 12 May"); "" where no row fits."""
    return next((one.spoken for one in _SENSES.get(key, ()) if _fits(one, cursor.text, cursor.at, end)), "")


def sense(cursor: Cursor) -> Reading | None:
    """d. 1603, dep. 9:40, arr LHR, 3 yrs exp: a word cut short whose neighbours tell its meaning."""
    word = cursor.word
    stop = cursor.behind_word == "."
    if cursor.touches_word or not (stop or cursor.behind_word in ("", " ", ":", ",", ";", ")", "#", "/")):
        return None
    end = cursor.word_end + stop
    if cursor.behind_word == "/" and cursor.text[end + 1 : end + 2].isalnum():
        return None
    is_name = word.isupper() and len(word) > 1 and not (stop or cursor.is_shouted)  # "ARR 2023", "the EP 2"
    for one in _SENSES.get(word, ()) if is_name else _rows_of(word):
        if (stop or not one.needs_stop) and _fits(one, cursor.text, cursor.at, end):
            spoken = one.spoken or _IN_FULL.get(word.lower()) or word.upper()
            own = cursor.possessive(end)
            return Reading(spoken + (own or (cursor.last_stop(end) if stop else "")), end + len(own))
    return None

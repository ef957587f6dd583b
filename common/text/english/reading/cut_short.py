"""Words cut short that no table has: the letters that are left tell the word (acctg., precip., Opp'n)."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache, lru_cache
from itertools import pairwise

from melforge.common.text.cmudict import DATA
from melforge.common.text.english.pronounce import is_guessed, is_known
from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables

VOWELS = frozenset("aeiouy")
_UNSAID = re.compile(
    r"[b-df-hj-np-tv-xz]{4,11}|[b-df-hj-np-tv-xz]{3,11}y|[a-z]{3,8}'(?:n|l|t|x|y|r|d|g|ff|nt|ts)"
)
_IN_CODE = frozenset("_/\\.@&*<>=#")  # stand beside a name in a program
_PAUSES, _SIGNS = (",", ";", ":"), (",", ";", ":", "&", "/", ")", "%", "+")  # behind a full stop
_TOO_MUCH = 9  # missing consonants


def whole(short: str, has_stop: bool = True) -> str:
    """ "acctg" -> "accounting", "precip" -> "precipitation", "opp'n" -> "opposition"; "" where no word fits.

    Without a full stop behind it the letters go to the end of the word.
    """
    if not 2 < len(short) < 13:
        return ""
    return _nearest(short, has_stop)[1]


def is_in_run(before: str) -> bool:
    """Whether the word before is cut short too ("acct. rec.") and no title."""
    return before[-1:] == "." and len(before) > 2 and before[:-1].lower() not in tables.BEFORE_NAMES


def is_in_code(text: str, start: int, end: int) -> bool:
    """Whether what stands beside text[start:end] says that it is a name in a program: "str(hdrs)"."""
    before, behind = text[max(start - 1, 0) : start], text[end : end + 1]
    has_stop = text[end - 1] == "."  # "non-displ.", "appts.: 3"
    return bool((_IN_CODE if has_stop else _IN_CODE | {"-", ":"}) & {before, behind}) or behind == "("


@lru_cache(maxsize=4096)
def whole_before_stop(word: str, is_run: bool, following: str) -> str:
    """What a word before a full stop is cut short from; "" where it is none, and the stop ends a sentence.

    `is_run`: the word before is cut short too. `following`: the next word, or a sign, or "" at the end.
    """
    key, goes_on = word.lower(), following[:1].islower() or following[:1].isdecimal()
    goes_on = goes_on or following in _SIGNS
    if not word or word.isupper():  # "CSS."
        return ""
    if is_guessed(key):
        is_name = word[0].isupper() and following[:1].isupper() and len(word) > 4  # "Consol. Edison"
        return whole(key) if goes_on or is_run or is_name else ""
    may_be = (goes_on or (word[0].isupper() and following != "")) and (is_run or following in _PAUSES)
    said = whole(key) if may_be and len(word) < 7 else ""
    return said if said.startswith(key) else ""


def whole_without_stop(word: str) -> str:
    """What "qtrly" is cut short from: letters that cannot be said, which no dictionary has; "opp'n"."""
    key = word.lower()
    is_meant = _UNSAID.fullmatch(key) and not word[1:].isupper() and not is_known(key)
    is_meant = is_meant and not (key[-2:] in ("'d", "'r") and is_known(key[:-2]))  # "Tom'd"
    if not is_meant:
        return ""
    said = whole(key, False)
    return said if "'" in key or _is_close(key, said) else ""


def _is_close(short: str, word: str) -> bool:
    """Whether no consonant of the word is lacking but for an l, m, n or r: "cmds", "qtrly"; not "prng"."""
    said, left = (re.sub(r"(.)\1", r"\1", letters) for letters in (word, short))
    lacking = Counter(said) - Counter(left)
    few = [letter for letter in lacking.elements() if letter not in VOWELS]
    return word != "" and len(few) < 2 and set(few) <= set("lmnr")


@cache
def _vocabulary() -> dict[str, list[str]]:
    """The words by their first letters."""
    table: dict[str, list[str]] = {}
    for line in (DATA / "cut_short.txt").read_text(encoding="ascii").splitlines():
        for word in () if line[0] == "#" else line.split():
            table.setdefault(word[0], []).append(word)
    return table


@lru_cache(maxsize=4096)
def _nearest(short: str, has_stop: bool) -> tuple[int, str]:
    """The word that lacks least, and how much it lacks."""
    head, apostrophe, tail = short.partition("'")
    best = min(
        (
            (
                _lacking_between(head, tail, word) if apostrophe else _lacking(short, has_stop, word),
                not word.startswith(short),
                place,
                word,
            )
            for place, word in enumerate(_vocabulary().get(short[0], ()))
        ),
        default=(_TOO_MUCH, False, 0, ""),
    )
    cost, word = (best[0], best[3]) if best[0] < _TOO_MUCH else (_TOO_MUCH, "")
    if cost and short[-1] == "s" and len(short) > 3:
        several, one = _nearest(short[:-1], has_stop)
        if short[:-1] in tables.ABBREVIATIONS:
            several, one = 0, tables.ABBREVIATIONS[short[:-1]]
        if several < cost and not one.endswith(("ed", "ing", "ly", "s")):
            return several, say.plural(one)
    return cost, word


def _consonants(word: str) -> int:
    return sum(letter not in VOWELS for letter in word)


def _lacking(short: str, has_stop: bool, word: str) -> int:
    """What a word cut short lacks: the consonants within it, or what a cut before a consonant counts."""
    if has_stop and word.startswith(short) and len(word) > len(short) + 1:
        return int(word[len(short)] not in VOWELS or short[-1] in VOWELS)
    if (
        short[-1] not in (word[-1], "" if short[-1] == "d" else word.rstrip("e")[-1])
        or len(word) < len(short) + 1
    ):
        return _TOO_MUCH
    kept = _consonants(short)
    missing = _consonants(word) - kept
    is_sayable = len(short) - kept - (short[0] in VOWELS) > 1  # "publican"
    if kept < 3 or is_sayable or not 0 <= missing <= (kept // 2 if has_stop else (kept - 2) // 2):
        return _TOO_MUCH
    if any(one == other and one + other not in word for one, other in pairwise(short)):  # "brr"
        return _TOO_MUCH
    letters = iter(word)
    return missing if all(letter in letters for letter in short) else _TOO_MUCH


def _lacking_between(head: str, tail: str, word: str) -> int:
    """What a word lacks for which its beginning and its end stand: "Opp'n"."""
    is_meant = word.startswith(head) and word.endswith(tail) and len(word) > len(head) + len(tail)
    return min(_consonants(word[len(head) :]), _TOO_MUCH - 1) if is_meant else _TOO_MUCH

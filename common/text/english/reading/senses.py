"""Abbreviations that mean one thing here and another there: what stands around them tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from melforge.common.text.english.reading.cursor import Cursor, Reading

_LOOK_BACK = 30  # characters
_MONTH = r"[A-Z][a-z]{2,8}\.?"
_DAY = rf"\s(?:ca?\.\s?)?(?:\d{{1,2}}\s{_MONTH}\s|{_MONTH}\s\d{{1,2}},\s)?"
_YEAR = rf"{_DAY}\d{{3,4}}(?!\d)"
_SURE_YEAR = rf"{_DAY}(?:1\d|20)\d\d(?!\d|,\d)"
_BEGUN = r"[(;,]\s?"
_CENTURY = r"(?<!\w)\d{1,2}(?:st|nd|rd|th|d)[\s-]"
_NUMBER = r":?\s?[+(]?\d"
_BEATEN = r"\s[A-Z][a-z][\w' -]{0,30},?\s\d{1,3}[-–]\d"
_TRAVEL = r"\s?(?:[A-Z]{3}\b|\d|[A-Z][a-z]+\s\d{1,2}:\d\d|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\b)"
_COUNTIES = (
    r"\s(?:Antrim|Armagh|Carlow|Cavan|Clare|Cork|Derry|Donegal|Down|Dublin|Durham|Fermanagh|Galway|Kerry|Kildare"
    r"|Kilkenny|Laois|Leitrim|Limerick|Longford|Louth|Mayo|Meath|Monaghan|Offaly|Roscommon|Sligo|Tipperary|Tyrone"
    r"|Waterford|Westmeath|Wexford|Wicklow)\b"
)
_TURNED = r"\b(?:[Tt]urn|[Kk]eep|[Bb]ear|[Tt]ake|[Oo]n (?:yo)?ur|\d(?:st|nd|rd|th))\s"
_OF_PATIENTS = r"\s(?:is|was|has|had|states|denies|reports|presents|complains)\b"

# Words (with a capital: only so written), what stands before, what behind, what is said. The first row that
# fits counts. Behind a word stands its full stop, or with a star perhaps none.
_ROWS = (
    ("b", _BEGUN, r"\s\d", "born"),
    ("b", "^", _YEAR, "born"),
    ("b", "", _SURE_YEAR, "born"),
    ("d", _BEGUN, r"\s\d", "died"),
    ("d", "^", _YEAR, "died"),
    ("d", "", _SURE_YEAR, "died"),
    ("m", _BEGUN, r"\s\d", "married"),
    ("m", "^", _YEAR, "married"),
    ("r", _BEGUN, r"\s\d", "reigned"),
    ("r", "^", _YEAR, "reigned"),
    ("d", r"[a-z]\s", _BEATEN, "defeated"),
    ("def* bt*", r"[a-z]\s", _BEATEN, "beat"),
    ("L*", _TURNED, "", "left"),
    ("R*", _TURNED, "", "right"),
    ("L*", "", r"\sonto\b", "left"),
    ("R*", "", r"\sonto\b", "right"),
    ("c", _CENTURY, "", "century"),
    ("c", "", r"\s?\d", "circa"),
    ("p", "", r"\s?(?:\d|[ivxlc]+\b)", "page"),
    ("n", r"(?:\b[Ss]ee|\d)\s", r"\s?\d", "note"),
    ("v", "", r"\s?\S", "versus"),
    ("ch*", r"\b(?:TV|[Tt]elevision|[Ww]atch)\b.{0,14}|[ap]\.?m\.?(?:,|\son)\s", r"\s?\d", "channel"),
    ("fl", _CENTURY, "", "Floor"),
    ("fl", "", _YEAR, "flourished"),
    ("gen", "", r"\s?\d", "generation"),
    ("no", "", r"\sof\b(?!\scourse)|:\s?\d", "number"),
    ("nos", "", r"\sof\b(?!\scourse)|:\s?\d", "numbers"),
    ("nr*", "", r"\s(?:[A-Z]|\d+(?:st|nd|rd|th)\b)", "near"),
    ("dep*", r"(?:\+|\bplus|[$£€]\d+)\s", "", "deposit"),
    ("dep*", "", _TRAVEL, "departs"),
    ("inn*", r"\d\s", "", "innings"),
    ("Rd*", r"(?:^|[.;,(]\s)", r"\s\d", "round"),
    ("sem*", "", r"\s\d", "semester"),
    ("arr*", "", _TRAVEL, "arrives"),
    ("pl", "", r"\s?\d", "platform"),
    ("tel*", "", _NUMBER, "telephone"),
    ("ext*", "", _NUMBER, "extension"),
    ("wt*", "", _NUMBER, "weight"),
    ("ht*", "", _NUMBER, "height"),
    ("mag*", "", _NUMBER, "magnitude"),
    ("Cat", "", r"\s\d", "category"),
    ("btw*", "", r"\s\d[\d:apm]{0,6}\s?(?:-|–|and\b|&)\s?\d", "between"),
    ("sec*", r"(?:^|[^\d\s]\s)", r"\s\d{3}\b|\s\d+[A-Z.]", "section"),
    ("Sec*", r"(?:^|[^\d\s]\s)", r"\s\d", "section"),
    ("inv*", "", r"\s?(?:#|[Nn]o\b|[Nn]umber|\d)", "invoice"),
    ("ct*", r"\d\s", "", "count"),
    ("min", r"(?:^|[.;:]\s|\bprev\.\s|[Aa]pprove[ds]?\s|\bthe\s)", r"\sof\s(?:the\b|\d)", "minutes"),
    ("sq*", "", r"\sft\b", "square"),
    ("ft*", r"\bsq\.?\s", "", "feet"),
    ("pt", r"\b[Dd]ew\s", "", "point"),
    ("pt pts", "", r"\s?\d(?!\d*\.\d)", "part"),
    ("ph*", r"(?<!\w)[13][-\s]?", "", "phase"),
    ("conc", "", r"\s(?:slab|block|mix|wall|floor|pad)", "concrete"),
    ("gr", "", r"\s[1-4](?!\d)", "grade"),
    ("blk*", r"\d\s", "", "block"),
    ("ref", "", r"\sno\b", "reference"),
    ("no", r"\bref\.?\s", "", "number"),
    ("mtg*", "", r"\s(?:rates?\b|\d+\.\d)", "mortgage"),
    ("ep*", "", r"\s?\d", "episode"),
    ("Gm*", "", r"\s\d", "game"),
    ("mo", r"\b(?:1st\sof|per|each|every|last|this|next)\s", "", "month"),
    ("sz*", "", rf"{_NUMBER}|\s[SMLX]{{1,3}}\b", "size"),
    ("grp*", "", _NUMBER, "group"),
    ("lvl* lv*", "", _NUMBER, "level"),
    ("vit*", "", r"\s[A-K]\d{0,2}(?!\w)", "vitamin"),
    ("tab", r"(?:\d|½|\bone|m?c?g)\s", "", "tablet"),
    ("cap", r"(?:\d|\bone|m?c?g)\s", "", "capsule"),
    ("tabs*", r"\dm?c?g\s|\d\s?m?c?g\s", "", "tablets"),
    ("caps*", r"\d\s?m?c?g\s", "", "capsules"),
    ("App", "", r"\s?(?:\d+|[A-Z])(?!\w)", "Appendix"),
    ("Cir", _CENTURY, "", "Circuit"),
    ("ed", rf"{_CENTURY}|\brev\.\s", "", "edition"),
    ("gr*", _CENTURY, r"(?!\s(?:grand|uncle|aunt|neph|niece))", "grade"),
    ("Per", "", r"\s\d", "period"),
    ("pp*", r"(?:^|[^$£€\d.,])\d{1,4}\s", "", "pages"),
    ("appl", "", r"\s[Nn]o\b", "application"),
    ("rev", "", r"\sed\b", "revised"),
    ("rev", "", r"\s(?:\d|[A-Z](?![\w.]))", "revision"),
    ("rev*", r"\b(?:[Nn]et|[Gg]ross|[Tt]otal|[Aa]nnual|[Aa]d|[Ss]ales|FY\s?'?\d*|Q[1-4])\s", "", "revenue"),
    ("rev*", "", r"\s[$£€]\d", "revenue"),
    ("rev", r"(?:^|[a-z]\s)", r"\s(?!said|is\b|was|and\b)[a-z]{3}", "revised"),
    ("adj", "", r"\s(?:at\s)?\d{1,2}:\d\d", "adjourned"),
    ("bus", "", r"\s(?:days?|hrs|hours)\b", "business"),
    ("Rev", r"[a-z]\.\s", r"\s[A-Z\d]", "review"),  # "Phys. Rev. Lett. 95"
    ("est", "", r":?\s(?:ca?\.\s)?(?:1\d|20)\d\d(?!\d)|\s(?:in|by)\b", "established"),
    ("est", r"[$£€][\d.]{1,9}[bBmMkK]?\s", "", "estimated"),
    ("req", "", r"\s#", "requisition"),
    ("rep", "", r"\s(?:rows?|rnds?|rounds?|steps?|from|until)\b", "repeat"),
    ("Rep", "", r"\s\d", "Republican"),
    ("Dem", "", r"\s\d", "Democrat"),
    ("Ind", "", r"\s\d{1,2}(?!\d)", "Independent"),
    ("Co", "", _COUNTIES, "County"),
    ("min", r"(?:[A-G][#b♭♯]?|\bflat|\bsharp)\s", "", "minor"),
    ("maj", r"(?:[A-G][#b♭♯]?|\bflat|\bsharp)\s", "", "major"),
    ("Pt*", "", _OF_PATIENTS, "patient"),
    ("exp*", r"(?:\byrs?'?\.?|\byears?'?|\bmonths|\bhrs|\bwork|\bno|\+)\s", "", "experience"),
    ("exp", "", r"\s(?:w/|with\b|in\b|as\b|req|pref)", "experience"),
    ("exp", "", r"\s(?:back|decay|growth|func|smooth)", "exponential"),
    ("rpt*", "", r"\s(?:rows?\b|from\b|\d|\*)", "repeat"),
    ("Res", "", r"\s(?:[Nn]o\b|\d{1,3}\b)", "Resolution"),
    ("Bd", "", r"\sof\b", "Board"),
    ("op", "", r"\s(?:inc\b|income|ex\b|profit|margin|cash|cost)", "operating"),
    ("inc", r"\b(?:[Oo]p|[Nn]et|[Ii]nt|[Gg]ross|[Oo]per)\.?\s", "", "income"),
    ("div*", "", r"\s(?:[$£€]|yld|yield)", "dividend"),
    ("Proc", "", r"\s(?:[A-Z]{2}|of\b|[A-Z][a-z]*\.)", "Proceedings"),
    ("inv*", "", r"\s(?:date|total|amt|amount|due)\b", "invoice"),
    ("min", _CENTURY, "", "minute"),
    ("apt*", r"(?:BR|bdrm|bedroom|BD|bd|\bstudio)\s", "", "apartment"),
    ("Lit*", r"\b(?:Eng|English|World|American|British|French)\.?\s", "", "literature"),
    ("conf*", "", r"\s(?:#|[Nn]o\b|code\b)", "confirmation"),
    ("conf*", "", r"\s(?:[Rr]m|[Rr]oom|[Cc]all|[Cc]tr|[Cc]enter|[Cc]entre)\b", "conference"),
)


class _Sense(NamedTuple):
    before: str
    behind: str
    spoken: str
    needs_stop: bool


def _senses() -> dict[str, list[_Sense]]:
    table: dict[str, list[_Sense]] = {}
    for keys, before, behind, spoken in _ROWS:
        for key in keys.split():
            table.setdefault(key.rstrip("*"), []).append(_Sense(before, behind, spoken, key[-1] != "*"))
    return table


_SENSES = _senses()
WITH_SENSES = frozenset(key.lower() for key in _SENSES)
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


def sense(cursor: Cursor) -> Reading | None:
    """d. 1603, dep. 9:40, arr LHR, 3 yrs exp: a word cut short whose neighbours tell its meaning."""
    word = cursor.word
    stop = cursor.behind_word == "."
    if cursor.touches_word or not (stop or cursor.behind_word in ("", " ", ":", ",", ";", ")")):
        return None
    end = cursor.word_end + stop
    is_name = word.isupper() and len(word) > 1 and not (stop or cursor.is_shouted)  # "ARR 2023", "the EP 2"
    for one in _SENSES.get(word, ()) if is_name else _rows_of(word):
        if (stop or not one.needs_stop) and _fits(one, cursor.text, cursor.at, end):
            return Reading(one.spoken + (cursor.last_stop(end) if stop else ""), end)
    return None

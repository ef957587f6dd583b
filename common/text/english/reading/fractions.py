"""Fractions, and whatever else has a slash between two numbers: 3/4 mile, 4/5 stars, 60/40, on 3/14."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import gcd
from typing import NamedTuple

from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cursor import Cursor, Reading
from melforge.common.text.english.reading.dates import BEFORE_DAYS, day_said, is_day
from melforge.common.text.english.reading.units import THINGS, plural_unit, unit_after
from melforge.common.text.english.reading.word_classes import CLOSED, FINITE
from melforge.common.text.english.word_parts import words

_FRACTION = re.compile(
    r"(?:(\d{1,4})[ -])?(\d{1,4})/(\d{1,4})(?:rds?|ths?|nds?|RD|TH|ND)?(?!(?!s(?!\w))[\w/]|\.\d|,\d{3})"
)
_SHORT_FRACTION = re.compile(r"(\d{1,6})?\s?([½¼¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅐⅑⅒])")
_TO_FRACTION = re.compile(r"(\d{1,3})\s?[-–]\s?(?=\d{0,3}\s?[½¼¾⅓⅔⅛])")
_SECONDS = re.compile(r"\s?s(?:ecs?)?(?!\w)")
_SIZES = words("thick wide long deep high tall by of x in and too off from away apart above below")
_HALF_OF = "(?:price|dozen|time|marathon|way|off|mast|term|day|pint)"
_HALVED = re.compile(rf"(?<=½)[\s-]{_HALF_OF}\b")
_AT_HALF = re.compile(r"\d+ ½[\s-](?:price|off)\b")  # "ages 5-12 ½ price"
_TIED = re.compile(r"-[a-z]|\s?°")
_FEET = re.compile(r"['′](?![\w'])")
_THREAD = re.compile(
    r'"?-(\d\d)(?=\s?(?:UN[A-Z]*|NC|NF|bolts?|screws?|nuts?|studs?|threads?|hex|cap|tap|x\s|×)\b)'
)
_CHANGED_BY = re.compile(
    r"\b(?:multipl|divid|reduc|(?:in|de)creas|cut|down|shr[iu]nk|f[ae]ll|gr[oe]w|r[io]se|lower|raise)\w*\s(?:\w+\s){0,3}by\s$"
)
_LOOK_BACK = 40  # characters

_OPEN = "|".join(sorted(CLOSED | FINITE))
_NOUN = rf"\s(?!(?:{_OPEN})\b)[a-z]{{2,}}[a-z](?!\w)"
_NOUNS = rf"\s(?!(?:{_OPEN})\b)[a-z]{{3,}}s(?!\w)"
_NO_NOUN = rf"\b(?:an?|(?!(?:{'|'.join(sorted(CLOSED))})\s)[a-z]+)\s"
_EVENTS = (
    r"\s(?:meeting|mtg|call|game|party|show|class|event|deadline|session|visit|appointment|appt|concert|flight|release"
    r"|demo|deck|standup|update|report|shift|quiz|trip|launch|hearing|vote|email|letter|memo|invoice|delivery|sale|election|primary)\b"
)
_AMOUNT = r"""\s?(?:[^\w\s]{0,2}(?:"|″|[-–]\d)|in\b|inch|of\b|scale\b|mm\b|ratio|[+*×÷=])"""
_RATED = (
    r"\b(?:rate[ds]?|rating|scored?|scores|gave|gives?|got|gets?|solid)\s"
    r"(?:(?:it|this|that|them|him|her)\s)?|:\s?"
)
_PAGES = (
    r"\b(?:stop|lap|page|p|slide|part|step|item|question|track|disc|photo|pic|picture|image|frame|retry|attempt|try|ep|thread|test|day"
    r"|week|lesson|chapter|episode|round|level|batch|epoch|stage|phase|shard|chunk|box|carton|ctn|pkg|package|pallet)\.?\s"
)
_MUSIC = r"[♩♪𝅘𝅥]|\b[A-G][#♯♭b]?\s(?:minor|major)\b|\bkey of [A-G]|\btime signature\b|\bbpm\b|\b[Ww]altz"
_CRICKET = (
    r"\b(?:T20|ODI|posted|declared|wickets?|innings|overs|cricket|batting|Test|stumps|runs|ov|all\sout)\b"
)
_OF, _OUT_OF, _PAIR, _SLASH = "{0} of {1}", "{0} out of {1}", "{0} {1}", "{0} slash {1}"
_DATE = "a date"


class _Case(NamedTuple):
    """What stands before (in small letters), all that is written, what stands behind: what is said.

    `{0}` and `{1}` are the numbers; `_DATE` is said where the numbers are a month and a day.
    """

    before: str
    written: str
    behind: str
    said: str
    fits: Callable[[int, int], bool] = lambda top, bottom: True
    around: str = ""


def _is_quartered(bottom: int) -> bool:
    return bottom in (2, 4, 8, 16)


# The first that fits counts.
_CASES = (
    _Case("", "1/2", rf"\s{_HALF_OF}\b|-(?:price|off|time)\b", "half"),
    _Case(
        "", "", rf"\s(?:{'|'.join(tables.MONTHS)}|[A-Z][a-z]{{2,3}}\.)\s1[5-8]\d\d(?!\d)", _SLASH
    ),  # "6/16 Nov. 1632"
    _Case("", "24/7", "", "twenty-four seven"),
    _Case("", "30/360", "", "thirty three sixty"),
    _Case("", "", r"\s[A-Z][a-z]+\s(?:Rd|St|Ave|Road|Street|Avenue)\b", _SLASH),  # flats: "3/1 Ferry Rd"
    _Case("", r"20/\d\d0?", "", _PAIR, around=r"\b(?:[Vv]ision|[Aa]cuity|O[DSU]|eyes?)\b"),
    _Case(r"\bbp:?\s|pressure:?\s", "", "", "{0} over {1}", lambda top, bottom: bottom > 20),
    _Case(r"\b(?:rwys?\.?|runways?)\s", "", "", "{codes}"),
    _Case("", "9/11|20/20", "", _PAIR),
    _Case(BEFORE_DAYS, "", "", _DATE),
    _Case(r"\b(?:updated?:?|(?:message|msg\.?|letter|e-?mail|memo|invoice)\sof)\s", "", "", _DATE),
    _Case("", "", r"\s(?:BCE?|B\.C)\b", "{codes}"),  # "70/69 BC"
    _Case(_PAGES, "", r"(?!\sof\b)", _OF),
    _Case("", "7/11", "", _PAIR),
    _Case("", "", r"\s?°", _PAIR, lambda top, bottom: top > bottom or bottom > 16),  # "gas 6/200°C"
    _Case("", "", r",?\snet\s\d", _PAIR),
    _Case("", "[2346]/[48]", r"\s(?:@|at)\s\d{2,3}\s?(?i:bpm)", _PAIR),
    _Case(
        "",
        "[234569]/[48]|12/8",
        "",
        _PAIR,
        around=r"\b(?:BPM|bpm|chords?|key\sof|tempo|waltz|[Tt]ime\ssignature)\b",
    ),
    _Case("", "(?:[357]|10)/[16]", r"\sARMs?\b", _PAIR),
    _Case(r"\bin\s", "[34569]/[48]|12/8", r"\s?(?:$|[.,;)])", _PAIR),
    _Case("", "", r":\s[$£€]", _DATE),
    _Case("", "", r"\s(?:tests|checks|jobs|tasks)\b", _OF, lambda top, bottom: top <= bottom),
    _Case("", "", r"\sfor\s\d{1,3}\s(?:yds?|yards)\b", _OF, lambda top, bottom: top <= bottom),  # passes
    _Case("", "", r"\s(?:(?:second|joint|clear|hot)\s)?fav(?:s|ou?rites?)?\b", "{0} to {1}"),
    _Case("", "", r"\s?ct\b", _PAIR, lambda top, bottom: top > 9),  # of shrimps
    _Case("", "", r"\s?[MG]B(?:/s|ps)\b", _SLASH),
    _Case("", "", r"\s?mc?g\b", _SLASH, lambda top, bottom: min(top, bottom) > 4),  # of two drugs
    _Case("", "", r"\s(?:Romex|NM|UF|SOOW)\b", _PAIR),  # wires
    _Case("", "", r"\son\s(?:the|my|a|her|his)\s(?:quiz|test|exam|final|midterm)\b", _OUT_OF),
    _Case(r"\bed(?:\.|ition)\s", "", "", _OF),
    _Case("", "", r"\smpg\b", _PAIR),
    _Case("", "", r"\s(?:@|at)\s\d|:\s[a-z]", _DATE),
    _Case(r"\bthe\s", "", _EVENTS, _DATE),
    _Case(r",\s", "", r",\s\d{1,2}(?::\d\d)?\s?[ap]\.?m\b", _DATE),  # "Dentist, 3/4, 8:15am"
    _Case(r"\A|\W\s?", "", _EVENTS, _DATE, lambda top, bottom: top > bottom or not _is_quartered(bottom)),
    _Case(r"\bop(?:us|\.)?\s?", "", "", "{0} number {1}"),
    _Case(r"\A|\W\s?|\b[a-z]+\s", r"0\d/\d\d?|\d\d?/0\d", "", _DATE),
    # "INV-2024/0087", "Regulation 2016/679", "C-131/12", "ref. AB/1234/24", "wind 080/12"
    _Case("", r"\d+/0\d\d+|\d{4}/\d{3,4}", "", "{codes}"),
    _Case(r"[a-z][\w.]*-|/", "", "", "{codes}"),
    _Case(
        "",
        r"0(?!/(?:5|10)\Z).*|.*/0.*",
        "",
        "{codes}",
        lambda top, bottom: not (is_day(top, bottom) or is_day(bottom, top)),
    ),
    _Case(
        r"\b(?:grades?|phase|class|type|category|years|windows|win|ios|android|debian|zones|sizes|levels|ages|rooms|wards)\s",
        "",
        "",
        _SLASH,
    ),
    # "1/5 Why I left", one of several posts
    _Case(r"\A", "1/(?:[5679]|10)", r"(?![^\w\s]?$|\s?[-–:=+×a-z,;.*%\"'″])", _OF),
    _Case(_PAGES, "", "", _OF, lambda top, bottom: bottom not in (2, 3, 4, 8, 16)),
    _Case(r"\(", "", r"\)", _OF, lambda top, bottom: top <= bottom < 13 and bottom not in (2, 3, 4, 8)),
    _Case("", "", "", "{short} for {1}", lambda top, bottom: top > 30 and bottom <= 10, _CRICKET),
    _Case(
        r"\b(?:figures\sof|took|takes|with)\s", "", "", "{0} for {1}", lambda top, bottom: top <= 10, _CRICKET
    ),
    _Case("", "", r"\s(?:stars|points|pts)\b", _OUT_OF, lambda top, bottom: bottom > 3),
    _Case(r"\(|:\s?", r"\d\d/100", r"(?!\s(?:of|inch|mm|dollars)\b)", _OUT_OF),
    _Case("", "[05]/5|(?:0|1[0-3])/10", "", _OUT_OF),
    _Case(r"\A", "[1-9]/10", r"[,.!:;]|\s[-–]\s", _OUT_OF),
    _Case(_RATED, "", "", _OUT_OF, lambda top, bottom: _is_score(top, bottom)),
    _Case("", "", r"\s(?:people|times|would)\b", _OUT_OF, lambda top, bottom: _is_score(top, bottom)),
    _Case(rf"{_NO_NOUN}|,\s", "[4-9]/10", r"(?!\s(?:of|mi|mile|inch)\b)", _OUT_OF),
    # "cleared 6/3"
    _Case(
        r"(?<!\w)(?!scored|rated)[a-z]{2,}ed\s",
        "",
        rf"(?!{_AMOUNT}|{_NOUN})",
        _DATE,
        lambda top, bottom: top >= bottom or bottom not in (2, 3, 4, 8, 16),
    ),
    _Case("", "", "", "{0} to {1}", around=r"\b(?:[Oo]dds|bookies|favou?rites?\sat|went\soff\sat)\b"),
    _Case("", "", r"\s(?:time|beat|meter|rhythm|groove|feel)\b", _PAIR),
    _Case("", "", "", _PAIR, lambda top, bottom: _is_quartered(bottom), _MUSIC),
    _Case("", "", "", _PAIR, lambda top, bottom: top + bottom == 100),
    _Case("", "", _NOUN, _PAIR, lambda top, bottom: top > bottom > 1),  # "16/2 wire"
    _Case("", ".*/60", r"\s?Hz\b", _PAIR),
    # "we fly out 29/8"
    _Case(
        r"(?!(?:at|is|of|by|times|about|was)\s)(?<![a-z'])[a-z']+\s",
        "",
        rf"(?!{_AMOUNT})",
        _DATE,
        lambda top, bottom: 31 >= top > 12 >= bottom and top % bottom > 0 and (top, bottom) != (22, 7),
    ),
    # "closes 9/2", "available 8/1": no fraction is written so
    _Case(
        r"[,:;.(]\s?|\b[a-z]+\s",
        "",
        f"(?!{_AMOUNT})",
        _DATE,
        lambda top, bottom: top < 13 and (bottom == 1 or 6 < top > bottom),
    ),
    _Case(
        r"[a-z]{3}\s",
        "",
        r"\s(?!(?:is|are|and|to|or|for|of|against|odds|times)\b)[a-z]|[,;]\s[a-z]",
        _DATE,
        lambda top, bottom: 12 >= top > bottom,
    ),
    _Case(r"\b(?:on|from)\s\d{1,2}/\d{1,2}\s(?:and|&|or)\s", "", rf"(?!{_AMOUNT}|{_NOUN})", _DATE),
    # "Minutes from 3/12": a fraction would be reduced
    _Case(
        r"\b(?:from|is|was|for|of)\s",
        "",
        rf"(?!{_AMOUNT}|{_NOUN}|\s(?:of|is)\b)",
        _DATE,
        lambda top, bottom: gcd(top, bottom) > 1 and bottom not in (4, 8, 10, 16),
    ),
    _Case("", "", "", "{0} divided by {1}", lambda top, bottom: top > bottom > 1 and top % bottom == 0),
    _Case(
        "",
        "",
        r"[,;)]",
        _OF,
        lambda top, bottom: 12 < top < bottom < 1000 and bottom not in (16, 32, 64, 100),
    ),
    # "12/15 files"
    _Case(
        "",
        "",
        _NOUNS,
        _OF,
        lambda top, bottom: 4 < top == bottom or (top < bottom > 4 and not _is_quartered(bottom)),
    ),
    _Case(
        "",
        r".*\d",
        r"(?!\s(?:of|scale)\b)",
        _DATE,
        lambda top, bottom: max(top, bottom) > 12 and bottom not in (16, 20),
    ),
)


def _is_score(top: int, bottom: int) -> bool:
    return (bottom in (5, 10) and top < bottom + 4) or (bottom >= top > 12 and bottom not in (16, 32, 64))


_pattern = cache(re.compile)


def fraction(cursor: Cursor) -> Reading | None:
    """3/4 mile, 2 1/2 cups, 24/7; on 3/4."""
    m = _FRACTION.match(cursor.text, cursor.at)
    if not m:
        return None
    top, bottom = int(m[2]), int(m[3])
    is_plain = m[1] or _CHANGED_BY.search(cursor.text[max(cursor.at - _LOOK_BACK, 0) : cursor.at])
    if not is_plain and (said := next((said for case in _CASES if (said := _said(cursor, m, case))), "")):
        unit, end = unit_after(cursor, m.end(), is_one=False)
        return Reading(said + unit, end)
    if m[1]:
        spoken = f"{say.integer(m[1])} and {_behind_whole(say.fraction(top, bottom))}" if top < bottom else ""
    else:
        spoken = say.fraction(top, bottom)
    if not spoken:
        return None
    if top == 1 and bottom % 100 and bottom > 99 and _SECONDS.match(cursor.text, m.end()):  # "1/250 s"
        spoken = f"one {say.ordinal(bottom)}"
    if thread := _THREAD.match(cursor.text, m.end()):  # of screws: "1/4-20 UNC", '3/8"-16 bolts'
        return Reading(f"{spoken} {say.integer(thread[1])}", thread.end())
    if " over " in spoken:
        unit, end = unit_after(cursor, m.end(), is_one=False)
        return Reading(spoken + unit, end)
    return _with_unit(cursor, spoken, m.end(), is_more_than_one=bool(m[1]) or top > bottom)


def _said(cursor: Cursor, m: re.Match, case: _Case) -> str:
    """What is said where a case fits, "" where it does not."""
    top, bottom = int(m[2]), int(m[3])
    if (
        (case.written and not _pattern(case.written).fullmatch(m[0]))
        or not case.fits(top, bottom)
        or (case.behind and not _pattern(case.behind).match(cursor.text, m.end()))
        or (case.around and not cursor.is_near(_pattern(case.around)))
    ):
        return ""
    before = cursor.text[max(cursor.at - _LOOK_BACK, 0) : cursor.at].lower()
    if case.before and not _pattern(f"(?:{case.before})$").search(before):
        return ""
    if case.said == _DATE and _TIED.match(cursor.text, m.end()):  # "on 1/4-acre lots"
        return ""
    if case.said == _DATE:
        is_sure = case.before != "" and bottom != top
        return "" if cursor.is_equation and not is_sure else day_said(cursor, top, bottom, is_sure)
    codes = f"{say.short(m[2])} slash {say.short(m[3])}"
    return case.said.format(say.cardinal(top), say.cardinal(bottom), codes=codes, short=say.short(m[2]))


def short_fraction(cursor: Cursor) -> Reading | None:
    """½, 3½ miles, 1–1½ hours."""
    if (m := _TO_FRACTION.match(cursor.text, cursor.at)) and (
        last := short_fraction(replace(cursor, at=m.end()))
    ):
        return last._replace(spoken=f"{say.integer(m[1])} to {last.spoken}")
    m = _SHORT_FRACTION.match(cursor.text, cursor.at)
    if not m or _AT_HALF.match(cursor.text, cursor.at):
        return None
    name = tables.SYMBOLS[m[2]]
    if not m[1] and _HALVED.match(cursor.text, m.end()):
        return Reading("half", m.end())
    spoken = f"{say.integer(m[1])} and {_behind_whole(name)}" if m[1] else name
    return _with_unit(cursor, spoken, m.end(), is_more_than_one=bool(m[1]))


def _with_unit(cursor: Cursor, spoken: str, end: int, is_more_than_one: bool) -> Reading:
    """A fraction with its unit: "two and a half miles", "three quarters of an inch"."""
    if cursor.text[end : end + 1] in ('"', "″"):
        following = cursor.next(end + 1)
        if following.islower() and following not in _SIZES:
            is_short = spoken in ("one half", "one quarter", "one third") and not is_more_than_one
            said = spoken.removeprefix("one ") if is_short else spoken  # "1/2" pipe"
            return Reading(f"{said} inch", end + 1)
        unit, end = " inch", end + 1
    elif is_more_than_one and _FEET.match(cursor.text, end):
        unit, end = " foot", end + 1
    else:
        unit, end = unit_after(cursor, end, is_one=True)
    name = unit.strip()
    if name == "hertz":
        return Reading(f"{spoken} {name}", end)
    if name and not is_more_than_one and cursor.next(end) in THINGS:  # "1/2 hp motor"
        return Reading(f"{spoken} {name.removeprefix('-')}", end)
    if name.startswith("-"):  # "1/4-oz"
        return Reading(f"{spoken} {name[1:]}", end)
    if is_more_than_one and name.startswith("degree"):
        return Reading(f"{spoken} {plural_unit(name)}", end)
    if not name or name.startswith(("percent", "degree")):
        return Reading(spoken + unit, end)
    if is_more_than_one:
        return Reading(f"{spoken} {plural_unit(name)}", end)
    article = "an" if name[0] in "aeio" or name.startswith("hour") else "a"
    return Reading(f"{spoken} of {article} {name}", end)


def _behind_whole(fraction: str) -> str:
    """ "one half" -> "a half"."""
    return f"a {fraction[4:]}" if fraction in ("one half", "one quarter", "one third") else fraction

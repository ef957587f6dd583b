"""E-mail and web addresses, files and paths, hashtags and handles."""

from __future__ import annotations

import re

from melforge.common.text.english.pronounce import is_known
from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.capitals import camel, letter_name, part_of_name
from melforge.common.text.english.reading.cursor import WORD, Cursor, Reading, form, only
from melforge.common.text.english.reading.latin import left_out_of
from melforge.common.text.english.reading.telephone import CODED
from melforge.common.text.english.reading.words import plain
from melforge.common.text.english.word_parts import words

_HEAD = re.compile(r"[^\s@./\\]{0,63}[@./\\]")  # the first mark of an address
_ENDS = re.compile(r"[ ,]|\.(?!\S)")  # behind a word that begins no address
_SCHEME = re.compile(r"^(?:https?|ftp)://", re.IGNORECASE)
_TLD = "|".join(sorted(tables.TOP_LEVEL_DOMAINS, key=len, reverse=True))
_ENDINGS = "|".join(sorted(tables.FILE_ENDINGS, key=len, reverse=True))
_LARGE_ENDINGS = "|".join(ending.upper() for ending in _ENDINGS.split("|") if len(ending) > 2)  # not "B.C"
_EMAIL = re.compile(
    r"[\w.+%&'-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w@])(?:[/?][\w=&%.+~/-]{1,200})?"
)
_URL = re.compile(
    r"(?:[a-z][a-z\d+]{1,9}://|www\.)[^\s<>\"]{1,2000}"
    rf"|(?:(?:[A-Za-z0-9-]{{1,63}}\.){{1,8}}(?:{_TLD})(?![\w-]|\.\w)|localhost(?=:\d|/))(?:[/?#:][^\s<>\"]{{0,2000}})?",
    re.IGNORECASE,
)
_FILE = re.compile(
    r"(?!(?:[A-Za-z]\.){1,5}[A-Za-z](?!\w))"  # "p.h."
    rf"(?:[\w.-]{{1,100}}[/\\]){{0,12}}[\w-]{{1,100}}(?:\.[\w-]{{1,40}}){{0,3}}\.(?:{_ENDINGS}|{_LARGE_ENDINGS})(?!\w|\.[A-Za-z]{{3}})(?:\?\w+=[\w=&%.+-]{{0,200}})?(?:\.\d{{1,4}}(?!\w)){{0,3}}"
)
_DOTTED_NAME = re.compile(
    r"[A-Za-z_]\w{1,60}\.[a-z_]\w{1,60}(?:\.[A-Za-z_]\w{1,60}){1,8}(?!\w)"
)  # "com.example.Main"
_PLACE = re.compile(r":(\d{1,6})(?::(\d{1,5}))?(?!\w)")  # "main.c:42:7"
_HEX = re.compile(r"[\dA-Fa-f]{2}(?:([:-])[\dA-Fa-f]{2})(?:\1[\dA-Fa-f]{2}){4}(?![\w:])")
_DOI = re.compile(r"10\.\d{4,9}/[\w.()/:;-]{1,100}")
_IPV4 = re.compile(r"(\d{1,3}(?:\.(?!000)\d{1,3}){3})(?::(\d{1,5})|/(\d{1,2}))?(?![\w.]*\d)")
_UUID = re.compile(r"[\dA-Fa-f]{8}(?:-[\dA-Fa-f]{4}){3}-[\dA-Fa-f]{12}(?!\w)")
_IPV6 = re.compile(
    r"(?=[\dA-Fa-f:.]{0,44}::|(?:[\dA-Fa-f]{1,4}:){7})"
    r"(?:[\dA-Fa-f]{1,4}(?=:)|(?=::))(?::{1,2}[\dA-Fa-f]{1,4}){0,7}(?:::|(?:\.\d{1,3}){3})?(?:/(\d{1,3}))?(?![\w:])"
)
_STARTS = "0123456789abcdefABCDEF:"
_WORD_ENDS = (" ", ",", ".")
_DIGIT_OR_LETTER = re.compile(r"\d|[A-Za-z]+|::|[:.]")
_PATH = re.compile(
    r"(?:[A-Za-z]:\\|\\\\|~/|\.{1,2}/|/)(?=[A-Za-z_.])[\w.+%@~-]{1,255}(?:[/\\][\w.+%@~{}-]{0,255}){0,40}(?:\?\w+=[\w=&%.+-]{0,200})?"
)
_PARTS = re.compile(r"[A-Za-z]+|\d+|.", re.DOTALL)
_MARKS = {
    **{".": "dot", "/": "slash", "\\": "backslash", "-": "dash", "_": "underscore", "?": "question mark"},
    **{"=": "equals", "&": "and", "#": "hash", "%": "percent", ":": "colon", "~": "tilde", "+": "plus"},
    **{"@": "at", ",": "comma", ";": "semicolon", "!": "exclamation mark", "*": "star", "$": "dollar"},
}
_SPELLED = words("uk us io ai edu pdf de txt py ca au eu me co fr www")

_HASH_NUMBER = re.compile(
    r"#\s?(?=\d+[A-Z]?(?!\w)|\s(?:is|was)\b|:|(?![\dA-Fa-f]{6}(?!\w))(?:[A-Z]{1,4}-|[A-Z]{1,2})\d)"
)
_COLOR = re.compile(r"#(?=[A-Fa-f]{0,5}\d)([\dA-Fa-f]{6})(?!\w)")
_UNSURE_COLOR = re.compile(r"#([\dA-F]{3}|[A-Fa-f]{6})(?!\w)")  # it may be a tag, too
_COLORED = re.compile(r"\b(?:hex|colou?rs?|gr[ae]y|white|black|blue|red|green|border|background|CSS)\b")
_HASHTAG = re.compile(r"#(\w{1,100})")
_HANDLE = re.compile(r"@([^\W\d][\w.]{0,62}\w|[^\W\d])")
_NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|.", re.DOTALL)


@only(at=_STARTS)
def network_address(cursor: Cursor) -> Reading | None:
    """192.168.0.1, 127.0.0.1:8080, 3C:22:FB:10:2B:9E, fe80::1, a UUID, a DOI: one by one."""
    text, at = cursor.text, cursor.at
    if cursor.behind_word in _WORD_ENDS:
        return None
    if text.find(".", at, at + 4) > 0 and not cursor.touches_word and (match := _IPV4.match(text, at)):
        first, *rest = match[1].split(".")
        groups = " dot ".join(["ten" if first == "10" else say.digits(first), *map(say.digits, rest)])
        port = f" colon {_spoken_part(cursor, match[2])}" if match[2] else ""
        return Reading(groups + port + (f" slash {say.integer(match[3])}" if match[3] else ""), match.end())
    if not cursor.is_after_blank:
        return None
    if text.startswith("10.", at) and (match := _DOI.match(text, at)):
        written = match[0].rstrip(".,;:)")
        spoken = [_spoken_part(cursor, part) for part in _PARTS.findall(written)]
        return Reading(" ".join(filter(None, spoken)), at + len(written))
    if text.find(":", at, at + 5) < 0 and text[at + 2 : at + 6 : 3] != "--" and text[at + 8 : at + 9] != "-":
        return None
    if match := _UUID.match(text, at):
        return Reading(", ".join(map(_one_by_one, match[0].split("-"))), match.end())
    if match := _HEX.match(text, at):
        return Reading(", ".join(map(_one_by_one, match[0].split(match[1]))), match.end())
    match = _IPV6.match(text, at)
    if not match or len(match[0]) < 3:
        return None
    groups = match[0].partition("/")[0]
    mask = f" slash {say.integer(match[1])}" if match[1] else ""
    return Reading(_one_by_one(groups) + mask, match.end())


def _one_by_one(written: str) -> str:
    names = {":": "colon", "::": "colon colon", ".": "dot"}
    parts = _DIGIT_OR_LETTER.findall(written)
    return " ".join(
        names.get(part)
        or (say.digits(part) if part.isdecimal() else " ".join(map(letter_name, part.upper())))
        for part in parts
    )


def address(cursor: Cursor) -> Reading | None:
    """An address is read part by part; the "https://" before one is not."""
    if cursor.word and _ENDS.match(cursor.text, cursor.word_end):
        return None
    is_apart = cursor.is_after_blank or cursor.text.startswith("*http", cursor.at - 1)  # in bold
    can_begin = is_apart and (cursor.char.isalpha() or cursor.char in "/~\\.")
    if not can_begin or not _HEAD.match(cursor.text, cursor.at):
        return None
    for pattern in (_EMAIL, _URL, _PATH, _FILE, _DOTTED_NAME):
        if match := pattern.match(cursor.text, cursor.at):
            written = match[0].rstrip(".,;:!?)]}'\"*")
            parts = _PARTS.findall(_SCHEME.sub("", written))
            spoken = [_spoken_part(cursor, part) for part in parts]
            letters = [part for part in parts if part.isalpha()]
            end = cursor.at + len(written)
            if pattern in (_FILE, _PATH) and (place := _PLACE.match(cursor.text, end)):
                spoken.append(f", line {say.integer(place[1])}")
                spoken.append(f", column {say.integer(place[2])}" if place[2] else "")
                end = place.end()
            return Reading(" ".join(filter(None, spoken)), end, left_out_of(cursor, letters))
    return None


def _spoken_part(cursor: Cursor, part: str) -> str:
    if part.isdecimal():
        return say.integer(part) if len(part) < 3 else say.digits(part)
    if not part.isalpha():
        return _MARKS.get(part, tables.SYMBOLS.get(part, ""))
    if not part.isascii():
        return plain(cursor, part, cursor.at)
    if part.lower() in _SPELLED and part != "us":  # "/about-us"
        return part.upper()
    if part.islower():
        return part if len(part) > 3 or (len(part) > 1 and is_known(part)) else letter_name(part.upper())
    return part_of_name(cursor, part) if part.isupper() else camel(cursor, part)


@form(r"\*{1,2}(?:/\*{1,2}){0,3}/?(?:\.[a-z]\w{0,5})+(?!\w)")
def glob(cursor: Cursor, m: re.Match) -> str:
    """*.log, **/*.ts."""
    return " ".join(filter(None, (_spoken_part(cursor, part) for part in _PARTS.findall(m[0]))))


@only(at="#@")
def tag(cursor: Cursor) -> Reading | None:
    """#1, #MachineLearning, @user_name."""
    if cursor.char == "@":
        match = _HANDLE.match(cursor.text, cursor.at)
        return _name(cursor, "at", match) if match else None
    if not cursor.touches_word:
        if match := _HASH_NUMBER.match(cursor.text, cursor.at):
            return Reading("number", match.end())
        if cursor.text[cursor.at : cursor.at + 3] in ("#s", "#s "):
            return Reading("numbers", cursor.at + 2)  # "your lucky #s"
        match = _COLOR.match(cursor.text, cursor.at)
        if not match and cursor.is_near(_COLORED):
            match = _UNSURE_COLOR.match(cursor.text, cursor.at)
        if match:
            sign = "number" if cursor.previous.lower() in CODED else "hash"
            return Reading(f"{sign} {_one_by_one(match[1])}", match.end())
        if match := _HASHTAG.match(cursor.text, cursor.at):
            return _name(cursor, "hashtag", match)
    return None


def _name(cursor: Cursor, kind: str, match: re.Match) -> Reading:
    """The name behind a sign, with the word for the sign."""
    if match[1].isascii():
        marks = {"_": "underscore", ".": "dot"}
        parts = _NAME_PARTS.findall(match[1])
        spoken = [marks.get(part) or part_of_name(cursor, part) for part in parts]
    else:
        parts = WORD.findall(match[1])
        spoken = [plain(cursor, part, cursor.at) for part in parts]
    return Reading(f"{kind} {' '.join(spoken)}", match.end(), left_out_of(cursor, parts))

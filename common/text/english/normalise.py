"""Written English to words: numbers, dates, money, abbreviations, symbols, addresses, emoji.

One pass from left to right. At each place the rules for the character there are tried in order; the first one
that applies says how its stretch of text is spoken. So every spoken word has its place in the written text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from melforge.common.text import SaidAs
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.addresses import address, network_address
from melforge.common.text.english.reading.british import in_britain
from melforge.common.text.english.reading.cursor import FILL, Cursor, LeftOut, Reading, Rules, begin
from melforge.common.text.english.reading.formats import NUMBERS
from melforge.common.text.english.reading.signs import SIGNS, transcription
from melforge.common.text.english.reading.words import WORDS, ordinary_word, pass_unchanged

_ALIKE = {
    **dict.fromkeys("‘’‛ʻʼ`´ʹ＇", "'"),
    **dict.fromkeys("“”„‟«»〝〞＂", '"'),
    **dict.fromkeys("‐‑‒", "-"),
    **dict.fromkeys("✕✖⨯", "×"),
    **dict.fromkeys("―⸺⸻", "—"),
    **dict(zip("⁄∕、，‚،。।；؛：∶！？؟・【】（）˚∗∼⁓", "//,,,,..;;::!?? ()()°*~~", strict=True)),
    **dict.fromkeys("「」『』", '"'),
}
_OVER = {"\u0304": " bar", "\u0305": " bar", "\u0302": " hat"}
_PLAIN_MARKS = frozenset(".,()/°'\u2044 $%&+-=<>@#*~")  # what letters and signs of full width are made of
_WORD_BREAKS = frozenset(f"\u00ad\u200b\ufeff{FILL}")  # invisible, and nothing is lost
_NOT_CLEAN = re.compile("[^\t-\r -~]")
_WRITTEN_WORD = re.compile(r"'{0,9}[A-Za-z][A-Za-z']{0,50}")
_PHONEMES = re.compile(r"\{([^{}]*)\}")
_APOSTROPHES = re.compile(r"(?<![\d'.])\d{1,3}(?:'\d{3})+(?![\d'\"])")  # of thousands: "1'000'000"
_TIMES = re.compile(
    r"(?:(?<=\.\d)|(?<=\.\d\d))·(?=\d)|(?:(?<=\d)|(?<=\d ))·(?= ?\d+(?:[⁰¹²³⁴-⁹⁻^]|[ ·\d]{0,20}=))"
)  # "0.9·0.01", "2·10⁸", "3·4 = 12"
_POINT = re.compile(r"(?<![\w.)])(\d{1,4})·(?=\d)")  # "p=0·03"
_LOOK_BACK = 100  # characters: no rule looks further
# Not every letter begins a word: "ⁿ".
_LETTERS = Rules(network_address, address, *WORDS, *SIGNS)
_DIGITS = Rules(network_address, *NUMBERS)
_SIGNS = Rules(network_address, transcription, *SIGNS)


class Span(NamedTuple):
    """Words and marks as spoken, and the part of the written text that they stand for."""

    text: str
    start: int
    end: int
    phones: tuple[str, ...] = ()  # of a word whose accents tell how it is said, or that are given


def normalise(
    text: str, said: Sequence[SaidAs] = (), is_british: bool = False
) -> tuple[list[Span], list[LeftOut]]:
    """A sentence in words and marks, and what of it is not spoken. `said` are parts with words of their own.

    Words in capitals are spelled; a word's "-" joins it to the next.
    """
    cleaned = _clean_around(text, said, is_british) if said else (*_clean(text), ())
    characters, positions, left_out, given = cleaned
    spans, unread = _read(characters, given, is_british)
    if positions is not None:
        spans = [Span(s.text, positions[s.start], _end(text, positions[s.end - 1]), s.phones) for s in spans]
        unread = [LeftOut(o.symbol, positions[o.position], o.kind) for o in unread]
    return spans, left_out + unread


class _Given(NamedTuple):
    """A part of the cleaned text that is not read, and what is said there."""

    start: int
    end: int
    spans: list[Span]


def _read(text: str, given: Sequence[_Given], is_british: bool) -> tuple[list[Span], list[LeftOut]]:
    spans: list[Span] = []
    left_out: list[LeftOut] = []
    if "·" in text:
        text = _POINT.sub(r"\1.", _TIMES.sub("⋅", text))
    if "'" in text:
        text = _APOSTROPHES.sub(lambda match: match[0].replace("'", ","), text)
    cursor = begin(text, is_british)
    parts = iter((*given, _Given(len(text), len(text), [])))
    part = next(parts)
    while char := cursor.char:
        if cursor.at >= part.start:  # a blank that it begins with has been passed
            spans += part.spans
            cursor.advance(Reading("", part.end))
            part = next(parts)
            continue
        if char.isalpha() and (passed := pass_unchanged(cursor, part.start)):
            spans += [Span(*word) for word in passed]
            continue
        if char.isspace():
            if char == "\t":  # between the cells of a table
                spans.append(Span(",", cursor.at, cursor.at + 1))
            cursor.move(cursor.at + 1)
            continue
        rules = _LETTERS if char.isalpha() else _DIGITS if char.isdecimal() else _SIGNS
        reading = ordinary_word(cursor) or rules.first_reading(cursor)
        if reading.end > part.start:
            reading = _reading_up_to(part.start, rules, cursor)
        if is_british:
            reading = in_britain(cursor, reading)
        if reading.spoken:
            spans.append(Span(reading.spoken, cursor.at, reading.end, tuple(reading.phones.split())))
        left_out += reading.left_out
        cursor.advance(reading)
    return spans, left_out


def _reading_up_to(end: int, rules: Rules, cursor: Cursor) -> Reading:
    """The reading at the cursor where the text ends at `end`."""
    start = max(0, cursor.at - _LOOK_BACK)
    reading = rules.first_reading(replace(cursor, text=cursor.text[start:end], at=cursor.at - start))
    left_out = [one._replace(position=one.position + start) for one in reading.left_out]
    return reading._replace(end=reading.end + start, left_out=tuple(left_out))


def _clean_around(
    text: str, said: Sequence[SaidAs], is_british: bool
) -> tuple[str, list[int] | None, list[LeftOut], list[_Given]]:
    """As _clean; the parts that are said otherwise stay as they are: they are context for the rest only."""
    characters, positions, left_out = text, list[int](), list[LeftOut]()
    if is_changed := _NOT_CLEAN.search(text) is not None:
        parts, end = list[str](), 0
        for one in (*said, SaidAs(len(text), len(text), "")):
            cleaned, places, lost = _clean(text[end : one.start])
            parts += cleaned, text[one.start : one.end]
            positions += range(end, one.start) if places is None else [end + place for place in places]
            positions += range(one.start, one.end)
            left_out += [item._replace(position=end + item.position) for item in lost]
            end = one.end
        characters = "".join(parts)
    given = []
    for one in said:
        start = bisect_left(positions, one.start) if is_changed else one.start
        end = start + one.end - one.start
        spans, lost = _said(one.spoken, text[one.start : one.end], is_british)
        given.append(_Given(start, end, [Span(span.text, start, end, span.phones) for span in spans]))
        left_out += [item._replace(position=one.start) for item in lost]
    return characters, positions if is_changed else None, left_out, given


def _said(spoken: str, written: str, is_british: bool) -> tuple[list[Span], list[LeftOut]]:
    """What is said in place of what is written: a written word stays, with the phonemes given for it."""
    written = written.replace("’", "'")
    if (phonemes := _PHONEMES.fullmatch(spoken)) and _WRITTEN_WORD.fullmatch(written):
        return [Span(written, 0, 0, tuple(phonemes[1].split()))], []
    return normalise(spoken, is_british=is_british)


def _end(text: str, last: int) -> int:
    """Behind the character at `last` and what stands for nothing behind it."""
    end = last + 1
    while text.startswith(FILL, end):
        end += 1
    return end


def _clean(text: str) -> tuple[str, list[int] | None, list[LeftOut]]:
    """Look-alikes unified, what is invisible removed; where each character was written (None: the same)."""
    if not _NOT_CLEAN.search(text):
        return text, None, []
    out: list[str] = []
    positions: list[int] = []
    left_out: list[LeftOut] = []
    for position, char in enumerate(text):
        new = char if " " <= char <= "~" or char.isspace() else _clean_char(char, out, left_out, position)
        if "₀" <= char <= "₉" and text[max(position - 1, 0)].isdecimal():  # "1010₂"
            new = f" base {new}"
        elif "₀" <= char <= "₉" and out[-1:] == ["x"] and "".join(out[-2:-1]).isdecimal():  # "0.8x₁"
            new = f"_{new}"
        out.extend(new)
        positions.extend([position] * len(new))
    return "".join(out), positions, left_out


def _clean_char(char: str, out: list[str], left_out: list[LeftOut], position: int) -> str:
    """What stands for a character; a combining mark joins the letter before it."""
    if char in _ALIKE:
        return _ALIKE[char]
    if char in _WORD_BREAKS:
        return ""
    if char in tables.SYMBOLS or char in tables.SUPERSCRIPTS or char in tables.EMOJI:
        return char
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if category in ("Mn", "Me"):
        if out and len(joined := unicodedata.normalize("NFC", out[-1] + char)) == 1:
            out[-1] = joined
        elif char in _OVER and out and out[-1].isascii() and out[-1].isalpha():  # "x̄"
            return _OVER[char]
        elif not out or out[-1].isspace():  # on nothing
            left_out.append(LeftOut(char, position, char))
        return ""
    if category[0] == "C":
        if char == tables.JOINER and out and out[-1] > "\u2190":  # inside an emoji
            return char
        left_out.append(LeftOut(char, position, char))
        return " " if category == "Cc" else ""
    plain = unicodedata.normalize("NFKC", char)
    if plain.isalpha() and plain.isascii() and unicodedata.decomposition(char).startswith("<sub>"):
        return f"_{plain}"  # "aₙ"
    if plain != char and all((c.isascii() and c.isalnum()) or c in _PLAIN_MARKS for c in plain):
        return plain.replace("\u2044", "/")
    return char

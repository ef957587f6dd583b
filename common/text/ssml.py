"""SSML, the W3C's Speech Synthesis Markup Language 1.1, to the passages of a marked text.

Tags without effect are reported, and what is between them is spoken. XML is read without document types,
entities of its own and external files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar
from xml.parsers import expat

from melforge.common.errors import InputError, unknown
from melforge.common.text.english.say_as import KINDS, say_as
from melforge.common.text.marked import PassageBuilder
from melforge.common.text.phonemes import in_braces
from melforge.common.text.split import PARAGRAPH_PAUSE, SENTENCE_PAUSE
from melforge.common.text.style import PLAIN, Style

T = TypeVar("T")

DEEPEST = 64  # elements in one another
LONGEST_BREAK = 20.0  # seconds
_BLANKS = str.maketrans(dict.fromkeys("\t\n\r\f\v\u0085\u2028\u2029", " "))
_NUMBER = r"(\d{1,6}(?:\.\d{0,6})?|\.\d{1,6})"
_SECONDS = re.compile(rf"\+?{_NUMBER}(ms|s)")
_AMOUNT = re.compile(rf"([+-]?){_NUMBER}(%|st|Hz|dB|)")

STRENGTHS = {"none": 0.0, "x-weak": 0.1, "weak": 0.2, "medium": 0.4, "strong": 0.75, "x-strong": 1.2}
RATES = {"x-slow": 0.5, "slow": 0.75, "medium": 1.0, "default": 1.0, "fast": 1.3, "x-fast": 1.6}
PITCHES = {"x-low": -6.0, "low": -3.0, "medium": 0.0, "default": 0.0, "high": 3.0, "x-high": 6.0}
RANGES = {"x-low": 0.4, "low": 0.7, "medium": 1.0, "default": 1.0, "high": 1.3, "x-high": 1.6}
DECIBELS = {
    **{"silent": -math.inf, "x-soft": -12.0, "soft": -6.0, "medium": 0.0, "default": 0.0},
    **{"loud": 4.0, "x-loud": 8.0},
}
EMPHASES = {
    "strong": Style(rate=0.85, semitones=1.5, range=1.3, volume=1.4),
    "moderate": Style(rate=0.92, semitones=0.7, range=1.15, volume=1.2),
    "none": PLAIN,
    "reduced": Style(rate=1.1, semitones=-0.7, range=0.8, volume=0.8),
}
# Names for the alphabets of `phonemes`.
ALPHABETS = {
    **{"ipa": "ipa", "x-sampa": "x-sampa", "x-ipa": "ipa"},
    **{"arpabet": "arpabet", "x-arpabet": "arpabet", "x-cmu": "arpabet", "cmu": "arpabet"},
    "cmu-arpabet": "arpabet",
}
_BLOCKS = {
    "p": PARAGRAPH_PAUSE,
    "paragraph": PARAGRAPH_PAUSE,
    "s": SENTENCE_PAUSE,
    "sentence": SENTENCE_PAUSE,
}
_SILENT = frozenset(("desc", "lexicon", "meta", "metadata"))
_NOTHING_TO_SAY = frozenset(("lookup", "speak", "token", "w"))  # their contents are spoken as they are
_AS_IN_ANY_TEXT = frozenset(("address", "name", "unit"))  # what say-as leaves to the frontend
# What to do about an error of XML, by its number.
_WAYS_OUT = {
    expat.errors.codes[error]: way
    for error, way in (
        (expat.errors.XML_ERROR_INVALID_TOKEN, "& and < are written &amp; and &lt;"),
        (expat.errors.XML_ERROR_UNDEFINED_ENTITY, "write the character itself, or its number as in &#233;"),
        (expat.errors.XML_ERROR_NO_ELEMENTS, "the end of <{open}> is missing"),
        (expat.errors.XML_ERROR_TAG_MISMATCH, "<{open}> is open"),
    )
}


def read_ssml(text: str) -> PassageBuilder:
    """The passages of a document. An InputError says in which line and column it is wrong."""
    return _Reader(text).passages


@dataclass
class _Element:
    """An open element: what holds outside of it, and how its contents are said where it replaces them."""

    name: str
    style: Style
    speaker: str
    says: Callable[[str], list[tuple[int, int, str]] | None] | None = None
    instead: tuple[str, int] = ("", 0)  # in place of contents that are blank, and where it stands
    contents: list[tuple[str, int]] = field(default_factory=list)


class _Reader:
    def __init__(self, text: str):
        self.passages = PassageBuilder()
        self._open: list[_Element] = []
        self._replacing: _Element | None = None
        self._is_silent = 0  # elements deep in one that is not spoken
        self._before = len(text) - len(text.lstrip("\ufeff \t\r\n"))  # nothing may stand before <?xml
        self._lines = text.count("\n", 0, self._before)
        try:
            self._bytes = text[self._before :].encode()
        except UnicodeEncodeError as error:
            raise InputError(f"SSML: {text[error.start]!r} is no character") from None
        self._is_ascii = text.isascii()
        self._byte, self._index = 0, self._before
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._write
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        try:
            parser.Parse(self._bytes, True)
        except expat.ExpatError as error:
            where = f"line {error.lineno + self._lines}, column {error.offset + 1}"
            way = _WAYS_OUT.get(error.code, "").format(open=self._open[-1].name if self._open else "speak")
            what = expat.errors.messages[error.code] + (way and f": {way}")
            raise InputError(f"SSML, {where}: {what}") from None
        self.passages.finish()

    def _refuse_doctype(self, *about: object) -> None:
        raise self._error("a document type is not read: leave <!DOCTYPE> and entities out")

    def _error(self, what: str) -> InputError:
        line, column = self._parser.CurrentLineNumber + self._lines, self._parser.CurrentColumnNumber + 1
        return InputError(f"SSML, line {line}, column {column}: {what}")

    def _at(self) -> int:
        """The index into the text of what is read now."""
        byte = self._parser.CurrentByteIndex
        if self._is_ascii:
            return self._before + byte
        self._index += len(self._bytes[self._byte : byte].decode())
        self._byte = byte
        return self._index

    def _warn(self, what: str) -> None:
        self.passages.warnings.append(f"SSML, line {self._parser.CurrentLineNumber + self._lines}: {what}")

    def _start(self, name: str, given: dict[str, str]) -> None:
        if len(self._open) == DEEPEST:
            raise self._error(f"more than {DEEPEST} elements stand in one another")
        if not self._open and name != "speak":
            raise self._error(f"<speak> must be around everything, not <{name}>")
        passages = self.passages
        element = _Element(name, passages.style, passages.speaker)
        self._open.append(element)
        if name == "lexicon":
            self._warn("no lexicon file is read")
        if self._is_silent or name in _SILENT:
            self._is_silent += 1
            return
        if self._replacing:
            self._warn(f"<{name}> in <{self._replacing.name}> changes nothing")
            return
        language = given.get("xml:lang", "en")
        if language.partition("-")[0].lower() != "en":
            self._warn(f"the language {language!r} is read as English")
        if name in _BLOCKS:
            passages.close(_BLOCKS[name], is_whole=True)
        elif name == "break":
            passages.pause(self._seconds(given))
        elif name == "mark":
            passages.bookmark(self._wanted(given, "mark", "name"))
        elif name == "prosody":
            passages.style = self._styled(passages.style, given)
        elif name == "emphasis":
            level = self._one_of(EMPHASES, given.get("level", "moderate"), "level")
            passages.style = combined(passages.style, level)
        elif name == "voice":
            passages.speaker = given.get("name", passages.speaker).strip()
            if others := sorted({*given} - {"name", "xml:lang", "languages", "onvoicefailure"}):
                self._warn(f"a voice is found by its name only, not by {', '.join(others)}")
        elif name in ("sub", "phoneme", "say-as"):
            self._replacing = element
            element.says = self._replacement(name, given)
            element.instead = given.get("alias" if name == "sub" else "ph", ""), self._at()
        elif name == "audio":
            self._warn("no audio file is played: what <audio> holds is spoken in its place")
        elif name not in _NOTHING_TO_SAY and name != "lang":
            self._warn(f"<{name}> changes nothing")
        elif "role" in given:
            self._warn(f"the role of <{name}> changes nothing")

    def _end(self, name: str) -> None:
        element = self._open.pop()
        if self._is_silent:
            self._is_silent -= 1
            return
        if element is self._replacing:
            self._replacing = None
            written = "".join(text for text, _ in element.contents)
            if not written.strip() and element.name != "say-as":
                element.contents = [element.instead]
                written = element.instead[0].translate(_BLANKS)
            if written.strip() and element.says:
                before = len(written) - len(written.lstrip())
                said = element.says(written.strip())
                at = element.contents[0][1]
                moved = said and [(before + a, before + b, spoken) for a, b, spoken in said]
                self.passages.write(written, at, moved)
            return
        if self._replacing:
            return
        self.passages.style, self.passages.speaker = element.style, element.speaker
        if name in _BLOCKS:
            self.passages.close(_BLOCKS[name], is_whole=True)

    def _write(self, text: str) -> None:
        if self._is_silent:
            return
        text = text.translate(_BLANKS)
        if self._replacing:
            self._replacing.contents.append((text, self._at()))
        else:
            self.passages.write(text, self._at())

    def _replacement(
        self, name: str, given: dict[str, str]
    ) -> Callable[[str], list[tuple[int, int, str]] | None]:
        """How the contents of a `sub`, `phoneme` or `say-as` are said."""
        if name == "sub":
            alias = self._wanted(given, name, "alias")
            return lambda written: [(0, len(written), alias.translate(_BLANKS))]
        if name == "phoneme":
            alphabet = self._one_of(ALPHABETS, given.get("alphabet", "ipa").lower(), "alphabet")
            wanted = self._wanted(given, name, "ph")
            try:
                phonemes = in_braces(wanted, alphabet)
            except InputError as error:
                raise self._error(str(error)) from None
            return lambda written: [(0, len(written), phonemes)]
        kind = self._wanted(given, name, "interpret-as").lower()
        if kind not in KINDS:
            self._warn(unknown("interpret-as", kind, KINDS))
        written_form = given.get("format", given.get("detail", "")).lower()
        if kind == "date":
            written_form = re.sub(r"(.)\1+", r"\1", written_form)  # "yyyymmdd"
        is_told = kind in KINDS and kind not in _AS_IN_ANY_TEXT
        is_told &= bool(written_form) or kind not in ("date", "currency")

        def said(written: str) -> list[tuple[int, int, str]] | None:
            found = say_as(written, kind, written_form)
            if found is None and is_told:
                self._warn(f"{written[:40]!r} is read as in any text, not as {kind}")
            return found

        return said

    def _wanted(self, given: dict[str, str], name: str, attribute: str) -> str:
        if not given.get(attribute, "").strip():
            raise self._error(f"<{name}> needs {attribute}")
        return given[attribute].strip()

    def _one_of(self, table: dict[str, T], word: str, what: str) -> T:
        if word not in table:
            raise self._error(unknown(what, word, table))
        return table[word]

    def _seconds(self, given: dict[str, str]) -> float:
        if "time" not in given:
            return self._one_of(STRENGTHS, given.get("strength", "medium"), "strength")
        try:
            return seconds_of(given["time"])
        except InputError as error:
            raise self._error(str(error)) from None

    def _styled(self, style: Style, given: dict[str, str]) -> Style:
        for name, value in given.items():
            if name in PROSODY:
                try:
                    style = PROSODY[name](style, value.strip())
                except InputError as error:
                    raise self._error(str(error)) from None
            elif name != "xml:lang":
                self._warn(f"prosody's {name} changes nothing")
        return style


def seconds_of(text: str) -> float:
    """ "500ms" or "1.5s"."""
    match = _SECONDS.fullmatch(text.strip())
    seconds = float(match[1]) / (1000 if match[2] == "ms" else 1) if match else math.inf
    if seconds > LONGEST_BREAK:
        raise InputError(f"a break is a time such as 500ms or 1.5s, up to {LONGEST_BREAK:g} s, not {text!r}")
    return seconds


def combined(style: Style, other: Style) -> Style:
    """A style within another, within the limits of the controls."""
    return Style(
        rate=_within(style.rate * other.rate, 0.1, 10),
        semitones=_within(style.semitones + other.semitones, -48, 48),
        shift=_within(style.shift + other.shift, -1000, 1000),
        level=other.level or style.level,
        range=_within(style.range * other.range, 0, 10),
        volume=_within(style.volume * other.volume, 0, 10),
    )


def _within(number: float, low: float, high: float) -> float:
    return min(max(number, low), high)


def _with_rate(style: Style, value: str) -> Style:
    if value in RATES:
        return style._replace(rate=RATES[value])
    sign, number, unit = _amount(value, "rate", RATES, ("", "%"))
    return combined(style, Style(rate=_times(sign, number, unit, "rate", value)))


def _with_pitch(style: Style, value: str) -> Style:
    if value in PITCHES:
        return style._replace(semitones=PITCHES[value], shift=0.0, level=0.0)
    sign, number, unit = _amount(value, "pitch", PITCHES, ("%", "st", "Hz"))
    signed = -number if sign == "-" else number
    if unit == "st":
        return combined(style, Style(semitones=signed))
    if unit == "Hz":
        if sign:
            return combined(style, Style(shift=signed))
        return style._replace(semitones=0.0, shift=0.0, level=_within(number, 20, 1000))
    return combined(style, Style(semitones=12 * math.log2(_times(sign, number, unit, "pitch", value))))


def _with_range(style: Style, value: str) -> Style:
    if value in RANGES:
        return style._replace(range=RANGES[value])
    return combined(style, Style(range=_times(*_amount(value, "range", RANGES, ("%",)), "range", value)))


def _with_volume(style: Style, value: str) -> Style:
    if value in DECIBELS:
        return style._replace(volume=10 ** (DECIBELS[value] / 20))
    sign, number, unit = _amount(value, "volume", DECIBELS, ("", "%", "dB"))
    if unit == "dB":
        return combined(style, Style(volume=10 ** ((-number if sign == "-" else number) / 20)))
    if not unit and not sign:  # from 0 to 100
        return style._replace(volume=_within(number / 100, 0, 10))
    return combined(style, Style(volume=_times(sign, number, "%", "volume", value)))


PROSODY: dict[str, Callable[[Style, str], Style]] = {
    "rate": _with_rate,
    "pitch": _with_pitch,
    "range": _with_range,
    "volume": _with_volume,
}


def _amount(value: str, name: str, words: dict[str, float], units: tuple[str, ...]) -> tuple[str, float, str]:
    """The sign, number and unit of an attribute; an InputError says what it may be."""
    match = _AMOUNT.fullmatch(value)
    if not match or match[3] not in units:
        example = {"rate": "80%", "pitch": "+2st, +10% or 120Hz", "range": "+20%", "volume": "+6dB"}[name]
        raise InputError(f"{name} is {', '.join(words)}, or such as {example}, not {value!r}")
    return match[1], float(match[2]), match[3]


def _times(sign: str, number: float, unit: str, name: str, value: str) -> float:
    """How many times as much: of "+20%", "80%" or "0.8"."""
    share = number / 100 if unit else number
    times = 1 + share if sign == "+" else 1 - share if sign == "-" else share
    if times < (0 if name in ("volume", "range") else 0.1) or times > 10:
        raise InputError(f"{name} must be from a tenth to ten times the usual, not {value!r}")
    return times

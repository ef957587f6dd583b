"""Punctuation, mathematical signs, symbols and emoji."""

from __future__ import annotations

import re

from common.text.english.reading import number_words as say
from common.text.english.reading import tables
from common.text.english.reading.characters import EMOJI_PARTS, JOINER, SUPERSCRIPTS, name_of
from common.text.english.reading.cursor import Cursor, letter_name
from common.text.english.reading.formats import PHONE
from common.text.english.word_parts import words
from common.text.symbols import ARPABET

_MONEY = re.compile(r"[$£€¥₹₩₽₪₺₴₫₱₦฿₿](?=[ .]?\d)\s?")
_SIGNED = re.compile(r"([-−–+±])(\s?)([$£€¥₹]?)(?=\.?\d)")
_PHONE_ABROAD = re.compile(r"\+\d{1,3}(?:[ .-]?\(?\d{2,5}\)?){2,5}(?!\w)")
_DIGITS = re.compile(r"\d+")
_POWER = re.compile(r"([⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ]{1,5})|\^\{?([-+]?\w{1,5})\}?")
_PHONEMES = re.compile(r"\{((?:[A-Z]{1,2}[012]?\s?){1,40})\}")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>|<!--[^<>]{0,200}-->")
_CITATION = re.compile(r"\[\d{1,3}\]")
_APOSTROPHE_YEAR = re.compile(r"'(\d0)s(?!\w)|'(\d\d)(?![\w'])")
_ELISION = re.compile(r"'(twas|tis|em|til|cause|bout|round|n)(?!\w)'?", re.IGNORECASE)
_FULL = {"em": "them", "til": "until", "cause": "because", "bout": "about", "round": "around", "n": "and"}
_MARKS = ".,;:?!…"
_RULE = frozenset("=*_~#+.<>/\\|^")  # three of these in a row are drawn, not said
_BEFORE_NUMBER = {"<": "less than", ">": "greater than", "~": "about"}
_NUMBER_WORDS = words("one two three four five six seven eight nine ten eleven twelve noon midnight")
_LONGEST_SIGN = max(map(len, tables.SIGNS))
_REGIONAL_A, _REGIONAL_Z = "\U0001f1e6", "\U0001f1ff"
_MAX_CLUSTER = 24  # characters of one emoji


class Signs(Cursor):
    """Rules for whatever is neither letter nor digit."""

    def _symbol(self, start: int, char: str) -> int:
        if end := self._with_number(start, char) or self._enclosed(start, char) or self._sign(start):
            return end
        if char == "'":
            return self._apostrophe(start)
        if char in "/~\\." and self._after_blank() and (end := self._address(start)):
            return end
        if char in _MARKS:
            return self._mark(start)
        if char in "#@" and (end := self._tag(start, char)):
            return end
        run = self._run(start, char)
        if char in "-–—":
            return self._dash(start, run)
        is_heading = char == "#" and (start == 0 or self.text[start - 1] == "\n")
        if is_heading or (run - start > 2 and char in _RULE):
            return self._emit("blank" if char == "_" else "", run)
        return self._single(start, run, char)

    def _run(self, start: int, chars: str) -> int:
        """The end of a row of these characters."""
        end = start + 1
        while end < len(self.text) and self.text[end] in chars:
            end += 1
        return end

    def _with_number(self, start: int, char: str) -> int:
        """$5, -3, +44 20 ..., (415) 555-2671"""
        if match := _MONEY.match(self.text, start):
            return self._number(match.end(), char)
        if char == "(" and (match := PHONE.match(self.text, start)):
            return self._emit(self._phone(match), match.end())
        if char == "+" and self._after_blank():
            if match := PHONE.match(self.text, start):
                return self._emit(f"plus {self._phone(match)}", match.end())
            if match := _PHONE_ABROAD.match(self.text, start):
                groups = ", ".join(say.digits(group) for group in _DIGITS.findall(match[0]))
                return self._emit(f"plus {groups}", match.end())
        match = _SIGNED.match(self.text, start)
        if not match or not self._after_blank():
            return 0
        _, blank, currency = match.groups()
        if char in "-–+" and (
            (blank and (char != "+" or self.previous[-1:].isalnum())) or self._ends_range(char)
        ):
            return 0
        return self._number(match.end(), currency, {"+": "plus ", "±": "plus or minus "}.get(char, "minus "))

    def _ends_range(self, char: str) -> bool:
        return char == "–" and self.previous[-1:].isdecimal()

    def _enclosed(self, start: int, char: str) -> int:
        """Phonemes in braces; what is written for machines: <b>, and for readers: [1]."""
        text = self.text
        if char == "{" and (match := _PHONEMES.match(text, start)):
            phones = match[1].split()
            if all(phone in ARPABET for phone in phones):
                return self._emit(f"{{{' '.join(phones)}}}", match.end())
        if char == "[" and not self._after_blank() and (match := _CITATION.match(text, start)):
            return self._leave_out(match.end(), "[")
        if char == "<" and (match := _TAG.match(text, start)):
            return self._leave_out(match.end())
        return 0

    def _sign(self, start: int) -> int:
        """Several characters that make one sign: ->, <=, :-)"""
        for size in range(_LONGEST_SIGN, 1, -1):
            sign = self.text[start : start + size]
            if sign in tables.SIGNS and len(sign) == size:
                is_whole = not sign[-1].isalnum() or not self.text[start + size : start + size + 1].isalnum()
                if is_whole and (sign[0] not in ":;" or self._after_blank()):
                    return self._emit(tables.SIGNS[sign], start + size)
        return 0

    def _single(self, start: int, run: int, char: str) -> int:
        number_follows = self._next(run)[:1].isdecimal()
        if char == "(" and self._touches_word() and len(self.previous) == 1 and self.previous.isalpha():
            self.is_argument = True
            return self._emit("of", run)  # f(x)
        if char == ")" and self.is_argument:
            self.is_argument = False
            return run
        if char in "()[]{}|":
            return self._emit(",", run)
        if char == "*":
            is_product = run - start == 1 and number_follows and self.previous[-1:] in tuple("0123456789)")
            return self._emit("times" if is_product else "", run)
        if char == "^" or char in SUPERSCRIPTS:
            return self._power(start)
        if char == "/" and number_follows and (self.previous[-1:].isdigit() or self.previous == ")"):
            return self._emit("divided by", run)
        if char in "§¶" and run - start > 1:
            return self._emit(f"{tables.SYMBOLS[char]}s", run)
        if number_follows and char in _BEFORE_NUMBER:
            return self._emit(_BEFORE_NUMBER[char], run)
        if char in tables.SILENT:
            return run
        if char.isascii() and char in tables.SYMBOLS:
            return self._emit(tables.SYMBOLS[char], run)
        return self._flag(start) if _REGIONAL_A <= char <= _REGIONAL_Z else self._named(start, run, char)

    def _mark(self, start: int) -> int:
        text, run = self.text, self._run(start, _MARKS)
        marks, after = text[start:run], text[run : run + 1]
        if marks == ":" and self.previous.lower() in _NUMBER_WORDS and after.isalpha():
            return run  # twelve:thirty
        if marks == "." and self._touches_word() and after.islower():
            return self._emit("dot", run)  # node.js
        if strongest := next((mark for mark in "?!" if mark in marks), ""):
            return self._emit(strongest, run)
        if "…" in marks or ".." in marks:
            following = self._next(run)
            return self._emit("." if following[:1].isupper() or not following[:1].isalnum() else ",", run)
        return self._emit(next(mark for mark in ".;:," if mark in marks), run)

    def _dash(self, start: int, run: int) -> int:
        text, sign = self.text, self.text[start:run]
        before, after, following = text[max(start - 1, 0) : start], text[run : run + 1], self._next(run)
        if sign not in ("-", "–"):
            return self._emit("-", run)
        if before.strip() and after.isalnum():  # tied on: "737-800", "x86-64", "1999–present"
            is_range = self.previous[:1].isdecimal() and (after in "123456789" or sign == "–")
            return self._emit("to" if is_range else "", run)
        if not before and after.isspace():  # an item of a list
            return run
        if before.isspace() and after.isspace():
            has_digit = any(char.isdecimal() for char in self.previous)
            is_minus = following[:1].isdecimal() and (has_digit or len(self.previous) == 1)
            return self._emit("minus" if is_minus and self.previous[-1:].isalnum() else "-", run)
        if before.isdecimal() and following[:1].isdecimal():  # "5- 6"
            return self._emit("to", run)
        return self._emit("-" if sign == "–" else "", run)

    def _apostrophe(self, start: int) -> int:
        if self._touches_word():
            return start + 1
        if match := _APOSTROPHE_YEAR.match(self.text, start):
            said = say.decade(int(match[1])) if match[1] else say.two_digits(int(match[2]))
            return self._emit(said, match.end())
        if match := _ELISION.match(self.text, start):
            return self._emit(_FULL.get(match[1].lower(), match[1]), match.end())
        return start + 1

    def _power(self, start: int) -> int:
        match = _POWER.match(self.text, start)
        if not match:
            return self._emit(tables.SYMBOLS.get(self.text[start], ""), start + 1)
        power = "".join(SUPERSCRIPTS[char] for char in match[1]) if match[1] else match[2]
        minus, rest = "minus " if power[0] == "-" else "", power.lstrip("+-")
        letters = " ".join(letter_name(char.upper()) for char in rest if char.isascii() and char.isalpha())
        said = minus + (say.integer(rest) if rest.isdecimal() else letters)
        if not self.previous[-1:].isalnum() and self.previous[-1:] != ")":
            return self._emit(said, match.end())
        said = {"two": "squared", "three": "cubed"}.get(said, f"to the power of {said}")
        return self._emit(said, match.end())

    def _flag(self, start: int) -> int:
        pair = self.text[start : start + 2]
        if len(pair) < 2 or not _REGIONAL_A <= pair[1] <= _REGIONAL_Z:
            return self._leave_out(start + 1)
        country = "".join(chr(ord(char) - ord(_REGIONAL_A) + ord("A")) for char in pair)
        return self._emit(f"flag {country},", start + 2)

    def _named(self, start: int, run: int, char: str) -> int:
        """A symbol or an emoji by its name; a row of the same emoji is named once."""
        text = self.text
        if char in tables.SYMBOLS and char not in tables.EMOJI:
            return self._emit(tables.SYMBOLS[char], start + 1)
        end, names = start, []
        while end - start < _MAX_CLUSTER:  # emoji that are joined to one
            names.append(name_of(text[end]))
            end += 1
            while text[end : end + 1] in EMOJI_PARTS:
                end += 1
            if text[end : end + 1] != JOINER or end + 1 == len(text):
                break
            end += 1
        if not any(names):
            return self._leave_out(max(end, run), char)
        cluster = text[start:end]
        while text.startswith(cluster, end):
            end += len(cluster)
        return self._emit(" ".join(name for name in names if name) + ",", end)

"""Words as written to words as said: abbreviations, initials, contractions, foreign letters."""

from __future__ import annotations

import re

from common.text.english.reading import number_words as say
from common.text.english.reading import tables
from common.text.english.reading.characters import SUPERSCRIPTS, LeftOut, script_of
from common.text.english.reading.cursor import LETTER, PIECES, WORD, Cursor, letter_name
from common.text.english.word_parts import words

_BLANK_DIGIT = re.compile(r"\s?(?=\d)")
_CALENDAR = "Mon|Tues?|Wed|Thu(?:rs)?|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec"
_NAME_RANGE = re.compile(rf"({_CALENDAR})\.?\s?[-–]\s?({_CALENDAR})\.?(?!\w)")
_SHORT_MONTHS = words("Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec")
_MAX_NAME = 2000  # characters of the longest address
_SHORT_DAYS = words("Mon Tue Tues Wed Thu Thur Thurs Fri")
_SHORTENED = _SHORT_MONTHS | _SHORT_DAYS
_VERSION = re.compile(r"[vV]\.?\s?(\d+(?:\.\d+)*)(?!\w)")
_DOTTED = re.compile(
    rf"(?:{LETTER}\.){{2,12}}(?:{LETTER}(?!\w))?|[A-Z][a-z]?\.[A-Z]\.(?:s(?!\w)|(?!\w))|[ap]\.m(?!\w)"
)
_LETTERS_AND_DIGITS = re.compile(r"[A-Za-z]+\d[A-Za-z\d]*")
_PLURAL_BRACKET = re.compile(r"\((e?s)\)(?!\w)")
_AND = re.compile(r"&(?:amp;)?([A-Z]{1,3})(?!\w)")
_SLASHED = re.compile(r"(w/o|w/|c/o|n/a|y/o)(?!/)", re.IGNORECASE)
_SLASHED_WORDS = {"w/o": "without", "w/": "with", "c/o": "care of", "n/a": "NA", "y/o": "year old"}
_OR = words("he his him she her s")
_STREET_ENDS = words("Suite Apt NW NE SW SE Unit")
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th)")
_BRACKETED_NUMBER = re.compile(r"\s\(\d")
_NUMBERED_WITH_I = words("war part act book volume vol chapter scene phase type class world")


class Words(Cursor):
    """Rules for whatever begins with a letter."""

    def _word(self, start: int) -> int:
        text = self.text
        if self._after_blank() and (end := self._address(start)):
            return end
        if not self._touches_word() and (end := self._fixed_form(start)):
            return end
        match = WORD.match(text, start)
        if not match:
            return self._symbol(start, text[start])
        word, end = match[0], match.end()
        if text[end : end + 1].isdecimal() and (mixed := _LETTERS_AND_DIGITS.match(text, start)):
            own = self._possessive(mixed.end())
            end = self._past_hyphen(mixed.end() + len(own))
            return self._emit(self._letters_and_digits(mixed[0]) + own, end)
        if len(word) == 1 and (after := self._sign_after_letter(word, end)):
            return after
        if text.startswith(".", end) and (after := self._abbreviation(word, end)):
            return after
        if after := self._money_word(word, end):
            return after
        if bracket := _PLURAL_BRACKET.match(text, end):
            word, end = word + bracket[1], bracket.end()
        if word.isupper() and (other := _AND.match(text, end)):
            return self._emit(f"{letter_name(word)} and {letter_name(other[1])}", other.end())
        if text.startswith("/", end) and text[end + 1 : end + 2].isalpha():
            return self._emit(self._before_slash(word, end), end + 1)
        spoken = self._plain(word, end)
        joined = self._past_hyphen(end)
        if joined > end and spoken[-1:].isalnum() and self._next(joined)[:1].isalpha():
            spoken += "-"
        return self._emit(spoken, joined)

    def _fixed_form(self, start: int) -> int:
        """Mon-Fri, v2.0, U.S., w/o."""
        text = self.text
        if match := _NAME_RANGE.match(text, start):
            return self._emit(f"{_calendar_name(match[1])} to {_calendar_name(match[2])}", match.end())
        if match := _VERSION.match(text, start):
            number = " point ".join(say.integer(part) for part in match[1].split("."))
            return self._emit(f"version {number}", match.end())
        if (match := _DOTTED.match(text, start)) and match[0][0].isascii():
            return self._dotted(match[0], match.end())
        if match := _SLASHED.match(text, start):
            return self._emit(_SLASHED_WORDS[match[1].lower()], match.end())
        return 0

    def _money_word(self, word: str, end: int) -> int:
        """US$5, USD 5."""
        if (
            word in tables.DOLLARS
            and self.text.startswith("$", end)
            and self.text[end + 1 : end + 2].isdecimal()
        ):
            return self._number(end + 1, word + "$")
        if word in tables.CURRENCY_CODES and (blank := _BLANK_DIGIT.match(self.text, end)):
            return self._number(blank.end(), tables.CURRENCY_CODES[word])
        return 0

    def _before_slash(self, word: str, end: int) -> str:
        """The first of two words with a slash between them."""
        if word.lower() == "and":
            return word
        return f"{self._plain(word, end)} {'or' if word.lower() in _OR else 'slash'}"

    def _past_hyphen(self, end: int) -> int:
        """Past a hyphen that ties a word or number on."""
        is_tied = self.text.startswith("-", end) and self.text[end + 1 : end + 2].isalnum()
        return end + 1 if is_tied else end

    def _plain(self, word: str, end: int) -> str:
        """A word without marks as it is said."""
        if not word.isascii():
            return self._foreign(word)
        if (number := self._roman(word, end)) is not None:
            return number
        if len(word) == 1:
            is_item = self._after_blank() and self.text.startswith(")", end)  # "a) first"
            if is_item:
                return letter_name(word.upper())
            return word if word in "aAI" else word.upper()
        if word.islower() or (word[0].isupper() and word[1:].islower() and word not in _SHORTENED):
            is_era = word in ("bc", "ad", "bce") and self.previous.isdecimal()
            return word.upper() if is_era else word
        if word in _SHORTENED:
            is_date = self._next(end)[:1].isdecimal() or (self.previous.isdecimal() and word in _SHORT_MONTHS)
            return _calendar_name(word) if is_date else word
        return self._cased(word)

    def _foreign(self, word: str) -> str:
        """A word with letters beyond a-z; another script than the Latin one is reported."""
        from anyascii import anyascii

        if word.lower() in tables.GREEK:
            return tables.GREEK[word.lower()]
        latin = re.findall(r"[A-Za-z']+", anyascii(word))
        scripts = {script_of(char) for char in word if not char.isascii()} - {"LATIN"}
        if scripts or not latin:
            position = max(
                self.text.find(word, self.at, self.at + _MAX_NAME), self.at
            )  # inside a name, perhaps
            self.left_out.append(LeftOut(word[:40], position, min(scripts, default=word)))
        if not scripts:
            return self._plain("".join(latin), self.at + len(word)) if latin else ""
        syllables = [part.replace("'", "") for part in latin]
        return " ".join(
            piece for part in syllables for piece in PIECES.findall(part.title() if part.isupper() else part)
        )

    def _sign_after_letter(self, letter: str, end: int) -> int:
        """C++, C#, A+, x²."""
        name, sign = letter_name(letter.upper()), self.text[end : end + 1]
        if self.text.startswith("++", end):
            return self._emit(f"{name} plus plus", end + 2)
        if sign == "^" or (sign and sign in SUPERSCRIPTS):
            return self._emit(name, end)
        if sign == "#" and letter.isupper():
            return self._emit(f"{name} sharp", end + 1)
        if sign == "+" and letter in "ABCDEF" and not self.text[end + 1 : end + 2].isalnum():
            return self._emit(f"{name} plus", end + 1)
        return 0

    def _dotted(self, written: str, end: int) -> int:
        """U.S., e.g., p.m., Ph.D.s"""
        several = "s" if written.endswith(".s") else ""
        letters = written.removesuffix(several) if several else written
        key, letters = letters.rstrip(".").lower(), letters.replace(".", "")
        if key in tables.ABBREVIATIONS:
            spoken = tables.ABBREVIATIONS[key]
        elif letters.isupper() or key in ("a.m", "p.m", "b.c", "a.d", "u.s", "u.k"):
            spoken = letters.upper()
            spoken = (
                spoken.capitalize() if spoken in tables.ACRONYM_WORDS else tables.ACRONYMS.get(spoken, spoken)
            )
        else:
            spoken = " ".join(letter_name(letter.upper()) for letter in letters)
        return self._emit_abbreviation(spoken + several, end)

    def _abbreviation(self, word: str, end: int) -> int:
        """A word with a full stop behind it: 0 where that ends the sentence or the word is none."""
        key, end = word.lower(), end + 1
        following = self._next(end)
        if len(word) == 1:
            return self._initial(word, end, following)
        if key in ("dr", "st"):
            spoken = self._doctor_or_saint(key, following)
        elif key in tables.ABBREVIATIONS:
            if not self._is_abbreviated(word, key, end, following):
                return 0
            spoken = tables.ABBREVIATIONS[key]
        elif key in tables.WEEKDAYS and word[0].isupper():
            is_month = following.lower() in tables.MONTH_NUMBERS
            if not (is_month or following in (",", ")") or following[:1].isdecimal() or following.islower()):
                return 0
            spoken = tables.WEEKDAYS[key]
        else:
            return 0
        return self._emit_abbreviation(spoken, end)

    def _emit_abbreviation(self, spoken: str, end: int) -> int:
        """With the "'s" of "the P.M.'s" or the full stop of the sentence."""
        own = self._possessive(end)
        return self._emit(spoken + (own or self._last_stop(end)), end + len(own))

    def _initial(self, letter: str, end: int, following: str) -> int:
        """J. Smith; p. 5; c. 1850; Roe v. Wade; World War I. Then."""
        is_name = following[:1].isupper()
        is_part = not is_name or self.previous.lower() in _NUMBERED_WITH_I
        if is_part and (number := self._roman(letter, end - 1)) is not None:
            return self._emit(number, end - 1)
        is_dated = letter in "pc" or (letter in "bd" and self.previous in ("(", ";", ","))
        if following[:1].isdecimal() and is_dated:
            return self._emit({"p": "page", "c": "circa", "b": "born", "d": "died"}[letter], end)
        if letter == "v" and following:
            return self._emit("versus", end)
        if self.at == 0 and following and letter.islower():  # "a. First"
            return self._emit(f"{letter_name(letter.upper())},", end)
        if letter.isupper() and (is_name or following == ","):
            return self._emit(letter_name(letter), end)
        return 0

    def _is_abbreviated(self, word: str, key: str, end: int, following: str) -> bool:
        """Whether a known abbreviation is one here, and no word at the end of a sentence."""
        is_number = following[:1].isdecimal()
        if key in tables.BEFORE_NUMBERS and not is_number:
            is_roman = following.isupper() and say.roman(following) is not None
            if not is_roman and (key == "no" or not _BRACKETED_NUMBER.match(self.text, end)):
                return False
        goes_on = is_number or following.islower() or (word[0].isupper() and following != "")
        if key in tables.ALSO_WORDS and not goes_on:
            return False
        if key in tables.MONTH_NUMBERS and not word[0].isupper():
            return False
        return key not in ("mt", "ft") or following[:1].isupper()

    def _doctor_or_saint(self, key: str, following: str) -> str:
        """ "Dr. Jones", "42 Elm Dr."; "St. Paul", "12 Oak St."."""
        is_behind_name = self.previous[:1].isupper() or _ORDINAL.fullmatch(self.previous) is not None
        is_street = is_behind_name and (not following[:1].isupper() or following in _STREET_ENDS)
        if key == "dr":
            return "Drive" if is_street else "Doctor"
        return "Street" if is_street else "Saint"


def _calendar_name(short: str) -> str:
    """ "Jan" -> "January", "Mon" -> "Monday"."""
    month = tables.MONTH_NUMBERS.get(short.lower())
    return tables.MONTHS[month - 1] if month else tables.WEEKDAYS[short.lower()]

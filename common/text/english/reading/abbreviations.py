"""Words cut short: Dr., e.g., U.S., w/o, No. 5, J. Smith, Mon-Fri; with a full stop, a slash or nothing."""

from __future__ import annotations

import re

from melforge.common.text.english.pronounce import is_known
from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.capitals import letter_name, roman
from melforge.common.text.english.reading.cursor import LETTER, Cursor, Reading, Rule, form, only
from melforge.common.text.english.reading.cut_short import is_in_code, is_in_run, whole_before_stop
from melforge.common.text.english.reading.dates import month, weekday
from melforge.common.text.english.reading.formulas import FUNCTIONS, function_name
from melforge.common.text.english.reading.latin import in_latin
from melforge.common.text.english.reading.senses import IN_SMALL_LETTERS, WITH_SENSES, sense, sense_of
from melforge.common.text.english.reading.streets import DESIGNATORS, designator, state, street
from melforge.common.text.english.word_parts import words

_CALENDAR = "Mon|Tues?|Wed|Thu(?:rs)?|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec"
_ROMAN_IN_SMALL = words("vol vols ch chap pp p sc")
_REPORTER = re.compile(r"([FSPA])\.\s?([2-9])(?:d|th)(?!\w)")  # of courts: "12 F.3d 345"
_DOTTED = re.compile(
    rf"(?:{LETTER}\.){{2,12}}(?:{LETTER}(?!\w))?|[A-Z][a-z]?\.[A-Z]\.(?:s(?!\w)|(?!\w))|(?:[ap]\.m|[Ee]\.g|[Ii]\.e)(?!\w)|[BM]\.Sc\.?(?!\w)"
)
_SPACED = re.compile(r"(?:i\. e|e\. g|A\. D|B\. C|U\. S|N\. Y|D\. C)\.")  # in old books
_SLASHED = re.compile(
    rf"(?:{'|'.join(sorted(tables.SLASHED, key=len, reverse=True))})(?![/\w])|w/(?!/)", re.IGNORECASE
)
_SLASHED_LETTERS = re.compile(r"[A-Z](?:/[A-Z]){1,3}(?![\w/.'+#])|[A-Z](?:/[A-Z]){2,3}(?=\.(?:\s|$))")
_YES = re.compile(r"\b(?:[Yy]es|YES|[Aa]yes?):?\s\d")
_SEXES = re.compile(r"\b(?:ratio|gender|sex|male|female|connector|plug|adapter|cable)\b")
_BRACKETED_NUMBER = re.compile(r"\s\(\d")
_NUMBERED_WITH_I = words("war part act book volume vol chapter scene phase type class world")
_TITLES = {"Dr": "Doctor", "St": "Saint", "Mt": "Mount", "Prof": "Professor", "Ft": "Fort", "Sgt": "Sergeant"}
_DISTRICT = re.compile(r"[NSEWCM]\.D\.")  # of a court
_VERSE_FOLLOWS = re.compile(r"\.?(?=\s\d{1,3}:\d)")
_CODE_FOLLOWS = re.compile(
    r"\s(?:[A-Z]{1,4}[-/. ]?\d|[A-HJ-Z](?=\.?$|[,;)]|\s(?:and|or|of|to|in|is)\b))"
)  # "Ste. B"
_VALUE = re.compile(r":\s[$£€#]?\d")
_NO_LABELS = tables.STOPPED_UNITS | words("mt ft st al")
_NAME_FOLLOWS = re.compile(r"[ -](?:[A-Z]\.?\s){0,3}[A-Z][a-z]")
_NAMES_IN_CAPITALS = frozenset((*tables.IN_MESSAGES, *tables.MONTH_NUMBERS, *tables.STOPPED_UNITS))
# What a word cut short may be, in small letters; and those that it may be where it is written so.
SHORT_IN_SMALL = frozenset(
    key.lower()
    for key in (
        *(
            *DESIGNATORS,
            *tables.STREETS,
            *tables.WEEKDAYS,
            *tables.MONTH_NUMBERS,
            *IN_SMALL_LETTERS,
            *FUNCTIONS,
        ),
    )
)
SHORT_WORDS = SHORT_IN_SMALL | frozenset(
    key.lower()
    for key in (*_TITLES, *WITH_SENSES, *tables.STATES, *tables.STATES_WITH_STOP, *tables.PROVINCES)
)


@form(rf"({_CALENDAR})\.?(?:\s?[-–]\s?|\s(to|thru|through)\s)({_CALENDAR})\.?(?!\w)")
def calendar_range(cursor: Cursor, m: re.Match) -> str:
    """Mon-Fri, Jan.–Mar., Mon to Thu."""
    to = {"thru": "through"}.get(m[2], m[2] or "to")
    return "" if cursor.touches_word else f"{calendar_name(m[1])} {to} {calendar_name(m[3])}"


@form(rf"(?:{_CALENDAR})\.?(?:/(?:{_CALENDAR})\.?)+(?!\w)")
def calendar_list(cursor: Cursor, m: re.Match) -> str:
    """Mon/Wed/Fri."""
    return "" if cursor.touches_word else ", ".join(map(calendar_name, m[0].replace(".", "").split("/")))


@form(
    r"(?:(Mo?|Tu?|We?|Th|Fr?|Sa|Su)\s?[-–]\s?(Mo|Tu|We?|Th|F|Sat?|Sun?|Fri?)|(?:M|Tu?)/(?:W|Th)(?:/F)?|Tu?/W/Th|(?:Tu|Th|Sa|Su)(?=\s\d{1,2}(?::\d\d)?(?:[ap]m?)?\s?[-–]))\.?"
    r"(?:(?=[,:]?\s\d)|(?![\w/-]))"
)
def working_days(cursor: Cursor, m: re.Match) -> str:
    """M-F 9-5, 9-5 M-Th, T/Th 2-4, M/W/F 9-10."""
    behind = m.end() + (cursor.text[m.end() : m.end() + 1] in (",", ":"))
    is_timed = cursor.next(behind)[:1].isdecimal() or cursor.previous[:1].isdecimal()
    is_timed = is_timed or (cursor.previous == "," and cursor.earlier[:1].isdecimal())
    is_plain = len(m[1]) == len(m[2]) == 2 or len(m[2]) > 2 if m[1] else m[0] == "M/W/F"  # "Su-Mo"
    is_apart = cursor.previous in (",", ";") and cursor.text[m.end() : m.end() + 1] in (
        "",
        ",",
        ";",
        ".",
        ")",
    )
    is_week = (m[1], m[2]) == ("M", "F") and not cursor.is_near(_SEXES)
    if cursor.touches_word or not (is_timed or is_plain or is_apart or is_week or "/Th" in m[0]):
        return ""
    days = m.groups() if m[1] else m[0].rstrip(".").split("/")
    names = [next(name for name in tables.WEEKDAYS.values() if name.startswith(day)) for day in days]
    return " to ".join(names) if m[1] else ", ".join(names)


@only(behind="/")
def slashed_abbreviation(cursor: Cursor) -> Reading | None:
    """w/o, n/a, A/C."""
    if cursor.touches_word:
        return None
    match = _SLASHED.match(cursor.text, cursor.at)
    if match and cursor.is_equation and len(match[0]) == 3 and match[0] not in ("w/o", "m/s"):  # "A = b/c"
        return None
    if (
        not match
        or match[0] in ("W/D", "B/C")
        or (match[0] == "W/" and cursor.text[match.end() : match.end() + 1].isupper())
    ):  # "W/D"
        letters = None if cursor.is_equation else _SLASHED_LETTERS.match(cursor.text, cursor.at)
        return Reading(" ".join(map(letter_name, letters[0].split("/"))), letters.end()) if letters else None
    key = match[0].lower()
    return Reading(sense_of(cursor, key, match.end()) or tables.SLASHED[key], match.end())


@only(behind=".")
def dotted_abbreviation(cursor: Cursor) -> Reading | None:
    """U.S., e.g., p.m., Ph.D.s, F.3d"""
    if cursor.previous.isdecimal() and (m := _REPORTER.match(cursor.text, cursor.at)):
        return Reading(f"{letter_name(m[1])} {say.ordinal(int(m[2]))}", m.end())
    match = _DOTTED.match(cursor.text, cursor.at)
    if len(cursor.word) == 1 and (spaced := _SPACED.match(cursor.text, cursor.at)):
        match = spaced
    if not match or not cursor.char.isascii() or cursor.touches_word:
        return None
    several = "s" if match[0].endswith(".s") else ""
    letters = match[0].removesuffix(several).replace(" ", "")
    key, letters = letters.rstrip(".").lower(), in_latin(letters.replace(".", ""))
    if not letters:
        return None
    if key in tables.ABBREVIATIONS:
        spoken = tables.ABBREVIATIONS[key]
    elif letters.isupper() or key in ("a.m", "p.m", "b.c", "a.d", "u.s", "u.k"):
        spoken = letters.upper()
        is_word = spoken in tables.ACRONYM_WORDS
        spoken = spoken.capitalize() if is_word else tables.ACRONYMS.get(spoken, spoken)
    else:
        spoken = " ".join(letter_name(letter.upper()) for letter in letters)
    return _abbreviated(cursor, spoken + several, match.end())


@only(behind=".:")
def abbreviation(cursor: Cursor) -> Reading | None:
    """Dr. Smith, No. 5, Mon. night: a word with a full stop that does not only end the sentence."""
    if cursor.behind_word == ":":
        return _label(cursor)
    word, end = cursor.word, cursor.word_end + 1
    key, following = word.lower(), cursor.next(end)
    is_cased = (
        word.islower() or word.isupper() or word[1:].islower() or key in tables.BEFORE_NAMES
    )  # not "PCs."
    is_plural = cursor.text[max(cursor.at - 1, 0)] == "-" and word[:-1].isupper() and word[-1] == "s"
    if not is_cased or is_plural or word == "EST":  # "CR-Vs.", "8 pm EST."
        return None
    is_name = key in tables.IN_MESSAGES and word.istitle() and cursor.previous[-1:].isalnum()
    is_alone = word.isupper() and not (following[:1].isdecimal() or cursor.is_shouted)
    is_name = is_name or (is_alone and len(word) in (2, 3) and key in _NAMES_IN_CAPITALS)
    is_name = is_name or (word == "Oz" and not cursor.previous[-1:].isdecimal())
    if is_name:  # "ask Urs.", "a computer by DEC.", "the Wizard of Oz."
        return None
    if cursor.text[end : end + 1].islower():  # "config.py"
        return None
    if len(word) == 1:
        letter = in_latin(word)
        return _initial(cursor, letter, end, following) if letter else None
    if word in tables.TITLES and following[:1].isupper():
        spoken = tables.TITLES[word]
    elif key == "secs" and following[:1].isdecimal() and not cursor.previous[-1:].isdecimal():
        spoken = "sections"
    elif key in tables.ABBREVIATIONS:
        if not _is_abbreviated(cursor, word, key, end, following):
            return None
        spoken = tables.ABBREVIATIONS[key]
    elif key in tables.WEEKDAYS and word[0].isupper():
        is_month = following.lower() in tables.MONTH_NUMBERS
        is_end = not following and cursor.previous.lower() not in ("", "the", "a", "his", "her")
        if not (
            is_end
            or is_month
            or following in (",", ")", "(", "$", "£", "€")
            or following[:1].isdecimal()
            or following.islower()
        ):
            return None
        spoken = tables.WEEKDAYS[key]
    elif not (spoken := _whole(cursor, word, end, following)):
        return None
    return _abbreviated(cursor, spoken, end)


def _label(cursor: Cursor) -> Reading | None:
    """Ht: 5'4", Wt: ___, Ref: 1234: before a colon."""
    word, key, end = cursor.word, cursor.word.lower(), cursor.word_end
    if (
        not word.istitle()
        or key not in tables.ABBREVIATIONS
        or key in _NO_LABELS
        or not cursor.is_after_blank
    ):
        return None
    is_meant = _VALUE.match(cursor.text, end) and key not in tables.ALSO_WORDS
    is_meant = is_meant or (not is_known(key) and cursor.text[end + 1 :][:1] in ("", " "))
    return Reading(tables.ABBREVIATIONS[key], end) if is_meant else None


@only(behind=". ")
def book(cursor: Cursor) -> Reading | None:
    """Matt. 5:3, 1 Cor. 13:4: a book of the Bible cut short."""
    name = tables.BOOKS.get(cursor.word)
    verse = _VERSE_FOLLOWS.match(cursor.text, cursor.word_end) if name else None
    return Reading(name, verse.end()) if name and verse else None


@form(r"(?:[Nn][º°]\.?\s?|(No\s))(?=\d)(?!\d{1,3}\s?%)")
def numero(cursor: Cursor, m: re.Match) -> str:
    """Nº 5, n° 5, at No 10."""
    is_word = m[1] and (not cursor.previous or cursor.previous in ".!?:;-–—")
    is_word = is_word or (m[1] and cursor.is_near(_YES))  # "Yes 9, No 2"
    return "" if cursor.touches_word or is_word else "number "


def title(cursor: Cursor) -> Reading | None:
    """Dr A B Jones, St Mary's, Mt Everest, St-Denis: a title or a part of a name without its full stop."""
    name = _TITLES.get(cursor.word)
    if not name or not _NAME_FOLLOWS.match(cursor.text, cursor.word_end):
        return None
    return Reading(name, cursor.word_end + (cursor.behind_word == "-"))


_SHORT_WORD_RULES: tuple[Rule, ...] = (
    *(sense, state, designator, street, title, weekday, month, function_name),
)


def short_word(cursor: Cursor) -> Reading | None:
    """A word cut short beside what tells its meaning: Apt 4B, Elm St, Dr Smith, Sat, Nov 5."""
    if cursor.word.lower() not in SHORT_WORDS:
        return None
    return next((reading for rule in _SHORT_WORD_RULES if (reading := rule(cursor))), None)


def _abbreviated(cursor: Cursor, spoken: str, end: int) -> Reading:
    """With the "'s" of "the P.M.'s" or the full stop of the sentence."""
    own = cursor.possessive(end)
    return Reading(spoken + (own or cursor.last_stop(end)), end + len(own))


def _whole(cursor: Cursor, word: str, end: int, following: str) -> str:
    """What a word that no table has is cut short from; "" where its full stop ends a sentence."""
    if word.lower() in tables.SHORTENED:
        return tables.SHORTENED[word.lower()]
    if word in tables.STATES_WITH_STOP:  # "(N.D. Cal. 2007)", "State of Wash."
        is_place = following[:1].isdecimal() or following in (",", ";", ")") or cursor.previous == "of"
        if is_place or _DISTRICT.fullmatch(cursor.previous):
            return tables.STATES_WITH_STOP[word]
    if is_in_code(cursor.text, cursor.at, end):
        return ""
    if word.istitle() and word[1:].endswith("str") and following[:1].isdecimal():  # "Hauptstr. 5"
        return f"{in_latin(word)}asse"
    word = word.lower() if cursor.is_shouted else word
    return whole_before_stop(word, is_in_run(cursor.previous), following)


def _initial(cursor: Cursor, letter: str, end: int, following: str) -> Reading | None:
    """J. Smith; p. 5; c. 1850; Roe v. Wade; World War I. Then."""
    is_name = following[:1].isupper()
    is_part = not is_name or cursor.previous.lower() in _NUMBERED_WITH_I
    if is_part and (number := roman(cursor, letter, end - 1)) is not None:
        return Reading(number, end - 1)
    if cursor.at == 0 and following and letter.islower():  # "a. First"
        return Reading("one," if letter == "i" else f"{letter_name(letter.upper())},", end)
    if letter.isupper() and (is_name or following == "," or following.islower()):  # also "E. coli"
        return Reading(letter_name(letter), end)
    return None


def _is_abbreviated(cursor: Cursor, word: str, key: str, end: int, following: str) -> bool:
    """Whether a known abbreviation is one here, and no word at the end of a sentence."""
    if word == "Ms" or key in ("mt", "ft"):
        return following[:1].isupper()
    if (word, following[:1].isdecimal()) == ("Fr", True) or (key in tables.MONTH_NUMBERS and word.islower()):
        return False  # Swiss francs; "mar."
    is_number = following[:1].isdecimal()
    is_code = key in tables.BEFORE_NUMBERS and _CODE_FOLLOWS.match(cursor.text, end) is not None
    if key in tables.BEFORE_NUMBERS and not is_number:
        is_small = following.islower() and len(following) > 1 and key in _ROMAN_IN_SMALL
        is_roman = (following.isupper() or is_small) and say.roman(following.upper()) is not None
        is_counted = key in ("pp", "pgs", "vols") and cursor.previous.isdecimal()  # "320 pp."
        if not (is_roman or is_code or is_counted) and (
            key == "no" or not _BRACKETED_NUMBER.match(cursor.text, end)
        ):
            return False
    goes_on = is_number or is_code or following in tables.CURRENCIES or following.islower()
    goes_on = goes_on or (following != "" and following in ",;:&") or is_in_run(cursor.previous)
    goes_on = goes_on or (following != "" and (word[0].isupper() or cursor.previous in ("(", ",", ";")))
    return goes_on or key not in tables.ALSO_WORDS


def calendar_name(short: str) -> str:
    """ "Jan" -> "January", "Mon" -> "Monday"."""
    month = tables.MONTH_NUMBERS.get(short.lower())
    return tables.MONTHS[month - 1] if month else tables.WEEKDAYS[short.lower()]

"""Dates: in digits, a day beside a month's name, weekdays, decades, seasons of two years."""

from __future__ import annotations

import calendar
import re

from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cursor import Cursor, Reading, Rule, form, only
from melforge.common.text.english.reading.word_classes import CLOSED, DETERMINERS
from melforge.common.text.english.word_parts import words

_MONTH = "|".join(sorted(tables.MONTH_NUMBERS, key=len, reverse=True))
_WEEKDAY = "|".join(sorted(tables.WEEKDAYS, key=len, reverse=True))
_ENDING = r"(?:st|nd|rd|th|ST|ND|RD|TH)?"
_DAY = rf"(\d{{1,2}}){_ENDING}"
_DAYS = rf"{_DAY}(?:\s?[-–]\s?|[—/]){_DAY}(?![\w/:]|[.,-]\d)"
_DAYS_BEHIND_MONTH = re.compile(_DAYS)
_DAYS_BEFORE_MONTH = re.compile(rf"{_DAYS}\s(?i:({_MONTH})\b)")
_LOOK_BACK = 30  # characters
_DAYS_OF_MONTH = re.compile(
    rf"\b(?:{_MONTH})\.?\s\d{{1,2}}(?:,\s\d{{1,2}}){{0,3}}(?:,?\s(?:&|and)|,)\s\Z", re.IGNORECASE
)
_MORE_DAYS = re.compile(
    r"([1-9]|[12]\d|3[01])(?=(?P<more>(?:,\s\d{1,2}){0,3},?\s(?:&|and)\s\d{1,2})?"
    r"(?:[,.;:)]?\s(?:from|at|in|to|for|with|by|only|\d{1,2}[:ap]|[-–(])|,\s\d{4}|[.;:)]?\s?\Z|[.;)]\s))"
)
_DAY_AND_MONTH = re.compile(r"(?!0\d\d)(\d{1,2})(?![\d:/])\s?(?:st|nd|rd|th)?[\s-]([A-Za-z]{3,9})\b")
_DATE_FOLLOWS = re.compile(
    rf",?\s\(?(?:the\s)?(?:\d{{1,2}}(?:st\b|nd\b|rd\b|th\b|/|:\d|\s?[-–]\s?\d|\s?[ap]\.?m|\s?[,.)\]]|:\s|\s?$|\s[-–]\s[A-Z]|\s(?:{_MONTH})\b)|(?:{_MONTH})\b)",
    re.IGNORECASE,
)
_DAY_OF = re.compile(r"\d(?:st|nd|rd|th)?\sof\s[A-Za-z]{3,9}\.?\s$")  # before "3rd of May 20"
_DAY_BEHIND_HYPHEN = re.compile(r"-(\d{1,2})(?:-(\d{4}|\d\d))?(?![\w-])")
_DAY_FOLLOWS = re.compile(r"\s(?:the\s)?(?:\d{1,2}(?i:st|nd|rd|th)?|\d{4})(?![\w:]|[.,]\d|\s?%)")
# In small letters these are mostly words: before a day or a year, not after "you" ("you may 5").
_WORDS_TOO = words("may march mar dec sep")
_BEFORE_MONTH = words("""on in by of since until till from before after to the and during between early late
    mid this last next every each""")
_NO_WORDS = words("tue tues weds thu thur thurs")  # days in small letters too
_DAYS_TOO = words("mon wed sat sun tu th")  # in capitals they are names and words as well
_ZONES = words("ET CT MT PT EST EDT CST CDT MST MDT PST PDT GMT BST")
_ON = words("til thru through since on next last every each until till by closed open u you ya")
_DAYTIMES = words(
    "night morning afternoon evening nights mornings afternoons evenings noon brunch nite closed open"
)
_AT_HOURS = re.compile(
    r"\s(?:by app|\d{1,2}\s(?:&|and)\s\d{1,2}\b|\d{1,2}(?:[ap]m?)?\s?[-–]\s?(?:noon|midnight)\b)"
)  # "Sun 9 & 11"
_OTHER_DAY = re.compile(r"(?:,\s|\s&\s|\sand\s|\sor\s)([A-Z][a-z]{1,4})\b")
_SHORT_YEAR = re.compile(r"\s'\d\d(?!\w)")
_MONTHS_ONLY = words("feb aug sept oct nov dec apr")
_IN = words("in since until till last next early late mid through by")
_TIME_FOLLOWS = re.compile(r"\s?\d\d:\d\d(?!\d)")
_OF_SECONDS = words("""long delay delays later left timeout timeouts window clip clips break remaining
    elapsed interval countdown wait pause ad limit cooldown ago apart each duration between interval
    intervals rest""")
_TO_SECONDS = re.compile(r"\sto\s\d+(?:m?s|m|min)\b")
_OF_BIRTH = re.compile(r"\b(?:[Bb]orn(?:\son)?|DOB|[Dd]ate of birth):?\s$")
_CHANGED = re.compile(r"\s?(?:->|→)")  # "30s -> 60s"
_APERTURE = re.compile(r"\s(?:at|@)\sf/\d")  # "20s at f/1.8"
_FOR_SECONDS = words(
    "rest hold plank in for after within every wait waits waited timeout under over takes took lasts lasted"
)
_BEFORE_SECONDS = _FOR_SECONDS | words("""is was to than about only by at of least most = : < > ~ ( , [ -> →
    until hold last first next another exactly around roughly up nearly almost""")
_DAY_FIRST = re.compile(r"(?<![\w/.])(?:1[3-9]|2\d|3[01])([/.])(?:0?\d|1[0-2])\1(?:20)?\d\d(?![\w/])")
# Before a day in digits, in small letters: "on 3/14", "Tues. 3/14", "due: 3/14", "12/23 through 1/2".
BEFORE_DAYS = (
    r"\b(?:on|by|until|since|before|after|thru|til|till|eta|ends?|ending|begins|begun|starts|closes|closed|opens|valid"
    r"|arrives|arriving|started|leaves|leaving|departs|departing|moved\sto|rescheduled\sto|postponed\sto|back|date|paid|admitted|discharged|d/c'd|dep|arr|lv|ret|edd|lmp|dob|dated|dtd|due|sched\.?|scheduled|starting|beginning|effective|shipped|filed|arrived|delivered|mailed"
    rf"|expires|issued|signed|exam|meeting|mtg\.?|games?|classes|(?:mon|tues|wednes|thurs|fri|satur|sun)day|{_WEEKDAY})\.?,?\s"
    r"|(?:\d\s?[ap]\.?m\.?|\bnoon|\bmidnight|\d:\d\d|\b[ecmp][sd]?t)\s|\b(?:due|date|when|starts?|ends?|deadline|leg|match|round|visit|appt|test|next|last):\s|\b(?:updated?|edit(?:ed)?|posted|revised|effective|news)\s\("
    r"|\b(?:week|wk\.?|night|morning|evening|as|day|call|letter|e?-?mail|memo|notice|minutes|min\.|mins)\sof\s|\d{1,2}/(?:1[3-57-9]|2\d|3[01])\s(?:to|thru|through)\s"
)


@form(
    r"(\d{4})([-/]|\.(?=\d\d\.\d\d)|(?<=20[0-3]\d)(?=[01]\d[0-3]\d(?!\w|[.,]\d)))(\d{1,2})\2(\d{1,2})(?!\d|[-.]\d)"
    r"(?:T(?=\d\d:\d\d))?"
)
def iso_date(cursor: Cursor, m: re.Match) -> str:
    """2021-03-04, 2021-03-04T15:30:00Z, 20210304."""
    month, day = int(m[3]), int(m[4])  # 2023/2/30 is meant as a day, though there is none
    is_meant = 1 <= month <= 12 and 1 <= day <= 31
    spoken = f"{tables.MONTHS[month - 1]} {say.ordinal(day)}, {say.year(int(m[1]))}" if is_meant else ""
    return f"{spoken}," if spoken and _TIME_FOLLOWS.match(cursor.text, m.end()) else spoken


@form(r"(\d{1,2})([/.-]|\s/\s)(\d{1,2})\2(\d{4}|\d{2})(?![\w/]|[.,-]\d(?!\d?/\d))")
def date(cursor: Cursor, m: re.Match) -> str:
    """3/4/2021, 4.3.2021; the month first where both are possible, or in Britain the day."""
    is_born = _OF_BIRTH.search(cursor.text, max(cursor.at - 20, 0), cursor.at)
    if len(m[4]) == 2 and m[2] == "." and len(m[0]) < 8 and not is_born:  # a version
        return ""
    is_mixture = (
        m[1] == m[3] == m[4]
        and m[2] == "-"
        and (cursor.next(m.end())[:1].islower() or cursor.next(m.end()) == "@")
    )
    if is_mixture and cursor.previous.lower() not in ("on", "dated", "since", ":"):  # "10-10-10 fertilizer"
        return ""
    month, day = in_order(cursor, int(m[1]), int(m[3]))
    year = full_year(m[4])
    if year > 2030 and is_born:  # "Born 2-11-39"
        year -= 100
    return _date(year, month, day) or _date(year, day, month)


@form(rf"{_DAY}([-/.]|\s?)(?i:({_MONTH}))\.?(?:\3|[-/ ])(\d{{4}}|'?\d\d)(?![\w/]|:(?!\d\d:\d\d)|[.,-]\d)")
def joined_date(cursor: Cursor, m: re.Match) -> str:
    """25-Jul-2012, 25/jul/12, 25Jul2012; with blanks only before a year of four digits."""
    day, joint, year = int(m[1]), m[2], m[4].lstrip("'")
    if is_month(cursor.previous, cursor.earlier):  # "Mar 21-Apr 19"
        return ""
    if not 1 <= day <= 31 or (len(year) == 2 and joint not in ("-", "/")):
        return ""
    return f"{_the(cursor)}{say.ordinal(day)} of {month_name(m[3])} {say.year(full_year(year))}"


@form(r"((?:19|20)(\d\d))-(0[1-9]|1[0-2])(?![\w-]|[.,:/]\d)")
def iso_month(cursor: Cursor, m: re.Match) -> str:
    """2023-05; not 2003-04, which are two years."""
    is_range = m[2] < m[3] or cursor.previous.lower() in ("season", "from")
    return "" if is_range else f"{tables.MONTHS[int(m[3]) - 1]} {say.year(int(m[1]))}"


@form(r"(0?[1-9]|1[0-2])/((?:19|20)\d\d|\d\d)(?![\w/]|[.,]\d)")
def month_of_year(cursor: Cursor, m: re.Match) -> str:
    """5/2020, exp. 09/27."""
    is_last_day = m[2] in ("30", "31") and calendar.monthrange(2001, int(m[1]))[1] == int(m[2])
    before = cursor.earlier if cursor.previous == ":" else cursor.previous
    is_card = before.lower().rstrip(".") in ("exp", "expires", "expiry") and not is_last_day
    if len(m[2]) == 2 and not is_card:
        return ""
    return f"{tables.MONTHS[int(m[1]) - 1]} {say.year(full_year(m[2]))}"


def day_of_month(cursor: Cursor) -> Reading | None:
    """A day or two beside a month's name: July 4, 4 July, May 5-7, 5-7 May."""
    text, at = cursor.text, cursor.at
    if is_month(cursor.previous, cursor.earlier):
        if (m := _DAYS_BEHIND_MONTH.match(text, at)) and _are_days(m):
            return Reading(f"{say.ordinal(int(m[1]))} to {say.ordinal(int(m[2]))}", m.end())
        return None
    if (m := _DAYS_BEFORE_MONTH.match(text, at)) and _are_days(m):
        days = f"{say.ordinal(int(m[1]))} to {say.ordinal(int(m[2]))}"
        return Reading(f"{_the(cursor)}{days} of", m.start(3) - 1)
    m = _MORE_DAYS.match(text, at)
    is_more = m and (m["more"] or cursor.previous != ",")
    if m and is_more and _DAYS_OF_MONTH.search(text, max(at - _LOOK_BACK, 0), at):
        return Reading(say.ordinal(int(m[1])), m.end())  # "Oct. 12 & 13"
    m = _DAY_AND_MONTH.match(text, at)
    if not m or not 1 <= int(m[1]) <= 31 or m[2].lower() not in tables.MONTH_NUMBERS:
        return None
    if m[2].lower() in _WORDS_TOO and m[2].islower() and not _DAY_FOLLOWS.match(text, m.end()):
        return None
    end = m.end(1) + _ending(m)
    if text[m.start(2) - 1] == "-":  # "5-May"
        return (
            Reading(f"{_the(cursor)}{say.ordinal(int(m[1]))} of", m.start(2)) if m[2][0].isupper() else None
        )
    return Reading(f"{_the(cursor)}{say.ordinal(int(m[1]))} of", end)


def month_day(cursor: Cursor, number: str) -> str:
    """The ordinal of a day right behind its month ("May 5"), "" for any other number."""
    if cursor.earlier[:1].isdecimal() and len(cursor.earlier) < 4:  # "5 May 20"
        return ""
    if cursor.earlier == "of" and _DAY_OF.search(cursor.text[max(cursor.at - 20, 0) : cursor.at]):
        return ""
    is_day = number.isdecimal() and len(number) < 3 and 1 <= int(number) <= 31
    return say.ordinal(int(number)) if is_day and is_month(cursor.previous, cursor.earlier) else ""


def is_month(word: str, before: str) -> bool:
    """Whether a word is a month's name, as written or cut short; `before`: the word before it."""
    key = word.rstrip(".").lower()
    if key not in tables.MONTH_NUMBERS:
        return False
    is_word_too = key in _WORDS_TOO and word.islower() and not word.endswith(".")
    return not is_word_too or not before[:1].isalpha() or before.lower() in _BEFORE_MONTH


def month(cursor: Cursor) -> Reading | None:
    """jul 25, Feb. 29, 3 feb, dec 1999: a month cut short beside a day or a year."""
    key = cursor.word.lower()
    if key not in tables.MONTH_NUMBERS or key in ("may", "march") or len(key) > 4:
        return None
    end = cursor.word_end + (cursor.behind_word == ".")
    is_dated = cursor.previous[:1].isdecimal() and not (key in _WORDS_TOO and cursor.word.islower())
    is_dated = is_dated or (_is_behind_day(cursor) and cursor.word != "sun")
    if cursor.word == "APR" and not _DAY_FOLLOWS.match(cursor.text, end):  # a rate
        return None
    is_alone = cursor.word.istitle() and cursor.behind_word not in (".", "-", "'")
    is_dated = is_dated or (is_alone and (key in _MONTHS_ONLY or cursor.previous.lower().rstrip("-") in _IN))
    is_small = cursor.word in _MONTHS_ONLY and cursor.behind_word != "." and cursor.previous.lower() in _IN
    is_dated = is_dated or is_small  # "in nov"
    is_dated = is_dated or (is_alone and _SHORT_YEAR.match(cursor.text, end) is not None)
    if not is_dated and (
        not _DAY_FOLLOWS.match(cursor.text, end) or not is_month(cursor.word, cursor.previous)
    ):
        return None
    name = month_name(key)
    return Reading(name + ("" if cursor.behind_word != "." else cursor.last_stop(end)), end)


@only(behind="-")
def month_and_day(cursor: Cursor) -> Reading | None:
    """Mar-12, Apr-30-2024."""
    m = _DAY_BEHIND_HYPHEN.match(cursor.text, cursor.word_end)
    month = tables.MONTH_NUMBERS.get(cursor.word.lower()) if m and cursor.char.isupper() else None
    if not m or not month or not is_day(month, int(m[1])) or cursor.previous[:1].isdecimal():
        return None  # "30 June-2 July"
    year = f", {say.year(full_year(m[2]))}" if m[2] else ""
    return Reading(f"{month_name(cursor.word)} {say.ordinal(int(m[1]))}{year}", m.end())


def weekday(cursor: Cursor) -> Reading | None:
    """Wed, 9 Aug; (sun., dec. 31); Sat, Nov 5; Tues. 3/14."""
    key = cursor.word.lower()
    if key not in tables.WEEKDAYS or (len(key) == 2 and not cursor.word.istitle()):
        return None
    end = cursor.word_end + (cursor.behind_word == ".")
    is_named = (
        key not in _DAYS_TOO
        or _is_day_named(cursor, end)
        or cursor.text[end : end + 1] in (":", "?", ",", ";")
    )
    if cursor.behind_word == "." and cursor.word.istitle() and is_named:
        return Reading(tables.WEEKDAYS[key] + cursor.last_stop(end), end)  # "on Tues."
    follows = _DATE_FOLLOWS.match(cursor.text, end)
    is_plain = cursor.word.islower() and key in ("sun", "sat", "wed") and cursor.behind_word not in (".", ",")
    is_plain = is_plain or (cursor.word == "sun" and cursor.previous in ("AM", "PM"))
    is_meant = (follows and not is_plain) or (
        cursor.word in _NO_WORDS and cursor.behind_word not in (".", "-")
    )
    if not is_meant and cursor.behind_word not in (".", "-", "'"):
        is_meant = cursor.word.istitle() and (key not in _DAYS_TOO or _is_day_named(cursor, end))
    return Reading(tables.WEEKDAYS[key], end) if is_meant else None


def _is_day_named(cursor: Cursor, end: int) -> bool:
    """Whether "Sat" is the day: "on Sat", "Sat night", "Sat & Sun", "Mon, Tues", "see you Sat"."""
    following = cursor.next(end).lower()
    is_last = (
        cursor.behind_word == "." and cursor.previous[-1:].isalnum() and cursor.previous.lower() != "the"
    )
    if _AT_HOURS.match(cursor.text, end):
        return True
    if cursor.word in ("Sat", "Wed") and (cursor.previous.islower() or is_last):
        return True
    is_timed = cursor.previous[:1].isdecimal() and cursor.previous.lower().rstrip(".").endswith(("m", "t"))
    if is_timed or cursor.previous in _ZONES:  # "4.30pm Sun", "2 p.m. ET Wed."
        return True
    if cursor.text.startswith(":", end) and cursor.previous.lower() != "the":  # "Mon: rain"
        return True
    before = cursor.earlier if cursor.previous in ("&", "and", ",", "or") else ""
    if cursor.previous.lower() in _ON or following in _DAYTIMES or before.lower() in tables.WEEKDAYS:
        return True
    other = _OTHER_DAY.match(cursor.text, end)
    return bool(other) and other[1].lower() in tables.WEEKDAYS


def day_said(cursor: Cursor, first: int, second: int, in_any_order: bool = False) -> str:
    """3, 14 -> "March fourteenth"; "" where they are no month and day."""
    month, day = in_order(cursor, first, second)
    if month > 12 and in_any_order:
        month, day = day, month
    return f"{tables.MONTHS[month - 1]} {say.ordinal(day)}" if is_day(month, day) else ""


def in_order(cursor: Cursor, first: int, second: int) -> tuple[int, int]:
    """The month and the day of a date in digits: as in another date beside it, "03/08/2025 – 17/08/2025"."""
    return (second, first) if cursor.is_british or cursor.is_near(_DAY_FIRST) else (first, second)


@form(r"(\d{4})/(\d{4}|\d\d?)(?![\w/–-]|[.,]\d)")
def season(cursor: Cursor, m: re.Match) -> str:
    """2009/10, 2002/3, 1999/00: two years that follow each other."""
    first, second = int(m[1]), int(m[2])
    is_next = first + 1 in (second, second + 100 * (first // 100), second + 2000)
    is_next = is_next or (len(m[2]) == 1 and first % 10 + 1 == second)
    if not (1500 <= first < 2100 and is_next):
        return ""
    if len(m[2]) == 1:
        return f"{say.year(first)} {say.integer(m[2])}"
    if len(m[2]) == 4:
        return f"{say.year(first)} {say.year(second)}"
    return f"{say.year(first)} {say.two_digits(second) if second else 'two thousand'}"


@form(
    r"(?:((?:10{1,3})(?='?s\s+of\b)|10{0,2},000(?='?s\b))'?s|(\d{3}0|[02-9]0)('?)s(?!\w)|((?:1[5-9]|20)\d0)\s'?s(?!\w)"
    r"|(1\d{3}|20\d\d)\s?[-–]\s?(\d{3}0|\d0)s(?!\w))"
)
def decade(cursor: Cursor, m: re.Match) -> str:
    """1990s, 80's, 1960 's, 1000s of, 1900–1920s; not "in 30s"."""
    if m[5]:
        return f"{say.year(int(m[5]))} to {say.decade(int(m[6]))}"
    if m[4]:
        return "" if are_seconds(cursor, m.end()) else say.decade(int(m[4]))
    if m[2] and int(m[2]) > 2100:  # "3600s"
        return ""
    if m[2] and len(m[2]) == 2 and not m[3] and are_seconds(cursor, m.end()):
        return ""
    if m[1]:
        return say.HUNDREDS[m[1]]
    if m[2] == "00":
        return "two thousands" if cursor.previous.lower() in ("the", "early", "late", "mid-", "mid") else ""
    return say.decade(int(m[2]))


def are_seconds(cursor: Cursor, end: int) -> bool:
    """Whether the "s" of "30s" stands for seconds: "in 30s", "a 30s delay"; not "in her 30s", "80s music"."""
    following = cursor.next(end).lower()
    if (
        following in ("x", "×")
        or following in _OF_SECONDS
        or (following == "-" and cursor.next(end + 1).lower() in _OF_SECONDS)
    ):
        return True
    before = cursor.previous.lower()
    if _CHANGED.match(cursor.text, end) or _APERTURE.match(cursor.text, end):
        return True
    if before == "from" and _TO_SECONDS.match(cursor.text, end):  # "from 30s to 60s"
        return True
    if following == "of":  # "30s of silence"
        return before not in DETERMINERS and before.rstrip("-") not in ("early", "late", "mid")
    is_range = following in ("and", "or", "-", "–", "to", "&") and before not in _FOR_SECONDS
    is_style = following.isalpha() and following not in CLOSED
    return before in _BEFORE_SECONDS and not (is_style or is_range)


def is_day(month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= (29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31)


def month_name(short: str) -> str:
    """ "jul" -> "July"."""
    return tables.MONTHS[tables.MONTH_NUMBERS[short.lower()] - 1]


def _date(year: int, month: int, day: int) -> str:
    return f"{tables.MONTHS[month - 1]} {say.ordinal(day)}, {say.year(year)}" if is_day(month, day) else ""


def full_year(digits: str) -> int:
    year = int(digits)
    return year if len(digits) == 4 else year + (2000 if year < 50 else 1900)


def _are_days(m: re.Match) -> bool:
    first, last = int(m[1]), int(m[2])
    is_night = last == first + 1  # else "6/16 Nov. 1632", by two calendars
    return 1 <= first < last <= 31 and (is_night or "/" not in m.string[m.end(1) : m.start(2)])


def _the(cursor: Cursor) -> str:
    return "" if cursor.previous.lower() == "the" else "the "


def _ending(m: re.Match) -> int:
    """The length of the "th" behind the day."""
    rest = m.string[m.end(1) : m.end(1) + 2].lower()
    return 2 if rest in ("st", "nd", "rd", "th") else 0


def _is_behind_day(cursor: Cursor) -> bool:
    """Whether "the 5th of" stands before."""
    return cursor.previous.lower() == "of" and cursor.earlier[:1].isdecimal()


DATES: tuple[Rule, ...] = (iso_date, date, joined_date, season, iso_month, month_of_year, day_of_month)

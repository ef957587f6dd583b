"""Words as written to words as said: whole ones, and letters with digits and signs; `WORDS` has all rules."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice, takewhile

from melforge.common.text.english.pronounce import is_known, of_word
from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.abbreviations import (
    SHORT_IN_SMALL,
    SHORT_WORDS,
    abbreviation,
    book,
    calendar_list,
    calendar_name,
    calendar_range,
    dotted_abbreviation,
    numero,
    short_word,
    slashed_abbreviation,
    working_days,
)
from melforge.common.text.english.reading.capitals import (
    NAME_PARTS,
    NUMBERED,
    cased,
    letter_name,
    letters_and_digits,
    one_by_one,
    roman,
)
from melforge.common.text.english.reading.chess import chess_move, playing_card
from melforge.common.text.english.reading.cursor import Cursor, Reading, Rule, form, only
from melforge.common.text.english.reading.cut_short import is_in_code, whole_without_stop
from melforge.common.text.english.reading.dates import month_and_day
from melforge.common.text.english.reading.formulas import derivative, difference, limit, logarithm, quotient
from melforge.common.text.english.reading.isotopes import hyphened_isotope
from melforge.common.text.english.reading.latin import in_latin, is_term, latin_parts, left_out_of, scripts_of
from melforge.common.text.english.reading.money import price
from melforge.common.text.english.reading.streets import (
    county_road,
    direction,
    dotted_state,
    half_wind,
    land_survey,
    part_of_section,
    party,
)
from melforge.common.text.english.reading.telephone import code_parts, is_access_code, short_extension
from melforge.common.text.english.reading.times import PERIODS, counted, hourly
from melforge.common.text.english.reading.units import plural_unit, unit_behind_per, unit_name
from melforge.common.text.english.reading.word_classes import CLOSED, DETERMINERS, FINITE
from melforge.common.text.english.word_parts import words

RELEASE = r"(?:-?(alpha|beta|rc|dev|pre|preview|nightly|snapshot|stable|lts|RC|LTS)(?:([.-]?)(\d+))?)"
# What other rules read: words in small letters, names too, and what is cut short by a full stop.
_NOT_ORDINARY = SHORT_IN_SMALL | {"lim"}
_NOT_ORDINARY_NAMES = SHORT_WORDS.union(
    ("abm", "bbm", "ebm"),  # chords
    *(map(str.lower, table) for table in (tables.BOOKS, tables.CURRENCY_CODES, tables.DOLLARS)),
)
_NOT_ORDINARY_BEFORE_STOP = _NOT_ORDINARY_NAMES.union(
    *(map(str.lower, table) for table in (tables.ABBREVIATIONS, tables.SHORTENED, tables.TITLES))
)
_BEHIND_ORDINARY = frozenset(("", *' ,;?!)"'))
_SHORT_MONTHS = words("Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec")
_SHORTENED = _SHORT_MONTHS | words("Mon Tue Tues Wed Thu Thur Thurs Fri")
_BLANK_DIGIT = re.compile(r"\.?\s?(?=\d)")
_LETTERS_AND_DIGITS = re.compile(r"[A-Za-z]+\d[A-Za-z\d]*")
_RUNWAY = re.compile(r"\d\d[LRC]?(?!\w|[.,]\d)")
_BY_LETTER = {
    **{"b-day": "birthday", "x-mas": "Christmas", "t-storm": "thunderstorm", "t-storms": "thunderstorms"},
    **{"y-o-y": "year over year", "q-o-q": "quarter over quarter", "m-o-m": "month over month"},
}
_PLURAL_BRACKET = re.compile(r"\((e?s|ren)\)(?!\w)")
_STAMMERED = re.compile(r"(?i:([b-df-hj-np-tvwyz]{1,2})-(?:\1[a-z]?-){0,9}(?=(\1[a-z']{1,20})))")
_LETTERED_TERMS = words("""test tests dimensional boy boys ball class tops tubule tubules shape shaped clamp
    corp corps corporation dimer tail series drive word""")
_CLIPPED = {"o": "of", "i": "in", "th": "the", "t": "to", "wi": "with"}
SMALL_WORDS = words("is if of to in or so we by at as on an be do no he it me my up us go hi ok pi am")
_SMALL = re.compile(r"\d\.\d(?!\d)")
_DOLLAR = re.compile(r"\$\s?(?=\d)")
_AND = re.compile(r"&([A-Z]{1,3})(?!\w)")
_BLOOD = re.compile(r"\b(?:[Bb]lood|Rh|[Dd]onors?)\b")
_LETTERED = words("""seats rows sections parts options groups items exhibits schedules lots units zones levels
    columns rooms lines teams steps figures tables classes categories""")
# What never follows an article; "a to-do list" goes on.
_NO_NOUN = re.compile(
    r"\s(?:(?:to|is|are|was|and|or|equals|for|of|with|from|by|as|plus|minus|times|keys?|button)(?![\w'-])|[=+×]\s)"
)
_LETTER_FOLLOWS = re.compile(r",\s(?:and\s|or\s)?[b-z](?!\w)")
_OR = words("he his him she her")
_PRONOUNS = {("he", "him"), ("she", "her"), ("him", "his"), ("her", "hers")}
_SHORT_FORMS = tables.SHORT_FORMS | tables.SHORTENED
_NO_ACRONYMS = words("QTY AMT ACCT APPT ATTN LVL")
_BEHIND_NAMES = {"Jr": "Junior", "Sr": "Senior"}
# A word in small letters before a blank or a comma, which is no Roman numeral; and what a rule or `plain`
# changes.
_SHORTEST_WORDS = "|".join(sorted(SMALL_WORDS - _NOT_ORDINARY - {"am"}))
_UNCHANGED = re.compile(
    r"(?![ivxlcdm]+,? )(?![b-df-hj-np-tv-xz]{3,}y?,? )[a-z]{3,60}(?=,? )"
    rf"|(?:{_SHORTEST_WORDS}|a(?!{_NO_NOUN.pattern}))(?= )"
)
_CHANGED = _NOT_ORDINARY | _SHORT_FORMS.keys() | tables.SMALL_ACRONYMS | {"bce"}
_OF_KEYS = words("major minor maj min clarinet trumpet instrument sax saxophone horn")
_MUSIC = re.compile(
    r"\b(?:[Kk]ey of|strings?|[Tt]un(?:e[ds]?|ing)|chords?|scales?|notes?|capo|octaves?|bass|transposed?)\b"
)
_OF_FLIGHT = re.compile(
    r"\b(?i:climb|descen|maintain|cruis|divert|clear|flight|aircraft|pilot|traffic|turbulence|ATC|heading|passing)"
)
_OF_KNITTING = re.compile(
    r"\b(?:[Rr]ow|[Rr]nd|[Rr]ound)s?\s\d|\b(?:rib|knit|purl|sts|k2tog)\b|\b[kK]\d{1,2},\s\*?[pP]\d|\b[pP]\d{1,2},\s[kK]\d"
)
CHORDS = re.compile(
    r"(?<!\w)(?:[A-G][#b♯♭]?m?7?(?:\s[-–—|]\s|,\s|[-–|]|\s{1,3})){2}[A-G][#b♯♭]?m?7?(?![\w'])"
)
_BESIDE_TERMS = frozenset("=+-*/^()<>")
_BITS = words("32 64 86")  # "x64" of processors
_DIMENSIONS = words("L W H D Ø l w h d length width height depth Length Width Height Depth")
_LENGTH_ENDS = ("'", '"', "′", "″")
_SIZED = re.compile(r"^[$£€\d]|^[A-Z]{1,2}\d{1,2}$")
_SIZE_FOLLOWS = re.compile(r"\s?\d")
_PERIODS = words("second minute hour day week month year person night")
_RATED_BY = words("day week month year night hour minute person")
_COUNTED_BY = words("group household team player student")
_NO_RATES = _RATED_BY | words("morning evening weekend noon date time quarter season days nights")
_DIGIT_BEFORE = re.compile(r"\d")
_WITH_PARTS = NUMBERED | words("app fig eq no sec sect art pt exhibit ex ann § §§")
_GRADE_STAR = re.compile(r"\*(s?)(?:(?=[\s,.;)–-])|$)")
_EMPHASIZED = re.compile(r"(?<!\S)\*[^\s*][^*]*$")  # "*What have I*"
_GRADES = re.compile(r"(?:A\*){1,3}A?[A-E]{0,2}(?![\w*])")
_DOSES = words("mg mcg g kg ng mL mmol mol IU min")
_COUNTDOWN = words("minute minutes second seconds hour hours day days")
_DAYS_FOLLOW = re.compile(r"\s\d{1,3}\s?(?:[hd]|hrs?|days?|weeks?|wks?|months?|yrs?|years)\b")
_POLES = {"N": "north", "S": "south", "E": "east", "W": "west"}
_DEGREE = re.compile(r"([IViv]+)[°o]?(7?)")
_ROMAN_ORDINAL = re.compile(r"([IVXLC]{1,6})(?:th|st|nd|rd)")


@form(rf"(?:v\.?\s?|V(?=\d+\.\d))(\d+(?:\.\d+)*){RELEASE}?(?!\w)")
def version(cursor: Cursor, m: re.Match) -> str:
    """v2.0, v1.2.3-beta.4; not V8, v₀."""
    is_variable = cursor.is_equation and m[0][1:].isdecimal()
    is_variable = is_variable or (m[0][1] == " " and cursor.previous[-1:] in "0123456789%)")  # "4% v 5%"
    is_verse = (
        m[0][1] == "." and cursor.previous == "," and cursor.earlier[-1:].isdecimal()
    )  # "Psalm 23, v. 4"
    is_flag = cursor.text[max(cursor.at - 2, 0) : cursor.at] == " -"  # "run.sh -v 2"
    is_variable = is_variable or is_verse or is_flag
    return "" if cursor.touches_word or is_variable else f"version {said_version(*m.groups())}"


def said_version(numbers: str, name: str | None = None, joint: str | None = "", last: str | None = "") -> str:
    """ "3.0", "rc", ".", "2" -> "three point zero RC point two"."""
    said = " point ".join(map(say.integer, numbers.split(".")))
    said += f" {name if len(name) > 3 else name.upper()}" if name else ""
    return said + (f" {'point ' if joint == '.' else ''}{say.integer(last)}" if last else "")


@only(behind="-")
def stammer(cursor: Cursor) -> Reading | None:
    """P-p-please, th-that's: sounds, not names of letters; not D-Day, a t-test."""
    match = _STAMMERED.match(cursor.text, cursor.at)
    if not match or cursor.touches_word:
        return None
    begun, word = match.groups()
    is_sure = cursor.text.count("-", cursor.at, match.start(2)) > 1 or len(begun) > 1
    is_term = not word.islower() or word in _LETTERED_TERMS or (begun.isupper() and cursor.previous.isalnum())
    if not is_sure and (is_term or not is_known(word.lower())):
        return None
    sounds = takewhile(lambda phone: not phone[-1].isdigit(), of_word(word.lower()))
    phones = " ".join((*islice(sounds, len(begun)), "AH0"))
    return Reading(cursor.word, cursor.word_end + 1, phones=phones)


@only(behind="'")
def clipped(cursor: Cursor) -> Reading | None:
    """Sons o' guns, th' lads, i' the night."""
    word, end = cursor.word.lower(), cursor.word_end + 1
    if word == "o" and cursor.text.startswith("-", end):  # "jack-o'-lantern"
        return Reading(cursor.word, end + 1, phones="AH0")
    following = cursor.next(end) if cursor.text.startswith(" ", end) else ""
    is_prime = word in "it" and following in CLOSED | FINITE and following not in DETERMINERS  # "t' is"
    if (
        word not in _CLIPPED
        or not following.isalpha()
        or is_prime
        or cursor.text[max(cursor.at - 1, 0)] == "'"
    ):
        return None
    return Reading(_CLIPPED[word], end)


@form(r"([A-Z])[-–]([A-Z])(?![\w-])")
def letter_range(cursor: Cursor, m: re.Match) -> str:
    """Seats A-C."""
    is_range = cursor.previous.lower() in _LETTERED and m[1] < m[2]
    return f"{letter_name(m[1])} to {letter_name(m[2])}" if is_range else ""


@form(r"([A-Z]{1,2})(\d{1,4})(?:\s?[-–]\s?(?=\1)|:)([A-Z]{1,2})(\d{1,4})(?![\w-])")
def code_range(cursor: Cursor, m: re.Match) -> str:
    """Q1-Q3, C3–C5, cells A1:B10."""
    first, last = int(m[2]), int(m[4])
    if cursor.touches_word or first > last or (first == last and m[1] >= m[3]):
        return ""
    return f"{letter_name(m[1])} {say.integer(m[2])} to {letter_name(m[3])} {say.integer(m[4])}"


@form(r"[IiVv]{1,3}[°o]?7?(?:\s?[-–]\s?(?:[IViv]{1,3})[°o]?7?){2,7}(?![\w-])")
def chord_degrees(cursor: Cursor, m: re.Match) -> str:
    """ii–V–I, I-IV-V7: chords by the degrees of a scale."""
    degrees = [(say.roman(part.upper()), seven) for part, seven in _DEGREE.findall(m[0])]
    if cursor.touches_word or not all(number for number, _ in degrees):
        return ""
    return ", ".join(say.cardinal(number or 0) + (" seven" if seven else "") for number, seven in degrees)


def word_with_digits(cursor: Cursor) -> Reading | None:
    """MP3, H2O's."""
    if not cursor.behind_word.isdecimal():
        return None
    match = _LETTERS_AND_DIGITS.match(cursor.text, cursor.at)
    if not match:
        return None
    if respelled := tables.respelled(match[0]):
        return Reading(respelled, match.end())
    if cursor.word in ("FY", "CY"):  # a year follows: "FY2023/24"
        return Reading(cursor.word, cursor.word_end)
    if match[0][:3] in tables.CURRENCY_CODES and match[0][3:].isdecimal():  # USD5
        return price(replace(cursor, at=cursor.at + 3), tables.CURRENCY_CODES[match[0][:3]])
    if cursor.word in _POLES and cursor.text.startswith("°", match.end()):  # "N52°22'"
        return Reading(_POLES[cursor.word], cursor.word_end)
    own = cursor.possessive(match.end())
    end = _past_hyphen(cursor, match.end() + len(own))
    said = one_by_one(match[0]) if is_access_code(cursor, match[0]) else letters_and_digits(cursor, match[0])
    return Reading(said + own, end)


def letter_with_sign(cursor: Cursor) -> Reading | None:
    """C++, C#, A+, x²."""
    letter, sign, end = cursor.word, cursor.behind_word, cursor.word_end
    if (
        len(letter) == 2
        and cursor.is_equation
        and letter.isascii()
        and (sign == "^" or sign in tables.SUPERSCRIPTS)
    ):
        return Reading(letter.upper(), end)  # "mc²"
    if letter[1:] == "b" and letter[0] in "ABDEG":  # "the key of Eb", a Bb
        is_key = letter == "Bb" or cursor.is_near(_MUSIC) or cursor.next(end).lower() in _OF_KEYS
        return Reading(f"{letter_name(letter[0])} flat", end) if is_key else None
    if letter == "Ø" and sign.isdecimal():
        return Reading("diameter", end)
    if len(letter) != 1 or not sign or not letter.isascii():
        return None
    name = letter_name(letter.upper())
    if cursor.text.startswith("++", end):
        return Reading(f"{name} plus plus", end + 2)
    if sign == "^" or sign in tables.SUPERSCRIPTS:
        return Reading(name, end)
    if sign == "#" and letter.isupper():
        return Reading(f"{name} sharp", end + 1)
    if (
        sign == "*"
        and letter.isupper()
        and cursor.is_after_blank
        and not _EMPHASIZED.search(cursor.text, max(cursor.at - 60, 0), cursor.at)
        and (several := _GRADE_STAR.match(cursor.text, end))
    ):
        return Reading(f"{name} star{several[1]}", several.end())
    if sign == "*" and len((grades := _GRADES.match(cursor.text, cursor.at) or [""])[0]) > 3:  # "A*A*A"
        said = " ".join(letter_name(grade) if grade != "*" else "star" for grade in grades[0])
        return Reading(said, cursor.at + len(grades[0]))
    if sign == "'" and cursor.text.startswith("(", end + 1) and letter not in "aI":  # f'(x)
        return Reading(f"{name} prime of", end + 2)
    if sign in ("+", "-") and letter in ("A", "B", "O") and cursor.is_near(_BLOOD):
        return Reading(f"{name} {'positive' if sign == '+' else 'negative'}", end + 1)
    if sign == "+" and letter in "ABCDEF" and not cursor.text[end + 1 : end + 2].isalnum():
        return Reading(f"{name} plus", end + 1)
    after = cursor.text[end + 1 : end + 2]
    is_grade = sign in "-–" and letter in "ABCDF" and after in (" ", ".", ",", "")
    if is_grade and (sign == "-" or after != " "):
        return Reading(f"{name} minus", end + 1)
    return None


def money(cursor: Cursor) -> Reading | None:
    """US$5, USD 5."""
    word, end = cursor.word, cursor.word_end
    if word == "US" and cursor.text.startswith(" $", end) and cursor.text[end + 2 : end + 3].isdecimal():
        return price(replace(cursor, at=end + 2), "US$")  # US $5
    blank = cursor.behind_word == " " and word[2:] == "D"
    if word in tables.CURRENCY_CODES and (sign := _DOLLAR.match(cursor.text, end + blank)):
        return price(replace(cursor, at=sign.end()), tables.CURRENCY_CODES[word])  # CAD$20, USD $20
    if (word in tables.DOLLARS or word == "R") and (sign := _DOLLAR.match(cursor.text, end)):
        return price(replace(cursor, at=sign.end()), word + "$")
    if (
        word in tables.CURRENCY_CODES
        and not cursor.previous.endswith("/")
        and (blank := _BLANK_DIGIT.match(cursor.text, end))
    ):
        if "." in blank[0] and word not in ("Rs", "Fr", "kr"):
            return None
        if word == "ILS" and _RUNWAY.match(cursor.text, blank.end()):  # "ILS 09R"
            return None
        if word == "INR" and _SMALL.match(cursor.text, blank.end()):  # of blood: "INR 2.6"
            return None
        return price(replace(cursor, at=blank.end()), tables.CURRENCY_CODES[word])
    return None


@form(r"(UTC|GMT|[TL])([-−–+])(\d{1,3})(?::(\d\d)|\s?(min|sec|hr|[hmsd])s?)?(?=[\s).,;!?]|$)")
def offset(cursor: Cursor, m: re.Match) -> str:
    """UTC-05:00, GMT+2, T-10 minutes, T-0."""
    is_counted = m[5] or m[3] == "0" or cursor.next(m.end()) in _COUNTDOWN
    is_zone = len(m[1]) > 1
    if cursor.touches_word or (int(m[3]) > 14 if is_zone else not is_counted):
        return ""
    minutes = f" {say.cardinal(int(m[4]))}" if m[4] and int(m[4]) else ""
    left = counted(int(m[3]), PERIODS[m[5][0]]) if m[5] else say.cardinal(int(m[3]))
    return f"{m[1]} {'plus' if m[2] == '+' else 'minus'} {left}{minutes}"


@form(r"(?i:tl;\s?dr)(?!\w)")
def too_long(cursor: Cursor, m: re.Match) -> str:
    """TL;DR."""
    return "" if cursor.touches_word else "TLDR"


@form(r"c(\d{4})(?:\s?[-–]\s?(\d{4}|\d\d))?(?!\w)")
def circa(cursor: Cursor, m: re.Match) -> str:
    """c1790, c1790-1860."""
    if cursor.touches_word or not 1000 < int(m[1]) < 2100:
        return ""
    last = f" to {say.year(int(m[2])) if len(m[2]) == 4 else say.two_digits(int(m[2]))}" if m[2] else ""
    return f"circa {say.year(int(m[1]))}{last}"


@form(r"([A-G])([#b♯♭]?)(maj|min|m|dim|aug|sus|add)(\d{0,2})(?![\w'])")
def chord(cursor: Cursor, m: re.Match) -> str:
    """Am7, Gmaj7, F#dim, Bbm, "G – D – Em – C"; not Am, Gm, "Dad"."""
    if cursor.touches_word or not (m[4] or m[2] or cursor.is_near(CHORDS)):
        return ""
    sign = {"": "", "b": " flat", "♭": " flat"}.get(m[2], " sharp")
    kind = {"maj": "major", "min": "minor", "m": "minor", "dim": "diminished", "aug": "augmented"}.get(
        m[3], m[3]
    )
    return f"{letter_name(m[1])}{sign} {kind} {say.integer(m[4]) if m[4] else ''}".rstrip()


def in_notation(cursor: Cursor) -> Reading | None:
    """Chords, chess, years of about, TL;DR: what no ordinary word is followed by tells them."""
    behind = cursor.behind_word
    if behind.isdecimal() or behind in ("#", "♯", "♭"):
        rules = (chord, chess_move, screw, circa, hourly, numbered, for_days, times, knitted, flight_level)
        return next((reading for rule in rules if (reading := rule(cursor))), None)
    if behind == "-" and cursor.word == "O":
        return chess_move(cursor)
    if behind in ("-", "–") and len(cursor.word) < 4:
        return letter_range(cursor) or chord_degrees(cursor) or chord(cursor)
    if behind in ("", " ", ",", "|", ".") and len(cursor.word) < 4 and cursor.word[1:] in ("m", "bm", "bmaj"):
        return chord(cursor)
    if behind == "/" and cursor.word == "f":
        return aperture(cursor)
    return too_long(cursor) if behind == ";" else None


@form(r"[Ss](\d{1,2})\s?[Ee](\d{1,3})(?!\w)|[A-Z]{2}\d{2}(?: [A-Z\d]{4}){3,7}(?: [A-Z\d]{1,3})?(?!\w)")
def numbered(cursor: Cursor, m: re.Match) -> str:
    """S03E07 of television; an IBAN."""
    if m[1]:
        return f"season {say.cardinal(int(m[1]))} episode {say.cardinal(int(m[2]))}"
    return ", ".join(map(one_by_one, m[0].split(" ")))


@form(r"f/(\d{1,2}(?:\.\d)?)(?:[-–](?:f/)?(\d{1,2}(?:\.\d)?))?(?!\w|/)")
def aperture(cursor: Cursor, m: re.Match) -> str:
    """f/1.8, f/4-5.6."""
    last = f" to {say.decimal(m[2])}" if m[2] else ""
    return "" if cursor.touches_word or cursor.is_equation else f"F {say.decimal(m[1])}{last}"


@form(r"(M\d{1,2}(?:\.\d)?)x(\d{1,3}(?:\.\d{1,2})?)(?!\w)")
def screw(cursor: Cursor, m: re.Match) -> str:
    """M5x12, M8x1.25."""
    return f"M {say.decimal(m[1][1:])} by {say.decimal(m[2])}"


@form(r"x\s?(\d{1,2})(?:(d)(?!\w)|(?=\s(?:days?|weeks?|wks?|months?|mos|hrs?|hours|yrs?|years)\b))")
def for_days(cursor: Cursor, m: re.Match) -> str:
    """Fever x2 days."""
    return "" if cursor.touches_word else f"for {say.cardinal(int(m[1]))}{' days' * bool(m[2])}"


@form(r"([kpKP])(\d{1,2})(tog)?(?!\w)")
def knitted(cursor: Cursor, m: re.Match) -> str:
    """k2, p2, k2tog: of knitting."""
    if cursor.touches_word or int(m[2]) > 29 or not (m[3] or cursor.is_near(_OF_KNITTING)):
        return ""
    return f"{'knit' if m[1] in 'kK' else 'purl'} {say.integer(m[2])}{' together' * bool(m[3])}"


@form(r"FL\s?(\d{3})(?!\w)")
def flight_level(cursor: Cursor, m: re.Match) -> str:
    """FL350."""
    is_meant = cursor.is_near(_OF_FLIGHT) and not cursor.touches_word
    return f"flight level {say.digits(m[1])}" if is_meant else ""


@form(r"x\s?(\d{1,2})(?=\s?(?:$|[,;.)(\]]))")
def times(cursor: Cursor, m: re.Match) -> str:
    """CABG x3, (x2)."""
    is_times = (
        cursor.previous == "(" or cursor.previous[-1:].isalnum()
    ) and cursor.previous.lower() not in CLOSED
    is_times = is_times and not (cursor.touches_word or cursor.is_equation or m[1] in _BITS)
    return f"times {say.cardinal(int(m[1]))}" if is_times else ""


@form(r"([A-Z]{1,3}|x)(\d{1,2}\.\d{1,2})(?![\w.])")
def letters_and_decimal(cursor: Cursor, m: re.Match) -> str:
    """PM2.5, USB3.0; V2.0 is a version."""
    if cursor.touches_word or m[1] == "V" or m[1] in tables.CURRENCY_CODES:
        return ""
    return f"{letter_name(m[1].upper())} {say.decimal(m[2])}"


@form(r"([IVX]{1,4})\.([ivx]{1,5})(?:\.(\d{1,4}))?(?!\w|\.\w)")
def act_and_scene(cursor: Cursor, m: re.Match) -> str:
    """III.i, II.iii.57: of a play."""
    act, scene = say.roman(m[1]), say.roman(m[2].upper())
    if cursor.touches_word or cursor.is_equation or not act or not scene:
        return ""
    return f"{say.cardinal(act)} {say.cardinal(scene)}{' ' + say.integer(m[3]) if m[3] else ''}"


@form(r"([IVX]{1,5}|[A-Z])((?:\.(?:[A-Z]|\d{1,2})){1,4})(?!\w|\.\w)")
def part_of_part(cursor: Cursor, m: re.Match) -> str:
    """Part II.B.2, App. A.3."""
    if cursor.previous.lower().rstrip(".") not in _WITH_PARTS:
        return ""
    first = say.cardinal(number) if (number := say.roman(m[1])) and m[1] not in "CDLM" else letter_name(m[1])
    parts = (say.integer(part) if part.isdecimal() else letter_name(part) for part in m[2][1:].split("."))
    return " ".join((first, *parts))


@form(r"([cmkd]?m|in|ft|mi|yd)([²³])(?!\w)")
def bare_area(cursor: Cursor, m: re.Match) -> str:
    """Cm², in³."""
    is_bare = not (cursor.touches_word or cursor.is_equation or cursor.previous[-1:].isdecimal())
    return f"{'square' if m[2] == '²' else 'cubic'} {plural_unit(unit_name(m[1]) or '')}" if is_bare else ""


@only(behind="&")
def joined_capitals(cursor: Cursor) -> Reading | None:
    """R&D, AT&T."""
    if not cursor.word.isupper():
        return None
    word, other = in_latin(cursor.word), _AND.match(cursor.text, cursor.word_end)
    if not word or not other:
        return None
    own = cursor.possessive(other.end())
    return Reading(f"{letter_name(word)} and {letter_name(other[1])}{own}", other.end() + len(own))


def plain_word(cursor: Cursor) -> Reading | None:
    """A word, with the hyphen or slash that ties it to the next one, and the "(s)" of "cat(s)"."""
    word, end, text = cursor.word, cursor.word_end, cursor.text
    if not word:
        return None
    is_cased = word[1:].islower() or (len(word) > 1 and word.isupper())  # not "CaO(s)"
    if cursor.behind_word == "(" and is_cased and (bracket := _PLURAL_BRACKET.match(text, end)):
        word, end = word + bracket[1], bracket.end()
    spoken = plain(cursor, word, end)
    left_out = () if word.isascii() else left_out_of(cursor, [word])
    if text.startswith("/", end) and text[end + 1 : end + 2].isalpha():
        following = cursor.next(end + 1)
        is_or = word.lower() in _OR and (word.lower(), following.lower()) not in _PRONOUNS
        if (word.lower(), following) == ("s", "he"):
            spoken, is_or = "she" if word == "s" else "She", True
        is_per = word[-1] == "s" and len(word) > 3 and (unit_name(following) or following in _PERIODS)
        is_plural = word[-1] == "s" and following.islower() and following[-1] != "s"
        is_counted = cursor.previous[-1:].isdigit() and len(following) > 1
        is_counted = is_counted and bool(is_plural or unit_name(following))
        if is_counted or (
            is_per and (following in _PERIODS or len(following) < 4)
        ):  # "cells/mL", "10⁵ CFU/mL"
            below = following if following in _PERIODS else unit_name(following) or following
            return Reading(f"{spoken} per {below}", end + 1 + len(following), left_out)
        if word in _DOSES and (below := unit_name(following)):  # "mg/dL"
            return Reading(
                f"{plural_unit(unit_name(word) or '')} per {below}", end + 1 + len(following), left_out
            )
        is_rate = (
            following in _RATED_BY
            and word.lower() not in _NO_RATES
            and _DIGIT_BEFORE.search(text, max(cursor.at - 30, 0), cursor.at)
        )  # "8 hrs. of sleep/night"
        is_rate = is_rate or (following in _COUNTED_BY and cursor.previous.isdecimal())  # "12 mice/group"
        if (
            is_rate
            or following == "capita"
            or (
                following in tables.PERIODS
                and (len(word) > 1 or word in "bB")
                and word.lower() not in tables.PERIODS
            )
        ):  # "req/s"
            return Reading(
                f"{spoken} per {unit_name(following) or following}", end + 1 + len(following), left_out
            )
        is_term = cursor.is_equation and len(word) < 3 and word.lower() not in SMALL_WORDS
        slash = "or" if is_or else "over" if is_term else "slash"
        spoken = word if word.lower() == "and" else f"{spoken} {slash}"
        return Reading(spoken, end + 1, left_out)
    phones = "" if word.isascii() else tables.ACCENTED.get(word.lower(), "") or _with_final_e(word)
    is_magnitude = word in ("k", "K", "M", "B") and cursor.touches_word  # "10k-20k"
    joined = end if is_magnitude else _past_hyphen(cursor, end)
    if joined > end and word.lower() in ("noon", "midnight") and cursor.next(joined)[:1].isdecimal():
        return Reading(f"{spoken} to", joined)
    if joined > end and spoken[-1:].isalnum() and cursor.next(joined)[:1].isalpha():
        spoken += "-"
    return Reading(spoken, joined, left_out, phones)


def _with_final_e(word: str) -> str:
    """Phones of a word in "é" that would lose its end without the accent ("Comté"); "" for any other."""
    plain = in_latin(word).lower() if word.lower().endswith(("é", "ée")) else ""
    phones = of_word(plain) if plain else ()
    if not phones or (phones[-1][-1].isdigit() and is_known(plain)):
        return ""
    stem = phones[:-1] if phones[-1][:2] == "IY" else phones
    return " ".join((*(phone.replace("1", "2") for phone in stem), "EY1"))


def pass_unchanged(cursor: Cursor, limit: int) -> list[tuple[str, int, int]]:
    """Moves the cursor past words that are said as they are written, and commas behind them, up to the
    index `limit`: these with their places. Most words are; saves time.
    """
    passed: list[tuple[str, int, int]] = []
    text, at, previous, earlier = cursor.text, cursor.at, cursor.previous, cursor.earlier
    while previous.lower() != "per" and (match := _UNCHANGED.match(text, at)):
        word, end = match[0], match.end()
        has_comma = text[end] == ","
        if word in _CHANGED or end + has_comma > limit:
            break
        passed.append((word, at, end))
        at, previous, earlier = end + 1, word, previous
        if has_comma:
            passed.append((",", end, at))
            at, previous, earlier = at + 1, ",", word
    if passed:
        cursor.previous, cursor.earlier = previous, earlier
        cursor.move(at)
    return passed


def ordinary_word(cursor: Cursor) -> Reading | None:
    """A word without capitals behind its first letter, before a blank, a mark or the last full stop, which no
    other rule reads. Saves time.
    """
    word, behind = cursor.word, cursor.behind_word
    if len(word) < 3 or not word.isascii() or not word[1:].islower() or cursor.previous.lower() == "per":
        return None
    is_last = behind == "." and cursor.word_end + 1 == len(cursor.text) and not cursor.previous.endswith(".")
    if not is_last and behind not in _BEHIND_ORDINARY:
        return None
    others = _NOT_ORDINARY if word.islower() else _NOT_ORDINARY_NAMES
    if word.lower() in (_NOT_ORDINARY_BEFORE_STOP if is_last else others):
        return None
    return Reading(plain(cursor, word, cursor.word_end), cursor.word_end)


@only(at="x×")
def size_by(cursor: Cursor) -> Reading | None:
    """10'x12', 8½" × 11": by."""
    if not cursor.previous.endswith(_LENGTH_ENDS) or not cursor.previous[0].isdecimal():
        return None
    match = _SIZE_FOLLOWS.match(cursor.text, cursor.at + 1)
    return Reading("by", cursor.at + 1) if match else None


@form(r"(?i:b-day|x-mas|t-storms?|y-o-y|q-o-q|m-o-m)(?![\w-])")
def by_letter(cursor: Cursor, m: re.Match) -> str:
    """b-day, X-mas, t-storms."""
    return "" if cursor.touches_word else _BY_LETTER[m[0].lower()]


@form(r"(X{0,3}S|S|M|L|\dXL)\s?[-–]\s?(X{1,4}L|[2-9]XL)(?![\w-])")
def clothes_sizes(cursor: Cursor, m: re.Match) -> str:
    """S-XXL, XS–3XL."""
    if cursor.touches_word:
        return ""
    return re.sub(r"\d", lambda digit: f"{say.cardinal(int(digit[0]))} ", f"{m[1]} to {m[2]}")


def behind_per(cursor: Cursor) -> Reading | None:
    """Per km², per sq ft."""
    if cursor.previous.lower() != "per":
        return None
    unit, end = unit_behind_per(cursor)
    return Reading(unit, end) if unit else None


WORDS: tuple[Rule, ...] = (
    *(
        stammer,
        clipped,
        calendar_range,
        calendar_list,
        month_and_day,
        version,
        offset,
        code_range,
        code_parts,
        dotted_state,
        party,
        county_road,
        land_survey,
        part_of_section,
        direction,
        half_wind,
        dotted_abbreviation,
        working_days,
        clothes_sizes,
        short_extension,
        by_letter,
        slashed_abbreviation,
        size_by,
        logarithm,
        limit,
        derivative,
        difference,
        quotient,
        letters_and_decimal,
        act_and_scene,
        part_of_part,
        bare_area,
        in_notation,
        numero,
        hyphened_isotope,
        playing_card,
        word_with_digits,
    ),
    *(letter_with_sign, behind_per, book, short_word, abbreviation, money, joined_capitals, plain_word),
)


def _past_hyphen(cursor: Cursor, end: int) -> int:
    """Past a hyphen that ties a word or number on."""
    is_tied = cursor.text.startswith("-", end) and cursor.text[end + 1 : end + 2].isalnum()
    return end + 1 if is_tied else end


def plain(cursor: Cursor, word: str, end: int) -> str:
    """How a word that ends at `end` is said."""
    if not word.isascii():
        return _foreign(cursor, word)
    if (number := roman(cursor, word, end)) is not None:
        return number
    is_plural = len(word) > 2 or cursor.text[max(cursor.at - 1, 0)] == "-"
    is_plural = is_plural and word[-1] == "s" and word[:-1].isupper()  # "28 HRs", "CR-Vs"
    base = word.removesuffix("'s")
    if base != word and base in _SHORTENED and base not in _SHORT_MONTHS:  # "Tue's"
        return f"{calendar_name(base)}'s"
    if base != word and (full := "Doctor" if base == "Dr" else _SHORT_FORMS.get(base.lower())):  # "tmrw's"
        return f"{full}'s"
    is_element = word.istitle() and len(word) == 2 and cursor.text.startswith(("(", " ="), end)  # "Pd(OAc)2"
    is_begun = word.lower() == "im" and cursor.text.startswith("-", end)  # "im-impossible"
    full = "" if is_plural or is_element or is_begun else _SHORT_FORMS.get(word.lower(), "")
    is_name = full and word.istitle() and cursor.previous[-1:].isalnum()  # "ask Urs Meier"
    if full and not (is_name and word.lower() in tables.IN_MESSAGES):
        if full in ("can't", "won't") and not _is_negated(cursor, end):
            full = word.lower()
        is_acronym = word not in _NO_ACRONYMS or not cursor.is_after_blank or cursor.behind_word in ("_", "-")
        is_acronym = word.isupper() and len(word) < 5 and is_acronym
        return full if word.islower() else word if is_acronym else full.capitalize()
    if word in _BEHIND_NAMES and cursor.previous:
        return _BEHIND_NAMES[word]
    if len(word) == 2 and cursor.is_equation and word[0].islower() and word not in SMALL_WORDS:  # "F = ma"
        is_word = is_known(word) and not {cursor.previous[-1:], cursor.next(end)} & _BESIDE_TERMS  # "et al."
        return word if is_word else word.upper()
    is_listed = len(cursor.previous) > 1 and not cursor.previous[0].isdecimal()
    if word == "x" and is_listed and _DAYS_FOLLOW.match(cursor.text, end):
        return "for"  # twice daily x 7 days
    if (
        word == "x"
        and (_SIZED.search(cursor.previous) or cursor.previous in _DIMENSIONS)
        and (cursor.next(end)[:1].isdecimal() or cursor.next(end) in _DIMENSIONS)
    ):  # 10" x 12", M6 x 20
        return "times" if cursor.is_equation else "by"
    if word == "x" and cursor.previous.isdecimal() and cursor.next(end) not in CLOSED | FINITE:
        return "times" if cursor.next(end).isalpha() and not cursor.is_equation else "X"  # "2 x AA"
    if len(word) == 1:
        is_item = cursor.is_after_blank and cursor.text.startswith(")", end)  # "a) first"
        if is_item:
            return letter_name(word.upper())
        if word == "a" and _is_letter(cursor, end):
            return letter_name("A")
        return word if word in "aAI" else word.upper()
    if word.islower() or (word[0].isupper() and word[1:].islower() and word not in _SHORTENED):
        if word.islower() and word in tables.SMALL_ACRONYMS and cursor.text[end : end + 1] != "'":
            is_plural = word[:-1] in tables.SMALL_ACRONYMS and word != "https"
            return word[:-1].upper() + "s" if is_plural else word.upper()
        if (full := whole_without_stop(word)) and not is_in_code(cursor.text, cursor.at, end):
            return full if word.islower() else full.capitalize()
        is_era = word in ("bc", "ad", "bce") and cursor.previous.isdecimal()
        is_era = is_era or (word in ("am", "pm") and cursor.previous[-1:].isdecimal())  # "7-8pm"
        return word.upper() if is_era else word
    if word in _SHORTENED:
        following = cursor.next(end)
        is_date = following[:1].isdecimal() or (cursor.previous.isdecimal() and word in _SHORT_MONTHS)
        is_date = is_date or following in _SHORTENED or cursor.previous in _SHORTENED  # the head of a table
        return calendar_name(word) if is_date else word
    if (ordinal := _ROMAN_ORDINAL.fullmatch(word)) and (number := say.roman(ordinal[1])):
        return say.ordinal(number)  # "XXth"
    return cased(cursor, word)


def _is_negated(cursor: Cursor, end: int) -> bool:
    """Whether "cant" and "wont" lack an apostrophe: not in "the cant", "is wont to"."""
    is_noun = cursor.previous.lower() in DETERMINERS or cursor.previous.endswith(("'", "'s"))
    return not is_noun and cursor.next(end)[:1].isalpha() and cursor.next(end) not in ("to", "of")


def _is_letter(cursor: Cursor, end: int) -> bool:
    """Whether "a" is the letter and no article: "press a to go on", "option a", "a, b and c"."""
    if cursor.behind_word == " ":
        return _NO_NOUN.match(cursor.text, end) is not None
    if cursor.behind_word == ",":
        return _LETTER_FOLLOWS.match(cursor.text, end) is not None
    return cursor.behind_word in ("", ".", "?", "!", ";", ":", ")", "_") and not cursor.text.startswith(
        "..", end
    )


def _foreign(cursor: Cursor, word: str) -> str:
    """A word with letters beyond a-z, in Latin letters."""
    if word.lower() in tables.GREEK:
        return tables.GREEK[word.lower()]
    if word[0].lower() in tables.GREEK and word[1:].islower() and len(word) > 3 and is_known(word[1:]):
        return f"{tables.GREEK[word[0].lower()]} {word[1:]}"  # "λmax"
    if is_term(word):
        return " ".join(tables.GREEK.get(letter.lower()) or letter_name(letter.upper()) for letter in word)
    latin = latin_parts(word)
    if not scripts_of(word):
        return plain(cursor, "".join(latin), cursor.at + len(word)) if latin else ""
    syllables = [part.replace("'", "") for part in latin]
    names = [NAME_PARTS.findall(part.title() if part.isupper() else part) for part in syllables]
    return " ".join(part for parts in names for part in parts)

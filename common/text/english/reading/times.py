"""Times of the day and durations."""

from __future__ import annotations

import re
from dataclasses import replace

from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cursor import Cursor, Rule, form
from melforge.common.text.english.reading.units import COOKED, TIMED, plural_unit
from melforge.common.text.english.word_parts import words

_ZONE = (
    r"(?:(?i:[ECMP][SD]T|GMT|UTC|BST|CES?T|JST|HST|(?:AK|AE|NZ)[SD]T)|IST|EES?T|SGT|MSK|[ECMP]T)"
    r"(?!\w|(?<=UTC|GMT)[-−+]\d)"
)
_HALF = rf"(?:\s?([AaPp])(?:\.\s?[Mm](?:\.|(?!\w))|[Mm](?:(?!\w)|(?={_ZONE}))))"
_IN_ZONE = rf"(?:\s?({_ZONE}))?"
PERIODS = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}
_DATE = re.compile(r"\d{1,4}[-/.]\d|.*\d{4}$")
WEEKDAYS = frozenset((*tables.WEEKDAYS, *(day.lower() for day in tables.WEEKDAYS.values())))
_WHOLE = words("noon midnight midday")
_TO_MINUTES = re.compile(r"\s?[-–]\s?(?:[1-9]|1[0-2]):(?!00)\d\d(?!\d|:)")
_DEPARTS = re.compile(r"\b(?:leaves?|departs?|arrives?|starts?|begins?|kicks?\soff|meet|opens|ends)\sat\s$")
_ANNOUNCED = re.compile(
    r"\b(?:train|bus|ferry|coach|tram|doors|kick-?off|lunch|dinner|breakfast|meet|appointment|dentist|school|concert|gets?\sin|open|entry|admission|orders|close)",
    re.IGNORECASE,
)
_BEFORE_HOUR = words("""at by until till from before after around about to open entry admission orders doors
    lunch dinner kick-off : @""")
_BEHIND_HOUR = re.compile(r"\s?(?:$|[,;!?)–-]|\.(?!\d)|(?:on|and|from|so|if|but|for|to|please)\b)")
_TO_PLACE = re.compile(r"\s(?:from|to|at)\s[A-Z]")
_PRICED = re.compile(
    r"[£$€%]|\b(?:shares?|index|pounds?|dollars?|euros?|rates?|clos\w+|trad\w+|odds|averag\w+|mean|scor\w+|points?"
    r"|values?|ratio|version|pH|level|rose|fell|stood|seconds|per)\b"
)
_OF_TRAIN = re.compile(r"\s(?:was|were|is|are|and|has|had|will|service|train)\b")
_TIMES_BEFORE = re.compile(
    r"\b(?:at|trains|orders|the)\s(?:\d{1,2}\.[0-5]\d(?:,|\s(?:and|or|close))?\s){1,8}(?:the\s)?$"
)
_RATIO = re.compile(r"\b(?:ratio|odds|scale|proportion|diluted|mixed)\b[^.!?]{0,12}$", re.IGNORECASE)
_TO_HALF = re.compile(r"\s?[-–—]\s?\d{1,2}(?:[:.]\d\d)?\s?[AaPp]\.?\s?[Mm]\b")
_TO_DOTTED_HALF = re.compile(r"(?:\s?[-–]\s?|\sto\s)\d{1,2}(?:\.[0-5]\d)?\s?[AaPp]\.?\s?[Mm]\b")
_DAYTIME_FOLLOWS = re.compile(
    r"\s(?:tomorrow|tonight|sharp|(?:this|in\sthe)\s(?:morning|afternoon|evening))\b"
)
_LATE = words("late early delay left remaining")
_WHILE = words("in every for after within")
_LASTING = words("in for been last every after within w/in x × takes took take lasts lasted about over of =")
_HOURS = re.compile(r"\d\s?(?:h|hrs?|s|secs?)\b")
_SUBJECTS = words("the a I he she it we they his her my our ,")
_BEFORE_HALF = words("til till until @ after aft before")
_OF_SHIFTS = re.compile(
    r"\b(?i:shifts?|works?|hours|hrs|open|closed|from|nights?|guard|duty|watch|curfew|quiet)\b"
)
_EXPECTED = words("ETA ETD STA STD ATA ATD arr arr. dep dep.")
_DEPARTING = words("ferry train flight departure sailing")
_BEFORE_TIME = words("arr dep at by until till from before after since around about to and between , (")


@form(
    rf"(\d{{1,2}}):(\d{{2}})(?::(\d{{2}})|(?!,\d{{3}}))(?!\d|:\d)((?:\.|(?<=:\d\d:\d\d),)\d+)?{_HALF}?(?:h|(Z))?"
    rf"{_IN_ZONE}(?:(?<=[-T:.\d]{{8}})\s?([+−-])(\d\d):?(\d\d)(?!:))?(?!(?!ish\b)\w)"
)
def time(cursor: Cursor, m: re.Match) -> str:
    """15:30, 3:30 p.m., 9:45EST, 1:02:03.5, 08:05:09+02:00."""
    hour, minute, second, half = int(m[1]), int(m[2]), m[3], m[5]
    point = m[4] and m[4].replace(",", ".")
    if minute > 59 or (hour > 24 and half) or (cursor.is_equation and cursor.previous == "=" and not half):
        return ""
    if not half and _RATIO.search(cursor.text, max(cursor.at - 20, 0), cursor.at):
        return ""  # "a ratio of 3:20"
    if point and not minute and not second:  # "1:00.50"
        return f"{counted(hour, 'minute')} zero {say.decimal(point)} seconds"
    zone = _zone("UTC" if m[6] else m[7])
    if m[8]:
        zone = f", {'plus' if m[8] == '+' else 'minus'} {counted(int(m[9]), 'hour')}" if int(m[9]) else " UTC"
        zone += f" {say.cardinal(int(m[10]))}" if int(m[10]) else ""
    is_dated = _DATE.match(cursor.previous) is not None
    is_whole = second == "00" and not point and bool(half or minute or is_dated)
    if is_whole and (half or is_dated or m[1][0] == "0"):
        second = None
    is_clock = m[1][0] == "0" and hour and cursor.at  # "09:14:02"
    is_clock = is_clock or (hour and cursor.previous in ("[", "]"))  # "[INFO] 14:02:11"
    is_day = cursor.previous.isdecimal() and cursor.earlier.rstrip(".").lower() in tables.MONTH_NUMBERS
    is_clock = is_clock or is_day  # "Oct 11 22:14:15"
    is_clock = is_clock and not (m[8] or is_dated)
    if second and not half and not (point and minute) and not is_clock:
        seconds = (
            f"{say.decimal((second.lstrip('0') or '0') + point)} seconds"
            if point
            else counted(int(second), "second")
        )
        said = f"{counted(hour, 'hour')} {counted(minute, 'minute')}"
        return said + ("" if is_whole else f" and {seconds}") + zone
    if m[0] == "0:00" and not cursor.at:  # of a video's chapters
        return "zero minutes"
    if not minute and not half and cursor.next(m.end()) in ("left", "remaining"):  # of a game
        return counted(hour, "minute")
    is_named = not minute and cursor.next(m.end()).lower() in _WHOLE  # "12:00 noon"
    is_named = is_named or (not minute and not half and _TO_MINUTES.match(cursor.text, m.end()) is not None)
    is_named = is_named or (not minute and _TO_HALF.match(cursor.text, m.end()) is not None)  # "7:00-9 PM"
    is_exact = bool(half or second or point or is_named or cursor.text.startswith("ish", m.end()))
    on_the_clock = _past_or_to(cursor, m[1], minute) if not (is_exact or zone) else ""
    spoken = on_the_clock or clock((hour or 12) if half else hour, minute, is_exact)
    spoken += f" {say.two_digits(int(second))}" if second else ""
    spoken += f" {say.decimal(point)}" if point else ""
    return spoken + _half_day(cursor, m, half) + zone


@form(rf"(?:(\d{{1,2}})\s?[-–]\s?)?(\d{{1,2}})\.([0-5]\d)(?:\.([0-5]\d))?{_HALF}{_IN_ZONE}")
def dotted_time(cursor: Cursor, m: re.Match) -> str:
    """9.30 a.m., 6.45pm, 5-7.30pm."""
    if not 1 <= int(m[2]) <= 12:
        return ""
    first = f"{say.cardinal(int(m[1]))} to " if m[1] else ""
    second = f" {say.two_digits(int(m[4]))}" if m[4] else ""
    said = first + clock(int(m[2]), int(m[3]), is_exact=True) + second
    return said + _half_day(cursor, m, m[5]) + _zone(m[6])


@form(r"([01]?\d|2[0-3])\.([0-5]\d)(?!\w|\.\w|,\d)")
def dotted_hour(cursor: Cursor, m: re.Match) -> str:
    """At 8.30 tomorrow, the train leaves at 17.45."""
    is_departure = _DEPARTS.search(cursor.text, max(cursor.at - 20, 0), cursor.at)
    if _TO_DOTTED_HALF.match(cursor.text, m.end()):  # "8.00-9.30pm"
        return clock(int(m[1]), int(m[2]), is_exact=True)
    is_time = is_departure or _is_announced(cursor, m.end())
    is_time = is_time or cursor.text.startswith(" o'clock", m.end())
    is_time = is_time or (cursor.previous in ("At", "By") and cursor.next(m.end()) in _SUBJECTS)
    is_time = is_time or (cursor.previous.lower() == "at" and _DAYTIME_FOLLOWS.match(cursor.text, m.end()))
    return (_past_or_to(cursor, m[1], int(m[2])) or clock(int(m[1]), int(m[2]))) if is_time else ""


def _is_announced(cursor: Cursor, end: int) -> bool:
    """Whether "8.42" is a time: "the 8.42 from Leeds", "doors 7.30", "the train gets in at 17.45"."""
    before, text = cursor.previous.lower(), cursor.text
    if cursor.is_british and _is_clock(cursor, end):
        return True
    before = "at" if before in ("-", "–") and "." in cursor.earlier else before  # "12.30-1.15"
    if before == "the" and _TO_PLACE.match(text, end):
        return True
    if before == "for" and cursor.earlier.isdecimal() and len(cursor.earlier) < 3:  # "7 for 7.30"
        return _BEHIND_HOUR.match(text, end) is not None
    if before.rstrip(".") in WEEKDAYS:  # "Thu 10.20"
        return True
    is_said = before in _BEFORE_HOUR and _BEHIND_HOUR.match(text, end)
    return bool(is_said and _ANNOUNCED.search(text, max(cursor.at - 50, 0), cursor.at))


def _is_clock(cursor: Cursor, end: int) -> bool:
    """Whether a Briton means a time: "05.12", "till 9.30", "dep. 11.04", "at 9.15 on Dave"."""
    before, text = cursor.previous.lower().rstrip("."), cursor.text
    if cursor.char == "0" and text[cursor.at + 1] != ".":
        return not cursor.touches_word and before not in ("-", "/")
    if before in ("till", "until", "arr", "dep", "sunrise", "sunset"):
        return True
    if before == "the" and _OF_TRAIN.match(text, end):
        return True
    is_at = _TIMES_BEFORE.search(text, max(cursor.at - 60, 0), cursor.at)
    is_at = (before == "at" or is_at) and text[end - 1] in "05" and _BEHIND_HOUR.match(text, end)
    return bool(is_at and not cursor.is_near(_PRICED))


@form(rf"(\d{{1,2}}){_HALF}{_IN_ZONE}")
def hour(cursor: Cursor, m: re.Match) -> str:
    """3 pm, 9amEST."""
    if int(m[1]) > 24:
        return ""
    return say.cardinal(int(m[1])) + _half_day(cursor, m, m[2]) + _zone(m[3])


@form(r"([01]\d|2[0-3])([0-5]\d)\s?(?:hours|hrs|h)(?!\w)(?!\sof\b)")
def military_time(cursor: Cursor, m: re.Match) -> str:
    """0600 hours, at 1430 hrs."""
    said = _military(cursor, m[1], m[2])
    return f"{said} hours" if said else ""


@form(r"([01]\d|2[0-3])([0-5]\d)(?![\w.]|[,:/-]\d)")
def expected_time(cursor: Cursor, m: re.Match) -> str:
    """ETD 0915, ETA: 1140."""
    before = cursor.earlier if cursor.previous == ":" else cursor.previous
    return _military(replace(cursor, previous="at"), m[1], m[2]) if before in _EXPECTED else ""


@form(r"([01]\d|2[0-3])([0-5]\d)\s?(GMT|UTC|CET|CEST|BST|IST|EST|EDT|CST|CDT|PST|PDT|JST|Zulu|Z)(?!\w)")
def zoned_time(cursor: Cursor, m: re.Match) -> str:
    """0306 GMT, 1430 UTC, 0600Z."""
    said = _military(cursor, m[1], m[2])
    return f"{said} {'Zulu' if m[3] == 'Z' else m[3]}" if said else ""


def _military(cursor: Cursor, hour: str, minute: str) -> str:
    """Four digits of a clock; "" where they may be an amount."""
    if hour[0] != "0" and cursor.previous and cursor.previous.lower().rstrip(".") not in _BEFORE_TIME:
        return ""
    oh = "oh " if hour[0] == "0" and hour != "00" else ""
    return f"{oh}{say.cardinal(int(hour))} {say.two_digits(int(minute)) if minute != '00' else 'hundred'}"


@form(r"([01]\d|2[0-3])([0-5]\d)\s?[-–]\s?([01]\d|2[0-4])([0-5]\d)\s?(?:hours|hrs|h)(?!\w)")
def military_range(cursor: Cursor, m: re.Match) -> str:
    """1300-1500 hrs."""
    first, last = (_military(replace(cursor, previous=""), *pair) for pair in (m.group(1, 2), m.group(3, 4)))
    return f"{first} to {last} hours"


@form(
    r"(0[1-9])([0-5]\d)(?:(?!\w|\s?[-–]\s?\d|[.,:/]\d)"
    r"|\s?[-–]\s?([01]\d|2[0-3])([0-5]\d)(?:\s?(hours|hrs|h))?(?![\w-]))"
)
def early_time(cursor: Cursor, m: re.Match) -> str:
    """At 0915, 0800–1630."""
    if m[3]:
        return f"{_military(cursor, m[1], m[2])} to {clock(int(m[3]), int(m[4]))}{' hours' * bool(m[5])}"
    is_set = cursor.previous == "for" and cursor.earlier.lower() in (
        "alarm",
        "set",
        "scheduled",
        "booked",
        "due",
    )
    is_set = is_set or cursor.next(m.end()) in _DEPARTING  # "the 0815 ferry"
    before = cursor.previous.lower().rstrip(".")
    if not is_set and (before not in _BEFORE_TIME or not before.isalpha()):
        return ""
    return _military(cursor, m[1], m[2])


@form(
    r"(\d{1,2})(?::([0-5]\d))?(?:([ap])|(?<=:\d\d)([AP]))(?:\s?[-–]\s?(\d{1,2})(?::([0-5]\d))?([ap]))?(?![\w'])"
)
def short_half(cursor: Cursor, m: re.Match) -> str:
    """7:30p, 7:30P, 7a-7p, til 7p; not 50p."""
    is_time = m[2] or m[5] or cursor.previous.lower().rstrip(".") in _BEFORE_HALF
    if not is_time or int(m[1]) > 12:
        return ""
    first = f"{clock(int(m[1]), int(m[2] or 0), is_exact=True)} {(m[3] or m[4]).upper()}M"
    return first + (f" to {clock(int(m[5]), int(m[6] or 0), is_exact=True)} {m[7].upper()}M" if m[5] else "")


@form(r"([01]\d|2[0-3])(00|15|30|45)\s?[-–]\s?(0\d)(00|15|30|45)(?![\w-])")
def night_shift(cursor: Cursor, m: re.Match) -> str:
    """2200–0600."""
    first, last = (_military(replace(cursor, previous=""), *pair) for pair in (m.group(1, 2), m.group(3, 4)))
    is_meant = int(m[1]) > int(m[3]) and cursor.is_near(_OF_SHIFTS)
    return f"{first} to {last}" if is_meant else ""


@form(r"(\d{1,3})m(\d{1,2}\.\d{1,3})s(?!\w)")
def measured_time(cursor: Cursor, m: re.Match) -> str:
    """0m3.482s."""
    return f"{counted(int(m[1]), 'minute')} {say.decimal(m[2])} seconds"


@form(r"(\d{1,3})([smhdw])\s(?=ago\b)")
def since(cursor: Cursor, m: re.Match) -> str:
    """5m ago."""
    return counted(int(m[1]), PERIODS[m[2]]) + " "


@form(r"(\d{1,3})m(?:\s?(\d{1,2})s)?(?!\w)")
def minutes(cursor: Cursor, m: re.Match) -> str:
    """2m 30s; Prep: 15m."""
    if not m[2]:
        is_timed = cursor.previous.lower() in TIMED or (
            cursor.previous == ":" and cursor.earlier.lower() in TIMED
        )
        is_timed = is_timed or (cursor.previous in _WHILE and cursor.is_near(_HOURS))
        is_timed = is_timed or cursor.next(m.end()) in _LATE or cursor.is_near(COOKED)
        return counted(int(m[1]), "minute") if is_timed else ""
    return f"{counted(int(m[1]), 'minute')} {counted(int(m[2]), 'second')}"


@form(r"[qQ](\d{1,2})(?:[-–](\d{1,2}))?(?:[hH](?:rs?)?|(min|d|wk|mo))(?!\w)")
def hourly(cursor: Cursor, m: re.Match) -> str:
    """q6h, q6-8h, of medicines."""
    if cursor.touches_word:
        return ""
    first = f"{say.cardinal(int(m[1]))} to " if m[2] else ""
    unit = {"min": "minute", "d": "day", "wk": "week", "mo": "month"}.get(m[3], "hour")
    return f"every {first}{counted(int(m[2] or m[1]), unit)}"


@form(
    r"(\d{1,3})([dw])\s?(\d{1,2})([hd])(?:\s?(\d{1,2})m)?(?!\w)"
    r"|(?:(\d{1,3})[-–])?(\d{1,3})\s?([dw])(?:\.(?=\s?[a-z]|$)|(?![\w'-]))"
)
def days(cursor: Cursor, m: re.Match) -> str:
    """3d 4h; 38w4d; for 10 d."""
    if m[1]:
        minutes_ = f" {counted(int(m[5]), 'minute')}" if m[5] else ""
        said = f"{counted(int(m[1]), PERIODS[m[2]])} {counted(int(m[3]), PERIODS[m[4]])}{minutes_}"
        return "" if m[2] == m[4] else said
    is_meant = cursor.previous.lower() in _LASTING or (m[8] == "d" and cursor.previous in ("@", "at"))
    first = f"{say.cardinal(int(m[6]))} to " if m[6] else ""
    stop = cursor.last_stop(m.end()) if m[0].endswith(".") else ""
    return first + counted(int(m[7]), PERIODS[m[8]]) + stop if is_meant else ""


@form(
    r"(\d{1,4})(?:h\s?|\sh\s(?=\d+\sm\b))(\d{1,2})(?:(?:\s?m(?:ins?)?|['′])(?:\s?(\d{1,2})(?:s(?:ecs?)?|[\"″]))?)?(?!\w)"
)
def duration(cursor: Cursor, m: re.Match) -> str:
    """2h 30m, 1h 5m 20s, 4h52'18", 2h30; 13h00."""
    if m[0][-1].isdecimal() and len(m[2]) == 2 and (m[2] == "00" or 12 < int(m[1]) < 25):
        return clock(int(m[1]), int(m[2]))
    if m[0][-1].isdecimal():
        return f"{counted(int(m[1]), 'hour')} {say.two_digits(int(m[2]))}" if " " not in m[0] else ""
    spoken = f"{counted(int(m[1]), 'hour')} {counted(int(m[2]), 'minute')}"
    return spoken + (f" {counted(int(m[3]), 'second')}" if m[3] else "")


def _zone(letters: str | None) -> str:
    return f" {letters.upper()}" if letters else ""


def clock(hour: int, minute: int, is_exact: bool = False) -> str:
    """15, 30 -> "fifteen thirty"; a whole hour with "o'clock" or "hundred" unless `is_exact`."""
    if minute:
        return f"{say.cardinal(hour)} {say.two_digits(minute)}"
    if is_exact:
        return say.cardinal(hour)
    return f"{say.cardinal(hour)} o'clock" if 1 <= hour <= 12 else f"{say.cardinal(hour)} hundred"


def _past_or_to(cursor: Cursor, hour: str, minute: int) -> str:
    """8, 45 -> "quarter to nine", as a British reader says it; "" for other minutes and for 24 hours."""
    from_hour = min(minute, 60 - minute)
    is_asked = cursor.is_british and cursor.previous.lower() != "the"  # "the 6.05 to Inverness"
    if not is_asked or hour[0] == "0" or not 1 <= int(hour) <= 12 or not minute or minute % 5:
        return ""
    part = {15: "quarter", 30: "half"}.get(from_hour) or say.cardinal(from_hour)
    if minute > 30:
        return f"{part} to {say.cardinal(int(hour) % 12 + 1)}"
    return f"{part} past {say.cardinal(int(hour))}"


def counted(number: int, unit: str) -> str:
    """2, "hour" -> "two hours"."""
    return f"{say.cardinal(number)} {unit if number == 1 else plural_unit(unit)}"


def _half_day(cursor: Cursor, m: re.Match, letter: str | None) -> str:
    """The "AM" or "PM" at the end of a time."""
    if not letter:
        return ""
    return f" {letter.upper()}M" + (cursor.last_stop(m.end()) if m[0].endswith(".") else "")


TIMES: tuple[Rule, ...] = (
    time,
    dotted_time,
    dotted_hour,
    hour,
    military_time,
    military_range,
    expected_time,
    zoned_time,
    early_time,
    night_shift,
    measured_time,
    short_half,
    since,
    minutes,
    days,
    duration,
)

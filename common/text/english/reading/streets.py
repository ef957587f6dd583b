"""Postal addresses: house numbers, directions, kinds of streets, what is behind them."""

from __future__ import annotations

import re
from dataclasses import replace

from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.capitals import letter_name
from melforge.common.text.english.reading.cursor import Cursor, Reading, form, only
from melforge.common.text.english.reading.money import price
from melforge.common.text.english.reading.units import ROADS
from melforge.common.text.english.reading.word_classes import PREPOSITIONS
from melforge.common.text.english.word_parts import words

_KIND = "|".join(
    sorted((*tables.STREETS, *tables.STREETS.values(), "Loop", "Row", "Pike"), key=len, reverse=True)
)
_DIRECTION = r"(?:[NS]\.?\s?[EW]\b\.?|[NSEW]\b\.?|North|South|East|West)"
_ORDINAL = r"\d{1,3}(?:st|nd|rd|th)\b"
_NAME = rf"(?:[A-Z][A-Za-z'’]{{0,20}}\.?|{_ORDINAL})"
# What follows a house number: "N Main St", "W. 42nd", "Union Sq". One place, five words at most.
_SMALL_KIND = r"(?:st|str|ave|av|blvd|rd|ln|hwy|pkwy)\b\.?"
_STREET = rf"\s(?:{_DIRECTION}\s)?(?:{_NAME}\s){{1,4}}?(?:{_KIND}|{_SMALL_KIND})(?!\w|'|-)"
_DIRECTED_NAME = r"\s[NSEW]\.\s[A-Z][a-z]{2,20}(?:\s?$|[,.;)])"
_NUMBERED_STREET = rf"\s{_DIRECTION}\s(?:{_ORDINAL}|Broadway\b)"
_NUMBERED_ROAD = (
    r"\s(?:(?:Hwy|Highway|Route|Rte|Rt)\b\.?|(?:County|State|Co\.)\s(?:Road|Rd|Route|Rte|Hwy)\b\.?)\s\d"
)
_AT_HOUSE = re.compile(_DIRECTED_NAME)
_HOUSE_BEFORE = re.compile(rf"(?<!\S)\d{{1,5}}[A-Z]?\s(?:{_DIRECTION}\s)?(?:{_NAME}\s){{1,4}}$")
_COLLEGES = frozenset((*tables.STATES.values(), "Penn", "Boise", "Fresno", "Diego", "Jose"))
_LOOK_BACK = 60  # characters
_IS_STREET = re.compile(rf"(?:{_NAME}\s){{1,3}}?(?:{_KIND})(?!\w|'|-)|Broadway\b|{_ORDINAL}")
_NUMBER = re.compile(r"\s?#?\s?\d")
_DIRECTED = re.compile(r"([NS])\.?\s?([EW])\b\.?|([NSEW])\b\.?")
_DIRECTIONS = {"N": "North", "S": "South", "E": "East", "W": "West"}
_POSTCODE = re.compile(r"\s[A-Z]\d[A-Z]\s?\d[A-Z]\d\b")
_ZIP = re.compile(r"\s\d{5}(?:-\d{4})?(?![\w,.-]\d|\w)")
_DOTTED_STATE = re.compile(r"([NSWRB])\.\s?([YJCDHMVISB])\.(?!\w)")
_OLD_STATES = {
    "WVa": "West Virginia",
    "NMex": "New Mexico",
    "NCar": "North Carolina",
    "SCar": "South Carolina",
}
_OLD_STATES |= {"NDak": "North Dakota", "SDak": "South Dakota"}
_OLD_STATE = re.compile(r"(?:W\.\s?(?=Va)|N\.\s?(?=Mex|Dak|Car)|S\.\s?(?=Dak|Car))(Va|Mex|Dak|Car)\.")
_PARTY = re.compile(r"([RDI])-([A-Z]{2}(?!\w)|[A-Z]\.[A-Z]\.|[A-Z][a-z]{1,4}\.)")
_HEADING = words("""go goes going went head heads heading headed turn turns drive drives travel walk run runs
    due mi mile miles km ft feet block blocks""")
_WINDS = re.compile(r"\b[Ww]inds?\b")
_BLOWING = words("wind winds breeze breezes gusts swell swells")
_LANDS = words("""Korea Carolina Dakota Virginia America Africa Asia Europe Ireland Atlantic Pacific Sudan
    Germany Vietnam Yemen Sussex Yorkshire Wales England Bank Sea""")
_MOVING = words("moving moves moved wind winds from toward towards kilometers miles kms")
_LANDS |= frozenset(name for name in tables.STATES.values() if " " not in name)
_TRAILED = words("Park Loop Row")  # "55 Central Park W"
_SIDES = words("side end coast shore bank wing entrance gate edge corner cor")
DESIGNATORS = {
    **{"apt": "Apartment", "ste": "Suite", "rm": "Room", "bldg": "Building", "fl": "Floor", "flr": "Floor"},
    **{"hwy": "Highway", "rte": "Route", "rt": "Route", "rd": "Road"},
}
_STATE = "|".join(sorted(tables.STATES_CUT_SHORT))
_STATE_BEFORE = re.compile(rf"\b(?:(?:{_STATE})\.|D\.C\.)(?:,?\s(?:and|or|&)\s|,\s|[-–/])$")
_STATE_BEHIND = re.compile(rf"\.(?:,?\s(?:and|or|&)\s|,\s|[-–/])(?:(?:{_STATE})\.|D\.C\.)")
_AFTER_STREET = words("Suite Apt Ste Unit NW NE SW SE N S E W Rm Room Fl Floor Apartment Bldg and")
_CENTS_FOLLOW = re.compile(r"\s?(?=[\d,]+\.\d\d(?!\d))")
_NAME_GOES_ON = re.compile("-[A-Z]")
_ROAD = re.compile(r"[ABM]\d{1,4}")  # British: "the A4 W"
_SAINTS = words("Patrick Andrew George David Valentine Nicholas John Mary James Peter")
_SENTENCE_ENDS = (".", ",", ";", ":", "?", "!", ")", "&", '"', "(", "-", "–", "—", "/")
_FULL_KINDS = frozenset(tables.STREETS.values())
_SMALL_KINDS = words("st str ave av blvd rd ln hwy pkwy")
_ALSO_NAMES = words("Pl Ct Ter Cir Sq Way Pt Trl")
_EXCLAIMED = words("Well Okay Yeah Yes Thanks Sorry Hello Hey Wow Please Look Wait Mom Dad Man God")
_ORDINALS = words("first third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth")
_COUNTY_ROADS = words("Rd Road Hwy Highway Rte Route")
_IN_CITY = re.compile(r"\b(?:in|near|of)\s(?:[A-Z][a-z]+\s)?[A-Z][a-z]+,\s$")
_NO_NAMES = words("dr mr mrs ms st the a an my our your his her their this that is was")
_CITIES = words("""Chicago Boston Houston Phoenix Dallas Austin Denver Seattle Portland Atlanta Miami Detroit
    Minneapolis Philadelphia Pittsburgh Cleveland Columbus Cincinnati Indianapolis Milwaukee Memphis Nashville
    Orleans Tampa Orlando Vegas Sacramento Oakland Diego Francisco Angeles Jose Antonio Tucson Albuquerque
    Omaha Tulsa Louis Charlotte Raleigh Richmond Buffalo Rochester Albany Honolulu Anchorage Boise Reno Mesa
    Brooklyn Newark Hartford Providence Jacksonville Louisville""")
_CITIES_OF_MD = words("""Baltimore Bethesda Rockville Annapolis Columbia Frederick Spring
    Gaithersburg Bowie
    Towson Salisbury Park Hagerstown Laurel Germantown
    Cumberland City""")


@form(
    rf"(\d{{1,5}})(?:-?([A-Z])|(\s?½|\s1/2))?(?={_STREET}|{_NUMBERED_STREET}|{_NUMBERED_ROAD}|{_DIRECTED_NAME})"
)
def house_number(cursor: Cursor, m: re.Match) -> str:
    """1428 Elm St, 314 W. 42nd, 221B Baker St, 123 1/2 Maple Ave: by pairs of digits."""
    if m[2]:
        return f"{say.short(m[1]) if len(m[1]) < 5 else _five_digits(m[1])} {letter_name(m[2])}"
    if m[3]:
        return f"{say.short(m[1])} and a half" if len(m[1]) < 5 else ""
    return say.short(m[1]) if len(m[1]) < 5 else _five_digits(m[1])


@form(rf"(\d{{2,3}})-(\d{{2}})(?={_STREET}|{_NUMBERED_STREET})")
def house_in_queens(cursor: Cursor, m: re.Match) -> str:
    """42-10 Queens Blvd.; 14-16 Mill Rd, two houses."""
    if int(m[2]) - int(m[1]) in (1, 2, 4, 6):
        return f"{say.short(m[1])} to {say.short(m[2])}"
    return f"{say.short(m[1])} {say.two_digits(int(m[2]))}"


def _five_digits(number: str) -> str:
    """12345 -> "one twenty-three forty-five"."""
    if number.endswith("000") or number[0] == "0":
        return say.integer(number)
    return f"{say.short(number[:3])} {say.two_digits(int(number[3:])) if number[3:] != '00' else 'hundred'}"


@only(at="NSEW")
def direction(cursor: Cursor) -> Reading | None:
    """N Main St, W. 42nd, Gravenstein Hwy N, Avenue NW, the N. side."""
    if cursor.touches_word:
        return None
    m = _DIRECTED.match(cursor.text, cursor.at)
    if not m or cursor.text.startswith("'", m.end()) or cursor.text.startswith("-", m.end()):
        return None
    end, following = m.end(), cursor.next(m.end())
    is_two = m[1] is not None
    before = cursor.earlier if cursor.previous == ":" else cursor.previous
    if before.lower().rstrip("s") in ("wind", "gust") and (following[:1].isdecimal() or following == "at"):
        return Reading(
            "".join(_DIRECTIONS[letter] for letter in (m[1], m[2], m[3]) if letter).capitalize(), end
        )
    if (
        cursor.previous in ("the", "from") and m[1] and cursor.is_near(_WINDS)
    ):  # "winds from the NW at 15 mph"
        is_meant = True
    elif following in _BLOWING:
        is_meant = not cursor.previous[:1].isdecimal()
    elif cursor.text.startswith(" ", end) and _IS_STREET.match(cursor.text, end + 1):
        is_meant = True
    elif m[3] and cursor.previous.isdecimal() and _AT_HOUSE.match(cursor.text, cursor.at - 1):
        is_meant = len(cursor.previous) > 2  # "1505 N. Clark"
    elif following in _SIDES:
        is_meant = cursor.previous.lower() == "the" or m[0].endswith(".")
    elif following in _LANDS or following == "of":
        is_meant = is_two or m[0].endswith(".") or following == "of"
        is_meant = is_meant and cursor.previous.lower() not in ("a", "an")  # "an N of 12"
    elif (
        cursor.previous.rstrip(".").lower() in _HEADING
        or _ROAD.fullmatch(cursor.previous)
        or (cursor.previous[:1].isdecimal() and cursor.earlier.rstrip("-.") in ROADS)
    ):
        is_meant = not following[:1].isupper()
    else:
        before = cursor.earlier if cursor.previous in (",", ".") else cursor.previous
        is_meant = _is_kind(before) and (is_two or not following[:1].isupper() or cursor.previous == ".")
    if not is_meant:
        return None
    name = f"{_DIRECTIONS[m[1]]}{_DIRECTIONS[m[2]].lower()}" if m[1] and m[2] else _DIRECTIONS[m[3]]
    return Reading(name + (cursor.last_stop(end) if m[0].endswith(".") else ""), end)


@form(r"([NSEW])([NS][EW])(?!\w|\.\w|-)")
def half_wind(cursor: Cursor, m: re.Match) -> str:
    """12 km SSE of Hilo, moving WNW."""
    following = cursor.next(m.end())
    is_meant = following == "of" or following.lower() in _BLOWING
    is_meant = is_meant or cursor.previous.rstrip(".").lower() in _HEADING | _MOVING
    name = f"{_DIRECTIONS[m[1]]}-{_DIRECTIONS[m[2][0]]}{_DIRECTIONS[m[2][1]]}".lower()
    return name if is_meant and not cursor.touches_word else ""


def _is_kind(word: str) -> bool:
    bare = word.rstrip(".")
    return bare[:1].isupper() and (bare.title() in tables.STREETS or bare in _FULL_KINDS | _TRAILED)


def street(cursor: Cursor) -> Reading | None:
    """Elm St, 9th Ave., King Dr: the kind of a street behind its name."""
    word, end = cursor.word, cursor.word_end
    is_ordinal = cursor.previous[-2:].lower() in ("st", "nd", "rd", "th") and cursor.previous[:1].isdecimal()
    is_small = word in _SMALL_KINDS and (  # "40 W 3rd st.", "12 Oak Hill rd"
        is_ordinal or _HOUSE_BEFORE.search(cursor.text, max(cursor.at - _LOOK_BACK, 0), cursor.at)
    )
    kind = tables.STREETS.get(word.capitalize() if is_small else word)
    if not kind:
        return None
    is_name = cursor.previous[:1].isupper() and cursor.previous.lower() not in _NO_NAMES
    is_name = is_name or (cursor.previous.isdecimal() and word in ("Fwy", "Hwy", "Expy", "Tpke"))
    if not (is_name or is_ordinal) or (word == "Cir" and is_ordinal):  # a court: "9th Cir."
        return None
    stop = cursor.behind_word == "."
    following = cursor.next(end + stop)
    is_college = word == "St" and stop and cursor.previous in _COLLEGES
    is_college = is_college and not (cursor.earlier.isdecimal() or cursor.earlier.lower() in PREPOSITIONS)
    if is_college and (following.islower() or following.isdecimal()):
        return Reading("State", end + 1)  # "Michigan St. won"
    is_street = following in _AFTER_STREET or (is_ordinal and following not in _SAINTS)
    if word in ("St", "Dr") and following[:1].isupper() and not is_street:
        return None
    if not stop and following[:1].isupper() and following not in _AFTER_STREET and word in _ALSO_NAMES:
        return None
    if cursor.behind_word not in ("", " ", *_SENTENCE_ENDS) or _NAME_GOES_ON.match(cursor.text, end + stop):
        return None  # "Blvd. St-Germain", "Prof. Dr.-Ing. Weber"
    return Reading(kind + (cursor.last_stop(end + 1) if stop else ""), end + stop)


def designator(cursor: Cursor) -> Reading | None:
    """Apt 4B, Ste. 210, Hwy 101, Bldg 5: before a number."""
    name = DESIGNATORS.get(cursor.word.lower())
    is_small = name == "Floor" and (cursor.behind_word == "." or cursor.word == "flr")  # "3rd fl."
    if not name or not (cursor.word[0].isupper() or is_small):
        return None
    if cursor.word == "RM" and (blank := _CENTS_FOLLOW.match(cursor.text, cursor.word_end)):
        return price(replace(cursor, at=blank.end()), "MYR")
    end = cursor.word_end + (cursor.behind_word == ".")
    if (
        name == "Floor"
        and cursor.previous[-2:] in ("st", "nd", "rd", "th")
        and (cursor.previous[0].isdecimal() or cursor.previous.lower() in _ORDINALS)
    ):
        return Reading(name + (cursor.last_stop(end) if cursor.behind_word == "." else ""), end)
    is_lettered = name in ("Apartment", "Suite", "Room", "Building", "Floor")
    following = cursor.next(end)
    if _NUMBER.match(cursor.text, end) or (is_lettered and len(following) == 1 and following.isupper()):
        return Reading(name, end)
    return None


@only(behind=".")
def dotted_state(cursor: Cursor) -> Reading | None:
    """Newark, N.J.; New York, N.Y. 10001; Wheeling, W.Va."""
    if old := _OLD_STATE.match(cursor.text, cursor.at):
        return Reading(_OLD_STATES[old[0][0] + old[1]] + cursor.last_stop(old.end()), old.end())
    m = _DOTTED_STATE.match(cursor.text, cursor.at)
    key = m[1] + m[2] if m else ""
    name = tables.STATES.get(key) or tables.PROVINCES.get(key)
    if not m or not name or cursor.previous != "," or not cursor.earlier[:1].isupper():
        return None
    return Reading(name + cursor.last_stop(m.end()), m.end())


@only(behind="-")
def party(cursor: Cursor) -> Reading | None:
    """(R-TX), (D-Ill.): the party and the state of one who was elected."""
    m = _PARTY.match(cursor.text, cursor.at) if cursor.previous in ("(", ",") else None
    if not m:
        return None
    short = m[2].removesuffix(".")
    name = tables.STATES.get(short.replace(".", "")) or tables.STATES_WITH_STOP.get(short)
    return Reading(f"{letter_name(m[1])} {name}", m.end()) if name else None


@only(at="C")
def county_road(cursor: Cursor) -> Reading | None:
    """Co. Rd. 5."""
    is_name = cursor.previous[:1].isupper()  # "Standard Oil Co. Road crews"
    if cursor.word != "Co" or is_name or cursor.next(cursor.word_end + 1) not in _COUNTY_ROADS:
        return None
    return Reading("County", cursor.word_end + (cursor.behind_word == "."))


@form(r"([TR])\.?\s?(\d{1,3})\s?([NSEW])\.?(?=[,;.\s]|$)")
def land_survey(cursor: Cursor, m: re.Match) -> str:
    """T. 4 N., R. 62 W.: where land lies."""
    is_meant = not cursor.touches_word and (m[1] == "T") == (m[3] in "NS")
    kind = "township" if m[1] == "T" else "range"
    return f"{kind} {say.cardinal(int(m[2]))} {_DIRECTIONS[m[3]]}" if is_meant else ""


@form(r"([NS]?)([EW]?)([½¼])(?!\w)")
def part_of_section(cursor: Cursor, m: re.Match) -> str:
    """SW¼, N½: of a square mile of land."""
    if cursor.touches_word or not (m[1] or m[2]):
        return ""
    side = (_DIRECTIONS.get(m[1], "") + _DIRECTIONS.get(m[2], "")).capitalize()
    return f"{side} {'half' if m[3] == '½' else 'quarter'}"


def _is_beside_state(cursor: Cursor) -> bool:
    """Whether another state stands beside this one: "Va. and Md.", "the Fla.-Ga. line"."""
    before = _STATE_BEFORE.search(cursor.text, max(cursor.at - _LOOK_BACK, 0), cursor.at)
    return (before or _STATE_BEHIND.match(cursor.text, cursor.word_end)) is not None


def state(cursor: Cursor) -> Reading | None:
    """Denver, CO 80202; Portland, OR in spring."""
    word = cursor.word
    is_behind_comma = cursor.previous == "," and cursor.earlier[:1].isupper() and not cursor.earlier.isupper()
    if cursor.behind_word == "." and word in tables.STATES_WITH_STOP:
        following = cursor.next(cursor.word_end + 1)
        is_place = cursor.previous in ("from", "in", "near") and (following.islower() or following == ",")
        is_place = is_place or _is_beside_state(cursor)
        if not (is_behind_comma or is_place):
            return None
        return Reading(
            tables.STATES_WITH_STOP[word] + cursor.last_stop(cursor.word_end + 1), cursor.word_end + 1
        )
    has_code = cursor.previous[:1].isupper() and _ZIP.match(cursor.text, cursor.word_end)
    is_coded = _POSTCODE.match(cursor.text, cursor.word_end)  # "Toronto ON M5H 1J9"
    if word in tables.PROVINCES and (is_behind_comma or is_coded):
        is_meant = word != "ON" or is_coded
        return Reading(tables.PROVINCES[word], cursor.word_end) if is_meant else None
    is_behind_city = cursor.previous in _CITIES and word != "MD" and cursor.behind_word != " "  # "Chicago IL"
    if word not in tables.STATES or not (is_behind_comma or has_code or is_behind_city):
        return None
    following = cursor.next(cursor.word_end)
    if word == "MD" and not has_code and cursor.earlier not in _CITIES_OF_MD:  # a doctor
        return None
    is_place = is_behind_comma and following in ("", ",", ".", ")", ";")
    is_place = is_place and (word != "OK" or _IN_CITY.search(cursor.text, max(cursor.at - 40, 0), cursor.at))
    is_place = is_place and cursor.earlier[1:].islower() and cursor.earlier not in _EXCLAIMED
    is_place = (
        is_place or following[:1].isdecimal() or (word == "ME" and is_behind_comma and following.islower())
    )
    if word in tables.STATES_ALSO_WORDS and (cursor.is_shouted or not is_place):
        return None
    if following[:1].isupper() or cursor.behind_word in ("'", "-", "&"):
        return None
    return Reading(tables.STATES[word], cursor.word_end)

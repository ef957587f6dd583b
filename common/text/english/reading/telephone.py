"""Numbers that are said digit by digit: telephone and card numbers, codes, ZIP codes."""

from __future__ import annotations

import re

from melforge.common.text.english.pronounce import is_known
from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.capitals import letter_name
from melforge.common.text.english.reading.cursor import Cursor, Reading, Rule, form, only
from melforge.common.text.english.word_parts import words

_EXTENSION = r"(?:,?\s?(?:[eE]xt\.?|[eE]xtension|x)\s?(\d{1,6}))?"
_ABROAD = re.compile(r"\+\d{1,3}(?:[ .-]?\(?\d{1,5}\)?){2,6}(?!\w)|\+\d{8,15}(?!\w)")
_ZERO_IN_BRACKETS = re.compile(r"\(0\d{0,4}\)\s?\d{2,8}(?:[ -]\d{3,8}){0,3}(?!\w)")
_DIGITS = re.compile(r"\d+")
_LETTERS_OR_DIGITS = re.compile(r"[A-Z]+|\d+")
_DIALLED = re.compile(
    r"(?:call|dial|text|tele|phone|fax|ring|\bsms|cell|mobile|\btty|\btdd|relay|hotline|number|emergenc)\w*\b[^\d.!?]{0,24}$"
    r"|(?:^|[\s|])[tfpmc]:\s$",
    re.IGNORECASE,
)
_SHORT_CODES = words("911 999 112 411 101 988 211 311 511 611 711 811")
_OTHER_CODE = re.compile(r"\s(?:or|and)\s(\d{3})(?!\w)")
_CALLS = words(
    "call calls caller callers service operator operators dispatcher dispatchers hotline lifeline tape tapes"
)
_REPORTED = re.compile(r"\b(?:[Rr]eport|[Cc]all|[Tt]ext|[Dd]ial|[Cc]omplain)")
_OF_DESKS = re.compile(r"\b(?:desk|office|reception|dial|call|phone|extension)\b")
_CODES = words("""isbn issn pmid oclc ssn pin passcode password cvv cvc otp ext extension zip postcode upc
    ean cpt npi ndc vin imei squawk arxiv chmod p/n s/n""")
CODED = _CODES | words(
    "code account a/c routing serial order tracking reference confirmation id member policy ref "
    "invoice claim booking digits password pwd plate"
)
_OTHER_CODES = words("error status exit response return tax penal civil criminal building http")
_LINKS = words(": is no number code")
_ENDING = re.compile(
    r"\b(?:[Aa]cct\.?|end(?:ing|s|ed)?(?:\s(?:in|with))?|last\s(?:four|4)(?:\sdigits)?\)?(?:\sare|:)?)\s$"
)
_OF_TIME = re.compile(r"\b(?:year|season|decade|period|quarter|century|war|era|reign)s?\b", re.IGNORECASE)
_YEAR = re.compile(r"(?:1[89]|20)\d\d(?!\w)")
_TIES = words("to of in by on at or am pm yr mo km cm mm kg lb oz ft hr wk")
_MANY_OF_CODE = re.compile(r"\d{3}")
_NAMED_CODE = re.compile(
    r"\s(?:is|as)\s(?:your|the|my)\s(?:[\w-]{1,20}\s){0,3}?(?:code|PIN|pin|OTP|passcode|password)\b"
)  # "482913 is your Acme code"
_LOOK_BACK = 40  # characters
_MANY_DIGITS = 10  # as many in a row are a telephone number, unless it ends in noughts
_CITY_ABROAD = re.compile(r"\s[A-Z]\w+(?:,\s[A-Z][a-z]|[.;]?$|\n)")
_STATE_NAMES = frozenset(tables.STATES.values())


@form(
    r"(?:\+?(\d{1,3})[ .-])?(?:\((\d{3})\)[ -]?|(\d{3})[ .-])(\d{3})[ .-](\d{4})"
    rf"{_EXTENSION}(?![\w-]|\.\d)"
)
def phone(cursor: Cursor, m: re.Match) -> str:
    """+1 (415) 555-2671, ext. 12; 1-800-555-0199."""
    groups = [say.digits(group) for group in (m[1], m[4], m[5]) if group]
    area = m[2] or m[3]
    groups.insert(-2, say.integer(area) if area in ("800", "900") else say.digits(area))
    return ", ".join(groups) + _extension(m[6])


@form(rf"(\d{{3}}(?:-|(?<=555)–))(\d{{4}}){_EXTENSION}(?![\w-]|,\d)")
def short_phone(cursor: Cursor, m: re.Match) -> str:
    """555-2671."""
    return f"{say.digits(m[1])}, {say.digits(m[2])}{_extension(m[3])}"


@form(r"(?:1[-. ])?\(?([89]\d\d)\)?[-. ]((?:[A-Z\d]{1,12}-){0,4}[A-Z\d]{1,12})(?![\w-])")
def vanity_number(cursor: Cursor, m: re.Match) -> str:
    """1-800-FLOWERS, 1-888-CALL-4-ME."""
    if sum(char.isalpha() for char in m[2]) < 3:
        return ""
    area = f"{say.cardinal(int(m[1][0]))} hundred" if m[1].endswith("00") else say.digits(m[1])
    parts = []
    for part in _LETTERS_OR_DIGITS.findall(m[2]):
        is_word = len(part) > 1 and is_known(part.lower())
        parts.append(say.digits(part) if part.isdecimal() else part.lower() if is_word else letter_name(part))
    return ("one " if m[0].startswith("1") and m[0][1] in "-. " else "") + f"{area}, {' '.join(parts)}"


@form(r"(?:0|[1-9]\d?)(?:[-–](?:0|[1-9]\d?)){2,8}(?![\w-])")
def drawn_numbers(cursor: Cursor, m: re.Match) -> str:
    """10-18-19-22, a record of 10–6–1, fertilizer 10-10-10."""
    numbers = re.split("[-–]", m[0])
    return ", ".join(map(say.integer, numbers)) if max(map(len, numbers)) > 1 else ""


@form(
    r"\d+(?:-\d+){2,}(?:-X)?(?!\w)|1[38]00 \d{3} \d{3}(?!\w)|\d{3}/\d{3}-\d{4}(?!\w)"
    r"|\d{4}(?: \d{4}){2,5}(?!\w)|\d{3} \d{4} \d\d(?:\d\d)?(?!\w)"
    r"|\d{2,4}-\d{6,10}(?<!000)(?![\w-])|0\d{1,4}(?:[ /-]\d{3,8}){1,3}(?!\w)|\d{2}-\d{7}(?!\w)"
    r"|0[1-9](?:[ .]\d\d){4}(?!\w|\.\d)|00\d{0,3}(?: \d{1,5}){3,5}(?!\w)"
)
def digit_groups(cursor: Cursor, m: re.Match) -> str:
    """078-05-1120, 1234 5678 1234 5678, 020 7946 0958."""
    groups = re.split("[-/ .]", m[0])
    if all(len(group) == 4 and "1000" < group < "2100" for group in groups):  # years in a row
        return ""
    return ", ".join(say.digits(group) if group.isdecimal() else group for group in groups)


@form(r"(\d{3})-([A-Z]{4})(?![\w-])")
def short_vanity_number(cursor: Cursor, m: re.Match) -> str:
    """Call 555-HELP."""
    word = m[2].lower() if is_known(m[2].lower()) else m[2]
    return f"{say.digits(m[1])}, {word}" if _is_dialled(cursor) else ""


@form(r"(\d{3}) (\d{4})(?![\w-]|[.,]\d)")
def spaced_phone(cursor: Cursor, m: re.Match) -> str:
    """Call 555 0123."""
    is_phone = m[2][0] == "0" or _is_dialled(cursor)
    return f"{say.digits(m[1])}, {say.digits(m[2])}" if is_phone else ""


@form(
    r"(?:\d{3,5}-\d{2,3}[\dX]?(?![\w-])|\d{1,6}(?: \d{1,6}){2,7}(?![\w-]|[.,]\d)"
    r"|\d{3} \d{3}(?![\w-]|[.,]\d| \d)|\d{4}\.\d{4,5}(?:(?=v\d)|(?![\w-])))"
)
def serial_code(cursor: Cursor, m: re.Match) -> str:
    """ISSN 1234-5678; UPC 0 12345 67890 5; arXiv:2106.06103; your code is 482-913."""
    before = cursor.previous.lower()
    if before not in _CODES | {"code"} and not (before in _LINKS and cursor.earlier.lower() in CODED):
        return ""
    joint = " dot " if "." in m[0] else ", "
    return joint.join(say.digits(part) + " X" * part.endswith("X") for part in re.split("[-. ]", m[0]))


@form(r"x\.?\s?(\d{3,5})(?!\w|[.,]\d)")
def short_extension(cursor: Cursor, m: re.Match) -> str:
    """T. Briggs, x4417."""
    is_meant = cursor.previous in (")", "at", ":") or (
        cursor.previous == "," and cursor.earlier[-1:].isalnum()
    )
    is_meant = is_meant or (cursor.previous == "is" and cursor.is_near(_OF_DESKS))
    if cursor.previous.lower() in ("ending", "card") and not cursor.touches_word:  # "Acct ending x7713"
        return say.digits(m[1])
    is_meant = is_meant and len(cursor.earlier) > 1 and not (cursor.is_equation or cursor.touches_word)
    return f"extension {say.digits(m[1])}" if is_meant else ""


@form(r"\d{3,16}(?![\w/-]|[.,]\d|:\S)")
def code(cursor: Cursor, m: re.Match) -> str:
    """911, 4155552671, PIN 4821, a card ending in 1234, PO Box 1234."""
    number, before = m[0], cursor.previous.rstrip(".-").lower()
    if cursor.text.startswith("#", m.end()):  # of a door: "4482#"
        is_code = True
    elif number in _SHORT_CODES:
        is_code = _is_dialled(cursor) or cursor.next(m.end()) in _CALLS or cursor.text.strip(" .") == "911"
        is_code = is_code or (cursor.is_british and number in ("111", "999") and cursor.is_near(_REPORTED))
        other = _OTHER_CODE.match(cursor.text, m.end())
        is_code = is_code or (other is not None and other[1] in _SHORT_CODES)
        is_code = is_code or (
            (before == "use" or (before == "to" and cursor.is_near(_REPORTED)))
            and cursor.text[m.end() : m.end() + 1] in ("", ".", ",", ";")
        )
        is_code = is_code or (before in ("or", "and") and cursor.earlier in _SHORT_CODES)
    elif (before == "code" and cursor.earlier.lower() not in _OTHER_CODES) or (
        before in CODED and len(number) > 7
    ):
        is_code = True
    elif len(number) >= _MANY_DIGITS:
        is_code = not number.endswith("000")
    elif (
        before in _CODES or cursor.previous == "x-" or (before in _LINKS and cursor.earlier.lower() in CODED)
    ):
        is_code = True
    elif before == ":" and cursor.earlier == "#":
        is_code = len(number) > 4
    elif before == "box":
        is_code = cursor.previous == "Box"
    elif before == "#":
        is_code = len(number) > 4 or cursor.earlier.lower() in _CODES | {"code"}
    else:
        behind = cursor.text[max(cursor.at - 3, 0) : cursor.at].rstrip(" -").lower()
        is_masked = len(number) == 4 and behind.endswith(("••", "**", "xx"))
        is_code = is_masked or is_ending(cursor) or _NAMED_CODE.match(cursor.text, m.end()) is not None
        is_short = len(number) == 3 or before == "dial"  # "dial 111", "dial 1471"
        is_long = len(number) > 4 or (cursor.is_british and is_short)
        is_code = is_code or (is_long and not number.endswith("000") and _is_dialled(cursor))
    return say.digits(number) if is_code else ""


def is_access_code(cursor: Cursor, written: str) -> bool:
    """Whether letters and digits are a code, as what stands before says: "your OTP is ab9453"."""
    if sum(map(str.isdecimal, written)) > 7:  # "1Z999AA10123456784"
        return True
    if not _MANY_OF_CODE.search(written):  # "code SAVE10"
        return False
    before = cursor.previous.lower().rstrip(".")
    return before in CODED or (before in _LINKS and cursor.earlier.lower() in CODED)


@form(r"(?:[A-Za-z]{1,3}|\d{1,6})(?:-(?:[A-Za-z]{1,3}|\d{1,6})){3,8}(?![\w-])")
def code_parts(cursor: Cursor, m: re.Match) -> str:
    """b-4-7-c, 7-221-xk-c-2-9: four parts or more of letters and digits, whose hyphens are silent."""
    parts = m[0].split("-")
    letters = [part for part in parts if part.isalpha()]
    is_isbn = letters == ["X"] == parts[-1:]
    if cursor.touches_word or is_isbn or not 0 < len(letters) < len(parts) or any(map(_is_tie, letters)):
        return ""
    return " ".join(say.group(part) if part.isdecimal() else letter_name(part.upper()) for part in parts)


def _is_tie(letters: str) -> bool:
    """Whether letters between hyphens are a word or a unit: "3-4-day-old", "9-to-5"."""
    return letters in _TIES or (len(letters) > 2 and is_known(letters.lower()))


@form(r"(\d{1,6})(?![\w:/-]|[.,]\d)")
def extension(cursor: Cursor, m: re.Match) -> str:
    """Ext. 12."""
    return say.digits(m[1]) if cursor.previous.rstrip(".").lower() in ("ext", "extension") else ""


@form(r"(\d{5})(?:-(\d{4}))?(?![\w-]|[.,]\d)")
def zip_code(cursor: Cursor, m: re.Match) -> str:
    """Boston, MA 02108-1234; 31 Rue Cler, 75007 Paris, France."""
    if (cursor.earlier if cursor.previous == ":" else cursor.previous).lower() in ("zip", "zipcode"):
        return say.digits(m[1]) + (f", {say.digits(m[2])}" if m[2] else "")
    is_apart = cursor.previous == "," and not cursor.next(m.end())[:1].islower()  # "Boise, ID, 83702"
    state = (cursor.earlier if is_apart else cursor.previous).replace(".", "")
    is_behind_state = state in tables.STATES or state in ("DC", "NYC", "USA")
    is_abroad = cursor.previous == "," and _CITY_ABROAD.match(cursor.text, m.end())
    is_abroad = is_abroad and (cursor.earlier[:1].isdecimal() or cursor.earlier[:1].isupper())
    if not is_behind_state and not is_abroad and not (m[2] and cursor.previous in _STATE_NAMES):
        return ""
    return say.digits(m[1]) + (f", {say.digits(m[2])}" if m[2] else "")


@only(at="(+")
def phone_abroad(cursor: Cursor) -> Reading | None:
    """(415) 555-2671, +1 415 555 2671, +44 20 7946 0000, (0)20 7946 0000."""
    if cursor.char == "(":
        if match := _ZERO_IN_BRACKETS.match(cursor.text, cursor.at):
            return Reading(_groups(match), match.end())
        return phone(cursor)
    if not cursor.is_after_blank:
        return None
    if reading := phone(cursor):
        return Reading(f"plus {reading.spoken}", reading.end)
    match = _ABROAD.match(cursor.text, cursor.at)
    if not match or sum(map(len, _DIGITS.findall(match[0]))) < 7:
        return None
    return Reading(f"plus {_groups(match)}", match.end())


def _groups(match: re.Match) -> str:
    return ", ".join(map(say.digits, _DIGITS.findall(match[0])))


def _extension(digits: str | None) -> str:
    return f", extension {say.digits(digits)}" if digits else ""


def _is_dialled(cursor: Cursor) -> bool:
    """Whether the words before speak of calling."""
    return _DIALLED.search(cursor.text, max(cursor.at - _LOOK_BACK, 0), cursor.at) is not None


def is_ending(cursor: Cursor) -> bool:
    start = max(cursor.at - _LOOK_BACK, 0)
    if not _ENDING.search(cursor.text, start, cursor.at):
        return False
    is_year = (cursor.earlier, cursor.previous) == ("ended", "in") and _YEAR.match(cursor.text, cursor.at)
    return not (is_year or _OF_TIME.search(cursor.text, start, cursor.at))


DIGITS: tuple[Rule, ...] = (
    *(
        phone,
        vanity_number,
        code_parts,
        short_vanity_number,
        short_phone,
        drawn_numbers,
        digit_groups,
        spaced_phone,
        extension,
        zip_code,
        serial_code,
        code,
    ),
)

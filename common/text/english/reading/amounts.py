"""Numbers that count something: ranges, money, percentages, units, years."""

from __future__ import annotations

import re

from melforge.common.text.english.pronounce import is_known
from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.capitals import NUMBERED
from melforge.common.text.english.reading.cursor import NUMBER, Cursor, N, Reading
from melforge.common.text.english.reading.dates import month_day
from melforge.common.text.english.reading.money import said_price
from melforge.common.text.english.reading.units import LETTERED, bare_per_unit, singular_unit, unit_after
from melforge.common.text.english.reading.word_classes import CLOSED, FINITE
from melforge.common.text.english.word_parts import words

_RANGE = re.compile(rf"(?:-|\s?–\s?|—)({N})(?![-\d]|(?:st|nd|rd|th)\b)")
_ASKED = re.compile(
    r"\b(?:[Ww]hat(?:\sis|'s)|[Ss]olve:?|[Cc]alculate:?|[Ss]ubtract:?)\s$"
)  # "What is 9 – 4?"
LOSS_BEHIND = re.compile(r"\s–(\d+(?:\.\d+)?)%")  # "FTSE 100 –0.4%"
_SPACED_RANGE = re.compile(rf"\s-\s({N})(?![-\d])")
_SPACED_THOUSANDS = re.compile(
    r"[1-9]\d{0,2}([ \u00a0\u2009\u202f])\d{3}(?:\1\d{3}){0,5}(?![\w-]|[.,:/]\d|\1\d)"
)
_COUNTED_BEHIND = re.compile(
    r"\s(?:people|inhabitants|residents|km|kilomet(?:er|re)s|euros|seats|votes|copies|men|women|children|students"
    r"|tons|tonnes|miles|jobs|cases|visitors|spectators)\b"
)  # "81 044 people"
_MONTH_FOLLOWS = re.compile(rf"\s(?:{'|'.join(tables.MONTHS)})\s(?:\d{{3,4}}(?!\d)|\[)")
_GOES_ON = re.compile(r"[/:]\d|\s?=")
_MILLIONS = re.compile(
    r"[mMBT](?=\s(?:people|users|views|followers|customers|jobs|homes|subscribers|downloads|copies|tonnes|tons|barrels"
    r"|shares|workers|children|viewers|visitors|fans|voters|households|passengers|vehicles|cases|doses|years|Americans|Britons|euros?|pounds|dollars|yen|members|readers|players"
    r"|listeners|students|patients|migrants|refugees|units|phones|devices|computers|laptops|notebooks|sets|items"
    r"|pages|words|records|visits|hits|songs|albums|tickets|deaths|dead|killed|homeless|infected|acres|hectares|residents|adults|employees"
    r"|staff|families|messages|emails|orders|clients|accounts|cards|cars|bottles|drivers|visas|tests|games"
    r"|died|fled|live|lived|borrowers|in\s(?:profits?|sales|cash|debt|revenue|damages|funding|bonuses|fees|taxes))\b)"
)
_MILLIONS_OF_MONEY = re.compile(r"m(?=\s?(?:USD|EUR|GBP|JPY|INR|CHF|AUD|CAD|NZD|€|£)(?!\w))")
_AGED = re.compile(
    r"^\d\dM(?=\s(?:c/o|p/w|s/p|h/o|here|and|from|in|w/|with|dating|living|looking)(?!\w))|\(\d\dM[),]|\b(?:[Hh]e's|[Ii]'m)\s\d\dM(?!\w)"
)  # a man of that age: "bf (26M)", "he's 28M"
_BEFORE_QUANTITY = words("""to from over under nearly almost about some around roughly than least most worth
    population reach reached hit exceed exceeded total totaling ~ > <""")
_POPULATED = words("pop population")
_HALF_DAY = re.compile(r"\s?[apAP]\.?[mM]\b")
_SET_FOLLOWS = re.compile(r"(?:\s?\(\d{1,2}(?:[-–]\d{1,2})?\))?,?\s[0-7][-–][0-7](?![\w-])")
_SET_BEFORE = re.compile(
    r"(?:\b[0-7][-–][0-7](?:\s?\(\d{1,2}(?:[-–]\d{1,2})?\))?,?|\b[Ss]ets?(?:\s(?!an?\b|of\b)\w+)?:?)\s$|\b7-6\s\($"
)
_RECORD = re.compile(
    r"\s(?:(?:this|last)\sseason|at\s(?:home|the\s(?:All-Star\s)?break)|through\s\w+\sgames|on\sthe\sroad|so\sfar|overall|since|against|vs|all-time|on|when|and\s(?:now|already|still|lead|trail|sit|in))\b"
)
_STANDINGS = re.compile(  # "the Rams (9-4)", "Mets (48-41) at Cubs (44-46)"
    r"\b(?:[WLS]|WP|LP|SV): [A-Z][\w.]* \("
    r"|[a-z]s \((?:[5-9]-[0-4]|\d\d-\d)\)|\(\d{1,3}-\d{1,3}\),? (?:at|vs?\.?|@) (?=.{0,30}\d)"
    r"|[A-Z][\w.&']*(?<!day) \(\d{1,3}-\d{1,3}\),? "
    r"(?!(?:and|or|on|in|at|for|by|to|with|after|as|but|from|of)\b)[a-z]"
)
# Behind numbers that no "to" joins: "52-14 (.788)", "(11-4, 2.87 ERA)", "58-44, 2½ GB", "12-2 NM cable".
_SAID_APART = re.compile(
    r",?\s\(?\.\d{3}(?!\d)|,\s\d{1,2}\.\d\d\sERA\b|,\s[\d½]{1,3}\s?GB\b|\s(?:NM|UF|Romex|THHN|AWG)\b|(?<=\d-\d)\s(?:pitch|count|fastball|curveball|slider)\b"
)
_SHOT = re.compile(r"\s(?:shooting|from\s(?:the\s(?:field|(?:FT\s|free.throw\s)?line)|three|deep|3))\b")
_CHANGED = words("improve improves improved fall falls fell drop drops dropped move moves moved slip slipped")
_STOOD = words("are is was were went go are they're we're i'm he's she's")
_AS_MUCH = words("further good full whole mere solid total few")  # "a good 10 km north"
_AS_FAR = words("away ahead later late early earlier ago apart north south east west")
_LETTERED = re.compile(r"[A-Z](?!\w)")
_EXTENTS = words("tall high long wide deep thick")
_OPEN = words("open hours daily")
_HYPHENED = words("table figure fig exhibit ht height")  # "Table 2-1", not "Tables 2-4"
_MILLION = re.compile(r"m(?!\w)")
_TO_NOON = re.compile(r"\s?[-–]\s?(noon|midnight)\b")
_TIMES = re.compile(r"x(?!\w)")
_PLURAL = re.compile(r"s(?!\w)")
_SCORED = re.compile(
    r"\b(?:w[io]ns?|lost|loses?|beat|score[sd]?|led|leads?|by|victory|defeat|draw|tied|game)\b"
)
_BY = re.compile(rf"(?:\s?x\s?|×)({N})(?!\s?[½¼¾⅓⅔⅛⅜⅝⅞]|-\d/\d)")
_MAGNITUDE = re.compile(
    r"\s?-?((?i:hundred|thousand|million|billion|trillion|quadrillion|mln|mio|bln|mrd|trn)|bn|mn|tn)(?!\w)(?:\.(?=\s[a-z]))?|([kKMBT])(?!\w)"
)
_MAGNITUDES = {
    **tables.MAGNITUDES,
    **{"k": "thousand", "K": "thousand", "M": "million", "B": "billion", "T": "trillion"},
}
_CODES_AFTER = "|".join(code for code in tables.CURRENCY_CODES if code.isupper() and code != "TRY")
_MONEY_AFTER = re.compile(rf"\s?(kr\b|zł|[€£¢¥₹₩₽₺₿]|{_CODES_AFTER})(?!\w)(?:(?<=kr)\.(?=[,;)]|\s[a-z]))?")
_THOUSANDS = re.compile(r"\d{1,3}\.\d{3}")
# Before a number of four digits: it is a year, whatever follows ...
_BEFORE_YEAR = words("""in since by until till year years during circa summer winter spring fall autumn early
    late mid class ad a.d ce january february march april may june july august september october november
    december fy cy born died established est founded model copyright ©""")
# ... and before these it is a count, unless a word above stands before it.
_COUNTED = words("people men women children feet percent degrees police sheep fish pounds dollars more per")
_OR_MORE = re.compile(r"\sor\s(?:more|less|fewer|so)\b")
_RACES = words("stage run race ride walk ultra ultramarathon trail finisher resistor ohm ohms resolution")
_PART_OF_YEAR = re.compile("[hq][1-4]")
_NO_YEAR = words("# no nos number")
_NO_MODEL = words("AD BC CE BCE ISO US UK EU UN AND OR THE OF TO IN FY")
_VERSIONED = words("""version python release ubuntu django kernel golang php node macos ios android gcc clang
    glibc cuda postgres mysql redis nginx kubernetes openssl cmake numpy pytorch tensorflow rails""")
_OF_PYTHON = re.compile(r"\bPython\s3\.\d")
_COMPARED = words("≥ ≤ >= <= > < == = ~")
_LETTERS_FOLLOW = re.compile(r"-(?:[A-Z]{1,5}|0\d{2,5})(?![\w'])")  # "4471-BLK", "2024-0117"
_NUMBERED = words(
    "# no number po ord ordinance case docket dkt rul proc room rm suite ste office"
)  # "Rm. 2-117"
NORMS = words("iso iec en din bs ieee ansi astm ul nfpa fips")  # "FIPS 140-2"
_OF_HTTP = re.compile(r"\s(?:Not Found|Forbidden|Unauthorized|Bad (?:Request|Gateway)|error\b)")
_HTTP = words("401 402 403 404 405 408 409 502 503 504")
_BEFORE_STATUS = words("a an : or and vs versus with")
_OF_SERVERS = re.compile(r"\b(?:requests?|servers?|API|HTTP|endpoint|URL|returns?|retry|push|fetch)\b")
_ON_ROADS = words("on off take takes took taking via")
_TRACKS = words(
    "track lesson exercise episode day week step disc cd chapters tracks scene slide verse stanza"
)
# What is numbered by pairs of digits: rooms, roads, airplanes, lines of forms, courses.
_BEFORE_PAIRS = words("""room flight suite apartment apt highway route channel area unit bus interstate boeing
    airbus building gate xbox hwy http error status line form rte ste rm office fahrenheit porsche port
    chem chemistry econ economics math maths bio biology psych psychology hist history phys physics calculus
    english sociology soc phil philosophy h.r""")


def amount(cursor: Cursor) -> Reading:
    """A number or a range, with what it counts: magnitude, money, per cent, degrees, a unit."""
    text = cursor.text
    numbers, joint, end = _numbers(cursor)
    is_one = numbers == ["1"]
    after, end = _magnitude(cursor, numbers, end)
    if money := _MONEY_AFTER.match(text, end):
        currency = tables.CURRENCY_CODES.get(money[1], money[1])
        if money[1] == "kr" and all(map(_THOUSANDS.fullmatch, numbers)):  # "1.500 kr"
            numbers = [number.replace(".", "") for number in numbers]
        return said_price(
            cursor,
            [(number, "", money.end()) for number in numbers[:-1]] + [(numbers[-1], after, money.end())],
            currency,
        )
    if (
        joint in ("by", "times") and text.startswith("s", end) and not text[end + 1 : end + 2].isalnum()
    ):  # "10x42s"
        return Reading(f"{say.decimal(numbers[0])} by {say.plural(say.decimal(numbers[1]))}", end + 1)
    unit, end = unit_after(cursor, end, is_one and not after)
    is_size = cursor.previous == "the" and cursor.next(end) in _EXTENTS  # "the 10 foot tall wall"
    is_pack = cursor.previous == "(" and cursor.earlier.isdecimal() and text.startswith(")", end)
    is_pack = (
        is_pack and cursor.next(end + 1).islower() and cursor.next(end + 1) not in FINITE - {"can"}
    )  # "2 (14 oz) cans"
    if unit[:1] == " " and joint != "times" and (is_size or is_pack or _is_described(cursor, end)):
        unit = f" {singular_unit(unit.strip())}"  # "a 10 km run"
    if joint != "by" and not unit and (times := _TIMES.match(text, end)):
        is_many = times[0] == "x" and (joint == "to" or "." in numbers[0]) and not cursor.is_equation
        unit, end = (" times", times.end()) if is_many else (unit, end)
    is_counted = bool(unit or after or joint in ("by", "times"))
    are_years = joint == "to" and not is_counted and all(_could_be_year(number) for number in numbers)
    are_years = are_years and numbers[0] < numbers[1]
    spoken = [
        say.year(int(number)) if are_years else _plain_number(cursor, number, end, is_counted)
        for number in numbers
    ]
    if joint == "to" and not unit and not after:
        spoken[1] = _end_of_years(numbers, spoken[1])
    is_bare = joint == "to" and not unit and not after
    named = (cursor.earlier if cursor.previous == ":" else cursor.previous).lower().rstrip(".")
    is_set = is_bare and (_is_set(cursor, numbers, end) or named in _HYPHENED)
    is_set = is_set or (is_bare and cursor.previous == "(" and cursor.is_near(_STANDINGS))
    is_set = is_set or (is_bare and _SAID_APART.match(text, end) is not None)
    if (
        numbers == ["10", "4"]
        and is_bare
        and cursor.previous in ("", ":", ",", "]", ")")
        and text[end : end + 1] in ("", ",", ".", "!")
    ):
        return Reading("ten four", end)  # of the radio
    if is_bare and _is_code(cursor, numbers, end):  # "ISO-8859-1", "case #21-1484"
        code = " ".join(
            say.decimal(number)
            if "." in number
            else say.short(number)
            if len(number) < 5
            else say.digits(number)
            for number in numbers
        )
        return Reading(code, end)
    are_hours = cursor.previous.lower() in _OPEN or cursor.previous[:3].lower() in tables.WEEKDAYS
    if is_set or (
        joint == "to" and numbers[0] == numbers[1] and not (are_hours or _SHOT.match(text, end))
    ):  # "a 50-50 chance"
        joint = ""
    elif (
        is_bare
        and (cursor.previous.lower() in _STOOD or (cursor.previous == "to" and cursor.earlier in _CHANGED))
        and cursor.earlier != "hours"
        and (
            _RECORD.match(text, end)
            or (cursor.earlier in _CHANGED and text[end : end + 1] in ("", ".", ",", ";"))
        )
    ):  # "are 4-7 at home"
        joint = "and"
    elif is_bare and _SHOT.match(text, end):  # "12-21 shooting"
        joint = "of"
    if not joint and (last := _TO_NOON.match(text, end)):  # "7-noon"
        unit, end = f" to {last[1]}", last.end()
    said = f" {joint} ".join(spoken).replace("  ", " ")
    if not (unit or after or joint):
        said, end = _day_or_plus(cursor, numbers[0], said, end)
    if not unit:
        unit, end = bare_per_unit(cursor, end)
    own = cursor.possessive(end)
    return Reading(f"{said}{after}{unit}{own}", end + len(own))


def _is_described(cursor: Cursor, end: int) -> bool:
    """Whether an article stands before: "a 10 km run", "a spare 20L jerry can"."""
    if cursor.previous.lower() in ("a", "an"):
        return True
    is_between = cursor.previous.isalpha() and cursor.previous.islower() and cursor.previous not in _AS_MUCH
    following = cursor.next(end)
    is_thing = following.isalpha() and following not in CLOSED | FINITE | _AS_FAR
    return is_between and is_thing and cursor.earlier.lower() in ("a", "an")


def _numbers(cursor: Cursor) -> tuple[list[str], str, int]:
    """One number; two with "to"; some with "by"; and where they end."""
    text = cursor.text
    first = NUMBER.match(text, cursor.at)
    assert first  # its rule begins with one
    numbers, joint, end = [first[0]], "", first.end()
    if spaced := _SPACED_THOUSANDS.match(text, cursor.at):
        is_sure = spaced.end() - cursor.at > 7 or spaced[0].endswith("000") or " " not in spaced[0]
        is_sure = is_sure or _COUNTED_BEHIND.match(text, spaced.end()) is not None
        numbers, end = ([re.sub(r"\s", "", spaced[0])], spaced.end()) if is_sure else (numbers, end)
    is_minus = text.startswith(" – ", end) and _ASKED.search(text, max(cursor.at - 12, 0), cursor.at)
    loss = LOSS_BEHIND.match(text, end)
    is_minus = is_minus or (loss and float(loss[1]) < float(numbers[0].replace(",", "")))
    ranged = None if is_minus else _RANGE.match(text, end)
    if not ranged and "=" not in text[end : end + 40]:
        ranged = _SPACED_RANGE.match(text, end)
        if ranged and _is_difference(cursor, numbers[0], ranged[1], ranged.end()):
            ranged = None
    is_code = ranged and len(ranged[1]) > 2 and ranged[1][0] == "0" and ranged[1][1] != "."  # "2024-0098"
    goes_on = ranged and _GOES_ON.match(text, ranged.end())  # "1-2/3", "5-3=2"
    is_timed = cursor.previous[:3].lower() in tables.MONTH_NUMBERS  # "June 3 – 10am"
    goes_on = goes_on or (ranged and is_timed and _HALF_DAY.match(text, ranged.end()))
    goes_on = goes_on or (ranged and _MONTH_FOLLOWS.match(text, ranged.end()))  # "1412 – 30 May 1431"
    if ranged and not is_code and not goes_on:
        return [numbers[0], ranged[1]], "to", ranged.end()
    while len(numbers) < 5 and (by := _BY.match(text, end)):
        is_product = cursor.is_equation or (
            joint != "by" and by[0][0] == "×" and not _is_size(cursor, numbers[0], by)
        )
        numbers.append(by[1])
        joint, end = "times" if is_product else "by", by.end()
    return numbers, joint, end


def _is_difference(cursor: Cursor, first: str, second: str, end: int) -> bool:
    """Whether "7 - 5" is a subtraction: the second number is less, and it is no score."""
    a, b = (float(number.replace(",", "")) for number in (first, second))
    if _HALF_DAY.match(cursor.text, end):  # "9 - 5 pm"
        return False
    return a > b and not _SCORED.search(cursor.text, max(cursor.at - 24, 0), cursor.at)


def _is_size(cursor: Cursor, first: str, by: re.Match) -> bool:
    """Whether "10×15" is a size, not a product."""
    if _BY.match(cursor.text, by.end()):  # "30 × 20 × 15 cm"
        return True
    is_large = len(first) > 2 or len(by[1]) > 2 or cursor.previous in ("a", "an", "the")
    return is_large or bool(unit_after(cursor, by.end(), is_one=False)[0])


def _is_code(cursor: Cursor, numbers: list[str], end: int) -> bool:
    """Whether a hyphen between two numbers is no range: behind letters, or where the second is far longer."""
    if (
        not all(number.replace(".", "").isdecimal() for number in numbers)
        or cursor.text[cursor.at + len(numbers[0])] != "-"
    ):
        return False
    named = cursor.previous.lower().rstrip(".")
    is_numbered = named in _NUMBERED or (len(numbers[1]) > 4 and numbers[1].isdecimal())  # "44-20193"
    is_apart = len(numbers[1]) - len(numbers[0]) > (len(numbers[1]) < 3)
    is_less = float(numbers[1]) < float(numbers[0])
    is_apart = is_apart or (named not in _BEFORE_PAIRS and is_less)  # "Office 9-5"
    is_decimal = any("." in number for number in numbers)  # "Llama-3.1-70B"
    return (
        _is_behind_letters(cursor)
        or cursor.touches_word  # "10b5-1"
        or named in NORMS
        or named == "§"
        or (is_less and _LETTERED.match(cursor.text, end) is not None)  # "Mail stop 4-2B"
        or (is_numbered and is_apart and not is_decimal)
    )


def _is_set(cursor: Cursor, numbers: list[str], end: int) -> bool:
    """Whether this is one of several scores in a row: "6-4, 2-6, 7-6 (5)"."""
    if any(len(number) > 1 or number > "7" for number in numbers):
        return False
    start = max(cursor.at - 16, 0)
    return bool(_SET_FOLLOWS.match(cursor.text, end) or _SET_BEFORE.search(cursor.text, start, cursor.at))


def _magnitude(cursor: Cursor, numbers: list[str], end: int) -> tuple[str, int]:
    counted = _MILLIONS.match(cursor.text, end) or _MILLIONS_OF_MONEY.match(cursor.text, end)
    if counted:
        return f" {_MAGNITUDES[counted[0].upper()]}", counted.end()
    before = cursor.earlier if cursor.previous in (":", "of") else cursor.previous
    if before.rstrip(".").lower() in _POPULATED and _MILLION.match(cursor.text, end):  # "pop. 1.3m"
        return " million", end + 1
    match = _MAGNITUDE.match(cursor.text, end)
    if not match:
        return "", end
    if match[2]:  # "10K run", "221B Baker Street", "Apt 4B", "3M"
        following = cursor.next(match.end())
        is_name = len(numbers[-1]) > 2 and "." not in numbers[-1] and following[:1].isupper()
        is_name = is_name and not cursor.is_shouted
        is_name = is_name or cursor.text[max(cursor.at - 1, 0) : cursor.at] == "-"  # "F-35B"
        is_name = (
            is_name or cursor.previous.rstrip(".").lower() in LETTERED or not (cursor.previous or following)
        )
        is_name = is_name or (numbers == ["3"] and match[2] == "M" and not following[:1].islower())
        # "12B" is a seat; "3B views", "1.5B" and "grew to 2B" are not
        is_name = is_name or (
            match[2] in "BT"
            and len(numbers[-1]) < 3
            and not _MILLIONS.match(cursor.text, end)
            and cursor.previous.lower() not in _BEFORE_QUANTITY
        )
        is_name = is_name or (
            match[2] == "M" and _AGED.search(cursor.text, max(cursor.at - 5, 0), match.end() + 9) is not None
        )
        is_letter = match[2] in "kK" and "." not in numbers[-1]  # not in "62k mi", "50k SEK"
        is_letter = is_letter and not _MONEY_AFTER.match(cursor.text, match.end())
        is_many = len(numbers[-1]) == 3 and (following.islower() or cursor.is_shouted)  # "140k miles"
        is_many = is_many and following not in _RACES
        is_letter = is_letter and not is_many
        if is_name or (is_letter and not unit_after(cursor, match.end(), is_one=False)[0]):
            return "", end
    word = match[1].lower() if match[1] else match[2]
    return f" {_MAGNITUDES.get(word, word)}", match.end()


def _plain_number(cursor: Cursor, number: str, end: int, is_counted: bool) -> str:
    """A cardinal, a decimal, a year, or digits read in pairs or one by one."""
    previous = cursor.previous.lower()
    room = previous.rstrip(".")
    if "." in number:
        name = cursor.earlier.lower() if previous in _COMPARED else previous
        is_version = name in _VERSIONED or (number[:2] == "3." and cursor.is_near(_OF_PYTHON))
        if is_version and number[0] != ".":
            return " point ".join(map(say.integer, number.split(".")))
        return say.decimal(number)
    if len(number) == 4 and not is_counted and _is_year(cursor, int(number), previous, end):
        return say.year(int(number))
    if number[0] == "0" and len(number) < 4 and (room in NUMBERED or room in _TRACKS):  # "Chapter 01"
        return say.cardinal(int(number))
    is_room = room in _BEFORE_PAIRS or (previous == "code" and cursor.earlier.lower() in ("error", "status"))
    is_room = is_room or (previous == "the" and cursor.earlier.lower() in _ON_ROADS)  # "on the 101"
    is_room = is_room or _OF_HTTP.match(cursor.text, end) is not None
    is_status = cursor.next(end) == "page" or (room in _BEFORE_STATUS and cursor.is_near(_OF_SERVERS))
    is_room = is_room or (number in _HTTP and is_status)
    is_room = is_room or (len(number) == 3 and cursor.earlier.lower() == "flight")
    if len(number) in (3, 4) and is_room and number[-2:] != "00" and number[0] != "0":
        return f"{say.cardinal(int(number[:-2]))} {say.two_digits(int(number[-2:]))}"
    is_short = len(number) == 3 and number[0] != "0" and number[1:] != "00"  # "EK 203", "CSE 332"
    is_short = is_short and (len(cursor.previous) < 4 or not is_known(cursor.previous.lower()))  # "FULL 123"
    if (len(number) == 4 or is_short) and not is_counted and number[-3:] != "000" and _is_model(cursor, end):
        return say.short(number)
    is_paired = (
        len(number) in (3, 4)
        and not is_counted
        and number[0] != "0"
        and not number.endswith("000" if len(number) == 4 else "00")
    )
    if is_paired and (
        _is_behind_letters(cursor) or (len(number) == 4 and _LETTERS_FOLLOW.match(cursor.text, end))
    ):
        return say.short(number)
    return say.integer(number)


def _is_year(cursor: Cursor, value: int, previous: str, end: int) -> bool:
    if previous in _NO_YEAR:
        return False
    following = cursor.next(end)
    if following in ("AD", "BC", "BCE", "CE") or cursor.text[end : end + 5] in (" B.C.", " A.D."):
        return value > 999
    before = previous.rstrip(".")
    is_dated = before in _BEFORE_YEAR or before in tables.MONTH_NUMBERS
    is_dated = is_dated or _PART_OF_YEAR.fullmatch(before) is not None
    if not 1100 <= value <= 2099:
        return is_dated and 1000 < value < 2200
    is_named = following[:1].isupper() or (previous == "the" and value > 1899)  # "the 2020 elections"
    following = following.lower()
    if is_named and following not in _COUNTED:
        return True
    is_plural = len(following) > 3 and following[-1] == "s" and not following.endswith(("ss", "us", "is"))
    is_counted = is_plural or following in _COUNTED or _OR_MORE.match(cursor.text, end) is not None
    return is_dated or not is_counted


def _could_be_year(number: str) -> bool:
    return len(number) == 4 and number.isdecimal() and 1000 < int(number) < 2100


def _end_of_years(numbers: list[str], spoken: str) -> str:
    """The second part of 1914-18 and 2003-04."""
    first, second = numbers
    if len(first) == 4 and second == "00" and first[2:] > "85":
        return "two thousand"  # "1997-00"
    if len(first) == 4 and len(second) == 2 and second.isdecimal() and first[2:] < second:
        return say.two_digits(int(second))
    return spoken


def _is_model(cursor: Cursor, end: int) -> bool:
    """Whether a number of four digits belongs to a name: "RTX 3090", "form 1099"."""
    before = cursor.previous.removesuffix("s")
    is_acronym = 2 <= len(before) <= 4 and before.isalpha() and before.isupper() and not cursor.is_shouted
    if not is_acronym or before in _NO_MODEL or before in tables.CURRENCY_CODES:
        return False
    following = cursor.next(end).lower()
    is_plural = len(following) > 3 and following.endswith("s") and following not in FINITE
    return following not in _COUNTED and not is_plural


def _is_behind_letters(cursor: Cursor) -> bool:
    """Whether a hyphen ties the number to letters: "F-150", "AX-4471"."""
    before = cursor.previous
    if before == "-" and cursor.earlier[-1:].isdecimal():  # "4B7-221-09"
        before = f"{cursor.earlier}-"
    if cursor.text[max(cursor.at - 1, 0)] == "/" and cursor.text[max(cursor.at - 2, 0)].isupper():
        return True  # "HX/40-22"
    return before[-1:] == "-" and (before[0].isupper() or any(c.isdigit() for c in before))


def _day_or_plus(cursor: Cursor, number: str, said: str, end: int) -> tuple[str, int]:
    """A number alone, its words `said`: an ordinal behind a month ("May 5"), or with "plus" ("50+")."""
    text = cursor.text
    if day := month_day(cursor, number):
        return day, end
    if text.startswith("+", end) and not text[end + 1 : end + 2].isalnum():
        following = cursor.next(end + 1)
        if not following[:1].isdecimal() and following not in ("=", "+", "("):
            return f"{said} plus", end + 1
    return said, end

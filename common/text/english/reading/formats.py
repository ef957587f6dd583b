"""Numbers in fixed forms: fractions, versions, ordinals, lengths; and the order of all rules for numbers."""

from __future__ import annotations

import re

from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.amounts import NORMS, amount
from melforge.common.text.english.reading.capitals import letter_name, letters_and_digits, one_by_one
from melforge.common.text.english.reading.chess import playing_card
from melforge.common.text.english.reading.cursor import NUMBER, Cursor, Reading, Rule, Rules, form
from melforge.common.text.english.reading.dates import DATES, are_seconds, decade, in_order, is_day
from melforge.common.text.english.reading.fractions import fraction, short_fraction
from melforge.common.text.english.reading.isotopes import isotope
from melforge.common.text.english.reading.money import european_price, pence, pence_per
from melforge.common.text.english.reading.streets import house_in_queens, house_number
from melforge.common.text.english.reading.telephone import DIGITS, is_access_code
from melforge.common.text.english.reading.times import TIMES, WEEKDAYS, duration
from melforge.common.text.english.reading.units import LETTERED, per_unit, plural_unit, unit_after, unit_name
from melforge.common.text.english.reading.word_classes import CLOSED, PREPOSITIONS
from melforge.common.text.english.reading.words import RELEASE, said_version
from melforge.common.text.english.word_parts import words

_SCIENTIFIC = re.compile(
    r"(?:(\d+(?:\.\d+)?)(?:[eE]|\s?[×x]\s?10(?:\^|(?=[⁻⁺⁰-⁹¹²³])))|10(?:\^(?=-)|(?=⁻)))"
    r"([+-]?\d{1,4}|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,4})(?!\w|-[\da-f]{4})"
)
_MAGNITUDES = words("k K M B T bn mn tn mln bln")
_BY = re.compile(r"(?:x\d+){1,3}(?:[cmk]?m|ft|in|px|s|[GTM]B|W|oz|[mc]?[lL]|k?g)?")
_OF_NORMS = re.compile(rf"\b(?:{'|'.join(NORMS).upper()})\W{{0,3}}(?:[A-Z]+\W)?$")
_OF_WEIGHT = re.compile(r"\b(?:weigh|lost|gained|heavy|lbs?\b)")
_OF_GOALS = re.compile(r"\d\+\d{1,2}['′]|\b\d\s?[-–]\s?\d\b(?!\d)|\b(?:[Gg]oals?|[Ss]ub|pen|HT|FT)\b")
_SUBSTITUTED = re.compile(r"\sfor\s[A-Z]")
_BEFORE_TO = words("""able back come easy glad go going good got hard happy have like listen love need nice
    ready talk time trying used want way""")
_ITS = words("the my your ur")
_OBJECTS = words("me u us him her them")
_ASKING = words("want wants wanted need needs ask asked tell told remind help allow like")
_BEHIND_SOUND = words("""u ur me my your be bed b buy c come do eat get go have hear help know leave
    make meet play say see sleep stay take talk try watch work""")
_TOO = re.compile(r"\s(?:many|late|soon|early|bad)(?=\s?(?:$|[.,!?;)]|(?:to|for|and|but|now|u|i)\b))")
_FOR_THESE = words("sale rent real life ever fun")
_BEFORE_FOR = words(
    "good thx thanks thank ready wait waiting luv nice ok okay time perfect all much tix tickets"
)
_COUNTING = re.compile(
    r"\b(?:[Cc]ount(?:s|ed|ing)?\s(?:by|in)\s\d+s|times\stables?|[Uu]nder\s\d+s\s(?:free|go|eat|stay|ride)|[Ss]izes?\s\d+s)\b"
)
_IN_SUMS = words("equals equal plus minus times root factor term divided over")
_OF_GUNS = re.compile(
    r"-cal|\s(?:cal|Magnum|magnum|revolver|pistol|rifle|handgun|rounds?|bullets?|Special)\b"
)
_EVERY = re.compile(r"/(?:day|week|month|year|wk|mo|yr|d|\d{1,2}\s?(?:h|hrs?|hours|days|weeks))\b")
_OF_HORSES = re.compile(r"(?i)\b(?:races?|going|handicap|stakes|maiden|jockey|hurdle|ascot)\b")
_PLURAL_SIZE = re.compile(r"x(\d{1,2})s")
_CODES = words("""section sec article art rule clause cl paragraph para § §§ code subsection exception title
    s ss r reg""")
_PORTS = words("""80 443 3000 3001 3306 4000 4200 5000 5173 5432 6379 8000 8001 8080 8081 8443 8888 9000
    9090 27017""")
_OF_DEGREES = re.compile(
    r"\b(?:B\.?A|M\.?A|B\.?Sc|M\.?Sc|LLB|[Hh]ons|degree|graduate[ds]?|univers|a 2:[12] in)\b", re.IGNORECASE
)
_DIFFERENTIAL = re.compile(r" (?:d[a-z]|e\^)")
_HEIGHT = r"(\d{1,3})\s?['′](?:\s?-?\s?)(\d{1,2}(?:\.\d)?)\s?(?:\"|″|'')"
_DECIMAL_COMMA = re.compile(
    r"(\d{1,3}),(\d{1,2})(?!\d|,\d)(?:\s(million|billion|(?i:mio|mrd|mln))\b(?:\.(?=\s[a-z]))?)?"
)
_YEAR_OF_BOOK = re.compile(r"1[89]\d\d|20[0-3]\d")
_NUMBER_WORDS = words("two three four five six seven eight nine ten several some")


@form(r"(\d{1,3}):(\d{1,3})([a-c]?)(?:\s?[-–]\s?(?:(\d{1,3}):)?(\d{1,3}))?(?![\w:])")
def verse(cursor: Cursor, m: re.Match) -> str:
    """Psalm 23:4, Matt. 5:3-12, Gen. 1:1-2:3, Heb 4:12a."""
    if cursor.previous.rstrip(".") not in tables.BOOKS:
        return ""
    spoken = f"{say.integer(m[1])} {say.integer(m[2])}" + (f" {letter_name(m[3].upper())}" if m[3] else "")
    last = " ".join(say.integer(part) for part in (m[4], m[5]) if part)
    return f"{spoken} to {last}" if last else spoken


@form(
    r"([123])\s(?=(?:(?:Corinthians|Cor|Thessalonians|Thess|Chronicles|Chron?)\b\.?\s\d"
    r"|(?:Samuel|Sam|Kings|Kgs|Timothy|Tim|Peter|Pet|John|Jn)\b\.?\s\d{1,3}:\d))"
)
def numbered_book(cursor: Cursor, m: re.Match) -> str:
    """1 Corinthians 13, 2 Kings 4:1."""
    return f"{say.ordinal(int(m[1])).title()} "


@form(r"(?:((?:19|20)\d\d);)?(\d{1,4})(?:\((\d{1,3})\))?:(\d{1,6})(?:[-–](\d{1,6}))?(?![\w:])")
def cited(cursor: Cursor, m: re.Match) -> str:
    """2020;585(3):357-62, 365:1801-12, 4(3):5-9: the place of an article in its journal."""
    is_sure = m[5] and int(m[2]) > 9 and m[4][0] != "0" and (len(m[4]) > 2 or int(m[2]) > 24)
    if not (m[1] or m[3] or is_sure):
        return ""
    said = [say.short(part) if part and len(part) == 4 else say.integer(part or "0") for part in m.groups()]
    places = [said[n] for n in range(3) if m[n + 1]]
    return ", ".join([*places, f"{said[3]} to {said[4]}" if m[5] else said[3]])


@form(r"(\d{1,3}(?:\.\d+)?|\d+)(?::|\s:\s)(\d{1,3}(?:,\d{3})+|\d+)(?::(\d{1,3}))?(?![\d:])")
def ratio(cursor: Cursor, m: re.Match) -> str:
    """16:9, 1:2:3."""
    before = cursor.text[max(cursor.at - 2, 0) : cursor.at]
    if before[1:] == ":" and before[0].islower() and m[1].isdecimal() and not m[3]:  # "process:95:5"
        return f"line {say.integer(m[1])}, column {say.integer(m[2])}"
    if _OF_NORMS.search(cursor.text, max(cursor.at - 12, 0), cursor.at):  # "ISO 9001:2015"
        return f"{say.decimal(m[1])}, {say.year(int(m[2]))}"
    if m[1] in _PORTS and m[2] in _PORTS:
        return f"{say.short(m[1])} colon {say.short(m[2])}"
    if _YEAR_OF_BOOK.fullmatch(m[1]) and len(m[2]) < 4 and not m[3]:  # "(Boas 1911:26)"
        return f"{say.year(int(m[1]))}, {say.integer(m[2])}"
    if m[0] in ("2:1", "2:2") and cursor.is_near(_OF_DEGREES):  # of a British university
        return f"two {say.integer(m[2])}"
    said = f"{say.decimal(m[1])} to {say.integer(m[2])}"
    return f"{said} to {say.integer(m[3])}" if m[3] else said


@form(r"(7[0-8]7)(?:-(\d{1,3})(s?|ER|LR)|(?=\s(?:MAX|Max|jet|aircraft|airliner|Dreamliner)))(?![\w-])")
def airliner(cursor: Cursor, m: re.Match) -> str:
    """Boeing 737-800, 747-8, 737 MAX."""
    if not m[2]:
        return say.short(m[1])
    is_named = len(m[2]) == 1 or m[2].endswith("00") or cursor.previous.startswith("Boeing")
    number = say.plural(say.short(m[2])) if m[3] == "s" else f"{say.short(m[2])} {m[3]}".rstrip()
    return f"{say.short(m[1])} {number}" if is_named else ""


@form(r"(\d{1,4}(?:\.\d{1,4})?)((?:\((?:[a-zA-Z]|\d{1,2}|[ivx]{2,4})\)){1,5})(?!\w)")
def clause_of_code(cursor: Cursor, m: re.Match) -> str:
    """401(k), 501(c)(3), Rule 12(b)(6)."""
    is_named = cursor.previous.rstrip(".").lower() in _CODES or m[2][-2].isalpha()  # "s 14(1)(b)"
    if cursor.is_equation or (m[2][1].isdecimal() and not is_named):
        return ""
    number = say.short(m[1]) if len(m[1]) == 3 and m[1].isdecimal() else say.decimal(m[1])
    return f"{number} {_clauses(m[2])}"


@form(r"40([13])([kb])(?!\w)")
def pension(cursor: Cursor, m: re.Match) -> str:
    """A 401k."""
    return f"four oh {say.integer(m[1])} {m[2].upper()}"


@form(r"802\.(\d{1,2})([a-z]{0,2})(?!\w)")
def network_standard(cursor: Cursor, m: re.Match) -> str:
    """802.11ac."""
    return f"eight oh two point {say.integer(m[1])} {m[2].upper()}".rstrip()


@form(r"(\d{1,2}W)-(\d{2})(?!\w)")
def motor_oil(cursor: Cursor, m: re.Match) -> str:
    """10W-30."""
    return f"{say.integer(m[1][:-1])} W {say.integer(m[2])}"


@form(r"([23])d(?=\s(?:[A-Z]|ed\.))(?!\s[A-Z]{2})|([2-9][23])d(?!\w)")
def ordinal_in_law(cursor: Cursor, m: re.Match) -> str:
    """The 2d Amendment, 3d Cir., the 22d."""
    return say.ordinal(int(m[1] or m[2]))


@form(
    r"(?:([1-4])Q|([12])H(?=\d\d|\s(?:\d{4}|'\d\d|[Pp]rofit|[Nn]et|[Ss]ales|[Rr]esults|[Ee]arnings|[Ll]oss|[Rr]evenue)))"
    r"(\d\d|\d{4})?(?!\w)"
)
def part_of_year(cursor: Cursor, m: re.Match) -> str:
    """3Q, in 3Q21, 1H profit."""
    is_bare = m[3] and cursor.previous.lower() in PREPOSITIONS | {"since", "until", "and"}
    year = f" of {say.year(int(m[3][-2:]) + 2000)}" if m[3] else ""
    the = "the " if is_bare else ""
    return f"{the}{say.ordinal(int(m[1] or m[2]))} {'quarter' if m[1] else 'half'}{year}"


@form(r"(\d{1,3})s(?!\w)")
def counted_by(cursor: Cursor, m: re.Match) -> str:
    """Count by 5s."""
    return say.plural(say.integer(m[1])) if cursor.is_near(_COUNTING) else ""


@form(rf"(\d+(?:\.\d+)*)(?:-(\d+)|\.([xX*])|{RELEASE}|([a-z])(\d{{1,2}})?)?(?!\w)")
def dotted_numbers(cursor: Cursor, m: re.Match) -> str:
    """1.2.3, 5.15.0-91, 3.0-rc2, 1.234.567."""
    parts = m[1].split(".")
    if m[3]:  # "2.13.x"
        return f"{said_version(m[1])} point {'star' if m[3] == '*' else 'X'}"
    if m[4] and not cursor.touches_word:
        return said_version(m[1], m[4], m[5], m[6])
    if m[7] and m[8]:  # "3.11.0b4"
        is_version = m[7] in "ab" and len(parts) > 1
        return f"{said_version(m[1])} {letter_name(m[7].upper())} {say.integer(m[8])}" if is_version else ""
    if len(parts) < 3 or m[4]:
        return ""
    if m[7]:  # "1.10.4b"
        return f"{said_version(m[1])} {letter_name(m[7].upper())}"
    if m[2]:
        return f"{said_version(m[1])} dash {say.integer(m[2])}"
    if all(len(part) == 3 for part in parts[1:]) and 1 <= len(parts[0]) <= 3:
        return say.integer(m[0].replace(".", ""))  # a European million
    return (" dot " if len(parts) == 4 else " point ").join(say.integer(part) for part in parts)


@form(r"(\d{1,2})'([1-5]\d)(?:\"|″|'')")
def minutes_and_seconds(cursor: Cursor, m: re.Match) -> str:
    """1'30"; not 5'11", which is a length."""
    return f"{_counted(m[1], 'minute')} {_counted(m[2], 'second')}" if int(m[2]) > 11 else ""


@form(r"([4-7])(?:\s?ft\.?\s?|')(\d|1[01])(?!\w|[.,]\d|\s?(?:in\b|\"|″|''))")
def height(cursor: Cursor, m: re.Match) -> str:
    """5ft9, 6 ft 2, 6'2."""
    return f"{say.integer(m[1])} foot {say.integer(m[2])}"


@form(r"(\d{1,2})\s?st\s?(\d{1,2})\s?lbs?(?!\w)|(\d?[02-9]|1[1-9])\s?st(?!\w)")
def stone(cursor: Cursor, m: re.Match) -> str:
    """12st 4lb, 14st, weighs 8 st; not 21st."""
    if not m[1] and " " in m[0] and not cursor.is_near(_OF_WEIGHT):
        return ""
    return f"{say.integer(m[1])} stone {_counted(m[2], 'pound')}" if m[1] else f"{say.integer(m[3])} stone"


@form(r"(\d{1,3})([A-Za-h])\s?[-–]\s?(\d{1,3})?([A-Zb-i])(?!\w)")
def lettered_range(cursor: Cursor, m: re.Match) -> str:
    """Figs. 1A-1C, rows 12A–C, Fig. 4a-c; not 5A-10A."""
    is_size = m[2] == m[4] == "T"  # of children: "2T–5T"
    if m[2].islower() != m[4].islower():
        return ""
    if (m[2] >= m[4] and not is_size) or (m[3] and int(m[1]) > int(m[3])):
        return ""
    last = f"{say.integer(m[3])} " if m[3] else ""
    return f"{say.integer(m[1])} {letter_name(m[2].upper())} to {last}{letter_name(m[4].upper())}"


@form(r"(\d{1,3})\s?[-–]\s?(\d{1,3})(?:st|nd|rd|th)(?!\w)")
def ordinal_range(cursor: Cursor, m: re.Match) -> str:
    """5-6th grade."""
    first, second = int(m[1]), int(m[2])
    return f"{say.ordinal(first)} to {say.ordinal(second)}" if first < second else ""


@form(r"(\d{1,3}(?:[. \u00a0\u202f]\d{3})+),(\d{1,2})(?!\d|,\d)")
def european_number(cursor: Cursor, m: re.Match) -> str:
    """12.345,67."""
    return say.decimal(f"{re.sub(r'[^0-9]', '', m[1])}.{m[2]}")


def decimal_comma(cursor: Cursor) -> Reading | None:
    """3,5 kg, 0,7 %."""
    m = _DECIMAL_COMMA.match(cursor.text, cursor.at)
    if not m or cursor.is_argument:
        return None
    said = say.decimal(f"{m[1]}.{m[2]}")
    if m[3]:
        return Reading(f"{said} {tables.MAGNITUDES.get(m[3].lower(), m[3])}", m.end())
    unit, end = unit_after(cursor, m.end(), is_one=False)
    return Reading(said + unit, end) if unit else None


@form(rf"{_HEIGHT}(?:\s?[-–]\s?{_HEIGHT})?|(\d{{1,3}})′|(\d{{1,3}}(?:\.\d{{1,3}})?)″")
def feet(cursor: Cursor, m: re.Match) -> str:
    """5'11", 5'6"-5'10", 6′, 3″."""
    if m[1] and not m[3] and cursor.previous.lower() in ("a", "an"):  # "a 6'4" player"
        return f"{say.decimal(m[1])} foot {say.decimal(m[2])}"
    if m[1]:
        first = f"{_counted(m[1], 'foot')} {_counted(m[2], 'inch')}"
        return first + (f" to {_counted(m[3], 'foot')} {_counted(m[4], 'inch')}" if m[3] else "")
    return _counted(m[5], "foot") if m[5] else _counted(m[6], "inch")


@form(r"(\d{1,3})°\s?(\d{1,2}(?:\.\d{1,4})?)['′]\s?(?:(\d{1,2}(?:\.\d{1,4})?)(?:\"|″|'')\s?)?([NSEW])?(?!\w)")
def degrees(cursor: Cursor, m: re.Match) -> str:
    """40°26′46″N."""
    spoken = f"{_counted(m[1], 'degree')} {_counted(m[2].lstrip('0') or '0', 'minute')}"
    spoken += f" {_counted(m[3].lstrip('0') or '0', 'second')}" if m[3] else ""
    return spoken + {"N": " north", "S": " south", "E": " east", "W": " west"}.get(m[4] or "", "")


@form(r"\d{1,8}(?:/\d{1,8}){2,4}(?![\w/])")
def slashed_numbers(cursor: Cursor, m: re.Match) -> str:
    """45/220817/2019, which is no date."""
    if m[0] == "24/7/365":
        return "twenty-four seven three sixty-five"
    *parts, last = m[0].split("/")
    year = say.year(int(last)) if len(last) == 4 and 1900 < int(last) < 2100 else ""
    return " slash ".join([*map(say.group, parts), year or say.group(last)])


@form(r"(\d{1,2})/(\d{1,2})\s?[-–]\s?(\d{1,2})/(\d{1,2})(?![\w/]|[.,]\d)")
def days_with_months(cursor: Cursor, m: re.Match) -> str:
    """7/1-7/5, 1/5-1/9; not 1/4-1/2."""
    (month, day), (last_month, last) = (in_order(cursor, int(m[n]), int(m[n + 1])) for n in (1, 3))
    is_later = month == last_month and day < last
    is_sure = max(day, last) > 12 and {day, last}.isdisjoint((16, 32, 64))  # "5/21–6/20", no "3/16-5/16"
    is_later = is_later or (month > 10 and last_month < 3)  # "12/23-1/2"
    is_later = is_later or (month < last_month and (month > day or last_month > last or is_sure))
    if cursor.is_equation or not (is_later and is_day(month, day) and is_day(last_month, last)):
        return ""
    first = f"{tables.MONTHS[month - 1]} {say.ordinal(day)}"
    return f"{first} to {tables.MONTHS[last_month - 1]} {say.ordinal(last)}"


@form(r"(\d{1,3}\.\d{1,3})(?:st|nd|rd|th)(?!\w)")
def decimal_ordinal(cursor: Cursor, m: re.Match) -> str:
    """The 99.9th percentile."""
    head, _, last = say.decimal(m[1]).rpartition(" ")
    return f"{head} {say.ordinal(int(m[1][-1]))}" if last else ""


@form(
    r"([35])['′](?=-[A-Z]|-to-|[→\s](?:end|UTR|cap|overhang|splice|RACE|exonuclease|phosphate)\b|(?<=[A-Z]-.['′]))"
)
def strand(cursor: Cursor, m: re.Match) -> str:
    """5′-ATG-3′, the 3' end, of DNA."""
    return f"{say.integer(m[1])} prime"


@form(
    r"(\d{1,3}(?:,\d{3})+|\d+)(?:(?:(?:st|nd|rd|th)(s|ly|'s)|\s?(?:st|nd|rd|th|ST|ND|RD|TH)"
    r"|(?<=[23])d(?=\s(?:\d+(?:,|\s[(\d])|Cir\b|Cong\b|Sess\b|Dist\b|Dep|Div\b|ed\b|Inf\b|Lt\b)))(?!\w)|([ºª])(?!\s?[CFK]))"
)
def ordinal(cursor: Cursor, m: re.Match) -> str:
    """21st, 5ths, 1º; not 45º, which are degrees."""
    number = m[1].replace(",", "")
    if m[3] == "º" and int(number) > 31:
        return ""
    if len(number) > say.MAX_DIGITS or (" " in m[0] and cursor.text[m.end() - 2].isupper()):
        return ""
    if " " in m[0] and not say.ordinal(int(number)).endswith(cursor.text[m.end() - 2 : m.end()]):  # "5 st"
        return ""
    said = say.ordinal(int(number))
    return say.plural(said) if m[2] == "s" else said + (m[2] or "")


def scientific(cursor: Cursor) -> Reading | None:
    """6.02×10²³, 1e-9 m."""
    m = _SCIENTIFIC.match(cursor.text, cursor.at)
    if not m or cursor.previous[:1] == "§":  # "42 U.S.C. § 2000e-2"
        return None
    power = "".join(tables.SUPERSCRIPTS.get(c, c) for c in m[2])
    minus = "minus " if power[0] == "-" else ""
    mantissa = f"{say.decimal(m[1])} times " if m[1] else ""
    unit, end = unit_after(cursor, m.end(), is_one=False)
    if not unit:  # "10^9/L"
        unit, end = per_unit(cursor, end)
    return Reading(f"{mantissa}ten to the {minus}{say.cardinal(int(power.lstrip('+-')))}{unit}", end)


@form(r"(?:\d+[A-Za-z]|[A-Za-z]+\d)[A-Za-z\d]*")
def mixed(cursor: Cursor, m: re.Match) -> str:
    """2x4, 3D, 1080p, 5G; not 5km."""
    if respelled := tables.respelled(m[0]):
        return respelled
    number = NUMBER.findall(m[0])[0]
    rest = m[0][len(number) :]
    if size := _PLURAL_SIZE.fullmatch(rest):  # "2x4s"
        many = f"{say.integer(size[1])} seconds" if int(size[1]) > 12 else say.plural(say.integer(size[1]))
        return f"{say.integer(number)} by {many}"
    is_apart = cursor.text[m.end() : m.end() + 1] == " " and cursor.next(m.end())[:1].isalnum()
    is_apart = is_apart and not (cursor.is_equation and _DIFFERENTIAL.match(cursor.text, m.end()))  # "2x dx"
    if rest == "x" and (is_apart or _EVERY.match(cursor.text, m.end())):
        return f"{say.decimal(number)} times"
    is_last = cursor.text[m.end() : m.end() + 1] in ("", ",", ".", ";", "!")
    if rest == "x" and is_last and _is_repeated(cursor):  # "Tried rebooting 2x, no luck."
        return f"{say.decimal(number)} times"
    is_heat = rest in ("C", "F") and unit_after(cursor, m.end() - 1, is_one=False)[0] != ""
    is_amount = (
        is_heat
        or unit_name(rest)
        or rest in tables.CURRENCY_CODES
        or rest in _MAGNITUDES
        or rest in ("fl", "dr")
        or _BY.fullmatch(rest)
    )
    if is_amount:
        return ""
    return one_by_one(m[0]) if is_access_code(cursor, m[0]) else letters_and_digits(cursor, m[0])


def _is_repeated(cursor: Cursor) -> bool:
    """Whether what is done stands before, and no formula."""
    before = cursor.previous
    is_word = len(before) > 2 and before.isalpha() and before.islower() and before not in _IN_SUMS
    return is_word and not cursor.is_equation


@form(r"(?:\d{1,4}(?:\.\d)?[\"″]?\s?[HWDL](?:\s?[x×]\s?|(?!\w))){2,3}(?<![x×\s])")
def measured_sides(cursor: Cursor, m: re.Match) -> str:
    """32W x 30L, 24"H × 18"D."""
    sides = re.findall(r"([\d.]+)([\"″]?)\s?([HWDL])", m[0])
    return " by ".join(f"{say.decimal(n)}{' inches' * bool(inch)} {side}" for n, inch, side in sides)


@form(r"(\d\d)/M?(\d\d)(?=\s[AQ]\d{4})|\d{4}(?!\w)")
def weather_code(cursor: Cursor, m: re.Match) -> str:
    """24008KT 9999, 14/08 Q1021, of an airport's weather; § 1332."""
    if m[1]:
        return f"{say.short(m[1])}, {'minus ' * ('M' in m[0])}{say.short(m[2])}"
    if cursor.previous[:1] == "§" and m[0][2:] != "00":
        return say.short(m[0])
    return say.digits(m[0]) if re.fullmatch(r"\w{5,8}KT", cursor.previous) else ""


@form(r"(\d{3})/(\d\d)\s?(Z?R)\s?(\d\d)(?!\w)")
def tire(cursor: Cursor, m: re.Match) -> str:
    """225/45R17."""
    return f"{say.short(m[1])} {say.short(m[2])} {m[3]} {say.short(m[4])}"


@form(r"0x([\dA-Fa-f]{2,16})(?!\w)")
def hexadecimal(cursor: Cursor, m: re.Match) -> str:
    """0x80070005."""
    return f"zero X {one_by_one(m[1])}"


@form(r"(\d{1,4})\((?=[\d(][^()]{0,40}[-+*/×−][^()]{0,40}\))")
def factor(cursor: Cursor, m: re.Match) -> str:
    """2(3 + 4)."""
    return f"{say.integer(m[1])} times" if cursor.is_equation or not cursor.touches_word else ""


@form(r"([24])(?=\s([a-zA-Z]{1,12})\b)")
def sound(cursor: Cursor, m: re.Match) -> str:
    """Talk 2 u, went 2 the gym, want me 2 go, sorry 4 my reply: a digit for its sound, in small letters."""
    before, following, word = cursor.previous, m[2], {"2": "to", "4": "for"}[m[1]]
    if before == before.title():
        before = before.lower()  # "Thx 4 the gift"
    if following in _ITS and before.isalpha() and before.islower() and before not in CLOSED | LETTERED:
        return word
    if m[1] == "2" and before in _OBJECTS and cursor.earlier.lower() in _ASKING and following[-1] != "s":
        return word
    if m[1] == "2" and (following == "much" or _TOO.match(cursor.text, m.end())):
        return "too"
    if m[1] == "4" and following in _FOR_THESE and before not in PREPOSITIONS:
        return "for"
    known = _BEFORE_TO if m[1] == "2" else _BEFORE_FOR
    is_behind = (
        following in _BEHIND_SOUND or following.lower() in WEEKDAYS or (word, following) == ("for", "the")
    )
    is_sure = word == "for" and following in ("u", "me", "ya") and before.islower()
    return word if is_sure or (is_behind and before in known) else ""


@form(r"(\d{1,2})([LRC])(?!\w)")
def runway(cursor: Cursor, m: re.Match) -> str:
    """Runway 27L."""
    side = {"L": "left", "R": "right", "C": "center"}[m[2]]
    is_meant = cursor.previous.rstrip(".").lower() in ("runway", "runways", "rwy", "ils")
    return f"{say.digits(m[1])} {side}" if is_meant else ""


@form(r"\.(22|25|30|32|38|40|44|45|50|223|308|357|380)(?![\d%])")
def caliber(cursor: Cursor, m: re.Match) -> str:
    """A .38, a .45-caliber pistol, .357 Magnum."""
    is_gun = cursor.previous.lower() in ("a", "his", "her") and not cursor.is_equation
    is_gun = is_gun and cursor.text[m.end() : m.end() + 1] in ("", ".", ",", ";")
    is_gun = is_gun or _OF_GUNS.match(cursor.text, m.end()) is not None
    return say.short(m[1]) if is_gun else ""


@form(r"(\d{1,2})D/(\d{1,2})N(?!\w)")
def days_and_nights(cursor: Cursor, m: re.Match) -> str:
    """5D/4N: of a journey."""
    return f"{_counted(m[1], 'day')}, {_counted(m[2], 'night')}"


@form(r"(?:(45|90|105|120)\+)?(\d{1,3})['′](?!\w)")
def minute_of_game(cursor: Cursor, m: re.Match) -> str:
    """90+3', the minute of a goal; Saka 12'; not a ladder of 12'."""
    if m[1]:
        return f"{say.cardinal(int(m[1]))} plus {say.cardinal(int(m[2]))}"
    is_scorer = cursor.previous[:1].isupper() or cursor.previous in (",", "(", "pen")
    if is_scorer and (cursor.is_near(_OF_GOALS) or _SUBSTITUTED.match(cursor.text, m.end())):
        return _counted(m[2], "minute")
    return ""


@form(r"(?:(\d)m\s?)?([1-7])f(?!\w)")
def race(cursor: Cursor, m: re.Match) -> str:
    """1m 4f, a 6f handicap: miles and furlongs."""
    if not m[1] and not cursor.is_near(_OF_HORSES):
        return ""
    return (f"{_counted(m[1], 'mile')} " if m[1] else "") + (
        f"{say.integer(m[2])} furlong" if cursor.next(m.end())[:1].islower() else _counted(m[2], "furlong")
    )


@form(r"(\d{1,2})\s?yo(?!\w)")
def aged(cursor: Cursor, m: re.Match) -> str:
    """8yo."""
    return f"{say.integer(m[1])} year old"


@form(r"(\d{1,2})((?:\s?(?i:[ap]m))?)/(\d{1,2})[cC](?!\w)")
def in_two_zones(cursor: Cursor, m: re.Match) -> str:
    """8/7c, 9PM/8C, of television."""
    return f"{say.cardinal(int(m[1]))} {m[2].strip().upper()}, {say.cardinal(int(m[3]))} central"


@form(r"(\d{1,3}|1099)s(?![\w']|\s+of\b)")
def plural_number(cursor: Cursor, m: re.Match) -> str:
    """747s, F-16s, six 5s; not 30s, which are seconds or a decade."""
    behind_hyphen = cursor.text[max(cursor.at - 1, 0) : cursor.at] == "-"
    is_many = cursor.previous.lower() in _NUMBER_WORDS
    if not behind_hyphen and not is_many and are_seconds(cursor, m.end()):  # "under 300s"
        return ""
    return say.plural(say.short(m[1])) if behind_hyphen or is_many or len(m[1]) > 2 else ""


@form(r"([1-7])([spdf])(?=\s(?:orbital|electron|subshell|shell|level)s?\b)")
def orbital(cursor: Cursor, m: re.Match) -> str:
    """The 1s orbital."""
    return f"{say.integer(m[1])} {letter_name(m[2].upper())}"


@form(r"(\d{1,3})(?:er|ER)([sS]?)(?!\w)")
def team(cursor: Cursor, m: re.Match) -> str:
    """49ers, 76ers, a 49er."""
    said = say.short(m[1])
    return f"{said}{'r' if said.endswith('e') else 'er'}{m[2].lower()}"


@form(r"(\d{1,4})!(?=\s?[=+*/×÷−-])")
def factorial(cursor: Cursor, m: re.Match) -> str:
    """5! = 120."""
    return f"{say.integer(m[1])} factorial"


NUMBERS: tuple[Rule, ...] = (
    *DATES,
    verse,
    numbered_book,
    in_two_zones,
    *TIMES,
    *(
        airliner,
        cited,
        ratio,
        measured_sides,
        weather_code,
        house_number,
        house_in_queens,
        *DIGITS,
        clause_of_code,
        pension,
        network_standard,
        motor_oil,
        ordinal_in_law,
        part_of_year,
        counted_by,
        dotted_numbers,
        degrees,
        minutes_and_seconds,
        strand,
        days_and_nights,
        race,
        minute_of_game,
        feet,
        height,
        stone,
    ),
    *(
        orbital,
        plural_number,
        european_price,
        european_number,
        decimal_comma,
        slashed_numbers,
        tire,
        days_with_months,
        aged,
        sound,
        fraction,
        short_fraction,
        decade,
        ordinal_range,
        lettered_range,
        decimal_ordinal,
        ordinal,
        scientific,
        duration,
        pence_per,
        pence,
        factor,
        team,
        factorial,
    ),
    *(hexadecimal, isotope, playing_card, runway, caliber, mixed, amount),
)


_ANY_NUMBER = Rules(*NUMBERS)


def number(cursor: Cursor) -> Reading:
    """Whatever begins with a digit, or with a point before one."""
    return _ANY_NUMBER.first_reading(cursor)


def _clauses(brackets: str) -> str:
    """ "(b)(6)" -> "B six"."""
    parts = brackets[1:-1].split(")(")
    numerals = (say.roman(part.upper()) if len(part) > 1 and part.isalpha() else None for part in parts)
    return " ".join(
        say.cardinal(number)
        if number
        else say.integer(part)
        if part.isdecimal()
        else letter_name(part.upper())
        for part, number in zip(parts, numerals, strict=True)
    )


def _counted(number: str, unit: str) -> str:
    return f"{say.decimal(number)} {unit if number == '1' else plural_unit(unit)}"

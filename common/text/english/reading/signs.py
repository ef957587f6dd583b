"""Punctuation, mathematical signs, symbols and emoji."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from melforge.common.text.english.pronounce import is_known
from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.addresses import address, glob, tag
from melforge.common.text.english.reading.amounts import LOSS_BEHIND
from melforge.common.text.english.reading.capitals import NUMBERED, letter_name
from melforge.common.text.english.reading.chess import MOVE
from melforge.common.text.english.reading.cursor import Cursor, Reading, Rule, begin, only
from melforge.common.text.english.reading.dates import is_month
from melforge.common.text.english.reading.formats import number, short_fraction
from melforge.common.text.english.reading.formulas import FUNCTIONS
from melforge.common.text.english.reading.isotopes import isotope
from melforge.common.text.english.reading.money import price
from melforge.common.text.english.reading.telephone import is_ending, phone_abroad
from melforge.common.text.english.reading.units import unit_after, unit_name
from melforge.common.text.english.reading.word_classes import CLOSED, DETERMINERS, FINITE
from melforge.common.text.english.reading.words import CHORDS, SMALL_WORDS, plain, size_by
from melforge.common.text.english.word_parts import words
from melforge.common.text.phonemes import in_braces
from melforge.common.text.symbols import ARPABET, BRITISH, BRITISH_VOWELS

_MONEY = re.compile(r"[$£€¥₹₩₽₪₺₴₫₱₦฿₿¢]([-−–]?)(?=[ .]?\d)\s?")
_LOSS = re.compile(r"([$£€])\((\d[\d,]{0,15}(?:\.\d{1,3})?)\)(\s?(?:mn?|bn|k|[MBK]|[mb]illion)(?!\w))?")
_PAIR = re.compile(r"([$£€¥])/([$£€¥])(?!\d)")
_THOUSANDS = re.compile(r"[$£€]'?000s?(?!\w)")
_DOLLARS_OF = re.compile(r"\$(US|AU|A|NZ|CA|C|HK|S)\s?(?=\d)")  # "$US46"
_SIGNED = re.compile(r"([-−–+±])(\s?)([$£€¥₹]?)(?=\.?\d)")
_POWER = re.compile(
    r"([⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ]{1,5})|\^(?:\{([-+]?[A-Za-z\d]{1,5})\}|\(([-+]?[A-Za-z\d]{1,5})\)|([-+]?(?:\d{1,3}\.\d{1,3}|[A-Za-z\d]{1,5})))"
)
_POWER_OF_SUM = re.compile(
    r"\^[({]\s{0,9}([-−]?[A-Za-zα-ω\d]{1,3}(?:\s?[-+−*/×]?\s?[A-Za-zα-ω\d]{1,3}){1,3})\s{0,2}[)}]"
)
_ION = re.compile(r"([⁰¹²³⁴⁵⁶⁷⁸⁹]?)([⁺⁻])(?![⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ])|\^([1-9]?)([+-])(?!\s?[\w.(])")
_IPA_SIGNS = "[ˈˌːəɪʊɛɔɑʃʒθðŋɹʌɜɡ]"
_IPA = re.compile(
    rf"(?:/[^/\s]{{0,20}}{_IPA_SIGNS}[^/\d]{{0,40}}/|\[[^\]\s]{{0,20}}{_IPA_SIGNS}[^\]\d]{{0,40}}\])(?!\w)"
)
_OF_FORMULAS = words("sin cos tan sec csc cot sinh cosh tanh log exp det") | set(tables.GREEK.values())
_PER_AMOUNT = re.compile(
    r"\s?\d+(?:\.\d+)?\s?(?:[mdc]?[lL]|[cmk]?m[²³23]?|k?g|mg|hrs?|h|min|days?|mi|lb|oz|tsp|tbsp)(?!\w)"
)
_ROUND = re.compile(r"\s10{0,4}(?!\d)")
# "$8 / seat / month"
_PERIOD = r"(hr|hour|day|night|wk|week|mo|month|qtr|quarter|yr|year)\b"
_PRICED = re.compile(rf" (?:(user|seat|person|member|guest|unit|page)\b(?: / {_PERIOD})?|{_PERIOD})")
_PHONEMES = re.compile(r"\{([A-Z][A-Z012\s]{0,160})\}")  # 40 of them
_TAG = re.compile(
    r"</?[a-zA-Z][\w:-]{0,40}(?:\s[^<>=]{1,40}=[^<>]{0,200}|\s[\w-]{1,40})?\s?/?>|<!--[^<>]{0,200}-->"
)
_PLACEHOLDER = re.compile(r"<([A-Za-z]{2,20}(?:[ _-][A-Za-z\d]{1,20}){0,4})>")
_HTML = words("""abbr address article aside audio bdi bdo big blockquote body br button canvas caption
    center cite code dd del details dfn dialog div dl dt em fieldset figcaption figure font
    footer form frame head header hgroup hr html iframe ins kbd label legend li main map
    mark menu nav noscript ol optgroup option picture pre progress rp rt ruby
    samp script section select small span strike strong style sub summary sup svg table tbody td
    template textarea tfoot th thead time title tr tt ul var video wbr speak break prosody emphasis
    voice phoneme""")
_ADDRESS = re.compile(r"@\w|://")
_ENCLOSED_ADDRESS = re.compile(r"<[^<>\s@:]{1,64}(?:@|://)[^<>\s]{1,200}>")  # "<jo@example.com>"
_COPYRIGHT = re.compile(r"©|\([cC]\)")
_CITATION = re.compile(r"\[(?:(?:n(?:ote|b)?\s)?[1-9]\d{0,2}|\^\w{1,20})\](?!: )")  # not "cron[811]: "
_CITATIONS = re.compile(r"\[\d{1,3}\](?=\[\d{1,3}\])")
_NOTE = re.compile(r"(?:(?<=[.,)\]])|(?<=[a-z]))\[[a-h]\](?!\w)")
_APOSTROPHE_YEAR = re.compile(r"'(\d0)s(?!\w)|'(\d\d)(?![\w'/])")
_PRIMES = re.compile(r"('{1,2})(?!\w)(\(?)")
_ELISION = re.compile(
    r"'(twas|tis|(?-i:im)|em|til|cause|bout|round|n|e's(?=\s)|e(?=\s))(?!\w)'?", re.IGNORECASE
)
_FULL = {"im": "him", "em": "them", "til": "until", "cause": "because", "bout": "about", "round": "around"}
_FULL |= {"n": "and", "e": "he", "e's": "he's"}
_MARKS = ".,;:?!…"
_VERSE_ENDS = (*_MARKS, "—", "–")
_RANGE_GOES_ON = re.compile(r"[-–]\d")
_DRAWN = "=*_~#+.<>/\\|^"  # three of these in a row are a line, which is silent
_IN_ROWS = tables.SILENT | {s for s in tables.SYMBOLS if s.isascii() or s in "§¶" or s in tables.CURRENCIES}
_OPTION = re.compile(r"[a-z][a-z\d]*(?:-[a-z\d]+)*(?=[\s=`'\"),.;]|$)")  # of a command: "--dry-run"
_MEMBER = re.compile(r"[A-Za-z]\w{0,40}\(")  # "calling .close()"
_PAUSES = (",", ";", "—", "-")
_BEFORE_TERM = ("=", "(", "⧸", "/", "→", "≥", "≤")
_BEFORE_OPERATOR = frozenset("0123456789)")
_NUMBER_WORDS = words("one two three four five six seven eight nine ten eleven twelve noon midnight")
_BEFORE_DOLLARS = _NUMBER_WORDS | words("in of into many cost costs")
_LENGTHS = re.compile(r"\d{1,5}(?:\.\d+)?\s?(?:\"|″|in|cm|mm|m|ft|inch|inches|feet)")
_GRID = re.compile(r"\s?\d+\s(?:factorial|design|matrix|matrices|grid|array|board|table)\b")
_LARGE_SIZE = re.compile(r"\d{3,4}\s×\s\d{3,4}\s?")
_STARRED = words("hotel hotels rated rating ratings review reviews resort resorts service out")
_MULTIPLE = re.compile(r"\d{1,4}[a-z]")  # "2x/(x + 1)"
_STARS = re.compile(r"[1-5](?:\.5)?")
_DECIMALS = re.compile(r"\d{1,4}(?![\w.]\d)")
_NUMBERED = re.compile(r"[IVXL]{1,7}|\d{1,3}(?:st|nd|rd|th)")
_LONGEST_SIGN = max(map(len, tables.SIGNS))
_VARIABLE = re.compile(r"[xyznk](?!\w)")
# The same in other units: "4 oz/113 g", "18°C/64°F", "1 mi/1.6 km".
_IN_BOTH = re.compile(
    r"\d\s?(?:(?:oz|lbs?)\.?\s?/\s?[\d.]+\s?k?g|k?g\s?/\s?[\d.]+\s?(?:oz|lbs?)"
    r"|(?:in|ft|mi)\.?\s?/\s?[\d.]+\s?[ckm]?m|[ckm]?m\s?/\s?[\d.]+\s?(?:in|ft|mi)"
    r"|(?:fl\.?\soz|cups?)\s?/\s?[\d.]+\s?m[lL])(?!\w)"
)
_OF_BYTES = re.compile(r"\d{1,5}(?:\.\d{1,2})?\s?[KMGT]i?B\b")  # "3.2/16 GB"
_KEYS = words("press presses pressed pressing dial dialed dialing hit enter key")
_PRESSED = re.compile(r"\b(?:press|dial|hit|enter)\b[^.!?]{0,60}$", re.IGNORECASE)
_QUANTITY = re.compile(r"\d{1,6}(?:\.\d+)?\s?(?!st|nd|rd|th)[°%a-zA-Z]")  # "mark 6 / 200°C"
_HEAT = re.compile(r"\d{2,3}°?[CF](?!\w)")  # "gas mark 6/200C"
_CODE_AHEAD = re.compile(r"\d{1,6}/[A-Z]|\d{5}|\d{1,3},\d{3}")
_CODE_BEFORE = re.compile(r"[A-Za-z]-?\d+$")  # "MK-12/448120"
_TICKER = re.compile(r"[A-Z]{1,5}(?!\w)")
_COMMAND = re.compile(r"\s[a-z]")  # behind the "$" of a shell
_FLAG = re.compile(r"[b-zB-HJ-Z](?![\w'-]|\.\S)|[jOP]\d{1,2}(?![\w'-])|l?a[hl]?(?=\s[/~.]|$)")
_REGIONAL_A, _REGIONAL_Z = "\U0001f1e6", "\U0001f1ff"
_MAX_CLUSTER = 24  # characters of one emoji
_SIDES_AHEAD = re.compile(
    r"\s\d[\d.]*(?:\s×\s\d[\d.]*)?\s?(?:[cm]m|m|in|ft|inches|feet|px|photos?|prints?|cards?|relay|grid|matrix|frame)\b"
)  # "30 × 20 × 15 cm"
_EQUATION_FOLLOWS = re.compile(r"[\d.]{1,12}\s?[=+*×÷−]")
_IONS = words("Cl Br OH CN SCN NO2 NO3 HCO3 HS HSO4 MnO4 ClO4")
_DIFFERENCE = re.compile(r"\([a-z] [-–] [a-z]\)")
_WITH_PLUS = re.compile(r"\b[A-Z]{1,4}\d?\+(?=[/,;.)]|$)")  # "ER+/HER2-"
_NOW = words("present pres now today date")
_DECADE = re.compile(r"'\d\ds?(?!\w)")
_RATING = re.compile(r"(?:4\.00?|5\.0|5|10|100)(?!\w|[.,/]\d)")
_SHORT_MONTHS = [*(name[:3] for name in tables.MONTHS), "Sept"]
_MONTH = "|".join([*tables.MONTHS, *_SHORT_MONTHS])
_GAP = re.compile(r"\s__(?=[\s,.;?]|$)")  # "4 + __ = 9"
_BLANK_PARTS = re.compile(r"_{2,}(?:\s?[-/.]\s?_{2,})+")
_CODE_NUMBERED = re.compile(r"\s[A-Z]{1,5}\d\w*")
_OF_SCHOOLS = re.compile(
    r"\b(?:[Gg]rades?|[Ss]chools?|[Ss]tudents?|[Tt]eachers?|[Cc]hildren|[Cc]urriculum)\b"
)
_ARRAYS = words("arr array args argv list row rows col cols data items matrix values vec")
_INDEX = re.compile(r"\w\[0\]")
_OF_KEYPADS = re.compile(r"\b(?:PINs?|pin|[Cc]ode|passcode|[Dd]ial|[Ee]nter|[Pp]ress)\b")
_REACTION = re.compile(r"[₂-₉][^→]{0,20}→|→[^.→]{0,20}[₂-₉]|[A-Z][a-z]?\d? \+ [^→]{1,20} → ")
_POUNDS_OF = re.compile(r"\s(?:test|line|paper|bag|bags|propane|dumbbells?|kettlebells?)\b")
_ORDINAL_AHEAD = re.compile(r"\s\d{1,4}(?:st|nd|rd|th)\b")
_DATE_AHEAD = re.compile(
    rf"\s?(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\.?,?\s)?(?:\d{{1,2}}\s)?(?:{_MONTH})\b\.?\s[\d\[]|\s?ca?\.\s?\d"
)
_DAY_AHEAD = re.compile(rf"\s?\d{{1,2}}(?:st|nd|rd|th)?\s(?i:{_MONTH})\b")
_HALF_DAY = re.compile(r"\d\s?[ap]\.?m\.?$", re.IGNORECASE)
# "30 mins - 2 hrs": units on both sides
_MEASURE_BEFORE = re.compile(r"\d\s?(%|°[CF]?|[A-Za-z]{1,8})\.?\s$")
_MEASURE_AHEAD = re.compile(r"\s\d[\d.,/½¼¾]{0,8}\s?(%|°[CF]?|[A-Za-z]{1,8})(?!\w)")
_SIDE_AHEAD = re.compile(rf"\s\d{{1,3}}\s(?!{_MONTH})[A-Z][a-z]")
_TIME_AHEAD = re.compile(r"\s?(?:\d{1,2}(?:[:.]\d\d)?\s?[ap]\.?m\b|noon\b|midnight\b|close\b)", re.IGNORECASE)
_FULL_WEEKDAYS = frozenset(name.lower() for name in tables.WEEKDAYS.values())
_ERAS = words("BC BCE AD CE B.C. A.D. AM PM a.m. p.m.")
_ABSOLUTE_TERM = re.compile(
    r"\|(?=(?:[a-zA-Z]{1,2}|\d[\d.]{0,8})(?:\s?[-−+*/×·^²]\s?(?:[a-zA-Z]{1,2}|\d[\d.]{0,8})){1,3}\|)"
)
_LIMITS = re.compile(
    r"[∫∑∏](?:\s?_?\{?(?:([a-z])\s?=\s?)?([\w∞-]{1,3})\}?\^[{(]?([\w∞]{1,3})[)}]?|(\w{1,2})([⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ]{1,3}))"
)
_KEYED = re.compile(r"(?:\*#|[*#])(?:\d{1,16}[*#]){0,3}\d{1,16}#(?!\w)")
_BEFORE_ARROW = words("swipe press hit use tap slide drag the or and")
_BEHIND_ARROW = words("to key keys arrow button for and or")
_DATE_IN_DIGITS = re.compile(r"\s?\d{1,2}/\d{1,2}/\d\d")
_BEFORE_SIGN = words("the with by marked")  # "marked with *"
_LETTERED = re.compile(r"\d{1,4}[a-e]|\d+[A-Za-z]\d+")  # "Rule 10b-5", "10b5-1"
_CODE = re.compile(r"\d{1,4}[A-Z]-\d{3,}(?!\w)")  # "SN-88X-4410"
_NO_UNIT = re.compile(r"\d{1,4}([A-Z]{2,3})")
_CODE_ENDS = re.compile(r"\d{2,6}-[A-Z]")  # "88-1042-B"
_CLAUSES = re.compile(r"\w\)[-–]\(\w")  # "(a)–(c)"
_MEASURED = words("""weight mass height width depth length distance size area volume speed velocity time
    duration temperature temp pressure power energy force voltage current frequency density capacity memory
    latency rate dose concentration torque wavelength thickness diameter radius altitude elevation load
    rainfall share""")
_COUNTER = re.compile(r"\s*\d{1,2}/(?=\s)")
_ABSOLUTE = re.compile(r"\|([-−]?)([A-Za-z]|\d{1,9}(?:\.\d{1,9})?)\|")


@only(at=".")
def decimal_point(cursor: Cursor) -> Reading | None:
    """.5"""
    is_point = cursor.text[cursor.at + 1 : cursor.at + 2].isdecimal()
    return number(cursor) if is_point and not cursor.touches_word else None


@only(at=tables.CURRENCIES)
def money(cursor: Cursor) -> Reading | None:
    """$5, £3 million."""
    if cursor.char == "$" and (country := _DOLLARS_OF.match(cursor.text, cursor.at)):
        return price(replace(cursor, at=country.end()), country[1] + "$")
    if loss := _LOSS.match(cursor.text, cursor.at):
        return Reading(f"minus {price(begin(loss[2] + (loss[3] or '')), cursor.char).spoken}", loss.end())
    if pair := _PAIR.match(cursor.text, cursor.at):
        first, second = (tables.CURRENCIES[sign][0] for sign in pair.groups())
        return Reading(f"{first} to {second}", pair.end())
    if thousands := _THOUSANDS.match(cursor.text, cursor.at):
        return Reading(f"thousands of {tables.CURRENCIES[cursor.char][1]}", thousands.end())
    match = _MONEY.match(cursor.text, cursor.at)
    if not match:
        return None
    said = price(replace(cursor, at=match.end()), cursor.char)
    return said._replace(spoken=f"minus {said.spoken}") if match[1] else said


@only(at="-−–+±")
def signed_number(cursor: Cursor) -> Reading | None:
    """-3, +5, ±2, -$7."""
    char, match = cursor.char, _SIGNED.match(cursor.text, cursor.at)
    if not match or not (cursor.is_after_blank or cursor.text[cursor.at - 1] in "?!/"):
        return None
    _, blank, currency = match.groups()
    last = cursor.previous[-1:]
    if blank and (char in "-–" or (char == "+" and last.isalnum())):
        return None
    if char == "–" and last.isdecimal() and not LOSS_BEHIND.match(cursor.text, cursor.at - 1):  # a range
        return None
    if char in "-–" and last and last in "\"″'′" and cursor.previous[0].isdecimal():  # "2"-3" pieces"
        return None
    behind_sign = replace(cursor, at=match.end())
    if char == "-" and is_ending(cursor):  # "a card ending in -3321"
        return Reading(say.digits(cursor.next(match.end())), match.end() + len(cursor.next(match.end())))
    reading = price(behind_sign, currency) if currency else number(behind_sign)
    sign = {"+": "plus", "±": "plus or minus"}.get(char, "minus")
    return Reading(f"{sign} {reading.spoken}", reading.end)


@only(at="{[<>(©")
def enclosed(cursor: Cursor) -> Reading | None:
    """Phonemes in braces ({HH AH0}) are said as given; markup (<b>) and citations ([1]) are not said."""
    char, text = cursor.char, cursor.text
    if char == "{" and (match := _PHONEMES.match(text, cursor.at)):
        known = {*ARPABET, *BRITISH, *BRITISH_VOWELS} if cursor.is_british else {*ARPABET}
        is_known = set(match[1].split()) <= known
        return Reading(in_braces(match[1]), match.end()) if is_known else None
    if (
        char == "["
        and cursor.previous in ("", "-", "*", "•")
        and text.startswith(("x] ", "X] "), cursor.at + 1)
    ):
        return Reading("checked,", cursor.at + 3)  # "- [x] Book the venue"
    if cursor.previous.lower() == "copyright" and (match := _COPYRIGHT.match(text, cursor.at)):
        return Reading("", match.end())
    is_index = cursor.touches_word and (cursor.previous in _ARRAYS or cursor.is_near(_INDEX))  # "arr[0]"
    if (
        char == "["
        and (not (cursor.is_after_blank or is_index) or text[cursor.at - 1 : cursor.at] == ",")
        and (match := _CITATION.match(text, cursor.at))
    ):
        return cursor.leave_out(match.end(), "[")
    if char == "[" and (match := _CITATIONS.match(text, cursor.at)):  # "far away [1][2]"
        return cursor.leave_out(match.end(), "[")
    is_name = cursor.previous[:1].isupper() or not cursor.previous[-1:].isalpha()
    if char == "[" and is_name and not cursor.is_equation and (match := _NOTE.match(text, cursor.at)):
        return cursor.leave_out(match.end(), "[")  # "Bach[a]"
    if char == "<" and _ENCLOSED_ADDRESS.match(text, cursor.at):
        return Reading("", cursor.at + 1)
    if char == ">" and _ADDRESS.search(cursor.previous):
        return Reading("", cursor.at + 1)
    if char == "<" and (match := _TAG.match(text, cursor.at)):
        if (name := _PLACEHOLDER.fullmatch(match[0])) and not _is_tag(cursor, name[1]):
            said = " ".join(plain(begin(word), word, len(word)) for word in re.split("[ _-]", name[1]))
            return Reading(f"{said},", match.end())
        return cursor.leave_out(match.end())
    return None


def _is_tag(cursor: Cursor, name: str) -> bool:
    """Whether "<name>" is markup, HTML's or with its end in the sentence, and no word to be filled in."""
    tag, text = f"<{name}>", cursor.text
    is_alone = len(text) < len(tag) + 20 and text.strip() == tag
    is_known = name.partition(" ")[0].lower() in _HTML
    return is_known or is_alone or text.find(f"</{name}>", cursor.at, cursor.at + 300) > 0


@only(at=[sign[0] for sign in tables.SIGNS])
def sign(cursor: Cursor) -> Reading | None:
    """Several characters that make one sign: ->, <=, :-)"""
    text, start = cursor.text, cursor.at
    if text.startswith(cursor.char * 3, start):  # a line
        return None
    for size in range(_LONGEST_SIGN, 1, -1):
        sign = text[start : start + size]
        if sign in tables.SIGNS and len(sign) == size:
            after = text[start + size : start + size + 2].lstrip(".")[:1]  # "<3.0" is no heart
            is_whole = not sign[-1].isalnum() or not after.isalnum()
            is_whole = is_whole and (sign != "<3" or text[max(start - 1, 0)] in "< ")  # not ">=2,<3"
            if is_whole and (sign[0] not in ":;" or cursor.is_after_blank):
                return Reading(tables.SIGNS[sign], start + size)
    return None


@only(at="'")
def apostrophe(cursor: Cursor) -> Reading | None:
    """'90s, 'twas; silent elsewhere."""
    if not cursor.touches_word:
        if match := _APOSTROPHE_YEAR.match(cursor.text, cursor.at):
            said = (
                "two thousands"
                if match[1] == "00"
                else say.decade(int(match[1]))
                if match[1]
                else say.two_digits(int(match[2]))
            )
            return Reading(said, match.end())
        if match := _ELISION.match(cursor.text, cursor.at):
            return Reading(_FULL.get(match[1].lower(), match[1]), match.end())
    elif (
        cursor.is_equation
        and _is_variable(cursor.previous)
        and (match := _PRIMES.match(cursor.text, cursor.at))
    ):
        said = "prime" if len(match[1]) == 1 else "double prime"
        return Reading(said + (" of" if match[2] else ""), match.end())
    return Reading("", cursor.at + 1)


@only(at="!")
def factorial(cursor: Cursor) -> Reading | None:
    """n!"""
    if cursor.previous == ")" and cursor.is_equation:
        return Reading("factorial", cursor.at + 1)
    if not cursor.touches_word or not _is_variable(cursor.previous):
        return None
    return Reading("factorial", cursor.at + 1) if cursor.previous.islower() else None


@only(at=_MARKS)
def mark(cursor: Cursor) -> Reading | None:
    """A row of punctuation marks as its strongest one."""
    end = _row(cursor, _MARKS)
    marks, after = cursor.text[cursor.at : end], cursor.text[end : end + 1]
    if marks == "?" and cursor.previous.isdecimal() and _RANGE_GOES_ON.match(cursor.text, end):
        return Reading("to", end + 1)  # "(1225?–1274)"
    if marks in (",", ";", "?") or (marks == "." and not after):  # as most are
        return Reading(marks, end)
    if marks == ":" and cursor.previous.lower() in _NUMBER_WORDS and after.isalpha():
        return Reading("", end)  # twelve:thirty
    if marks == "." and cursor.touches_word and MOVE.match(cursor.text, end):
        return Reading(",", end)  # "1.e4"
    if marks == "." and cursor.touches_word and after.islower():
        return Reading("dot", end)  # node.js
    if (
        marks == "."
        and cursor.text[end - 2 : end - 1].isdecimal()
        and (digits := _DECIMALS.match(cursor.text, end))
    ):
        return Reading(f"point {say.digits(digits[0])}", digits.end())  # "M8x1.25", "17p13.1"
    is_short = _NUMBERED.fullmatch(cursor.previous) or (cursor.earlier, cursor.previous) == ("per", "cent")
    if marks == "." and is_short and cursor.next(end).islower():
        return Reading("", end)  # "Louis XVI. lost", "the 5th. of May", "per cent. of"
    if marks == ".." and cursor.touches_word and cursor.previous[-1].isdecimal() and after.isalnum():
        return Reading("to", end)  # "1..10"
    if marks in (".,", ".;", ".:"):  # "Henry IV., Part I"
        return Reading(marks[1], end)
    if marks == "." and after.isalpha() and not cursor.touches_word:  # .NET, .env
        following = cursor.next(end)
        is_name = following.lower() in tables.TOP_LEVEL_DOMAINS or following in tables.FILE_ENDINGS
        is_name = is_name or following in tables.HIDDEN_FILES or _MEMBER.match(cursor.text, end) is not None
        if is_name and (cursor.is_after_blank or cursor.text[cursor.at - 1] == ")"):  # "notes (2).pdf"
            return Reading("dot", end)
    if marks == "!" and after.isalpha() and cursor.is_after_blank:  # "a || !b"
        return Reading("not", end)
    if strongest := next((mark for mark in "?!" if mark in marks), ""):
        return Reading(strongest, end)
    if "…" in marks or ".." in marks:
        following = cursor.next(end)
        return Reading("." if following[:1].isupper() or not following[:1].isalnum() else ",", end)
    return Reading(next(mark for mark in ".;:," if mark in marks), end)


@only(at="-–—")
def dash(cursor: Cursor) -> Reading | None:
    """A pause, "to", "minus", or nothing where it ties words."""
    text, end = cursor.text, _row(cursor, cursor.char)
    dashes, following = text[cursor.at : end], cursor.next(end)
    if (
        dashes == "--"
        and cursor.is_after_blank
        and cursor.previous not in _PAUSES
        and _OPTION.match(text, end)
    ):
        return Reading("dash dash", end)
    if following == "∞" and text[end] == "∞" and cursor.is_after_blank:
        return Reading("minus", end)
    before, after = text[max(cursor.at - 1, 0) : cursor.at], text[end : end + 1]
    if dashes not in ("-", "–"):
        return Reading("-", end)
    is_dated = before.isspace() or after.isupper()
    is_dated = is_dated and cursor.previous.rpartition(" ")[2].removesuffix("s").isdecimal()
    if is_dated and (_DATE_AHEAD.match(text, end) or following.lower() in ("present", "now")):
        return Reading("to", end)  # "3 May 1876 – 22 June 1916"
    is_dated = is_month(cursor.previous, cursor.earlier) or is_month(cursor.earlier, "")
    if is_dated and _DAY_AHEAD.match(text, end):  # "30 June-2 July"
        return Reading("to", end)
    if cursor.previous in ("k", "K", "M", "B") and cursor.earlier[-1:].isdecimal() and after.isdecimal():
        return Reading("to", end)  # "10k-20k"
    if _HALF_DAY.search(cursor.previous) and _TIME_AHEAD.match(text, end):  # "6am - 2pm", "10am-noon"
        return Reading("to", end)
    if cursor.previous.lower() in ("noon", "midnight") and (
        after.isdecimal() or _TIME_AHEAD.match(text, end)
    ):
        return Reading("to", end)
    is_day = cursor.previous.lower() in _FULL_WEEKDAYS or "/" in cursor.previous[1:]  # "Mon 5/6-Fri 5/10"
    if is_day and following.lower() in _FULL_WEEKDAYS | tables.WEEKDAYS.keys():
        return Reading("to", end)
    if cursor.previous.count("/") == 2 and _DATE_IN_DIGITS.match(text, end):
        return Reading("to", end)  # "9/8/2025 – 9/12/2025"
    if (
        cursor.previous in ("K", "PreK", "preK") and following[:1].isdecimal() and cursor.is_near(_OF_SCHOOLS)
    ):  # "grades K–5"
        return Reading("to", end)
    if _is_numeral_range(cursor, following) or _CLAUSES.match(text, cursor.at - 2):
        return Reading("to", end)
    if before.strip() and before not in "`'(" and after.isalnum():  # "737-800", "x86-64", "1999–present"
        is_difference = cursor.is_equation and _is_variable(following)  # "1-x"
        if cursor.earlier == "#" and following.isalpha():  # "#7-B"
            return Reading("", end)
        if before.isdecimal() and (is_difference or _EQUATION_FOLLOWS.match(text, end)):
            return Reading("minus", end)
        is_term = _is_variable(cursor.previous) and (
            cursor.is_equation or text[max(cursor.at - 2, 0)] in "(+*/^"
        )
        is_power = cursor.previous[0] in tables.SUPERSCRIPTS or cursor.previous[0] == "^"
        is_power = is_power and (after.isdecimal() or len(following) == 1)
        if (is_term and (after.isdecimal() or _is_variable(following))) or is_power:
            return Reading("minus", end)
        if dashes == "–" and len(cursor.previous) < 3 and cursor.is_near(CHORDS):
            return Reading(",", end)
        is_letters = dashes == "–" and len(cursor.previous) == len(following) == 1 and following.isupper()
        is_range = cursor.previous[:1].isdecimal() and (
            after in "123456789" or dashes == "–" or (after == "0" and ":" in cursor.previous)
        )
        is_code = _LETTERED.fullmatch(cursor.previous) or _CODE.match(text, cursor.at - len(cursor.previous))
        is_code = is_code or _CODE_ENDS.match(text, end)
        code = _NO_UNIT.fullmatch(cursor.previous)  # "7XK-42Q"
        is_code = is_code or (code and not unit_name(code[1]) and code[1] not in tables.CURRENCY_CODES)
        is_range = is_range and not (dashes == "-" and is_code)
        is_range = is_range or is_letters or (before.isdecimal() and following in _NOW)
        is_era = after.isdecimal() or following in _ERAS or text.startswith(("A.D", "B.C"), end)
        is_range = is_range or (cursor.previous in _ERAS and is_era)
        return Reading("to" if is_range else "", end)
    if not before and after.isspace():  # an item of a list
        return Reading("", end)
    is_term = _is_variable(following) or (len(following) < 4 and following.isalpha() and after.isalpha())
    if cursor.is_equation and is_term and cursor.previous in _BEFORE_TERM:
        return Reading("minus", end)  # "y = -x"
    if dashes == "-" and before in ("", " ", "`", "'", "(") and _is_flag(cursor, following, end):
        return Reading("dash", end)
    if text[max(cursor.at - 2, 0) : end + 2] == ") - (" or _DIFFERENCE.match(text, cursor.at - 3):
        return Reading("minus", end)  # "(2a + b) - (a - b)"
    if (before, after) == ("(", ")"):  # "4 deletions(-)"
        return Reading("minus", end)
    if before.isspace() and after.isspace() and ":" in cursor.previous and following[:1].isdecimal():
        return Reading("to", end)  # "8:30 - 9:30"
    is_era = cursor.previous in _ERAS and following[:1].isdecimal()  # "100 BC - 44 BC"
    is_days = cursor.earlier.lower() in tables.WEEKDAYS and following.lower() in tables.WEEKDAYS
    if before.isspace() and after.isspace() and (is_era or is_days or _are_measures(cursor, end)):
        return Reading("to", end)
    if before.isspace() and after.isspace() and _SIDE_AHEAD.match(text, end) and _is_side(cursor.earlier):
        return Reading("to", end)  # "Leeds 3 - 0 Everton"
    if before.isspace() and after.isspace():
        has_digit = any(char.isdecimal() for char in cursor.previous)
        is_minus = (
            following[:1].isdecimal()
            and not _DATE_AHEAD.match(text, end)
            and not _TIME_AHEAD.match(text, end)
            and not _ORDINAL_AHEAD.match(text, end)
            and (has_digit or cursor.previous[:1] == "^" or len(cursor.previous) == 1)
        )
        is_term = _is_variable(cursor.previous) or cursor.previous[:1] in tables.SUPERSCRIPTS
        is_term = is_term or (cursor.is_equation and cursor.previous.lstrip("_").isdecimal())  # "y_2 - y_1"
        are_variables = is_term and _is_variable(following)
        is_minus = is_minus or (are_variables and (cursor.is_equation or dashes == "-"))
        return Reading("minus" if is_minus and cursor.previous[-1:].isalnum() else "-", end)
    if cursor.previous[:1] in "'1234567890" and after == "'" and following == "'":  # "'70s-'80s"
        return Reading("to" if _DECADE.match(text, end) else "", end)
    if following[:1].isdecimal() and (before.isdecimal() or before in ('"', "″")):  # "5- 6", "2"-3""
        return Reading("minus" if cursor.is_equation else "to", end)
    is_sign = cursor.previous in _IONS or (cursor.previous.isupper() and cursor.is_near(_WITH_PLUS))
    if is_sign and dashes == "-" and cursor.touches_word and not after.isalnum():
        return Reading("minus", end)
    return Reading("-" if dashes == "–" else "", end)


def _is_side(name: str) -> bool:
    """Whether a word before a number may end a team's name, and no month is meant."""
    return name.isalpha() and name[0].isupper() and len(name) > 2 and not is_month(name, "")


def _are_measures(cursor: Cursor, end: int) -> bool:
    first = _MEASURE_BEFORE.search(cursor.text, max(cursor.at - 12, 0), cursor.at)
    last = _MEASURE_AHEAD.match(cursor.text, end)
    return bool(first and last and not cursor.is_equation and _is_measure(first[1]) and _is_measure(last[1]))


def _is_measure(word: str) -> bool:
    return word[0] in "%°" or unit_name(word) is not None or word.removesuffix("s") in tables.UNITS.values()


def _is_flag(cursor: Cursor, name: str, end: int) -> bool:
    """Whether this is "python -m app", "tar -xzvf"."""
    is_row = 1 < len(name) < 6 and name.islower() and cursor.text.startswith(name, end) and not is_known(name)
    return is_row or _FLAG.match(cursor.text, end) is not None


def _is_numeral_range(cursor: Cursor, following: str) -> bool:
    """Whether this is "Vols. I–III" or "pp. xii–xiv"."""
    numbered = cursor.earlier.rstrip(".").lower()
    is_counted = numbered in NUMBERED or numbered.removesuffix("s") in NUMBERED
    numerals = (cursor.previous, following)
    return is_counted and all(part and say.roman(part.upper()) is not None for part in numerals)


def _is_variable(word: str) -> bool:
    return len(word) == 1 and word.isalpha() and word not in "aAI"


@only(at=_DRAWN)
def drawn_line(cursor: Cursor) -> Reading | None:
    """A heading's "##", "=====", and "____", which is a blank to fill in."""
    char, start = cursor.char, cursor.at
    end = _row(cursor, char)
    if char == "_" and (parts := _BLANK_PARTS.match(cursor.text, start)):  # "___-__-____"
        return Reading("blank", parts.end())
    is_heading = char == "#" and (start == 0 or cursor.text[start - 1] == "\n")
    is_heading = is_heading and not cursor.text.startswith("# of ", start)
    is_drawn = is_heading or end - start > 2 or (char == "_" and _GAP.match(cursor.text, max(start - 1, 0)))
    return Reading("blank" if char == "_" else "", end) if is_drawn else None


@only(at="()[]{}|")
def bracket(cursor: Cursor) -> Reading | None:
    """A pause; "of" in f(x); |x|."""
    if cursor.char == "|" and (match := _ABSOLUTE.match(cursor.text, cursor.at)):
        inner = say.decimal(match[2]) if match[2][0].isdecimal() else letter_name(match[2].upper())
        return Reading(f"the absolute value of {'minus ' if match[1] else ''}{inner}", match.end())
    if cursor.char == "|" and _ABSOLUTE_TERM.match(cursor.text, cursor.at):
        return Reading("the absolute value of", cursor.at + 1)
    if cursor.char == "|" and cursor.is_argument and cursor.next(cursor.at + 1).isupper():
        return Reading("given", cursor.at + 1)  # P(A|B)
    if cursor.char == ")" and cursor.is_equation and cursor.text.startswith(")(", cursor.at):
        return Reading("times", cursor.at + 2)
    if cursor.char == "(" and cursor.touches_word and cursor.previous in FUNCTIONS:
        return Reading("of", cursor.at + 1)
    if cursor.char == "(" and cursor.previous.lower() in _MEASURED:  # "Weight (kg)"
        unit, closing = unit_after(cursor, cursor.at + 1, is_one=False)
        if unit and cursor.text.startswith(")", closing):
            return Reading(f",{unit},", closing + 1)
    end = _row(cursor, cursor.char)
    if cursor.char == "(" and cursor.touches_word and len(cursor.previous) == 1 and cursor.previous.isalpha():
        return Reading("of", end)
    return Reading("" if cursor.char == ")" and cursor.is_argument else ",", end)


@only(at=["^", *tables.SUPERSCRIPTS])
def power(cursor: Cursor) -> Reading | None:
    """x², 10^-3, e^{x}."""
    if sum_ := _POWER_OF_SUM.match(cursor.text, cursor.at):
        return Reading(f"to the power of {_said_term(sum_[1])}", sum_.end())
    if ion := _ION.match(cursor.text, cursor.at):  # "Fe³⁺"
        count = ion[3] or "".join(tables.SUPERSCRIPTS[char] for char in ion[1] or "")
        charge = "plus" if ion[2] == "⁺" or ion[4] == "+" else "minus"
        return Reading(f"{say.integer(count)} {charge}" if count else charge, ion.end())
    is_version = cursor.is_after_blank and len(cursor.previous) > 1 and cursor.previous.isalpha()
    if cursor.char == "^" and cursor.at == 0 and cursor.text.startswith(" ", 1):  # "^ This."
        return Reading("", 1)
    if cursor.char == "^" and (is_version or cursor.previous == "@"):
        return Reading("caret", cursor.at + 1)  # "npm ^9.2"
    match = _POWER.match(cursor.text, cursor.at)
    if not match:
        return Reading(tables.SYMBOLS.get(cursor.char, ""), cursor.at + 1)
    power = (
        "".join(tables.SUPERSCRIPTS[char] for char in match[1])
        if match[1]
        else match[2] or match[3] or match[4]
    )
    is_word = len(cursor.previous) > 2 and cursor.previous.isalpha() and not _is_measure(cursor.previous)
    is_word = is_word and cursor.previous.lower() not in _OF_FORMULAS
    is_word = is_word or cursor.previous[:1] in tables.CURRENCIES or cursor.previous in (".", ",", ";", "!")
    if match[1] and is_word and not (cursor.is_equation or cursor.is_after_blank):
        return cursor.leave_out(match.end())  # of a footnote: "the city¹", "$5.00²"
    minus, rest = "minus " if power[0] == "-" else "", power.lstrip("+-")
    said = minus + (say.decimal(rest) if "." in rest else _said_term(rest))
    if cursor.previous[-1:].isalnum() or cursor.previous[-1:] in (")", "∇", "∂"):
        said = {"two": "squared", "three": "cubed"}.get(said, f"to the power of {said}")
    return Reading(said, match.end())


def _said_term(term: str) -> str:
    """ "n+1" -> "N plus one", "iπ" -> "I pi"."""
    names = {
        "+": "plus",
        "-": "minus",
        "−": "minus",
        "*": "times",
        "×": "times",
        "/": "over",
        "∞": "infinity",
    }
    return " ".join(
        say.integer(part)
        if part.isdecimal()
        else names.get(part)
        or tables.SYMBOLS.get(part)
        or tables.GREEK.get(part)
        or letter_name(part.upper())
        for part in re.findall(r"\d+|[^\s\d]", term)
    )


@only(at="∫∑∏")
def limits(cursor: Cursor) -> Reading | None:
    """∫₀¹, ∑_{i=1}^n."""
    match = _LIMITS.match(cursor.text, cursor.at)
    if not match:
        return None
    last = _said_term(match[3] or "".join(tables.SUPERSCRIPTS[char] for char in match[5]))
    first = f"{_said_term(match[1])} equals " if match[1] else ""
    name = tables.SYMBOLS[cursor.char].removesuffix(" of")
    return Reading(f"{name} from {first}{_said_term(match[2] or match[4])} to {last} of", match.end())


@only(at="*#")
def keyed(cursor: Cursor) -> Reading | None:
    """*#06#, #31#, *100#: what is typed on a telephone."""
    match = _KEYED.match(cursor.text, cursor.at)
    if not match or not cursor.is_after_blank:
        return None
    names = {"*": "star", "#": "pound"}
    return Reading(" ".join(names.get(char) or say.digits(char) for char in match[0]), match.end())


@only(at=_IN_ROWS)
def symbol(cursor: Cursor) -> Reading | None:
    """A row of one symbol: 2 * 3, 6 / 2, <5, ~5, §§ 5, &. Quotation marks and other layout are silent."""
    char = cursor.char
    end = _row(cursor, char)
    rule = _OF_SYMBOLS.get(char)
    said = rule(cursor, end) if rule else None
    if said is None:
        said = "" if char in tables.SILENT else tables.SYMBOLS[char]
    return Reading(said, end) if isinstance(said, str) else said


def _is_before_number(cursor: Cursor, end: int) -> bool:
    return cursor.next(end)[:1].isdecimal()


def _hash(cursor: Cursor, end: int) -> str | None:
    """Press #, INV#1043, PO# 77; not the sharp of "F#4"."""
    if end - cursor.at == 1 and _is_key(cursor):
        return "pound"
    if end - cursor.at == 1 and cursor.text.startswith(" of ", end):  # "# of users"
        return "number"
    if _CODE_NUMBERED.match(cursor.text, end):  # "Conf. # ABC123"
        return "number"
    if cursor.touches_word and cursor.previous.isdecimal() and _POUNDS_OF.match(cursor.text, end):
        return "pound"
    if cursor.touches_word and cursor.previous.isdecimal() and cursor.is_near(_OF_KEYPADS):  # "PIN 7741#"
        return "pound"
    is_named = cursor.touches_word and len(cursor.previous) > 1 and cursor.previous.isalpha()
    return "number" if is_named and _is_before_number(cursor, end) else None


def _tilde(cursor: Cursor, end: int) -> str | None:
    """~5, ~$20, 10~15, HEAD~2, 220V~ 50Hz."""
    if (
        cursor.previous.isdecimal()
        and cursor.text[end : end + 1 + (not cursor.touches_word)].strip().isdecimal()
    ):
        return "to"
    is_behind = cursor.previous[-1:].isalpha() and cursor.touches_word
    if is_behind and cursor.previous[0].isdecimal():  # "120V~60Hz"
        return ""
    if is_behind and cursor.text[end : end + 1] in ("", " "):
        return ""
    if _MONEY.match(cursor.text, end):
        return "about"
    return ("tilde" if is_behind else "about") if _is_before_number(cursor, end) else None


def _slash(cursor: Cursor, end: int) -> str | Reading | None:
    """1.5%/mo, 500 mg/5 mL, 3/$10, 8 / 2, 4.5/5, 1/x, π/2."""
    text, before, following = cursor.text, cursor.previous, cursor.next(end)
    if text[end : end + 2] == "* " or text[max(cursor.at - 2, 0) : end] == " */":  # of a comment
        return Reading("", end)
    if before in _VERSE_ENDS and text[cursor.at - 1].isspace() and text[end : end + 1].isspace():
        return Reading("", end)  # "Roses are red, / violets are blue."
    is_counted = before.lstrip("+-−–$£€")[:1].isdecimal() and before[-1:] in ("x", "%", "+")
    is_counted = is_counted or (before == "×" and cursor.earlier[-1:].isdecimal())
    if is_counted and following == "d":
        return Reading("per day", end + 1)
    if before[-1:].isdecimal() and (m := _PRICED.match(text, end)):
        return Reading(" ".join(f"per {unit_name(by) or by}" for by in m.groups() if by), m.end())
    if (is_counted and (following in tables.PERIODS or following == "night")) or (
        ":" in before and following in ("mi", "km")
    ):
        behind = end + len(following)
        is_short = text.startswith(". ", behind) and text[behind + 2 : behind + 3].islower()  # "1.5%/mo. on"
        return Reading(f"per {unit_name(following) or following}", behind + is_short)
    is_amount = before[:1].isdecimal() and before[-1:].isalpha()
    is_amount = is_amount or (before[-1:] == "s" and cursor.earlier[:1].isdecimal())  # "8 tabs/24 hrs"
    if is_amount and _PER_AMOUNT.match(text, end):
        if _IN_BOTH.search(text, max(cursor.at - 8, 0), end + 12):
            return "or"
        return "slash" if text[end] == " " and not _ROUND.match(text, end) else "per"  # "23 kg / 158 cm"
    is_behind_digit, before_number = before[-1:].isdigit(), following[:1].isdecimal()
    if before[:1].isdigit() and _MONEY.match(text, end):  # "2/$5", "30 min./$35"
        return "for"
    if before_number and (is_behind_digit or before == ")"):
        is_code = len(before) > 4 or _CODE_AHEAD.match(text, end) or _HEAT.match(text, end)
        is_code = is_code or _CODE_BEFORE.search(text, max(cursor.at - 20, 0), cursor.at)
        if "." in before and _RATING.match(text, end):
            return "out of"
        is_pair = text[end : end + 1] == " " and _QUANTITY.match(text, end + 1)
        if not cursor.is_equation and _OF_BYTES.match(text, end):
            return "of"
        return "slash" if is_code else "," if is_pair else _divided(cursor, end)
    is_over = is_behind_digit and _VARIABLE.match(text, end)
    is_over = is_over or (cursor.is_equation and text[cursor.at - 1 : end + 1] == " / " and before_number)
    if is_over or (cursor.is_equation and _is_quotient(cursor, end)):
        return "over"  # h/λ, 1/(2π)
    return "," if _COUNTER.match(text) and cursor.at < 4 else None  # "3/ So what?", one of several posts


def _currency(cursor: Cursor, end: int) -> str | Reading | None:
    """$AAPL; "the $ is strong", not "10 $", "in $"; the "$" of a shell."""
    char, text = cursor.char, cursor.text
    if char == "$" and _TICKER.match(text, end):
        return "dollar"
    if char == "$" and cursor.at == 0 and _COMMAND.match(text, end) and cursor.next(end) not in CLOSED:
        return cursor.leave_out(end)
    is_alone = not (cursor.previous[-1:].isdecimal() or text[end : end + 1].isalnum())
    is_alone = is_alone and cursor.previous.lower() not in _BEFORE_DOLLARS
    return tables.CURRENCIES[char][0] if is_alone else None


def _divided(cursor: Cursor, end: int) -> str:
    """ "8 / 2" is divided by; "310/18G28KT" is a code."""
    is_sum = cursor.is_equation or cursor.text[end : end + 1] == " " or not cursor.touches_word
    return "divided by" if is_sum else "slash"


def _is_quotient(cursor: Cursor, end: int) -> bool:
    """Whether numbers, single letters or brackets stand around the "/" of a formula."""
    before, after = cursor.previous, cursor.next(end)
    is_term = before[-1:].isdecimal() or len(before) == 1 or before.endswith((")", "!"))
    is_term = is_term or _MULTIPLE.fullmatch(before) is not None
    return is_term and (after[:1].isdecimal() or len(after) < 3) and after not in (".", "/")


def _section(cursor: Cursor, end: int) -> str:
    """§ 5, §§ 5."""
    return tables.SYMBOLS[cursor.char] + ("s" if end - cursor.at > 1 else "")


def _compared(cursor: Cursor, end: int) -> str | Reading | None:
    """<5; ">>" of another speaker, in subtitles."""
    if end - cursor.at == 2 and cursor.char == ">" and cursor.previous in ("", "]"):
        return Reading("", end)
    following = cursor.next(end)
    is_path = (
        cursor.previous.istitle() or cursor.text.count(" > ", max(cursor.at - 60, 0), cursor.at + 60) > 1
    )
    is_path = is_path and not cursor.previous[-1:].isdecimal()
    if cursor.char == ">" and is_path and following.istitle() and len(following) > 1:
        return Reading(",", end)  # "Home > News"
    return {"<": "less than", ">": "greater than"}[cursor.char] if _is_before_number(cursor, end) else None


def _is_key(cursor: Cursor) -> bool:
    """Whether a star or a hash is a key: "press #", "dial *67", "press 1, or * to repeat"."""
    key = cursor.previous.lower()
    return (
        key in _KEYS
        or cursor.next(cursor.at + 1) in ("key", "button")
        or (cursor.next(cursor.at + 1) == "sign" and cursor.is_near(_OF_KEYPADS))
        or (
            key in ("or", "and", "the")
            and _PRESSED.search(cursor.text, max(0, cursor.at - 80), cursor.at) is not None
        )
    )


def _star(cursor: Cursor, end: int) -> str | None:
    """Press *; "3 * 4", "w * h" and "x*y": times; "f**2": a power; not stars of emphasis and in "f*ck"."""
    if end - cursor.at == 1 and _is_key(cursor):
        return "star"
    count, text, before = end - cursor.at, cursor.text, cursor.previous
    if (cursor.earlier.lower(), before) == ("grade", "II") and text[cursor.at - 1] == "I":  # of buildings
        return "star"
    following = cursor.next(end)
    if text[max(cursor.at - 1, 0) : end + 1] == "(*)":  # of SQL
        return "star"
    is_behind = before[-1:].isalnum() or before[-1:] == ")"
    if count > 2 or not is_behind or not (following[:1].isalnum() or following == "("):
        return None
    if before.lower() in ("select", "from") or (
        _STARS.fullmatch(before) and following in _STARRED
    ):  # of SQL; a "5* hotel"
        return "star"
    is_apart = text[cursor.at - 1].isspace() and text[end].isspace()
    if is_apart and (before in _BEFORE_SIGN or following in FINITE):  # "marked with * are required"
        return "asterisk" if before in DETERMINERS else "an asterisk"
    is_joined = not text[cursor.at - 1].isspace() and not text[end].isspace()
    has_digit = before[-1:].isdecimal() or following[:1].isdecimal() or before[-1:] == ")"
    if count == 2:
        is_power = (is_apart or is_joined) and (has_digit or cursor.is_equation)
        return "to the power of" if is_power else None
    is_product = has_digit or cursor.is_equation or len(before) == len(following) == 1
    return "times" if is_apart or (is_joined and is_product) else None


_OF_SYMBOLS: dict[str, Callable[[Cursor, int], str | Reading | None]] = {
    **dict.fromkeys(tables.CURRENCIES, _currency),
    **{"*": _star, "#": _hash, "~": _tilde, "/": _slash, "§": _section, "¶": _section},
    **dict.fromkeys("<>", _compared),
}


@only(at="/[")
def transcription(cursor: Cursor) -> Reading | None:
    """Darwin (/ˈdɑːrwɪn/; 1809), Worcester ([ˈwʊstər]): how a word is said, behind it."""
    ipa = _IPA.match(cursor.text, cursor.at) if cursor.previous in ("(", ";", ",") else None
    return cursor.leave_out(ipa.end()) if ipa else None


def flag(cursor: Cursor) -> Reading | None:
    """🇺🇸"""
    if not _REGIONAL_A <= cursor.char <= _REGIONAL_Z:
        return None
    pair = cursor.text[cursor.at : cursor.at + 2]
    if len(pair) < 2 or not _REGIONAL_A <= pair[1] <= _REGIONAL_Z:
        return cursor.leave_out(cursor.at + 1)
    country = "".join(chr(ord(char) - ord(_REGIONAL_A) + ord("A")) for char in pair)
    return Reading(f"flag {country},", cursor.at + 2)


def named(cursor: Cursor) -> Reading:
    """A symbol or an emoji by its name; a row of the same emoji is named once."""
    text, start, char = cursor.text, cursor.at, cursor.char
    if char == "★" and text.startswith("★★", start):
        end = _row(cursor, "★☆")
        half = " and a half" * text.startswith("½", end)
        return Reading(f"{say.cardinal(text.count('★', start, end))}{half} stars", end + bool(half))
    if char == "★" and cursor.previous[:1].isdecimal():
        is_one = cursor.previous == "1" or cursor.next(start + 1).islower()  # "a 5★ hotel"
        return Reading("star" if is_one else "stars", start + 1)
    if char == "×" and not cursor.is_equation:
        is_size = (
            _GRID.match(text, start + 1)
            or _LENGTHS.fullmatch(cursor.previous)
            or _LARGE_SIZE.fullmatch(text[start - 5 : start + 6])
            or _SIDES_AHEAD.match(text, start + 1)
        )
        if is_size:
            return Reading("by", start + 1)  # "3 in × 5 in", "2796 × 1290"
    if char == "→" and cursor.is_near(_REACTION):  # "2H₂ + O₂ → 2H₂O"
        return Reading("yields", start + 1)
    if (char == "←" and not cursor.previous) or (char == "→" and not cursor.next(start + 1)):
        return cursor.leave_out(start + 1)  # of a button: "← Back", "Next →"
    if char in "←→" and cursor.previous.lower() in _BEFORE_ARROW and cursor.next(start + 1) in _BEHIND_ARROW:
        return Reading("left" if char == "←" else "right", start + 1)  # "Swipe ← to delete"
    if char == "°" and "\u2500" <= text[max(start - 1, 0)] < "\u2600":
        return cursor.leave_out(start + 1)  # of a face: "(╯°□°)╯"
    if char in "⋅∙" and cursor.is_after_blank and cursor.previous[-2:].isalpha() and len(cursor.previous) > 1:
        return Reading(",", start + 1)  # "Open ⋅ Closes 9 PM"
    if char in tables.SYMBOLS and char not in tables.EMOJI:
        said = tables.SYMBOLS[char]
        end = _row(cursor, char) if char in "♪♫" else start + 1
        return Reading(_without_subject(cursor, said) if said.startswith("is ") else said, end)
    end, names = start, []
    while end - start < _MAX_CLUSTER:  # emoji that are joined to one
        names.append(_name(text[end]))
        end += 1
        while text[end : end + 1] in tables.EMOJI_PARTS:
            end += 1
        if text[end : end + 1] != tables.JOINER or end + 1 == len(text):
            break
        end += 1
    if not any(names):
        return cursor.leave_out(max(end, _row(cursor, char)), char)
    cluster = text[start:end]
    while text.startswith(cluster, end):
        end += len(cluster)
    return Reading(" ".join(filter(None, names)) + ",", end)


def _without_subject(cursor: Cursor, said: str) -> str:
    """ "is greater than", without its verb where nothing is compared: "≥ 18", "aged ≥65"."""
    before = cursor.previous
    is_word = (
        before.isalpha()
        and before.islower()
        and (len(before) > 2 or before in SMALL_WORDS)
        and before not in tables.GREEK.values()
    )
    if said == "is approximately" and is_word:
        return "about"
    return (
        said
        if not is_word and (not before or before[-1:].isalnum() or before == ")")
        else said.removeprefix("is ")
    )


def _name(char: str) -> str:
    """The name of a symbol or emoji, "" where it has none."""
    if char in tables.EMOJI or char in tables.SYMBOLS:
        return tables.EMOJI.get(char) or tables.SYMBOLS[char]
    if char < "\u2190":
        return ""
    from anyascii import anyascii

    short = anyascii(char)
    if len(short) > 2 and short[0] == short[-1] == ":":
        return " ".join(re.findall(r"[a-z]+", short.lower()))
    return ""


def _row(cursor: Cursor, chars: str) -> int:
    """The end of the row of these characters that begins at the cursor."""
    end = cursor.at + 1
    while end < len(cursor.text) and cursor.text[end] in chars:
        end += 1
    return end


SIGNS: tuple[Rule, ...] = (
    *(
        decimal_point,
        size_by,
        sign,
        apostrophe,
        address,
        factorial,
        mark,
        short_fraction,
        money,
        phone_abroad,
        signed_number,
    ),
    *(limits, keyed, glob, enclosed, tag, dash, drawn_line, bracket, isotope, power, symbol, flag, named),
)

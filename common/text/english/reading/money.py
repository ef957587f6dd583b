"""Prices: a sign or code and a number, ranges of them, cents, magnitudes, what they are per."""

from __future__ import annotations

import re
from typing import NamedTuple

from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cursor import NUMBER, Cursor, Reading, form
from melforge.common.text.english.reading.units import per_unit
from melforge.common.text.english.reading.word_classes import CLOSED, FINITE, PREPOSITIONS
from melforge.common.text.english.word_parts import words

_EURO_COMMA = re.compile(r"(\d{1,3}(?:\.\d{3}){0,4}),(\d{2})(?!\d|,\d)")
_MAGNITUDE = re.compile(
    r"\s?-?((?i:hundred|thousand|million|billion|trillion|quadrillion|lakh(?:\scrore)?|crore|mln|mio|bln|mrd|trn)|bn|Bn|BN|mn|tn|mm|MM|mil)(?!\w)"
    r"|\s?([kKmMbBtT])(?!\w|')"
)
_MAGNITUDES = {
    **tables.MAGNITUDES,
    **{"mm": "million", "mil": "million", "k": "thousand", "m": "million", "b": "billion", "t": "trillion"},
}
_INDIAN = re.compile(r"\s?(cr|Cr|L)(?!\w)")
_JOINT = re.compile(r"(?:\s?[-–]\s?|—)([$£€¥₹]?)(?=\.?\d)")
_HUNDREDS = re.compile(r"(10{2,3}|1,000|10,000|100,000)s(?!\w)")
_OF = re.compile(r"\sof\s(?:dollars|pounds|euros)")
_CODE_BEHIND = re.compile(r"\s?(USD|CAD|AUD|NZD|HKD|SGD|MXN)(?!\w)")
_CODED = {**tables.CURRENCIES, "USD": ["US dollar", "US dollars", "cent", "cents"]}
_BEFORE_THINGS = words("""the this that its his her their our my your every each another additional new
    record initial annual first second final whole entire""")
_PRICED = words("""prize deal stake bid offer lawsuit settlement loan fund grant contract bill bond budget
    buyout takeover fine bonus award project mansion jackpot reward check fee ticket note home house car
    contract pints drinks cocktails beers burgers pizzas tacos wings meals tickets tips bills notes fares
    fees fines bets vouchers coupons shares""")
_NO_THINGS = (
    CLOSED
    | FINITE
    | words("""and or to but if when because so more less each total worth extra
    apiece available raised spent paid owed needed required invested lost won earned saved yesterday today
    last next this back away off up down out""")
)
_BEFORE_SIZES = words("in over for of by with wins signs")
_NO_OWNERS = words("it's that's there's here's what's he's she's")
_NO_NOUN = re.compile("(?:s|ing|ed|ly)$")
_GOES_ON = re.compile(r"[-:]|/(?![a-z])")
_PER_SEVERAL = re.compile(r"\s?/\s?(?=\d[\d,.]*[kKM]?[ -]?[A-Za-z])")  # "$2.50/1M tokens"
_PER_HEAD = re.compile(r"\s?(pppn|pp|pn|pcm|pw|EA)(?!\w)")
_PER = {"pp": " per person", "pn": " per night", "pcm": " per calendar month", "pw": " per week"}
_PER |= {"EA": " each", "pppn": " per person per night"}
_TIMES = re.compile(r"\d:\d\d|\b(?:Mon|Tues?|Wed|Thu(?:rs)?|Fri|Sat|Sun)\b")
_ZONE = re.compile(r"\s(?:[ECMP][SD]?T)\b")
_BEFORE_TIMES, _FOR_EACH = words("by til till until before after around"), words("each per a an apiece")
_NO_CENTS = re.compile(r"/-|[.,][-–—]+(?![\w-])")  # "Rs. 500/-", "Fr. 20.–"
_PENCE = re.compile(r"(\d{1,3}(?:\.\d)?)p(?![\w'])")
_ABOUT = re.compile(r"([2-9])00s(?!\w)")
_NOTES = re.compile(r"(\d0)s(?!\w)")


class _Price(NamedTuple):
    number: str
    magnitude: str  # " million" or ""
    end: int


def price(cursor: Cursor, currency: str) -> Reading:
    """A price whose number begins at the cursor, or a range of prices.

    `currency`: a sign or code of the tables, or a sign with a country ("US$").
    """
    if many := _HUNDREDS.match(cursor.text, cursor.at):
        several = tables.CURRENCIES.get(currency, tables.CURRENCIES["$"])[1]
        is_said = _OF.match(cursor.text, many.end())
        return Reading(f"{say.HUNDREDS[many[1]]}{'' if is_said else f' of {several}'}", many.end())
    if prices_about := _ABOUT.match(cursor.text, cursor.at):  # "from the low $300s"
        return Reading(f"{say.cardinal(int(prices_about[1]))} hundreds", prices_about.end())
    if notes := _NOTES.match(cursor.text, cursor.at):
        return Reading(say.decade(int(notes[1])), notes.end())
    prices = [_parse(cursor.text, cursor.at, currency)]
    joint = _JOINT.match(cursor.text, prices[0].end)
    if joint and joint[1] in ("", currency[-1:]) and (joint[1] or " " not in joint[0]):
        second = _parse(cursor.text, joint.end(), currency)
        is_whole = not (_GOES_ON.match(cursor.text, second.end) and prices[0].magnitude)
        prices += [second] if is_whole else []
    return said_price(cursor, prices, currency)


def said_price(cursor: Cursor, prices: list, currency: str) -> Reading:
    """One price or the two of a range: (number, magnitude with a blank before, where it ends) each."""
    sign_or_code = currency if currency in tables.CURRENCIES else currency[-1]
    one, many, cent, cents = tables.CURRENCIES[sign_or_code]
    if currency[-1] == "$" and (country := tables.DOLLARS.get(currency[:-1])):
        one, many = f"{country} {one}", f"{country} {many}"
    elif currency == "$" and (code := _CODE_BEHIND.match(cursor.text, prices[-1][2])):  # "$20 CAD"
        one, many, cent, cents = _CODED[code[1]]
        prices = [*prices[:-1], (*prices[-1][:2], code.end())]
    elif currency == "R$":
        one, many, cent, cents = tables.CURRENCIES["BRL"]
    is_rate = cursor.text[max(cursor.at - 2, 0) : cursor.at + 1] == "= 0"  # "1 USD = 0.92 EUR"
    has_cents = cents and not is_rate and not any(magnitude for _, magnitude, _ in prices)
    if has_cents and any(len(number.partition(".")[2]) == 2 for number, _, _ in prices):
        said = " to ".join(_with_cents(number, one, many, cent, cents) for number, _, _ in prices)
    else:
        said = " to ".join(
            say.decimal(number.replace(",", "")) + magnitude for number, magnitude, _ in prices
        )
        is_one = [price[:2] for price in prices] == [("1", "")]
        is_one = is_one or _describes(cursor, prices[-1][2])
        said = f"{said} {one if is_one else many}"
    end = prices[-1][2]
    if cursor.text.startswith(f" {many}", end) and not cursor.text[end + len(many) + 1 :][:1].isalnum():
        end += len(many) + 1  # "$5 million dollars"
    if none := _NO_CENTS.match(cursor.text, end):
        end = none.end()
    per, end = per_unit(cursor, end)
    if not per and (head := _PER_HEAD.match(cursor.text, end)):  # "£499pp"
        per, end = per_unit(cursor, head.end())  # "€22 pp/night"
        per = _PER[head[1]] + per
    if not per and (several := _PER_SEVERAL.match(cursor.text, end)):
        per, end = " per", several.end()
    if cursor.possessive(end):  # "$5bn's worth"
        per, end = per + "'", end + 2
    is_least = not per and cursor.text.startswith("+", end) and not cursor.text[end + 1 : end + 2].isalnum()
    return Reading(said + per + " plus" * is_least, end + is_least)


def _describes(cursor: Cursor, end: int) -> bool:
    """Whether a price stands before the thing it tells the price of: "a $5 bill", "its $2 billion bid"."""
    before = cursor.previous.lower()
    if before in ("a", "an"):
        return True
    following = cursor.next(end)
    is_thing = (
        following[:1].isalpha() and following.lower() not in _NO_THINGS and cursor.text[end : end + 1] == " "
    )
    if before in _BEFORE_THINGS and following in ("one", "ones"):  # "the $999 one"
        return True
    is_thing = is_thing and not _PER_HEAD.match(cursor.text, end)
    has_size = cursor.text[end - 1] in "kKmMbBnT" and (before in _BEFORE_SIZES or cursor.is_shouted)
    if is_thing and has_size and not _NO_NOUN.search(following.lower()):  # "in $2M heist"
        return True
    is_priced = following.lower() in _PRICED and before not in PREPOSITIONS  # "wins $100,000 prize"
    is_owned = before.endswith(("'s", "s'", "-")) and before not in _NO_OWNERS
    return is_thing and (is_priced or is_owned or before in _BEFORE_THINGS)


@form(r"(\d{1,3}(?:[. \u00a0\u202f]\d{3}){0,4}),(\d{2})\s?(€|[A-Z]{3}|kr)(?!\w)")
def european_price(cursor: Cursor, m: re.Match) -> str:
    """1,50 €, 1 234,56 €, 99,50 PLN."""
    currency = tables.CURRENCY_CODES.get(m[3], m[3])
    if currency not in tables.CURRENCIES:
        return ""
    whole = re.sub(r"\D", "", m[1])
    return said_price(cursor, [(f"{whole}.{m[2]}", "", m.end())], currency).spoken


def pence_per(cursor: Cursor) -> Reading | None:
    """150p/day, 7.8p per minute."""
    m = _PENCE.match(cursor.text, cursor.at)
    if not m:
        return None
    per, end = per_unit(cursor, m.end())
    is_meant = per or cursor.next(m.end()) in ("per", "each")
    return Reading(f"{say.decimal(m[1])} pence{per}", end) if is_meant else None


@form(
    r"(\d{1,3}\.\d(?=p)|[1-9]\d?)(?:([pc])(?![\w']|\.\w)|s\.?\s?(\d{1,2})d(?:\.(?=\s[a-z]|[,;]))?(?!\w)|s(?:\.(?=\s[a-z]|[,;]))?(?!\w)|/-(?![\w-]))"
)
def pence(cursor: Cursor, m: re.Match) -> str:
    """50p, 25c; 10s. 6d., £3 10s, 30/-, before 1971."""
    if m[0][-1] == "-":
        return f"{say.integer(m[1])} shillings"
    if m[0].rstrip(".")[-1] == "s":
        return f"{say.integer(m[1])} shillings" if cursor.previous[:1] == "£" else ""
    if (
        m[2] == "p"
        and float(m[1]) < 13
        and not cursor.is_british
        and (
            cursor.is_near(_TIMES)
            or _ZONE.match(cursor.text, m.end())
            or (cursor.previous.lower() in _BEFORE_TIMES and cursor.next(m.end()) not in _FOR_EACH)
        )
    ):
        return f"{say.integer(m[1])} PM"  # "6p yoga, 7:30 dinner"
    if m[2] == "c":
        return f"{say.integer(m[1])} {'cent' if m[1] == '1' else 'cents'}"
    count = m[3] or m[1]
    said = f"{say.decimal(count)} {'penny' if count == '1' else 'pence'}"
    return f"{say.integer(m[1])} {'shilling' if m[1] == '1' else 'shillings'} and {said}" if m[3] else said


def _with_cents(number: str, one: str, many: str, cent: str, cents: str) -> str:
    whole, _, part = number.replace(",", "").partition(".")
    said = f"{say.decimal(number) if len(part) not in (0, 2) else say.integer(whole or '0')}"
    said = f"{said} {one if whole == '1' else many}"
    if len(part) == 2 and part != "00":
        small = f"{say.cardinal(int(part))} {cent if part == '01' else cents}"
        return f"{said} and {small}" if whole.strip("0") else small
    return said


def _parse(text: str, at: int, currency: str) -> _Price:
    comma = _EURO_COMMA.match(text, at)
    if comma and (currency[-1:] == "€" or currency == "R$" or "." in comma[1]):
        return _Price(f"{comma[1].replace('.', '')}.{comma[2]}", "", comma.end())
    number = NUMBER.match(text, at)
    assert number  # callers have seen a digit
    if currency == "₹" and (indian := _INDIAN.match(text, number.end())):
        return _Price(number[0], " lakh" if indian[1] == "L" else " crore", indian.end())
    magnitude = _MAGNITUDE.match(text, number.end())
    if not magnitude:
        return _Price(number[0], "", number.end())
    word = magnitude[1] or magnitude[2]
    is_per = magnitude[2] and magnitude[0][0].isspace() and not (word.isupper() or word == "b")  # "$5 m"
    if is_per:
        return _Price(number[0], "", number.end())
    return _Price(number[0], f" {_MAGNITUDES.get(word.lower(), word.lower())}", magnitude.end())

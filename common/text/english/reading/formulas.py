"""Functions, quotients and logarithms in formulas."""

from __future__ import annotations

import re

from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.capitals import letter_name
from melforge.common.text.english.reading.cursor import Cursor, Reading, form
from melforge.common.text.english.word_parts import words

FUNCTIONS = {"sin": "sine", "cos": "cosine", "tan": "tangent", "ln": "natural log", "sqrt": "square root"}
FUNCTIONS |= {"max": "maximum", "min": "minimum", "det": "determinant"}
FUNCTIONS |= {"log": "log", "exp": "exp", "gcd": "gcd"}
_ANGLES = words("sin cos tan ln")
_ANGLE_FOLLOWS = re.compile(r"\s(?:\d+°|[α-ωπ](?!\w)|[xyt](?!\w))")
_VARIABLES = words("x y z n k r t")


@form(r"log_?(\d{1,2})(?:\(|\s(?=[\dxyn]))")
def logarithm(cursor: Cursor, m: re.Match) -> str:
    """log10(x), log₂ 8."""
    return "" if cursor.touches_word else f"log base {say.integer(m[1])} of"


@form(r"lim(?:_\{?|\s)([a-z])\s?(?:→|->)\s?([-−]?)(\d{1,3}|[a-z]|∞)\}?(?!\w)")
def limit(cursor: Cursor, m: re.Match) -> str:
    """lim x→0, lim_{n → ∞}."""
    last = say.integer(m[3]) if m[3].isdecimal() else "infinity" if m[3] == "∞" else letter_name(m[3].upper())
    return f"limit as {letter_name(m[1].upper())} approaches {'minus ' if m[2] else ''}{last}"


@form(r"([a-z])-(\d{1,2}|[a-z])(?![\w.,:-]\w|\w)")
def difference(cursor: Cursor, m: re.Match) -> str:
    """n-1, in formulas a-b too."""
    if cursor.touches_word or not (cursor.is_equation or (m[1] in "nkxj" and m[2].isdecimal())):
        return ""
    second = say.integer(m[2]) if m[2].isdecimal() else letter_name(m[2].upper())
    return f"{letter_name(m[1].upper())} minus {second}"


@form(r"d([A-Za-z]?)/d([xyztuvr])(?!\w)")
def derivative(cursor: Cursor, m: re.Match) -> str:
    """dy/dx, d/dx."""
    return "" if cursor.touches_word else f"D {m[1].upper()} over D {m[2].upper()}".replace("  ", " ")


@form(r"([a-zA-Zα-ω])/([a-zA-Zα-ω\d])(?![\w/])")
def quotient(cursor: Cursor, m: re.Match) -> str:
    """x/y, in formulas a/b and h/λ too."""
    is_one = cursor.is_equation or (m[1] in _VARIABLES and (m[2] in _VARIABLES or m[2].isdecimal()))
    if cursor.touches_word or not is_one or m[1] == m[2] or m[0].lower() == "y/n":
        return ""
    above, below = (
        say.integer(term) if term.isdecimal() else tables.GREEK.get(term) or letter_name(term.upper())
        for term in m.groups()
    )
    return f"{above} over {below}"


def function_name(cursor: Cursor) -> Reading | None:
    """sin(x), cos θ."""
    name = FUNCTIONS.get(cursor.word) if not cursor.touches_word else None
    is_meant = cursor.behind_word in ("(", "²", "³") or (
        cursor.word in _ANGLES and _ANGLE_FOLLOWS.match(cursor.text, cursor.word_end)
    )
    return Reading(name, cursor.word_end) if name and is_meant else None

"""Isotopes: ¹⁴C, 137Cs, Cs-137, by the name of the element and its mass."""

from __future__ import annotations

import re

from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cursor import Cursor, form

# The name of each element, and the masses that are written about.
_NAMES_AND_MASSES = """H hydrogen 2 3; He helium 3 4; Be beryllium 7 10; C carbon 11 12 13 14; N nitrogen
    13 14 15; O oxygen 15 16 17 18; F fluorine 18 19; Al aluminum 26; P phosphorus 31 32; S sulfur 34 35;
    Cl chlorine 36; Ar argon 39 40; K potassium 39 40; Ca calcium 45; Fe iron 56 59; Co cobalt 57 60; Ga
    gallium 67 68; Kr krypton 85; Sr strontium 86 87 88 89 90; Tc technetium 99 99m; Xe xenon 133 135; I
    iodine 123 124 125 129 131; Cs cesium 133 134 135 137; Lu lutetium 177; Ir iridium 192; Tl thallium
    201; Pb lead 204 206 207 208 210; Po polonium 210; Rn radon 220 222; Ra radium 223 226 228; Ac
    actinium 225; Th thorium 228 230 232; U uranium 233 234 235 236 238; Np neptunium 237; Pu plutonium
    238 239 240 241; Am americium 241"""
_ISOTOPES = {
    symbol: (name, frozenset(masses))
    for symbol, name, *masses in map(str.split, _NAMES_AND_MASSES.split(";"))
}
_MASS_IN_DIGITS = 99  # from here on no temperature, current or size is written so: "14C", "60F"


@form(r"([⁰¹²³⁴-⁹]{1,3}|\d{2,3})(m?)([A-Z][a-z]?)(?!\w)")
def isotope(cursor: Cursor, m: re.Match) -> str:
    """¹⁴C, 137Cs, 99mTc; not 14C, which is a temperature, or a power: "10¹⁴C"."""
    name, masses = _ISOTOPES.get(m[3], ("", frozenset()))
    is_raised = not m[1].isascii()
    mass = "".join(map(tables.SUPERSCRIPTS.__getitem__, m[1])) if is_raised else m[1]
    is_sure = is_raised or len(m[3]) == 2 or int(mass) > _MASS_IN_DIGITS
    if cursor.touches_word or not is_sure or mass + m[2] not in masses:
        return ""
    return f"{name} {say.short(mass)}{' M' * bool(m[2])}"


@form(r"([A-Z][a-z])-(\d{1,3})(m?)(?![\w-])")
def hyphened_isotope(cursor: Cursor, m: re.Match) -> str:
    """Cs-137, Sr-90; "C-14" and "U-235" are said by their letters."""
    name, masses = _ISOTOPES.get(m[1], ("", frozenset()))
    is_meant = not cursor.touches_word and m[2] + m[3] in masses
    return f"{name} {say.short(m[2])}{' M' * bool(m[3])}" if is_meant else ""

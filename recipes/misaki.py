"""The misaki alphabet, which teachers read: one character a phone, and a stress mark before its vowel.

Diphthongs are capitals.
"""

from collections.abc import Sequence

from melforge.common.errors import InputError

_SHARED_VOWELS = {
    **{"A": "EY", "I": "AY", "O": "OW", "W": "AW", "Y": "OY", "ɑ": "AA", "æ": "AE", "ɔ": "AO", "ɛ": "EH"},
    **{"ɪ": "IH", "i": "IY", "u": "UW", "ʊ": "UH"},
}
_SHARED_CONSONANTS = {
    **{"b": "B", "d": "D", "f": "F", "h": "HH", "j": "Y", "k": "K", "l": "L", "m": "M", "n": "N", "p": "P"},
    **{"s": "S", "t": "T", "v": "V", "w": "W", "z": "Z", "ð": "DH", "ŋ": "NG", "ɡ": "G", "ɹ": "R", "ʃ": "SH"},
    **{"ʒ": "ZH", "ʤ": "JH", "ʧ": "CH", "θ": "TH"},
}
# misaki tells apart what ARPAbet does not: reduced vowels, the tap, a few foreign sounds.
VOWELS = _SHARED_VOWELS | {
    **{"ʌ": "AH", "ə": "AH", "ᵊ": "AH", "ɐ": "AH", "ɜ": "ER", "ɚ": "ER", "ᵻ": "IH", "a": "AA", "ɒ": "AA"},
    **{"e": "EH", "o": "OW", "y": "UW"},
}
_CONSONANTS = _SHARED_CONSONANTS | {"T": "T", "ɾ": "T", "ʔ": "T", "x": "K", "r": "R", "g": "G"}
_STRESS_MARKS = {"1": "ˈ", "2": "ˌ"}
_PLAIN = {v: k for k, v in (_SHARED_VOWELS | _SHARED_CONSONANTS).items()} | {"AH": "ə", "ER": "əɹ"}
_STRESSED = _PLAIN | {"AH": "ʌ", "ER": "ɜɹ"}
SONORANTS = frozenset("lmnŋɹjwvðzʒ")
_PUNCTUATION = {"-": "—", "'": "", "_": ""} | {mark: mark for mark in " !(),.:;?"}


def to_misaki(symbols: Sequence[str]) -> str:
    """`[" ", "@HH", "@AH0", "@L", "@OW1", "."]` -> `" həlˈO."`. A dash becomes misaki's long one."""
    out = []
    for symbol in symbols:
        phone, stress = symbol[1:].rstrip("012"), symbol[-1]
        if symbol in _PUNCTUATION:
            out.append(_PUNCTUATION[symbol])
        elif symbol[:1] != "@":
            raise InputError(f"no misaki form for {symbol!r}: letters must be phones")
        elif phone not in _PLAIN:
            raise InputError(f"no misaki form for {symbol!r}: it is no ARPAbet phone")
        else:
            out.append(_STRESS_MARKS.get(stress, "") + (_STRESSED if stress in "12" else _PLAIN)[phone])
    return "".join(out)


def from_misaki(phonemes: str) -> list[str]:
    """`"həlˈO."` -> `["HH", "AH0", "L", "OW1"]`: ARPAbet without "@"; all that is no phone is left out."""
    out: list[str] = []
    stress, previous = "0", ""
    for character in phonemes:
        if character in "ˈˌ":
            stress = "1" if character == "ˈ" else "2"
        elif character == "ɹ" and previous in ("ɜ", "ə"):
            out[-1] = "ER" + out[-1][-1]
        elif character in VOWELS:
            out.append(VOWELS[character] + stress)
            stress = "0"
        elif character in _CONSONANTS:
            out.append(_CONSONANTS[character])
        previous = character
    return out

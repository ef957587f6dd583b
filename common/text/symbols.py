"""The published symbol sets. A symbol's index is the id that the checkpoints were trained with."""

from __future__ import annotations

import string
from collections.abc import Sequence

from melforge.common.errors import InputError, unknown

_VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
_LETTERS = string.ascii_uppercase + string.ascii_lowercase
_CONSONANTS = (
    *("B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N", "NG"),
    *("P", "R", "S", "SH", "T", "TH", "V", "W", "Y", "Z", "ZH"),
)

# CMUdict's phones in alphabetical order: vowels with and without stress (0 none, 1 primary, 2 secondary).
ARPABET: tuple[str, ...] = tuple(
    sorted([*_CONSONANTS, *(vowel + stress for vowel in _VOWELS for stress in ("", "0", "1", "2"))])
)

# Vowels that only British English has (START and BATH, LOT, GOAT, NURSE, SQUARE, NEAR, CURE), and the nearest
# American ones. OH, EA, IA and UA are those of the dictionary BEEP, whose other names are ARPAbet's.
BRITISH_VOWELS = {"AR": "AA", "OH": "AO", "OU": "OW", "UR": "ER", "EA": "EH", "IA": "IH", "UA": "UH"}
BRITISH: tuple[str, ...] = tuple(vowel + stress for vowel in BRITISH_VOWELS for stress in "012")

# In the symbol sets "@" tells a phone from the letter of the same name.
_PHONES = tuple("@" + phone for phone in ARPABET)

SYMBOL_SETS: dict[str, tuple[str, ...]] = {
    "english_basic": (*"_-!'(),.:;? ", *_LETTERS, *_PHONES),
    "english_basic_lowercase": (*"_-!'\"(),.:;? ", *string.ascii_lowercase, *_PHONES),
    "english_expanded": (*"!'\",.:;? #%&*+-/[]()_@©°½—₩€$áçéêëñöøćž", *_LETTERS, *_PHONES),
}
# Tacotron 2 and FastSpeech have one set each, the one that FastPitch calls english_basic.
SYMBOL_SETS["tacotron2"] = SYMBOL_SETS["english_basic"]
SYMBOL_SETS["fastspeech"] = SYMBOL_SETS["english_basic"]
# One model may speak both: the ids of what is American are the same.
SYMBOL_SETS["english_accents"] = (*SYMBOL_SETS["english_basic"], *("@" + phone for phone in BRITISH))


def nearest_american(phone: str) -> str:
    """The phone with or without stress, but for a British vowel the American one that is nearest."""
    return BRITISH_VOWELS.get(phone[:2], phone[:2]) + phone[2:]


def get_symbols(name: str) -> tuple[str, ...]:
    """The symbol set of that name."""
    if name not in SYMBOL_SETS:
        raise InputError(unknown("symbol set", name, SYMBOL_SETS))
    return SYMBOL_SETS[name]


def own_symbols(parts: str | Sequence[str]) -> tuple[str, ...]:
    """Symbols as a voice states them in the order of their ids: of a text its characters, "@AA1" is a phone.

    "@*" stands for all phones as the published sets have them.
    """
    parts = [parts] if isinstance(parts, str) else parts
    symbols = [
        (_PHONES if part == "@*" else [part] if part[:1] == "@" and part[1:] else part) for part in parts
    ]
    return tuple(symbol for some in symbols for symbol in some)

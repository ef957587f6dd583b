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
    **{"e": "EH", "o": "OW", "y": "UW", "Q": "OW"},
}
_CONSONANTS = _SHARED_CONSONANTS | {"T": "T", "ɾ": "T", "ʔ": "T", "x": "K", "r": "R", "g": "G"}
_STRESS_MARKS = {"1": "ˈ", "2": "ˌ"}
_PLAIN = {v: k for k, v in (_SHARED_VOWELS | _SHARED_CONSONANTS).items()} | {"AH": "ə", "ER": "əɹ"}
_STRESSED = _PLAIN | {"AH": "ʌ", "ER": "ɜɹ"}
# British vowels: some of their own, and some that misaki writes otherwise than American ones.
_BRITISH_VOWELS = {v: k for k, v in _SHARED_VOWELS.items() if v not in ("AA", "OW")} | {
    **{
        "OH": "ɒ",
        "OU": "Q",
        "AR": "ɑː",
        "UR": "ɜː",
        "EA": "ɛː",
        "IA": "ɪə",
        "UA": "ʊə",
        "AE": "a",
        "AO": "ɔː",
    },
    **{"UW": "uː", "IY": "iː", "AH": "ʌ"},
}
_BRITISH_WEAK = _BRITISH_VOWELS | {"IY": "i", "AH": "ə"}
_CONSONANT_SIGNS = {v: k for k, v in _SHARED_CONSONANTS.items()}
_FROM_BRITISH = {said: phone for phone, said in (_BRITISH_VOWELS | _BRITISH_WEAK).items()} | {
    "ʌ": "AH",
    "ᵊ": "AH",
    "iː": "IY",
}
_VOWEL_SIGNS = frozenset(said[0] for said in _FROM_BRITISH)
SONORANTS = frozenset("lmnŋɹjwvðzʒ")
_PUNCTUATION = {"-": "—", "'": "", "_": ""} | {mark: mark for mark in " !(),.:;?"}


def to_misaki(symbols: Sequence[str], british: bool = False) -> str:
    """`[" ", "@HH", "@AH0", "@L", "@OW1", "."]` -> `" həlˈO."`. A dash becomes misaki's long one.

    `british`: the symbols of the frontend `english-gb`; an InputError for phones that only Americans say.
    """
    out = []
    for place, symbol in enumerate(symbols):
        phone, stress = symbol[1:].rstrip("012"), symbol[-1]
        if symbol in _PUNCTUATION:
            out.append(_PUNCTUATION[symbol])
        elif symbol[:1] != "@":
            raise InputError(f"no misaki form for {symbol!r}: letters must be phones")
        elif british:
            out.append(_STRESS_MARKS.get(stress, "") + _british(phone, stress, symbols, place))
        elif phone not in _PLAIN:
            raise InputError(f"no misaki form for {symbol!r}: it is no ARPAbet phone")
        else:
            out.append(_STRESS_MARKS.get(stress, "") + (_STRESSED if stress in "12" else _PLAIN)[phone])
    return "".join(out)


def _british(phone: str, stress: str, symbols: Sequence[str], place: int) -> str:
    """A phone without its mark of stress; misaki tells weak vowels apart by what stands beside them."""
    if phone in _CONSONANT_SIGNS:
        return _CONSONANT_SIGNS[phone]
    if phone not in _BRITISH_VOWELS:
        raise InputError(f"no misaki form for {symbols[place]!r}: it is no phone of the frontend english-gb")
    if stress != "0":
        return _BRITISH_VOWELS[phone]
    before, after, second = (
        symbols[at] if 0 <= at < len(symbols) else " " for at in (place - 1, place + 1, place + 2)
    )
    if phone == "IY" and after[-1].isdigit():
        return "ɪ"
    is_obstruent = _CONSONANT_SIGNS.get(before[1:], "l") not in SONORANTS
    is_syllabic = not second[-1].isdigit() if after == "@L" else second[0] != "@" and is_obstruent
    if phone == "AH" and after in ("@L", "@N") and is_syllabic:
        return "ᵊ"
    return _BRITISH_WEAK[phone]


def from_british_misaki(phonemes: str, word: str) -> list[str]:
    """`"fˈɑː", "far"` -> `["F", "AR1", "R"]`: ARPAbet and British vowels, with a last R if one is written.

    An InputError for signs of other languages.
    """
    out: list[str] = []
    stress, at = "0", 0
    while at < len(phonemes):
        size = 2 if phonemes[at : at + 2] in _FROM_BRITISH else 1
        said, rest = phonemes[at : at + size], phonemes[at + size :]
        if said in ("ɪə", "ʊə") and stress == "0" and rest[:1] != "ɹ" and (rest or not _ends_in_r(word)):
            size, said, rest = (
                1,
                said[0],
                phonemes[at + 1 :],
            )  # "premium": the second part of it is of its own
        vowel = _FROM_BRITISH.get(said)
        if said in "ˈˌ":
            stress = "1" if said == "ˈ" else "2"
        elif said == "ɪ" and stress == "0" and rest.lstrip("ˈˌ")[:1] in _VOWEL_SIGNS:
            out.append("IY0")
        elif vowel:
            weak = {"ə": "0", "ᵊ": "0", "ʌ": "2" if stress == "0" else stress}
            out.append(vowel + weak.get(said, stress))
            stress = "0"
        elif said in _SHARED_CONSONANTS:
            out.append(_SHARED_CONSONANTS[said])
        else:
            raise InputError(f"{word}: {said!r} in {phonemes} is no sign of British misaki")
        at += size
    if _ends_in_r(word) and out and out[-1][:-1] in ("AH", "AR", "AO", "UR", "EA", "IA", "UA"):
        out.append("R")
    return out


def _ends_in_r(word: str) -> bool:
    return word.endswith(("r", "re"))


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

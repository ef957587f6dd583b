"""Phonemes as people write them (ARPAbet, IPA, X-SAMPA) to those of the symbol sets: ARPAbet with stress.

IPA: the sounds of English as dictionaries write them, and the nearest English one of other languages' sounds.
X-SAMPA (J. C. Wells, 1995) is read as the IPA that it stands for.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from melforge.common.errors import InputError, unknown
from melforge.common.text.symbols import ARPABET, BRITISH_VOWELS

ALPHABETS = ("arpabet", "ipa", "x-sampa")
LONGEST_WORD = 40  # phonemes in one pair of braces

_BASES = tuple(dict.fromkeys(phone.rstrip("012") for phone in ARPABET))
_VOWELS = frozenset(base for base in _BASES if base + "1" in ARPABET) | BRITISH_VOWELS.keys()
# Phones that other sets of ARPAbet have. A vowel with 0 is never stressed by default.
_OTHER_ARPABET = {
    **{"AX": "AH0", "AXR": "ER0", "IX": "IH0", "UX": "UW", "DX": "T", "NX": "N", "WH": "W", "HV": "HH"},
    **{"EL": "AH0 L", "EM": "AH0 M", "EN": "AH0 N", "H": "HH"},
}
_IPA_ROWS = """i IY / ɪ IH / ɨ IH0 / ᵻ IH0 / ʏ IH / y UW / e EH / eɪ EY / ej EY / ɛ EH / ɛɪ EY / æ AE
    a AA / aɪ AY / aj AY / ɑɪ AY / aʊ AW / aw AW / æʊ AW / ɑʊ AW / ɑ AA / ɒ AA / ɔ AO / ɔɪ OY / ɔj OY
    oɪ OY / o OW / oʊ OW / ow OW / əʊ OW / ɵ UH / ɤ AH / ʊ UH / u UW / ʉ UW / ɯ UW / ʌ AH / ɐ AH / ə AH0
    ɘ AH0 / ɜ ER / ɜɹ ER / ɝ ER / ɝɹ ER / ɚ ER0 / ɚɹ ER0 / əɹ ER0 / ɞ ER / œ ER / ø ER / ɶ AE / ɪəɹ IH R
    eə EH R / eəɹ EH R / ɛə EH R / ɛəɹ EH R / ʊəɹ UH R / p P / b B / t T / d D / k K / ɡ G / f F / v V
    θ TH / ð DH / s S / z Z / ʃ SH / ʒ ZH / h HH / ɦ HH / tʃ CH / ʧ CH / dʒ JH / ʤ JH / m M / n N / ŋ NG
    l L / ɫ L / ɹ R / j Y / w W / ʍ W / ɾ T / ʔ T / x K / χ K / ç HH / c K / ɟ G / ɲ N Y / ʎ L Y / ɬ L / ɭ L
    ɮ L / β B / ɸ F / ʋ V / ɣ G / ɢ G / q K / ɱ M / ɴ NG / ɥ W / ɕ SH / ʑ ZH / ʂ SH / ʐ ZH / tɕ CH / dʑ JH
    tʂ CH / dʐ JH / ʦ T S / ʣ D Z / ʈ T / ɖ D / ɳ N / ɓ B / ɗ D / ɠ G / m̩ AH0 M / n̩ AH0 N / l̩ AH0 L
    ɫ̩ AH0 L / ŋ̩ AH0 NG / ɹ̩ ER0"""
# Other signs for a sound, and what is written with a mark of its own.
_ALIKE = str.maketrans(
    {"g": "ɡ", "r": "ɹ", "ɻ": "ɹ", "ʁ": "ɹ", "ʀ": "ɹ", "ɽ": "ɹ", "˞": "ɹ", "'": "ˈ", "’": "ˈ"}
)
_SILENT = frozenset("ːˑ.‿/[]()-\u200d" + "ʰʲʷˠˤⁿˡʼ")
_STRESS = {"ˈ": "1", "ˌ": "2"}
_SYLLABIC, _CEDILLA = "\u0329", "\u0327"
_X_SAMPA = """I ɪ / E ɛ / { æ / A ɑ / O ɔ / U ʊ / V ʌ / @ ə / 3 ɜ / 3` ɝ / @` ɚ / Q ɒ / 6 ɐ / 1 ɨ / } ʉ
    Y ʏ / 2 ø / 9 œ / 7 ɤ / 8 ɵ / M ɯ / & ɶ / T θ / D ð / S ʃ / Z ʒ / N ŋ / g ɡ / r\\ ɹ / r\\` ɹ / R ʁ / 4 ɾ
    ? ʔ / X χ / C ç / G ɣ / B β / W ʍ / H ɥ / J ɲ / L ʎ / K ɬ / F ɱ / P ʋ / v\\ ʋ / p\\ ɸ / h\\ ɦ / l\\ ɫ
    5 ɫ / s\\ ɕ / z\\ ʑ / s` ʂ / z` ʐ / t` ʈ / d` ɖ / n` ɳ / l` ɭ / r` ɹ / J\\ ɟ / N\\ ɴ / R\\ ʀ / K\\ ɮ
    G\\ ɢ / " ˈ / % ˌ / : ː / = ̩ / _= ̩ / :\\ ː / ' ʲ / _j ʲ / _h ʰ / _w ʷ / ~ ̃ / _~ ̃ / _0 ̥"""
_MARKS = ".,;:?!…—"  # behind words
_ARPABET_CHUNK = rf"[^{_MARKS}\n]+[{_MARKS}]*|[{_MARKS}\n]+"
_X_SAMPA_ITSELF = "abcdefhijklmnopqrstuvwxyz.|- "


def in_braces(phonemes: str, alphabet: str = "arpabet") -> str:
    """Phonemes of a word, or of several, as text that every frontend reads: "{HH AH0 L OW1}".

    Words are divided by a "|", in IPA and X-SAMPA by a blank too. Where no vowel of a word is marked as
    stressed, its first one is, but for a schwa. An InputError names a symbol that the alphabet lacks.
    """
    if alphabet not in ALPHABETS:
        raise InputError(unknown("alphabet of phonemes", alphabet, ALPHABETS))
    if alphabet == "arpabet":
        words = [_arpabet(word, phonemes) for word in phonemes.split("|")]
    else:
        text = _from_x_sampa(phonemes) if alphabet == "x-sampa" else phonemes
        words = [_ipa(word, phonemes) for word in text.replace("|", " ").replace("‖", " ").split()]
    parts = [word[i : i + LONGEST_WORD] for word in words for i in range(0, len(word), LONGEST_WORD)]
    if not parts:
        raise InputError(f"{phonemes!r} holds no phoneme of {_NAMES[alphabet]}")
    return " ".join(f"{{{' '.join(part)}}}" for part in parts)


def as_text(phonemes: str, alphabet: str) -> str:
    """Phonemes with marks behind the words ("həˈloʊ, wɜːld!") as text that every frontend reads.

    ARPAbet's words are divided by a "|", or stand in braces. An InputError as of `in_braces`.
    """
    is_arpabet = alphabet == "arpabet"
    marks = _MARKS.replace(":", "") if alphabet == "x-sampa" else _MARKS
    text = ""
    for chunk in re.findall(_ARPABET_CHUNK if is_arpabet else r"\s+|\S+", phonemes):
        word = chunk.rstrip(marks)
        if spoken := word.strip(" |{}\t\r\n"):
            blank = "" if text[-1:].isspace() else " "
            text += blank + in_braces(re.sub("[{} ]+[{]", "|", spoken) if is_arpabet else spoken, alphabet)
        text += chunk[len(word) :] if spoken else chunk.replace("|", "")
    return text.strip()


_NAMES = {"arpabet": "ARPAbet", "ipa": "IPA", "x-sampa": "X-SAMPA"}


def _arpabet(word: str, whole: str) -> list[str]:
    """NVIDIA's Riva writes {@HH}{@AH0}."""
    phones: list[str] = []
    for symbol in re.sub(r"[{}@]", " ", word).upper().split():
        base, stress = (symbol[:-1], symbol[-1]) if symbol[-1] in "012" else (symbol, "")
        said = _OTHER_ARPABET.get(base) or (base if base in _BASES or base in BRITISH_VOWELS else "")
        if not said or (stress and said[:2] not in _VOWELS):
            raise InputError(f"{_not_in(symbol, whole, 'arpabet')}; it has {' '.join(_BASES)}")
        first, *others = said.split()
        phones += [first[:2] + stress if stress else first, *others]
    return _stressed(phones)


def _ipa(word: str, whole: str) -> list[str]:
    rows = _ipa_rows()
    phones: list[str] = []
    stress, at, text = "", 0, _plain_ipa(word)
    while at < len(text):
        if text[at] in _STRESS:
            stress, at = _STRESS[text[at]], at + 1
            continue
        size = next((size for size in (3, 2, 1) if text[at : at + size] in rows), 0)
        if not size:
            raise InputError(f"{_not_in(text[at], whole, 'ipa')} as Melforge reads it")
        if text[at : at + size] == "əɹ" and text[at + 2 : at + 3] in _ipa_vowels():
            size = 1  # "əɹaʊnd" as "əˈɹaʊnd", not "ɚaʊnd"
        for phone in rows[text[at : at + size]].split():
            if stress and phone[:2] in _VOWELS:
                phone, stress = phone[:2] + stress, ""
            phones.append(phone)
        at += size
    return _stressed(phones)


def _stressed(phones: list[str]) -> list[str]:
    """Phones of a word with a stress for each vowel."""
    if not any(phone[-1] in "12" for phone in phones):
        first = next((place for place, phone in enumerate(phones) if phone in _VOWELS), None)
        if first is not None:
            phones[first] += "1"
    return [phone + "0" if phone in _VOWELS else phone for phone in phones]


def _plain_ipa(word: str) -> str:
    """Without length, syllables, ties and what else tells no English sounds apart."""
    kept: list[str] = []
    for char in unicodedata.normalize("NFD", word).replace("\u030d", _SYLLABIC).translate(_ALIKE):
        if char == _CEDILLA and kept[-1:] == ["c"]:
            kept[-1] = "ç"
        elif char == _SYLLABIC or not (char in _SILENT or unicodedata.category(char) == "Mn"):
            kept.append(char)
    return "".join(kept)


def _from_x_sampa(text: str) -> str:
    rows, out, at = _x_sampa_rows(), "", 0
    while at < len(text):
        size = next((size for size in (3, 2, 1) if text[at : at + size] in rows), 0)
        if not size:
            raise InputError(_not_in(text[at], text, "x-sampa"))
        out += rows[text[at : at + size]]
        at += size
    return out


def _not_in(symbol: str, whole: str, alphabet: str) -> str:
    return f"{symbol!r} in {whole[:80]!r} is no phoneme of {_NAMES[alphabet]}"


def _rows(table: str) -> dict[str, str]:
    """ "i IY / ɪ IH" as a dictionary."""
    entries = (entry.strip().partition(" ") for line in table.splitlines() for entry in line.split(" / "))
    return {symbol: said for symbol, _, said in entries}


@cache
def _ipa_rows() -> dict[str, str]:
    return _rows(_IPA_ROWS)


@cache
def _ipa_vowels() -> frozenset[str]:
    return frozenset(
        symbol[0]
        for symbol, phones in _ipa_rows().items()
        if phones[:2] in _VOWELS and symbol[0] not in "mnlɫŋɹ"
    )


@cache
def _x_sampa_rows() -> dict[str, str]:
    return {char: char for char in _X_SAMPA_ITSELF} | _rows(_X_SAMPA)

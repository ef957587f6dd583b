"""Unicode to ASCII as the published frontends do it, character by character.

Tacotron 2 and FastPitch bundle tables that know European letters and drop all others; FastSpeech uses the
Unidecode package. Both are followed here with anyascii and the differences from it. In rare symbols and in
Armenian, Georgian, Arabic, Han or Hangul letters a romanisation may differ.
"""

import re
import unicodedata
from functools import lru_cache

from anyascii import anyascii

# Tacotron 2 and FastPitch: what the bundled tables hold, so far as anyascii writes it the same way.
_BUNDLED_AS_ANYASCII = re.compile(
    "["
    "\u00a0¢¥¨´¸À-ÃÅÇ-ÕØ-ÛÝß-ãå-õø-ûý-ćČ-ēĖ-ěĞğĢģĨ-īĮ-ĳĶķĻļŁ-ňŐőŘ-śŞ-ťŨ-ūŮ-ųŹ-ž"
    "ƠơƦƧƯưƼȘ-țɑɡɩɪɯʏʹʼʾ˂-˄ˆˈˊː˗˜˝˸Ạ-ỹ"
    "\u037a\u037e\u0374\u0384\u0386Έ-ΊΌΎ-ΑΓ-ΗΙ-ΝΟ-ΡΣ-ΦΩ-νο-φψ-ώϒϳ"
    "ІЈ-ЊА-ШЫЭ-шыэ-яіј-њҐґһ"
    "Ա-Ֆա-ֆა-ჰآ-ي٠-٩پچژکگی۰-۹"
    "\u2000-\u200a\u2010-\u2013\u2018\u2019\u201b-\u201d\u201f\u2024\u2028\u2029\u202f\u205f"
    "\u2032\u2039\u203a\u2043\u2044\u204e\u2053\u205a"
    "₠-₣₥₦₨₩₭₮₱-₳₵₸ℂℊ-ℎℒℓℕℙ-ℝℤℨ\u212aℬ-ℱℳℴℹⅅ-ⅉⅤⅩⅬ-ⅰⅴⅹⅼ-ⅾ−∕-∗∨∶∼"
    "①-⑳⒈-⒵⓪-⓿❝❞❨❩❲❳！＄-，．-＠Ａ-Ｚ＼＿ａ-｝"
    "\U0001d400-\U0001d7ff"
    "]"
)
_BUNDLED = {
    **{"Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ä": "ae", "ö": "oe", "ü": "ue", "Æ": "AE", "Þ": "TH", "ẞ": "SS"},
    **{"×": "x", "ſ": "f", "Ʒ": "3", "ʻ": "'", "ʽ": "'", "ˋ": "'", "ʺ": '"', "ˮ": '"'},
    **{"Β": "B", "Θ": "TH", "Ξ": "KS", "Χ": "X", "Ψ": "PS", "ξ": "ks", "χ": "x"},
    **{"Ё": "Yo", "ё": "yo", "Є": "Ye", "є": "ye", "Ї": "Yi", "ї": "yi", "Щ": "Sch", "щ": "sch"},
    **{"Ъ": "", "ъ": "", "Ь": "", "ь": "", "Ѕ": "S", "ѕ": "s", "Ќ": "Kj", "ќ": "kj", "Ү": "Y", "ү": "y"},
    **{"‚": ",", "\u2035": "'", "‽": "?!", "Ⅰ": "l", "∣": "l", "∪": "U", "➕": "+", "➖": "-", "💯": "100"},
    **{"€": "E", "₫": "s", "₴": "S", "₹": "R", "₺": "L", "₽": "P", "₿": "B"},
    **{"〔": "(", "〕": ")", "［": "(", "］": ")", "｀": "'", "０": "o", "１": "l", "Ｉ": "l", "Ｏ": "o"},
}

# FastSpeech: where Unidecode and anyascii part.
_UNIDECODE = {
    **{"¢": "C/", "£": "PS", "¤": "$?", "¥": "Y=", "§": "SS", "·": "*", "×": "x", "ĸ": "k", "฿": "Bh."},
    **{"Æ": "AE", "Œ": "OE", "Ŋ": "NG", "©": "(c)", "®": "(r)"},
    **{"ə": "@", "Ə": "@", "ʃ": "S", "ʒ": "Z", "ʔ": "?", "ʌ": "^", "Ʒ": "ZH", "ʺ": '"', "ˇ": "V", "˘": "V"},
    **{"—": "--", "―": "--", "‚": ",", "„": ",,", "‣": "*>", "\u2027": ".", "⁃": "--", "\u200b": " "},
    **{"\u2028": "\n", "\u2029": "\n\n"},
    **{"₡": "CL", "₣": "FF", "₪": "NS", "₫": "D", "₴": "UAH", "₵": "C|", "₺": "L", "₼": "m", "₽": "R"},
    **{"₾": "l", "℃": "degC", "℉": "degF", "№": "No. ", "™": "(tm)", "℠": "(sm)", "℅": " c/o "},
    **{"η": "e", "ή": "e", "Η": "E", "Ή": "E", "υ": "u", "ύ": "u", "ϋ": "u", "ΰ": "u", "Υ": "U", "Ύ": "U"},
    **{"β": "b", "Β": "B", "φ": "ph", "Φ": "Ph", "χ": "kh", "Χ": "Kh", "Ξ": "Ks", "ΐ": "i", "\u037e": "?"},
    **{"Ё": "Io", "ё": "io", "Й": "I", "й": "i", "Ю": "Iu", "ю": "iu", "Я": "Ia", "я": "ia"},
    **{"Ї": "Yi", "ї": "yi", "Ѓ": "Gj", "ѓ": "gj", "Ќ": "Kj", "ќ": "kj", "Ћ": "Tsh", "ћ": "tsh"},
    **{"Ґ": "G'", "ґ": "g'"},
    **{"−": "-", "∕": "/", "∖": "\\", "∗": "*", "∣": "|", "∶": ":", "∼": "~", "≤": "<=", "≥": ">="},
    **dict.fromkeys("←→↔↚↛", "-"),
    **dict.fromkeys("⇐⇒⇔", "="),
    **dict.fromkeys("↑↓↕", "|"),
    **dict.fromkeys("♠♤", "spades"),
    **dict.fromkeys("♡♥", "hearts"),
    **dict.fromkeys("♢♦", "diamonds"),
    **dict.fromkeys("♣♧", "clubs"),
    **{"♯": "#", "❝": '"', "❞": '"', "、": ", ", "。": ". ", "「": "[", "」": "] ", "『": "{", "』": "} "},
    **{"ふ": "hu", "っ": "tsu", "づ": "du", "ッ": "tsu", "ヅ": "du", "ヂ": "di", "ヲ": "wo", "ー": "-"},
    **{"を": "wo", "じ": "zi", "ぢ": "di"},
}
_FRACTIONS = re.compile("[¼-¾⅐-⅟]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_POLYTONIC = re.compile("[\u1f00-\u1fff]")
_UNIDECODE_DROPS = re.compile("[\u2190-\u245f\u2600-\u2bff\U00010000-\U0001d3ff\U0001d800-\U0010ffff]")


def to_ascii_bundled(text: str) -> str:
    """As Tacotron 2 and FastPitch do it: what their tables lack is left out."""
    return text if text.isascii() and "\x7f" not in text else "".join(map(bundled, text))


def to_ascii_unidecode(text: str) -> str:
    """As FastSpeech does it."""
    return text if text.isascii() else "".join(map(unidecode, text))


@lru_cache(maxsize=4096)
def bundled(char: str) -> str:
    """What Tacotron 2 and FastPitch make of one character."""
    if ord(char) < 127:
        return char
    if char in _BUNDLED:
        return _BUNDLED[char]
    return anyascii(char) if _BUNDLED_AS_ANYASCII.match(char) else ""


@lru_cache(maxsize=4096)
def unidecode(char: str) -> str:
    """What FastSpeech makes of one character."""
    if char.isascii():
        return char
    if char in _UNIDECODE:
        return _UNIDECODE[char]
    if _FRACTIONS.match(char):
        return f" {anyascii(char)}" if char in "¼½¾⅟" else f" {anyascii(char)} "
    if _HAN.match(char):
        return anyascii(char) + " "
    if _POLYTONIC.match(char):
        letter = unicodedata.normalize("NFD", char)[0]
        return unidecode(letter) if letter != char else anyascii(char)
    return "" if _UNIDECODE_DROPS.match(char) else anyascii(char)

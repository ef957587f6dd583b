"""Characters before they are read: look-alikes unified, invisible ones removed, symbols named."""

import re
import unicodedata
from dataclasses import dataclass

from common.text.english.reading import tables

_ALIKE = {
    **dict.fromkeys("‘’‛ʼ`´ʹ＇", "'"),
    **dict.fromkeys("“”„‟«»〝〞＂", '"'),
    **dict.fromkeys("‐‑⁃", "-"),
    **dict.fromkeys("―⸺⸻", "—"),
    **dict(zip("⁄∕、，‚،。।；؛：∶！？؟・【】（）˚∗∼⁓", "//,,,,..;;::!?? ()()°*~~", strict=True)),
    **dict.fromkeys("「」『』", '"'),
}
_WORD_BREAKS = frozenset("\u00ad\u200b\ufeff\u2060")  # invisible, and nothing is lost
JOINER = "\u200d"
SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n", strict=True))
# Variation selectors, the keycap, skin tones.
EMOJI_PARTS = frozenset("\ufe0f\ufe0e\u20e3\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
_NOT_CLEAN = re.compile("[^\t-\r -~]")


@dataclass(frozen=True)
class LeftOut:
    """Something that is not spoken as written. The frontend reports each kind once."""

    symbol: str
    position: int
    kind: str


def clean(text: str) -> tuple[str, list[int] | None, list[LeftOut]]:
    """Look-alikes unified, what is invisible removed; where each character was written (None: the same)."""
    if not _NOT_CLEAN.search(text):
        return text, None, []
    out: list[str] = []
    positions: list[int] = []
    left_out: list[LeftOut] = []
    for position, char in enumerate(text):
        new = char if " " <= char <= "~" or char.isspace() else _clean_char(char, out, left_out, position)
        out.extend(new)
        positions.extend([position] * len(new))
    return "".join(out), positions, left_out


def _clean_char(char: str, out: list[str], left_out: list[LeftOut], position: int) -> str:
    """What stands for a character; a combining mark joins the letter before it."""
    if char in _ALIKE:
        return _ALIKE[char]
    if char in _WORD_BREAKS:
        return ""
    if char in tables.SYMBOLS or char in SUPERSCRIPTS or char in tables.EMOJI:
        return char
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if category in ("Mn", "Me"):
        if out and len(joined := unicodedata.normalize("NFC", out[-1] + char)) == 1:
            out[-1] = joined
        return ""
    if category[0] == "C":
        if char == JOINER and out and out[-1] > "\u2190":  # inside an emoji
            return char
        left_out.append(LeftOut(char, position, char))
        return " " if category == "Cc" else ""
    plain = unicodedata.normalize("NFKC", char)
    if plain != char and all((c.isascii() and c.isalnum()) or c in ".,()/°'\u2044 " for c in plain):
        return plain.replace("\u2044", "/")
    return char


def script_of(char: str) -> str:
    """ "LATIN", "GREEK", "CJK"."""
    return unicodedata.name(char, "UNKNOWN").split(" ")[0]


def name_of(char: str) -> str:
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

"""Moves of chess: Nf3, Qxf7#, exd5, O-O; playing cards: A♠."""

from __future__ import annotations

import re

from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading.capitals import letter_name
from melforge.common.text.english.reading.cursor import Cursor, form

_PIECES = {"K": "king", "Q": "queen", "R": "rook", "B": "bishop", "N": "knight"}
_MOVE = r"(?:[KQRBN][a-h]?[1-8]?x?[a-h][1-8]|[a-h]x[a-h][1-8]|[a-h][1-8])"
MOVE = re.compile(rf"(?<=\d\.){_MOVE}(?!\w)")
# A piece's letter begins words and formulas too: a game is known by a numbered move, a capture or its words.
_GAME = re.compile(
    rf"\b\d{{1,3}}\.{{1,3}}\s?{_MOVE}|\b[KQRBNa-h]x[a-h][1-8]|\b[KQ][a-h]?[1-8]?[a-h][1-8][+#]"
    r"|\b(?i:mate in|(?:white|black)(?: to move|:))"
    r"|\b(?i:(?:white|black)\s(?:replie[ds]|play(?:s|ed)|answer(?:s|ed)|move[ds]))\b"
    r"|\b(?i:chess|checkmate|castl|bishop|knight|rook|gambit)"
)
_SIDES = {"O-O": "castles king side", "O-O-O": "castles queen side"}


@form(
    r"(?:([KQRBN])([a-h]?[1-8]?)(x?)([a-h])([1-8])|([a-h])x([a-h])([1-8])|(O-O(?:-O)?))(?:=([QRBN]))?([+#]?)(?!\w)"
    r"(?:[!?]{1,2}(?=\s[a-z\d]))?"
)
def chess_move(cursor: Cursor, m: re.Match) -> str:
    """Nf3, Rad1, Qxf7#, exd5, O-O; not a chord or a formula in other texts."""
    if cursor.touches_word or not cursor.is_near(_GAME):
        return ""
    if m[9]:
        said = _SIDES[m[9]]
    elif m[6]:
        said = f"{letter_name(m[6].upper())} takes {letter_name(m[7].upper())} {say.integer(m[8])}"
    else:
        origin = " ".join(say.integer(c) if c.isdecimal() else letter_name(c.upper()) for c in m[2])
        parts = (_PIECES[m[1]], origin, "takes" if m[3] else "", letter_name(m[4].upper()), say.integer(m[5]))
        said = " ".join(filter(None, parts))
    promoted = f" {_PIECES[m[10]]}" if m[10] else ""
    return said + promoted + {"+": " check", "#": " mate"}.get(m[11], "")


_RANKS = {"A": "ace", "K": "king", "Q": "queen", "J": "jack", "T": "ten"}
_SUITS = {"♠": "spades", "♥": "hearts", "♦": "diamonds", "♣": "clubs"}


@form(r"([AKQJT]|10|[2-9])([♠♥♦♣])\ufe0f?")
def playing_card(cursor: Cursor, m: re.Match) -> str:
    """A♠, 10♥."""
    return "" if cursor.touches_word else f"{_RANKS.get(m[1]) or say.integer(m[1])} of {_SUITS[m[2]]}"

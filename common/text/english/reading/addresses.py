"""E-mail and web addresses, files and paths, hashtags and handles."""

from __future__ import annotations

import re

from common.text.english.pronounce import is_known
from common.text.english.reading import tables
from common.text.english.reading.cursor import WORD, Cursor, letter_name, short_number
from common.text.english.word_parts import words

_HEAD = re.compile(r"\S{1,64}")
_SCHEME = re.compile(r"^(?:https?|ftp)://", re.IGNORECASE)
_TLD = "|".join(sorted(tables.TOP_LEVEL_DOMAINS, key=len, reverse=True))
_ENDINGS = "|".join(sorted(tables.FILE_ENDINGS, key=len, reverse=True))
_EMAIL = re.compile(r"[\w.+%-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w@])")
_URL = re.compile(
    r"(?:(?:https?|ftp)://|www\.)[^\s<>\"]{1,2000}"
    rf"|(?:[A-Za-z0-9-]{{1,63}}\.){{1,8}}(?:{_TLD})(?![\w-]|\.\w)(?:[/?#:][^\s<>\"]{{0,2000}})?",
    re.IGNORECASE,
)
_FILE = re.compile(
    rf"(?:[\w.-]{{1,100}}[/\\]){{0,12}}[\w-]{{1,100}}(?:\.[\w-]{{1,40}}){{0,3}}\.(?:{_ENDINGS})(?!\w)"
)
_PATH = re.compile(
    r"(?:[A-Za-z]:\\|\\\\|~/|\.{1,2}/|/)(?=[A-Za-z_.])[\w.+%@~-]{1,255}(?:[/\\][\w.+%@~-]{0,255}){0,40}"
)
_PARTS = re.compile(r"[A-Za-z]+|\d+|.", re.DOTALL)
_MARKS = {
    **{".": "dot", "/": "slash", "\\": "backslash", "-": "dash", "_": "underscore", "?": "question mark"},
    **{"=": "equals", "&": "and", "#": "hash", "%": "percent", ":": "colon", "~": "tilde", "+": "plus"},
    **{"@": "at", ",": "comma", ";": "semicolon", "!": "exclamation mark", "*": "star", "$": "dollar"},
}
_SPELLED = words("uk us io ai edu pdf de txt py ca au eu me co fr www")

_HASH_NUMBER = re.compile(r"#\s?(?=\d)")
_HASHTAG = re.compile(r"#(\w{1,100})")
_HANDLE = re.compile(r"@(\w[\w.]{0,62}\w|\w)")
_NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|.", re.DOTALL)


class Addresses(Cursor):
    """Rules for what machines read."""

    def _address(self, start: int) -> int:
        """Addresses are read part by part; the "https://" before one is not."""
        head = _HEAD.match(self.text, start)[0]
        if not any(mark in head for mark in "@./\\"):
            return 0
        for pattern in (_EMAIL, _URL, _PATH, _FILE):
            if match := pattern.match(self.text, start):
                address = match[0].rstrip(".,;:!?)]}'\"")
                return self._emit(self._spoken_address(_SCHEME.sub("", address)), start + len(address))
        return 0

    def _spoken_address(self, address: str) -> str:
        spoken = []
        for part in _PARTS.findall(address):
            if part.isdecimal():
                spoken.append(short_number(part))
            elif not part.isalpha():
                spoken.append(_MARKS.get(part, tables.SYMBOLS.get(part, "")))
            elif not part.isascii():
                spoken.append(self._foreign(part))
            elif part.lower() in _SPELLED:
                spoken.append(part.upper())
            elif part.islower() and (len(part) > 3 or (len(part) > 1 and is_known(part))):
                spoken.append(part)
            elif part.islower():
                spoken.append(letter_name(part.upper()))
            else:
                spoken.append(self._camel(part) if not part.isupper() else self._part_of_name(part))
        return " ".join(word for word in spoken if word)

    def _tag(self, start: int, char: str) -> int:
        """#1, #MachineLearning, @user_name."""
        if char == "#" and not self._touches_word():
            if match := _HASH_NUMBER.match(self.text, start):
                return self._emit("number", match.end())
            if match := _HASHTAG.match(self.text, start):
                return self._emit(f"hashtag {self._spoken_name(match[1])}", match.end())
        elif char == "@" and (match := _HANDLE.match(self.text, start)):
            return self._emit(f"at {self._spoken_name(match[1])}", match.end())
        return 0

    def _spoken_name(self, name: str) -> str:
        if not name.isascii():
            return " ".join(self._plain(part, self.at) for part in WORD.findall(name))
        marks = {"_": "underscore", ".": "dot"}
        return " ".join(marks.get(part) or self._part_of_name(part) for part in _NAME_PARTS.findall(name))

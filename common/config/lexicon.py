"""lexicon.yaml: the file of a lexicon, of a voice or of a user; docs/reading.md says how it is written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from melforge.common.arguments import checked
from melforge.common.config.typed import build_section
from melforge.common.config.watched import WatchedFile
from melforge.common.config.yaml_file import Entry, read_yaml
from melforge.common.errors import InputError
from melforge.common.text import SaidAs
from melforge.common.text.lexicon import LONGEST_KEY, Lexeme, Lexicon
from melforge.common.text.phonemes import in_braces

LONGEST_SAID = 500  # characters

_BRACES = re.compile(r"\{([^{}]*)\}")
_WORD = re.compile(r"[^\W_]+")
_NOT_IN_PATTERNS = re.compile(r"\\[1-9]|\(\?P|\(\?\(")


@dataclass(frozen=True)
class LexiconEntry:
    """What may stand behind a key: one of the first four, and conditions."""

    words: str | None = None  # with phonemes in braces, if any
    arpabet: str | None = None
    ipa: str | None = None
    x_sampa: str | None = None
    part_of_speech: Literal["noun", "verb", "adjective"] | None = None
    case: bool | None = None  # None: a key in capitals ("US", "WHO") is meant in capitals only
    pattern: bool = False

    def __post_init__(self) -> None:
        if len(self.given) != 1:
            names = "words, arpabet, ipa, x_sampa"
            raise InputError(f"give one of {names}, not {', '.join(self.given) or 'none'}")

    @property
    def given(self) -> list[str]:
        return [name for name in ("words", "arpabet", "ipa", "x_sampa") if getattr(self, name) is not None]

    @property
    def spoken(self) -> str:
        (name,) = self.given
        value = getattr(self, name)
        if name == "words":
            return _BRACES.sub(lambda braces: in_braces(braces[1]), value)
        return in_braces(value, name.replace("_", "-"))


@checked
def read_lexicon(path: str | Path) -> Lexicon:
    """The lexicon of a file. An InputError names the line that is wrong."""
    return Lexicon(lexemes(read_yaml(Path(path))))


def lexemes(entries: Mapping[str, Entry], patterns: bool = True) -> Iterator[Lexeme]:
    """Those of keys and values: text is words, a mapping says more, and of a list each counts where it may.

    `patterns`: whether there may be patterns. An InputError names the place of what is wrong.
    """
    for key, entry in entries.items():
        for value in entry.value if isinstance(entry.value, list) else [entry.value]:
            yield _lexeme(key, value, entry.place, patterns)


def _lexeme(key: str, value: Any, place: str, patterns: bool) -> Lexeme:
    where = f"{place}: {key[:LONGEST_KEY]!r}"
    if not isinstance(value, str | Mapping):
        quotes = "" if isinstance(value, list) else "; words such as no, on and null need quotes here"
        raise InputError(f"{where} must be text, a mapping or a list of such, not {value!r}{quotes}")
    said = LexiconEntry(words=value) if isinstance(value, str) else build_section(LexiconEntry, value, where)
    try:
        spoken = said.spoken
        if not key.strip() or len(key) > LONGEST_KEY or len(spoken) > LONGEST_SAID or "\0" in key:
            raise InputError(
                f"a key has 1 to {LONGEST_KEY} characters (not 0), what is said {LONGEST_SAID} at most"
            )
        if said.part_of_speech and (said.pattern or not _WORD.fullmatch(key)):
            raise InputError("part_of_speech is for single words")
        pattern = _compiled(key, spoken, said.case is not False, patterns) if said.pattern else None
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    in_capitals = key.isupper() and sum(map(str.isalpha, key)) > 1
    case = in_capitals if said.case is None else said.case
    return Lexeme(key.strip(), spoken, place, case, said.part_of_speech or "", pattern)


def _compiled(pattern: str, spoken: str, case: bool, allowed: bool) -> re.Pattern[str]:
    if not allowed:
        raise InputError("patterns are for the lexicons of voices and servers, not for those of requests")
    if _NOT_IN_PATTERNS.search(pattern):
        raise InputError("groups have neither names nor references in the pattern; \\1 is for what is said")
    try:
        re.compile(f"(?:{pattern})")  # no flags for the whole: patterns are tried together
        re.sub(f"{pattern}|", spoken, "")
        return re.compile(pattern, 0 if case else re.IGNORECASE)
    except (re.error, IndexError, OverflowError) as error:
        raise InputError(f"no regular expression: {error}") from None


class LexiconFile(WatchedFile[Lexicon]):
    """The lexicon of a file, which is read again when that changes: an `OwnWords`."""

    def __init__(self, path: Path):
        super().__init__(path, read_lexicon)

    def entries(self, word: str) -> list[tuple[str, str]]:
        """As the lexicon's, as the file is now."""
        return self.current.entries(word)

    def add_to(self, said: Sequence[SaidAs], text: str) -> Sequence[SaidAs]:
        """As the lexicon's, as the file is now."""
        return self.current.add_to(said, text)

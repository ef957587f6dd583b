"""Which symbols of an utterance speak which of its words, and which words as written they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Phonemes in braces are one word.
_WORD = re.compile(r"(?:\{[^{}]*\}|[^\s{}]|[{}])+")
# Frontends differ in whether a hyphen is a symbol, a blank, or nothing but an end of a word.
_PART = re.compile(r"(?:\{[^{}]*\}|[^\s{}-]|[{}])+")
_BREAKS = frozenset(" -")
_PHONE = "@"


@dataclass(frozen=True)
class SpokenWord:
    """A word of the normalised text without the marks around it, and its symbols."""

    text: str
    place: int  # its offset in the normalised text
    start: int  # its symbols from here
    end: int  # to here


def words_of(normalised: str, symbols: Sequence[str]) -> list[SpokenWord]:
    """The words that the symbols speak, in order; no symbol stands in two, blanks and marks in none.

    A word of which no symbol is left (letters that the symbol set lacks) is left out.
    """
    groups = _groups(symbols)
    words = [match for match in _WORD.finditer(normalised) if _is_spoken(match[0])]
    parts = [(number, part) for number, word in enumerate(words) for part in _parts(word[0])]
    if len(parts) == len(groups):
        owners = [number for number, _ in parts]
    else:
        owners = _owners([part for _, part in parts], [symbols[start:end] for start, end in groups])
        owners = [parts[owner][0] for owner in owners]
    extents: dict[int, tuple[int, int]] = {}
    for owner, (start, end) in zip(owners, groups, strict=True):
        extents[owner] = extents.get(owner, (start, end))[0], end
    return [
        SpokenWord(_bare(words[owner][0]), words[owner].start(), start, end)
        for owner, (start, end) in extents.items()
    ]


def common_breaks(written: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Where a text as written and its spoken words can both be cut: (an offset, a number of words), in order.

    Between words that are the same in both: "cost $5.50 today" can be cut on both sides of the amount.
    """
    from difflib import SequenceMatcher  # speaking imports this module, and needs it for nothing else

    tokens = [match for match in _WORD.finditer(written) if _is_spoken(match[0])]
    keys = [_key(token[0]) for token in tokens]
    matcher = SequenceMatcher(None, keys, [_key(word) for word in words], autojunk=False)
    breaks = {(0, 0), (len(tokens), len(words))}
    for block in matcher.get_matching_blocks():
        breaks.update((block.a + step, block.b + step) for step in range(block.size + 1) if block.size)
    offsets = [0, *(token.start() for token in tokens[1:]), len(written)]
    return [(offsets[token], word) for token, word in sorted(breaks)] if tokens else [(0, 0)]


def _groups(symbols: Sequence[str]) -> list[tuple[int, int]]:
    """The extents of what is spoken between two blanks or hyphens, without the marks at its ends."""
    groups: list[tuple[int, int]] = []
    inside = False
    for place, symbol in enumerate(symbols):
        if symbol in _BREAKS:
            inside = False
        elif symbol[-1].isalnum():
            groups[-1:] = [(groups[-1][0], place + 1)] if inside else [*groups[-1:], (place, place + 1)]
            inside = True
    return groups


def _parts(word: str) -> Iterator[str]:
    return (part for part in _PART.findall(word) if _is_spoken(part))


def _is_spoken(text: str) -> bool:
    return any(char.isalnum() for char in text)


def _bare(word: str) -> str:
    """Without marks at its ends; an apostrophe may be part of it."""
    inner = [place for place, char in enumerate(word) if char.isalnum() or char in "'{}"]
    return word[inner[0] : inner[-1] + 1].strip("'") if inner else word


def _key(word: str) -> str:
    return "".join(char for char in word.lower() if char.isalnum())


def _owners(parts: Sequence[str], groups: Sequence[Sequence[str]]) -> list[int]:
    """The part that each group of symbols speaks, where they are not as many: an alignment of least cost.

    A part that nothing speaks costs 1; so does a group that no part has, which goes to the part before it.
    """
    costs = [[float(j) for j in range(len(groups) + 1)]]
    for i, part in enumerate(parts, start=1):
        row = [float(i)]
        for j, group in enumerate(groups, start=1):
            together = costs[i - 1][j - 1] + _difference(part, group)
            row.append(min(together, costs[i - 1][j] + 1, row[j - 1] + 1))
        costs.append(row)
    owners: list[int] = []
    i, j = len(parts), len(groups)
    while j:
        if i and costs[i][j] == costs[i - 1][j - 1] + _difference(parts[i - 1], groups[j - 1]):
            i, j = i - 1, j - 1
            owners.append(i)
        elif i and costs[i][j] == costs[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
            owners.append(max(i - 1, 0))
    return owners[::-1]


def _difference(part: str, group: Sequence[str]) -> float:
    """From 0, the same letters, to 1.5, other letters; of phones only the number is compared."""
    spoken = [symbol for symbol in group if symbol[-1].isalnum()]
    if any(symbol.startswith(_PHONE) for symbol in spoken):
        wanted = len(part.split()) if part.startswith("{") else len(_key(part))
        return min(1.0, 0.2 + abs(wanted - len(spoken)) / max(wanted, len(spoken)))
    return 0.0 if _key("".join(spoken)) == _key(part) else 1.5

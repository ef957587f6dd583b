"""The table (`data/homographs.tsv`): a word's two readings and the cues that call for the second."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from melforge.common.text.english.homographs.clauses import word_at
from melforge.common.text.english.homographs.nouns import (
    is_adjective,
    is_before_plural,
    is_closing,
    is_mass,
    is_name,
    is_noun,
    is_place,
)
from melforge.common.text.english.homographs.verbs import is_past, is_third_person, is_used_to, is_verb
from melforge.common.text.english.word_parts import Phones, plural, read_rows


def choose(word: str, sentence: Sequence[str], index: int) -> Phones | None:
    """The reading of a homograph at `sentence[index]`, None for any other word. A mark is a word, too."""
    entry = _table().get(word)
    if entry is not None:
        usual, other, cues = entry
        if any(cue[0] == "!" and _holds(cue[1:], sentence, index) for cue in cues):
            return usual
        return other if any(cue[0] != "!" and _holds(cue, sentence, index) for cue in cues) else usual
    entry = _table().get(word[:-1]) if word.endswith("s") else None
    if entry is None or entry[2][0] not in ("VERB", "NOUN"):
        return None
    usual, other, (kind, *_) = entry  # "records", "conducts"
    is_third = is_third_person(sentence, index)
    is_other = is_third if kind == "VERB" else is_noun(sentence, index) and not is_third
    phones = other if is_other else usual
    return phones + plural(phones)


def readings(word: str) -> list[tuple[Phones, str]]:
    """Both readings of a homograph, and what calls for each."""
    entry = _table().get(word)
    if entry is None:
        return []
    usual, other, cues = entry
    told = " ".join(cues[:4]) + (" ..." if len(cues) > 4 else "")
    return [(usual, "homograph"), (other, f"homograph, as told by {told}")]


def verb(word: str) -> Phones | None:
    """The reading as a verb of a word that is a noun or an adjective too."""
    entry = _table().get(word)
    if entry is None or entry[2][0] not in ("VERB", "NOUN"):
        return None
    return entry[1] if entry[2][0] == "VERB" else entry[0]


def usual(word: str) -> Phones | None:
    """The reading of a homograph that needs no cue."""
    entry = _table().get(word)
    return entry[0] if entry else None


@lru_cache(maxsize=1)
def _table() -> dict[str, tuple[Phones, Phones, tuple[str, ...]]]:
    rows = read_rows("homographs.tsv")
    return {word: (tuple(a.split()), tuple(b.split()), tuple(cues.split())) for word, a, b, cues in rows}


def _holds(cue: str, sentence: Sequence[str], index: int) -> bool:
    if cue[0] == "<":
        return word_at(sentence, index - 1) == cue[1:]
    if cue[0] == ">":
        return word_at(sentence, index + 1) == cue[1:]
    if cue[0] == "~":
        return cue[1:] in (word_at(sentence, i) for i in range(index - 5, index + 6))
    return _CONTEXTS[cue](sentence, index)


_CONTEXTS = {
    "VERB": is_verb,
    "NOUN": is_noun,
    "PAST": is_past,
    "USED": is_used_to,
    "CLOSING": is_closing,
    "CAPITAL": is_name,
    "PLACE": is_place,
    "ADJECTIVE": is_adjective,
    "MASS": is_mass,
    "BEFORE_PLURAL": is_before_plural,
    "LOWER": lambda sentence, index: sentence[index].islower(),
}

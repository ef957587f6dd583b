"""Whether a word is a noun, an adjective or a name where it stands."""

from __future__ import annotations

from collections.abc import Sequence

from melforge.common.text.english.homographs.clauses import is_plural, is_thing_marker, word_at
from melforge.common.text.english.homographs.verbs import is_behind_singular, is_verb
from melforge.common.text.english.homographs.word_classes import (
    AFTER_IMPERATIVE,
    BE,
    CLOSED,
    COUNTING,
    DETERMINERS,
    FINITE,
    OBJECTS,
    PLACE_PREPOSITIONS,
    PLURALS,
)


def is_noun(sentence: Sequence[str], index: int) -> bool:
    if is_verb(sentence, index):
        return False
    if sentence[index].endswith("s") and is_behind_singular(sentence, index):
        return False
    previous = word_at(sentence, index - 1)
    if is_thing_marker(previous):
        return True
    if word_at(sentence, index + 1) == "of":
        return True
    if previous in CLOSED or not previous[:1].isalpha():
        return False
    if is_plural(previous) and not sentence[index].endswith("s"):
        return False  # "the flavors combine well"
    further = word_at(sentence, index - 2)  # "the inaugural address"
    return further in DETERMINERS or further in ("of", "in", "with", "without", "by")


def is_closing(sentence: Sequence[str], index: int) -> bool:
    """A thing with no other noun behind it: "it came to a close.", "the invalid was"."""
    following = word_at(sentence, index + 1)
    is_last = not following[:1].isalpha() or following in FINITE or following == "who"
    return word_at(sentence, index - 1) in ("a", "an", "the", "its", "this") and is_last


def is_adjective(sentence: Sequence[str], index: int) -> bool:
    """Behind a determiner and before another noun: "a learned judge", not "he learned a lesson"."""
    previous, following = word_at(sentence, index - 1), word_at(sentence, index + 1)
    if previous not in DETERMINERS and previous not in ("very", "so", "most", "with", "of"):
        return False
    return following[:1].isalpha() and following not in CLOSED and following not in OBJECTS


def is_before_plural(sentence: Sequence[str], index: int) -> bool:
    """An adjective before several things: "minute crystals", not "ten minute breaks"."""
    previous, following = word_at(sentence, index - 1), word_at(sentence, index + 1)
    return is_plural(following) and following not in PLURALS and previous not in COUNTING


def is_place(sentence: Sequence[str], index: int) -> bool:
    """Capitalised behind a preposition: "he lives in Reading"."""
    is_capital = sentence[index][:1].isupper() and not sentence[index].isupper()
    return is_capital and word_at(sentence, index - 1) in PLACE_PREPOSITIONS


def is_mass(sentence: Sequence[str], index: int) -> bool:
    """A material: "covered with lead.", not "with lead singer"."""
    following = word_at(sentence, index + 1)
    is_closed = not following[:1].isalpha() or following in BE or following in ("and", "or")
    return is_closed and word_at(sentence, index - 1) in ("with", "from", "into", "in", "pure", "as")


def is_name(sentence: Sequence[str], index: int) -> bool:
    """Capitalised; at the head of a sentence only where no object follows ("Polish the table")."""
    if not sentence[index][:1].isupper():
        return False
    first = index == 0 or not sentence[index - 1][:1].isalpha()
    return not first or word_at(sentence, index + 1) not in AFTER_IMPERATIVE

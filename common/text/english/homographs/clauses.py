"""What stands around a word in its clause: subjects, other verbs, where the clause begins."""

from __future__ import annotations

from collections.abc import Sequence

from melforge.common.text.english.homographs.word_classes import (
    ADVERBS,
    AL_NOUNS,
    BOTH_WAYS,
    CLAUSE_WORDS,
    CLOSED,
    DAYS,
    DETERMINERS,
    FINITE,
    INTRANSITIVE,
    LINKS,
    NO_ADVERBS,
    NO_PLURALS,
    NUMBERS,
    OBJECTS,
    PERSONS,
    PLURALS,
    PREPOSITIONS,
    REACH,
    SHOWING,
    SINGULAR_MARKS,
    SUBORDINATORS,
    VERBS_IN_S,
)

_ADJECTIVE_ENDS = ("ive", "ous", "ful", "less", "able", "ible", "ular", "ish")


def word_at(sentence: Sequence[str], index: int) -> str:
    return sentence[index].lower().rstrip("-") or sentence[index] if 0 <= index < len(sentence) else ""


def word_before(sentence: Sequence[str], index: int) -> int:
    """The place of the nearest word before that is no adverb."""
    at = index - 1
    while at >= 0 and index - at < 4 and _is_adverb(word_at(sentence, at)):
        at -= 1
    return at


def _is_adverb(word: str) -> bool:
    return word in ADVERBS or (word.endswith("ly") and word not in NO_ADVERBS)


def has_singular_subject(sentence: Sequence[str], at: int) -> bool:
    """Whether a noun that can be the subject of a verb in -s ends at `at`: "the company", "Iron"."""
    word = word_at(sentence, at)
    if (
        word in CLOSED
        or not word[:1].isalpha()
        or (word[-1] == "s" and not _is_full_name(sentence, at))
        or (word.endswith(("ing", "ed", "ly", "al", "ese")) and word not in AL_NOUNS)
    ):
        return False
    start = clause_start(sentence, at)
    if any(
        word_at(sentence, back) in FINITE or word_at(sentence, back) in PERSONS for back in range(start, at)
    ):
        return False
    first = word_at(sentence, start)
    is_marked = first in SINGULAR_MARKS or first in ("the", "no") or sentence[at][:1].isupper()
    return is_marked and (start == 0 or _is_plain_clause(sentence, start, at))


def _is_plain_clause(sentence: Sequence[str], start: int, at: int) -> bool:
    """Whether a clause that another word begins has only a subject so far: "as the rate of shear"."""
    if word_at(sentence, start - 1) not in SUBORDINATORS or sentence[at + 1][:1].isupper():
        return False
    inside = [word_at(sentence, i) for i in range(start, at + 1)]
    if inside[-1].endswith(_ADJECTIVE_ENDS) or any(_is_verb_like(word) for word in inside[1:-1]):
        return False
    return not any(word == "to" or (word in PREPOSITIONS and word != "of") for word in inside)


def _is_verb_like(word: str) -> bool:
    return len(word) > 4 and word.endswith(("ing", "ed", "ly", "s")) and not word.endswith(("'s", "ss"))


def _is_full_name(sentence: Sequence[str], at: int) -> bool:
    """ "Alwin Nikolais", "Mrs Hughes"."""
    return (
        at > 0
        and sentence[at][:1].isupper()
        and sentence[at - 1][:1].isupper()
        and not sentence[at].isupper()
    )


def is_predicate(sentence: Sequence[str], index: int) -> bool:
    """Whether the clause has no verb but this one, and goes on."""
    following = word_at(sentence, index + 1)
    if not following[:1].isalpha():
        start = clause_start(sentence, index)
        is_meant = word_at(sentence, index) in INTRANSITIVE
        return is_meant and 0 < start < index - 1 and _is_plain_clause(sentence, start, index - 1)
    is_participle = following.endswith("ed") and len(following) > 4  # "the records maintained on him"
    if is_participle or goes_on_as_noun(sentence, index) or following in ("of", "that", "are"):
        return False
    return following not in ("in", "at", "by", "from", "for") or _is_only_verb(sentence, index)


def _is_only_verb(sentence: Sequence[str], index: int) -> bool:
    """Whether nothing behind it in the sentence can be its verb: "demand increases in winter"."""
    for at in range(index + 1, min(index + REACH, len(sentence))):
        word = word_at(sentence, at)
        if word in (".", "?", "!"):
            return True
        if word in FINITE or word in SHOWING or (word.endswith("ed") and len(word) > 4):
            return False
    return len(sentence) <= index + REACH


def is_object(word: str) -> bool:
    """Whether a word behind "the authors present" is a noun or an adjective, which makes that a verb."""
    is_closed = word in CLOSED or word in FINITE or word in SHOWING or word in CLAUSE_WORDS
    return word.isalpha() and len(word) > 2 and not is_closed and not word.endswith("ed") and word not in DAYS


def has_distant_subject(sentence: Sequence[str], index: int, following: str) -> bool:
    """ "Critics of the plan object to it": a plural, a phrase behind it, and no other verb in the clause."""
    if following not in OBJECTS and following not in ("to", "that"):
        return False
    start = clause_start(sentence, index)
    links = [at for at in range(start + 1, index - 1) if word_at(sentence, at) in LINKS]
    if not links or not is_plural(word_at(sentence, links[0] - 1)) or word_at(sentence, index - 1) in CLOSED:
        return False
    around = [word_at(sentence, at) for at in range(start, min(index + REACH, len(sentence))) if at != index]
    return not any(
        word in FINITE or word in PERSONS or (word.endswith("ed") and len(word) > 4) for word in around
    )


def has_plural_subject(sentence: Sequence[str], at: int) -> bool:
    """Whether a plural that can be the subject of a verb ends at `at`: "the two reports", "banks that"."""
    word = word_at(sentence, at)
    if _are_two_names(sentence, at):
        return True
    if word in ("that", "which"):
        return is_plural(word_at(sentence, at - 1))
    if word == "states" and word_at(sentence, at - 1) == "united":
        return False
    start = clause_start(sentence, at)
    is_alone = start == at and word == "sales" and word_at(sentence, at + 2) in PREPOSITIONS
    if not is_plural(word) and not is_alone:
        return False
    for back in range(at - 1, start - 1, -1):
        other = word_at(sentence, back)
        if other in FINITE or other in PERSONS:
            return False
        if other == "to" or (other.endswith("ed") and len(other) > 4 and not _is_before_noun(sentence, back)):
            return False
        if other in SINGULAR_MARKS and other not in ("his", "her", "its", "my", "your", "our", "their"):
            return False  # "a farm animals record"
    return True


def _are_two_names(sentence: Sequence[str], at: int) -> bool:
    """Whether a clause begins with two names that end at `at`: "Martin and Stendler present evidence"."""
    if at < 2 or word_at(sentence, at - 1) != "and" or word_at(sentence, at - 2) in CLOSED:
        return False
    before = word_at(sentence, at - 3)
    is_first = not before[:1].isalpha() or before in CLAUSE_WORDS
    are_names = sentence[at][:1].isupper() and sentence[at - 2][:1].isupper()
    return is_first and are_names and not sentence[at].endswith("'s")


def is_plural(word: str) -> bool:
    if word in PLURALS:
        return True
    if word.endswith("men") and len(word) > 4:
        return word not in ("specimen", "regimen", "abdomen", "acumen", "omen")
    is_form = len(word) > 3 and word[-1] == "s" and word[-2] not in "su'i"
    return is_form and word not in NO_PLURALS and word not in CLOSED and word not in VERBS_IN_S


def _is_before_noun(sentence: Sequence[str], index: int) -> bool:
    """Whether a participle stands before its noun: "the tired workers"."""
    before = word_at(sentence, index - 1)
    return before in DETERMINERS or before in PREPOSITIONS or not before[:1].isalpha()


def clause_start(sentence: Sequence[str], at: int) -> int:
    start = at
    while start > 0 and at - start < REACH:
        before = word_at(sentence, start - 1)
        if before in CLAUSE_WORDS or not before[:1].isalpha():
            break
        start -= 1
    return start


def goes_on_as_noun(sentence: Sequence[str], index: int) -> bool:
    """Whether the words behind make a noun of the one at `index`: its clause has a verb there."""
    following = word_at(sentence, index + 1)
    if (
        following in SHOWING
        or following in ("of", "concerning", "regarding", "dating", "relating")
        or (following in FINITE and following not in BOTH_WAYS)
    ):
        return True
    for at in range(index + 1, min(index + REACH, len(sentence))):
        word = word_at(sentence, at)
        if word in CLAUSE_WORDS or not word[:1].isalpha():
            return False
        if word in FINITE and word not in BOTH_WAYS:
            return True
    return False


def is_thing_marker(word: str) -> bool:
    return word in DETERMINERS or word in PREPOSITIONS or word in NUMBERS or word.endswith(("'s", "s'"))

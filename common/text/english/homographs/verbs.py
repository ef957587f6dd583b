"""Whether a word is a verb where it stands, and in which form."""

from __future__ import annotations

from collections.abc import Sequence

from melforge.common.text.english.homographs.clauses import (
    clause_start,
    goes_on_as_noun,
    has_distant_subject,
    has_plural_subject,
    has_singular_subject,
    is_object,
    is_plural,
    is_predicate,
    is_thing_marker,
    word_at,
    word_before,
)
from melforge.common.text.english.homographs.word_classes import (
    ADJECTIVES,
    ANYONE,
    ASKING,
    ASKING_ALIKE,
    BE,
    CAUSES,
    CLOSED,
    DETERMINERS,
    FINITE,
    HABITUAL,
    HAVE,
    HELPING,
    HELPS,
    IMPERATIVES,
    LY_ADJECTIVES,
    MODALS,
    NEVER_BEHIND,
    OBJECTS,
    PAST_SIGNS,
    PREPOSITIONS,
    QUANTITIES,
    QUESTION_WORDS,
    REACH,
    SELVES,
    SUBJECTS,
    THEM,
    TO_A_THING,
)


def is_verb(sentence: Sequence[str], index: int) -> bool:
    at = word_before(sentence, index)
    previous, following = word_at(sentence, at), word_at(sentence, index + 1)
    word = sentence[index].lower()
    if word == "subject" and following == "to":  # "subject to the approval of the owners"
        return False
    if previous == "to" and (following in BE or (following in MODALS and following not in ASKING_ALIKE)):
        return False  # "the approach to subject must be"
    if previous == "to":
        is_put = not following[:1].isalpha() and "put" in (word_at(sentence, i) for i in range(at - 4, at))
        return (
            (word_at(sentence, at - 1) not in TO_A_THING or following in OBJECTS)
            and following != "of"
            and not is_put
        )  # "put to use."
    if previous in MODALS:
        return following != "of"
    if previous in SUBJECTS and word in ADJECTIVES and word_at(sentence, at - 1) in BE:
        return False  # "are they present"
    if previous in SUBJECTS or previous in SELVES:
        return True
    if previous in ("that", "which") and following in OBJECTS:  # "accounts that permit them to do so"
        return _is_noun_like(word_at(sentence, at - 1))
    if following in OBJECTS:  # "he saw her present a rose", "Record the time"
        return previous not in BE and not is_thing_marker(previous)
    if following in QUANTITIES and is_plural(previous):
        return True
    if _is_imperative(sentence, index, following):
        return True
    if previous in HELPING and following[:1].isalpha() and following not in BE:  # "help produce cloth"
        return following not in PREPOSITIONS
    if _is_asked(sentence, at, following) or _is_caused(sentence, at, previous, following):
        return True
    if _is_behind_plural(sentence, at, index) or has_distant_subject(sentence, index, following):
        return True
    if previous in ("and", "or") and _is_listed_verb(sentence, at, index):
        return True
    if previous in ("and", "or", "but", ","):  # "to collect, sort and record"
        for back in range(at - 1, max(at - 5, -1), -1):
            word = word_at(sentence, back)
            if is_thing_marker(word):
                return False
            if word == "to" or word in MODALS:
                return True
    return False


def _is_noun_like(word: str) -> bool:
    return word in (",", "those") or (word[:1].isalpha() and word not in CLOSED and word not in FINITE)


def _is_imperative(sentence: Sequence[str], index: int, following: str) -> bool:
    """ "Use water to smooth the seams": at the head of a sentence or clause, and an object behind it."""
    before = word_at(sentence, index - 1)
    word = word_at(sentence, index)
    if word not in IMPERATIVES or before[:1].isalpha() or (before == "," and word != "use"):
        return False
    is_thing = following[:1].isalpha() and following not in FINITE and following not in ("and", "or", "as")
    return is_thing and following not in PREPOSITIONS and following not in BE


def _is_listed_verb(sentence: Sequence[str], at: int, index: int) -> bool:
    """ "(would) open the box and produce filets": "to" or a modal before, an object behind."""
    word, following = word_at(sentence, index), word_at(sentence, index + 1)
    is_thing = following[:1].isalpha() and following not in CLOSED and following not in FINITE
    if word in ADJECTIVES or not is_thing or following in DETERMINERS:
        return False
    for back in range(at - 1, max(at - REACH, -1), -1):
        other = word_at(sentence, back)
        if other in MODALS or (other == "to" and word_at(sentence, back + 1) not in CLOSED):
            return True
        if not other[:1].isalpha() or (other in FINITE and other not in MODALS):
            return False
    return False


def is_third_person(sentence: Sequence[str], index: int) -> bool:
    """Whether a word in -s is a verb: "he records", "what conducts the heat"."""
    at = word_before(sentence, index)
    previous = word_at(sentence, at)
    following = word_at(sentence, index + 1)
    if previous in ("what", "which") and (following in SUBJECTS or following in ("he", "she", "one")):
        return False  # "what subjects one discussed"
    if previous == "which" and word_at(sentence, at - 1) in PREPOSITIONS:
        return False  # "the way in which records are kept"
    if previous in ("he", "she", "it", "who", "which", "what", "this", "everyone", "nobody", "one"):
        return True
    if previous == "that" and at > 0:
        return True
    if previous in ("first", "second", "third", "last", "latter", "former", "other", "another") and (
        following in OBJECTS
    ):
        return True  # "the second recounts the argument"
    if _is_behind_adverb(sentence, index, at):
        return True
    is_such = following == "such" and word_at(sentence, index + 2) == "as"  # "records such as diaries"
    is_followed = (following in OBJECTS or following in QUANTITIES) and not is_such
    if is_followed and not is_thing_marker(previous) and previous not in BE:
        return True
    return is_behind_singular(sentence, index)


def _is_behind_adverb(sentence: Sequence[str], index: int, at: int) -> bool:
    """ "The volume gradually increases": an adverb and before it a noun."""
    adverb = word_at(sentence, index - 1)
    if at != index - 2 or not adverb.endswith("ly") or adverb in LY_ADJECTIVES:
        return False
    subject = word_at(sentence, at)
    is_subject = subject[:1].isalpha() and subject not in CLOSED and subject not in FINITE and subject != "to"
    return is_subject and not is_plural(subject) and not goes_on_as_noun(sentence, index)


def is_behind_singular(sentence: Sequence[str], index: int) -> bool:
    """Whether a verb in -s at `index` has its subject, a singular, right before: "iron conducts heat"."""
    at = word_before(sentence, index)
    if not has_singular_subject(sentence, at):
        return False
    is_named = at == index - 1 and sentence[at][:1].isupper() and sentence[index].islower()
    if is_named and word_at(sentence, index + 1) == "that" and clause_start(sentence, at) >= at - 2:
        return True  # "Mrs Hardy records that"
    return is_predicate(sentence, index)


def _is_behind_plural(sentence: Sequence[str], at: int, index: int) -> bool:
    """Whether a verb at `index` has its subject, a plural, right before: "the two reports conflict"."""
    if not has_plural_subject(sentence, at):
        return False
    word, following = word_at(sentence, index), word_at(sentence, index + 1)
    if sentence[index][:1].isupper() and at >= 0 and sentence[at][:1].isupper():
        return False  # "Sessions House"
    if word_at(sentence, at) in ("that", "which"):
        return following != "of"
    if word == "subject":  # "the rules subject members to controls"
        return following != "to" and "to" in (word_at(sentence, i) for i in range(index + 2, index + 6))
    if word in ADJECTIVES:  # "the officers present"
        is_free = word in NEVER_BEHIND and (following in PREPOSITIONS or not following[:1].isalpha())
        return following in OBJECTS or is_free or following.endswith("ly") or is_object(following)
    return not goes_on_as_noun(sentence, index)


def _is_asked(sentence: Sequence[str], at: int, following: str) -> bool:
    """ "Does anyone object to that?", "Did the company record a profit?": "do" or a modal comes first."""
    word = word_at(sentence, at)
    is_person = word in ANYONE
    if not is_person and (word in CLOSED or not word[:1].isalpha()):
        return False
    if following in ("?", "or", "and"):  # "Will the danger increase?"
        return word_at(sentence, 0) in ASKING and at in (1, 2) and word_at(sentence, at) not in DETERMINERS
    if not is_person and following not in OBJECTS and following not in PREPOSITIONS and following != "to":
        return False
    for back in range(at - 1, max(at - 5, -1), -1):
        other = word_at(sentence, back)
        if other in ASKING:
            before = word_at(sentence, back - 1)
            return before in QUESTION_WORDS or not before[:1].isalpha()
        if other not in DETERMINERS and other in CLOSED:
            return False
    return False


def _is_caused(sentence: Sequence[str], at: int, previous: str, following: str) -> bool:
    """ "Let them record it", "it helps farmers produce milk"."""
    if word_at(sentence, at - 1) in ("let", "lets", "letting") and sentence[at][:1].isupper():
        return True
    if word_at(sentence, at - 1) in CAUSES and previous in THEM:
        return previous != "her" or following in OBJECTS
    if not is_plural(previous):
        return False
    back = at - 1
    while back > 0 and at - back < 3 and word_at(sentence, back) in DETERMINERS:
        back -= 1
    return word_at(sentence, back) in HELPS and not goes_on_as_noun(sentence, at + 1)


def is_past(sentence: Sequence[str], index: int) -> bool:
    """Whether "read" is a past form."""
    at = word_before(sentence, index)
    previous = word_at(sentence, at)
    if previous in HAVE or previous in BE or previous in ("got", "get", "gets"):
        return True
    is_determined = previous in DETERMINERS and previous not in ("which", "that")
    if previous == "to" or previous in MODALS or is_determined:
        return False
    before = word_at(sentence, at - 1)
    is_asked = previous in SUBJECTS or previous in ("he", "she", "it")
    if is_asked and before in ASKING and before not in ("had", "has", "have"):
        return False  # "Didn't you read it?"
    if previous in THEM and before in HELPS | {"hear", "heard"}:
        return False
    if previous in ("and", "or", ",") and _is_infinitive_ahead(sentence, at):
        return False
    if at < 0 or (not previous[:1].isalpha() and previous != ","):
        return False
    if previous in ("he", "she", "it"):
        return True
    near = [word_at(sentence, i) for i in range(max(index - 12, 0), index + 13)]
    is_narrated = any(word in PAST_SIGNS or (len(word) > 4 and word.endswith("ed")) for word in near)
    if previous in SUBJECTS or previous in ("and", "or", "but", ","):
        return is_narrated
    return is_narrated or not (previous.endswith("s") or is_plural(previous))


def _is_infinitive_ahead(sentence: Sequence[str], at: int) -> bool:
    """Whether "to" or a modal and no past form stand before: "to sit down and read"."""
    for back in range(at - 1, max(at - REACH, -1), -1):
        word = word_at(sentence, back)
        if word in MODALS or (word == "to" and word_at(sentence, back + 1) not in CLOSED):
            return True
        if word in PAST_SIGNS or word in FINITE or (len(word) > 4 and word.endswith("ed")):
            return False
        if word in (".", "?", "!", ";"):
            return False
    return False


def is_used_to(sentence: Sequence[str], index: int) -> bool:
    """Habit: "I used to go", "I am used to it", but not "the tool (that was) used to open it"."""
    if word_at(sentence, index + 1) != "to":
        return False
    at = word_before(sentence, index)
    previous = word_at(sentence, at)
    if previous in BE:
        is_person = word_at(sentence, at - 1) in (*SUBJECTS, "he", "she", "people")
        return is_person or "'m" in previous or "'re" in previous
    if previous in HABITUAL or word_at(sentence, index + 2) in (
        "be",
        "have",
        "it",
        "this",
        "being",
        "having",
    ):
        return True
    if at >= 0 and sentence[at][:1].isupper():
        return True
    return (
        at >= 0
        and word_at(sentence, at) not in CLOSED
        and previous[:1].isalpha()
        and _is_first_verb(sentence, index)
    )


def _is_first_verb(sentence: Sequence[str], index: int) -> bool:
    """Whether the clause has no other finite verb: "the family used to live there"."""
    for at in range(clause_start(sentence, index), min(index + REACH, len(sentence))):
        word = word_at(sentence, at)
        if at > index and not word[:1].isalpha():
            return True
        is_past = at < index and word.endswith("ed") and len(word) > 4
        if at != index and (word in FINITE or is_past):
            return False
    return True

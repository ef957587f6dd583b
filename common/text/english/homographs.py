"""Words that are written alike and said in two ways (a record, to record), told apart by their neighbours.

`data/homographs.tsv` gives each word its two readings and the cues that call for the second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from common.text.english.word_parts import Phones, plural, read_rows, words

_MODALS = words("""will would can could shall should may might must do does did cannot don't doesn't didn't
    won't wouldn't can't couldn't shan't shouldn't mustn't let's please i'll you'll he'll she'll it'll we'll
    they'll i'd you'd he'd she'd we'd they'd gonna wanna dare dared needn't""")
_SUBJECTS = words("i you we they who")
_BE = words("""be am is are was were been being i'm you're he's she's it's we're they're that's isn't aren't
    wasn't weren't there's who's what's""")
_HAVE = words("""have has had having i've you've we've they've haven't hasn't hadn't he's she's it's who've
    could've would've should've might've""")
_DETERMINERS = words("""a an the this that these those my your his her its our their whose each every either
    neither some any no another other such what which more most less many several few all both own same one
    two three four five six seven eight nine ten first second third last next new old great good""")
_PREPOSITIONS = words("""of in on at by for from with without into onto upon under over about against between
    among through during after before behind beyond near per via despite toward towards within as than
    like""")
_ADVERBS = words("""not also never always ever even only again then thus first still just often soon now
    really rather either already actually both""")
_OBJECTS = words("the a an his her its my your our their it them him us me this these those all each")
# Before "to": what follows the pair is a thing, not an action.
_TO_A_THING = words("""prior due subject respect regard as relation addition according access opposed
    objection back close next""")
_HABITUAL = words("""i you he she it we they there who which that people everyone everybody nobody get gets
    got getting become became becomes becoming never""")
_PAST_SIGNS = words("yesterday ago last then was were had did once when after said went came took told")
_CLOSED = _MODALS | _SUBJECTS | _BE | _HAVE | _DETERMINERS | _PREPOSITIONS | _ADVERBS
_CLOSED |= words("he she it to and")
_AFTER_IMPERATIVE = words("the a your my it them up each all")


def choose(word: str, sentence: Sequence[str], index: int) -> Phones | None:
    """The reading of a homograph at `sentence[index]`, None for any other word. A mark is a word, too."""
    entry = _table().get(word)
    if entry is not None:
        usual, other, cues = entry
        return other if any(_holds(cue, sentence, index) for cue in cues) else usual
    entry = _table().get(word[:-1]) if word.endswith("s") else None
    if entry is None or entry[2][0] not in ("VERB", "NOUN"):
        return None
    usual, other, (kind, *_) = entry  # "records", "conducts"
    is_other = _is_third_person(sentence, index) if kind == "VERB" else _is_noun(sentence, index)
    phones = other if is_other else usual
    return phones + plural(phones)


def usual(word: str) -> Phones | None:
    """The reading of a homograph that needs no cue."""
    entry = _table().get(word)
    return entry[0] if entry else None


@lru_cache(maxsize=1)
def _table() -> dict[str, tuple[Phones, Phones, tuple[str, ...]]]:
    rows = read_rows("homographs.tsv")
    return {word: (tuple(a.split()), tuple(b.split()), tuple(cues.split())) for word, a, b, cues in rows}


def _at(sentence: Sequence[str], index: int) -> str:
    return sentence[index].lower().rstrip("-") or sentence[index] if 0 <= index < len(sentence) else ""


def _holds(cue: str, sentence: Sequence[str], index: int) -> bool:
    if cue[0] == "<":
        return _at(sentence, index - 1) == cue[1:]
    if cue[0] == ">":
        return _at(sentence, index + 1) == cue[1:]
    if cue[0] == "~":
        return cue[1:] in (_at(sentence, i) for i in range(index - 5, index + 6))
    return _CONTEXTS[cue](sentence, index)


def _before(sentence: Sequence[str], index: int) -> int:
    """The place of the nearest word before that is no adverb."""
    at = index - 1
    while at >= 0 and index - at < 4 and (_at(sentence, at) in _ADVERBS or _at(sentence, at).endswith("ly")):
        at -= 1
    return at


def _is_verb(sentence: Sequence[str], index: int) -> bool:
    at = _before(sentence, index)
    previous, following = _at(sentence, at), _at(sentence, index + 1)
    if previous == "to":
        return _at(sentence, at - 1) not in _TO_A_THING and following != "of"
    if previous in _MODALS:
        return following != "of"
    if previous in _SUBJECTS:
        return True
    if following in _OBJECTS:  # "he saw her present a rose", "Record the time"
        return previous not in _BE and not _is_thing_marker(previous)
    if previous in ("and", "or", "but", ","):  # "to collect, sort and record"
        for back in range(at - 1, max(at - 5, -1), -1):
            word = _at(sentence, back)
            if _is_thing_marker(word):
                return False
            if word == "to" or word in _MODALS:
                return True
    return False


def _is_third_person(sentence: Sequence[str], index: int) -> bool:
    """Whether a word in -s is a verb: "he records", "what conducts the heat"."""
    previous = _at(sentence, _before(sentence, index))
    if previous in ("he", "she", "it", "who", "which", "that", "what", "this", "everyone", "nobody", "one"):
        return True
    return _at(sentence, index + 1) in _OBJECTS and not _is_thing_marker(previous) and previous not in _BE


def _is_thing_marker(word: str) -> bool:
    return word in _DETERMINERS or word in _PREPOSITIONS or word.endswith(("'s", "s'"))


def _is_noun(sentence: Sequence[str], index: int) -> bool:
    if _is_verb(sentence, index):
        return False
    previous = _at(sentence, index - 1)
    if _is_thing_marker(previous):
        return True
    if _at(sentence, index + 1) == "of":
        return True
    if previous in _CLOSED or not previous[:1].isalpha():
        return False
    further = _at(sentence, index - 2)  # "the inaugural address"
    return further in _DETERMINERS or further in ("of", "in", "with", "without", "by")


def _is_past(sentence: Sequence[str], index: int) -> bool:
    """Whether "read" is a past form."""
    at = _before(sentence, index)
    previous = _at(sentence, at)
    if previous in _HAVE or previous in _BE or previous in ("got", "get", "gets"):
        return True
    is_determined = previous in _DETERMINERS and previous not in ("which", "that")
    if previous == "to" or previous in _MODALS or is_determined:
        return False
    if at < 0 or (not previous[:1].isalpha() and previous != ","):
        return False
    if previous in ("he", "she", "it"):
        return True
    near = [_at(sentence, i) for i in range(max(index - 12, 0), index + 13)]
    is_narrated = any(word in _PAST_SIGNS or (len(word) > 4 and word.endswith("ed")) for word in near)
    if previous in _SUBJECTS or previous in ("and", "or", "but", ","):
        return is_narrated
    return is_narrated or not previous.endswith("s")


def _is_used_to(sentence: Sequence[str], index: int) -> bool:
    """Habit: "I used to go", "I am used to it", but not "the tool (that was) used to open it"."""
    if _at(sentence, index + 1) != "to":
        return False
    at = _before(sentence, index)
    previous = _at(sentence, at)
    if previous in _BE:
        is_person = _at(sentence, at - 1) in (*_SUBJECTS, "he", "she", "people")
        return is_person or "'m" in previous or "'re" in previous
    if previous in _HABITUAL or _at(sentence, index + 2) in ("be", "have", "it", "this", "being", "having"):
        return True
    return at >= 0 and sentence[at][:1].isupper()


def _is_closing(sentence: Sequence[str], index: int) -> bool:
    """A thing with no other noun behind it: "it came to a close."."""
    following = _at(sentence, index + 1)
    return _at(sentence, index - 1) in ("a", "the", "its", "this") and not following[:1].isalpha()


def _is_name(sentence: Sequence[str], index: int) -> bool:
    """Capitalised; at the head of a sentence only where no object follows ("Polish the table")."""
    if not sentence[index][:1].isupper():
        return False
    first = index == 0 or not sentence[index - 1][:1].isalpha()
    return not first or _at(sentence, index + 1) not in _AFTER_IMPERATIVE


_CONTEXTS = {
    "VERB": _is_verb,
    "NOUN": _is_noun,
    "PAST": _is_past,
    "USED": _is_used_to,
    "CLOSING": _is_closing,
    "CAPITAL": _is_name,
    "LOWER": lambda sentence, index: sentence[index].islower(),
}

"""The table (`data/homographs.tsv`): a word's two readings and the cues that call for the second."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from melforge.common.text.english.homographs.network import load_network
from melforge.common.text.english.word_parts import Phones, plural, read_rows, words

KINDS = ("VERB", "NOUN")  # what the second reading is
_SURE = "=+"  # what begins a cue that the network does not weigh
_PERSONS = words("i you he she we they who people i'm you're he's she's we're they're")
_THINGS = words("the a an it this that these those my your his her its our their being having")
_PEOPLE = words("children men women everyone everybody someone somebody nobody")
_AUXILIARIES = words("did didn't do don't does can could should would will must may might shall")
_TIMES = words("""night week weekend month year summer winter spring fall autumn semester term christmas
    monday tuesday wednesday thursday friday saturday sunday time""")
_FAR = 12  # words
_ENDS = frozenset(".;:?!")
_HAVE = words("have has had haven't hasn't hadn't")
_AFTER_IMPERATIVE = words("the a your my it them up each all")


class Homograph(NamedTuple):
    word: str  # without the -s of a form that has no row of its own
    first: Phones
    second: Phones
    kind: str  # one of KINDS, or "" where only cues or the network tell
    cues: tuple[str, ...]


def find(word: str) -> Homograph | None:
    """The homograph (in lower case) or the one that it is a form of in -s ("records")."""
    return _with_forms().get(word)


def choose(word: str, sentence: Sequence[str], index: int) -> Phones | None:
    """The reading of a homograph at `sentence[index]`, None for any other word. A mark is a word, too."""
    entry = find(word)
    if entry is None:
        return None
    for sure in entry.cues:
        if sure[0] in _SURE and _holds(sure[1:], sentence, index):
            return entry.first if sure[0] == "=" else entry.second
    cue, network = cue_for(entry, sentence, index), load_network()
    if entry.word in network:
        return entry.second if network.is_second(entry.word, sentence, index, cue) else entry.first
    return entry.second if cue > 0 else entry.first


def cue_for(entry: Homograph, sentence: Sequence[str], index: int) -> int:
    """1 where a cue calls for the second reading, -1 where none does, 0 where the word has none."""
    if not entry.cues or _word_at(sentence, index) != entry.word:
        return 0
    if any(cue[0] == "!" and _holds(cue[1:], sentence, index) for cue in entry.cues):
        return -1
    return 1 if any(cue[0] not in f"!{_SURE}" and _holds(cue, sentence, index) for cue in entry.cues) else -1


def readings(word: str) -> list[tuple[Phones, str]]:
    """Both readings of a homograph, and what calls for each."""
    entry = load().get(word)
    if entry is None:
        return []
    cues = [cue.removeprefix("+") for cue in entry.cues if cue[0] not in "!="]
    told = entry.kind or " ".join(cues[:4]) + " ..." * (len(cues) > 4)
    return [(entry.first, "homograph"), (entry.second, f"homograph, as told by {told}")]


def verb(word: str) -> Phones | None:
    """The reading as a verb of a word that is a noun or an adjective too."""
    entry = load().get(word)
    if entry is None or not entry.kind:
        return None
    return entry.second if entry.kind == "VERB" else entry.first


def usual(word: str) -> Phones | None:
    """The reading of a homograph that needs no cue."""
    entry = load().get(word)
    return entry.first if entry else None


@lru_cache(maxsize=1)
def load() -> dict[str, Homograph]:
    """Every row by its word."""
    rows = {}
    for word, first, second, cues in read_rows("homographs.tsv"):
        kind, *others = cues.split()
        if kind not in KINDS:
            kind, others = "", [kind, *others]
        rows[word] = Homograph(word, tuple(first.split()), tuple(second.split()), kind, tuple(others))
    return rows


@lru_cache(maxsize=1)
def _with_forms() -> dict[str, Homograph]:
    """Every row by its word and by its form in -s."""
    forms = {
        f"{word}s": row._replace(first=row.first + plural(row.first), second=row.second + plural(row.second))
        for word, row in load().items()
        if row.kind
    }
    return forms | load()


def _word_at(sentence: Sequence[str], index: int) -> str:
    return sentence[index].lower().rstrip("-") or sentence[index] if 0 <= index < len(sentence) else ""


def _holds(cue: str, sentence: Sequence[str], index: int) -> bool:
    if cue[0] == "<":
        return _word_at(sentence, index - 1) == cue[1:]
    if cue[0] == ">":
        return _word_at(sentence, index + 1) == cue[1:]
    if cue[0] == "~":
        return cue[1:] in (_word_at(sentence, i) for i in range(index - 5, index + 6))
    if cue == "LOWER":
        return sentence[index].islower()
    return _OTHERS[cue](sentence, index)


def _is_habit(sentence: Sequence[str], index: int) -> bool:
    """ "I used to go", "I am used to it", but not "a tool (that was) used to open it"."""
    if _word_at(sentence, index + 1) != "to":
        return False
    if load_network().part_of_speech(sentence, index) == "VBD" or _word_at(sentence, index + 2) in _THINGS:
        return True
    if _word_at(sentence, index - 1) in ("had", "have", "has"):
        return False
    return any(_word_at(sentence, at) in _PERSONS for at in range(index - 3, index))


def _is_first(sentence: Sequence[str], index: int) -> bool:
    return index == 0 or not sentence[index - 1][:1].isalpha()


def _is_name(sentence: Sequence[str], index: int) -> bool:
    """Capitalised; at the head of a sentence only where no object follows ("Polish the table")."""
    is_object = _is_first(sentence, index) and _word_at(sentence, index + 1) in _AFTER_IMPERATIVE
    return sentence[index][:1].isupper() and not is_object


def _is_past(sentence: Sequence[str], index: int) -> bool:
    """ "I read it last week", "two years ago we read": somebody did it at a time that has passed."""
    subject, before = _word_at(sentence, index - 1), _word_at(sentence, index - 2)
    is_several = len(subject) > 4 and subject.endswith("s") and subject.isalpha()
    if not (subject in _PERSONS | _PEOPLE or is_several) or before in _AUXILIARIES:
        return False
    first = index
    while first > max(index - _FAR, 0) and sentence[first - 1] not in _ENDS:
        first -= 1
    clause = [_word_at(sentence, at) for at in range(first, min(index + _FAR, len(sentence)))]
    behind = next((at for at, word in enumerate(clause) if word in _ENDS), len(clause))
    times = zip(clause[:behind], [*clause[1:], ""], strict=False)
    return any(word in ("yesterday", "ago") or (word == "last" and then in _TIMES) for word, then in times)


def _is_perfect(sentence: Sequence[str], index: int) -> bool:
    """ "Have you (ever) read it?" """
    first = index - 2 - (_word_at(sentence, index - 1) in ("ever", "actually", "already", "never", "even"))
    return _word_at(sentence, first) in _HAVE and _word_at(sentence, first + 1) in _PERSONS


_OTHERS = {
    "PERFECT": _is_perfect,
    "USED": _is_habit,
    "CAPITAL": _is_name,
    "PAST": _is_past,
    "START": _is_first,
}

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
    really rather either already actually both sometimes seldom twice once perhaps maybe together""")
_NO_ADVERBS = words("""family assembly supply reply ally rally italy july sicily anomaly monopoly butterfly fly
    belly bully jelly lily emily molly sally billy kelly kimberly beverly""")
_OBJECTS = words("the a an his her its my your our their it them him us me this these those all each")
# Before "to": what follows the pair is a thing, not an action.
_TO_A_THING = words("""prior due subject respect regard as relation addition according access opposed
    objection back close next""")
_HABITUAL = words("""i you he she it we they there who which that people everyone everybody nobody get gets
    got getting become became becomes becoming never""")
_PAST_SIGNS = words("yesterday ago last then was were had did once when after said went came took told")
# A clause ends before these, and what stands behind them says nothing of the clause before.
_CLAUSE_WORDS = words("""that which who whom whose when where while if because although though as and but
    or so than whether since until before after how why what unless""")
_PAST_FORMS = words("""was were had did went came took told said made got gave found knew thought became
    left felt put brought began kept held wrote stood heard let meant set met ran paid sat spoke lay led
    read grew lost fell sent built understood drew broke spent cut rose drove bought wore chose saw won
    sold caught taught threw drank ate flew hit hurt shot sang swam stole struck swore tore woke shook hid
    froze forgot fought bore bit bent beat slept swept taught laid hung""")
_FINITE = _MODALS | _BE | _PAST_FORMS
_FINITE |= words("""have has had haven't hasn't hadn't i've you've we've they've i'll you'll didn't doesn't
    don't do does did remains becomes seems means makes takes gives shows says""")
# Verbs in -s that are hardly ever plurals: "the shop sells perfume".
_VERBS_IN_S = words("""sells writes contains includes requires provides becomes brings keeps gets goes comes
    knows thinks sees wears eats drinks sings teaches publishes receives performs creates begins allows follows
    describes explains believes serves enjoys prefers loses owns earns grows builds carries sends speaks tells
    meets pays sits stands leads tries seeks suffers uses remains belongs features involves represents lacks
    publishes manufactures makes gives takes has was does says goes lies wears""")
_FINITE |= _VERBS_IN_S
_PERSONS = words("i you he she it we they")
_PLURALS = words("""people men women children police cattle feet teeth mice geese many most some others
    few both several these those none""")
# In -s, and no plural; or mostly before another noun: "a sports record", "sales contracts".
_NO_PLURALS = words("""always perhaps sometimes besides towards afterwards perhaps thanks yes news sales
    sports arms goods customs savings earnings rights systems operations communications athletics politics
    economics physics mathematics series means versus it's that's what's he's she's there's let's
    here's who's times miles dollars percent pounds needs wants
    texas kansas arkansas paris charles james thomas jones williams davis harris hughes adams lewis""")
_SINGULAR_MARKS = words("a an this that each every another his her its my your our their one")
_CAUSES = words("""let lets make makes made help helps helped see saw watch watched hear heard have had
    watching seeing letting making helping""")
_THEM = words("him them us me her it you people everyone anyone")
_ANYONE = words("anyone anybody everyone everybody someone somebody nobody people he she it they we you i")
_CLOSED = _MODALS | _SUBJECTS | _BE | _HAVE | _DETERMINERS | _PREPOSITIONS | _ADVERBS
_CLOSED |= words("he she it to and")
_ADJECTIVES = words("""present subject separate perfect close deliberate appropriate moderate live approximate
    frequent intimate elaborate alternate compact content""")
_NEVER_BEHIND = words("close alternate deliberate elaborate moderate")  # no adjective behind its noun
_PLACE_PREPOSITIONS = words("in from to near at through via")
# Verbs of a plural that is a noun: "court records show".
_SHOWING = words("""show list indicate suggest reveal say tell prove include contain remain exist continue
    appear seem become vary differ belong consist describe state expire fell rose""")
_HELPS = words("let lets make makes made help helps helped helping watch watched making letting")
_BOTH_WAYS = words(
    "read put set cut hit let led left found means shot saw lay shows says makes takes gives is"
)
_ASKING = words("do does did don't doesn't didn't can could will would should may might must can't won't")
_QUESTION_WORDS = words("how why what where when who whom which and but so then")
_LINKS = words("of in at from for on with near")
_DAYS = words("today yesterday tomorrow tonight here there enough")
_REACH = 12  # words; a clause is looked at no further
_AFTER_IMPERATIVE = words("the a your my it them up each all")


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
    is_other = _is_third_person(sentence, index) if kind == "VERB" else _is_noun(sentence, index)
    phones = other if is_other else usual
    return phones + plural(phones)


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
    while at >= 0 and index - at < 4 and _is_adverb(_at(sentence, at)):
        at -= 1
    return at


def _is_adverb(word: str) -> bool:
    return word in _ADVERBS or (word.endswith("ly") and word not in _NO_ADVERBS)


def _is_verb(sentence: Sequence[str], index: int) -> bool:
    at = _before(sentence, index)
    previous, following = _at(sentence, at), _at(sentence, index + 1)
    if previous == "to":
        is_put = not following[:1].isalpha() and "put" in (_at(sentence, i) for i in range(at - 4, at))
        return _at(sentence, at - 1) not in _TO_A_THING and following != "of" and not is_put  # "put to use."
    if previous in _MODALS:
        return following != "of"
    if previous in _SUBJECTS:
        return True
    if following in _OBJECTS:  # "he saw her present a rose", "Record the time"
        return previous not in _BE and not _is_thing_marker(previous)
    if _is_asked(sentence, at, following) or _is_caused(sentence, at, previous, following):
        return True
    if _is_behind_plural(sentence, at, index) or _has_distant_subject(sentence, index, following):
        return True
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
    at = _before(sentence, index)
    previous = _at(sentence, at)
    if previous in ("he", "she", "it", "who", "which", "what", "this", "everyone", "nobody", "one"):
        return True
    if previous == "that" and at > 0:
        return True
    following = _at(sentence, index + 1)
    if following in _OBJECTS and not _is_thing_marker(previous) and previous not in _BE:
        return True
    return _is_behind_singular(sentence, index)


def _is_behind_singular(sentence: Sequence[str], index: int) -> bool:
    """Whether a verb in -s at `index` has its subject, a singular, right before: "iron conducts heat"."""
    return _has_singular_subject(sentence, _before(sentence, index)) and _is_predicate(sentence, index)


def _has_singular_subject(sentence: Sequence[str], at: int) -> bool:
    """Whether a noun that can be the subject of a verb in -s ends at `at`: "the company", "Iron"."""
    word = _at(sentence, at)
    if (
        word in _CLOSED
        or not word[:1].isalpha()
        or word[-1] == "s"
        or word.endswith(("ing", "ed", "ly", "al"))
    ):
        return False
    start = _clause_start(sentence, at)
    if any(_at(sentence, back) in _FINITE or _at(sentence, back) in _PERSONS for back in range(start, at)):
        return False
    first = _at(sentence, start)
    is_marked = first in _SINGULAR_MARKS or first in ("the", "no") or sentence[at][:1].isupper()
    return is_marked and start == 0


def _is_predicate(sentence: Sequence[str], index: int) -> bool:
    """Whether the clause has no verb but this one, and goes on."""
    following = _at(sentence, index + 1)
    if not following[:1].isalpha():
        return False
    if _goes_on_as_noun(sentence, index) or following in ("of", "that", "are"):
        return False
    return following not in ("in", "at", "by", "from", "for") or _is_only_verb(sentence, index)


def _is_only_verb(sentence: Sequence[str], index: int) -> bool:
    """Whether nothing behind it in the sentence can be its verb: "demand increases in winter"."""
    for at in range(index + 1, min(index + _REACH, len(sentence))):
        word = _at(sentence, at)
        if word in (".", "?", "!"):
            return True
        if word in _FINITE or word in _SHOWING or (word.endswith("ed") and len(word) > 4):
            return False
    return len(sentence) <= index + _REACH


def _is_behind_plural(sentence: Sequence[str], at: int, index: int) -> bool:
    """Whether a verb at `index` has its subject, a plural, right before: "the two reports conflict"."""
    if not _has_plural_subject(sentence, at):
        return False
    word, following = _at(sentence, index), _at(sentence, index + 1)
    if sentence[index][:1].isupper() and at >= 0 and sentence[at][:1].isupper():
        return False  # "Sessions House"
    if _at(sentence, at) in ("that", "which"):
        return following != "of"
    if word == "subject":  # "the rules subject members to controls"
        return following != "to" and "to" in (_at(sentence, i) for i in range(index + 2, index + 6))
    if word in _ADJECTIVES:  # "the officers present"
        is_free = word in _NEVER_BEHIND and (following in _PREPOSITIONS or not following[:1].isalpha())
        return following in _OBJECTS or is_free or following.endswith("ly") or _is_object(following)
    return not _goes_on_as_noun(sentence, index)


def _is_object(word: str) -> bool:
    """Whether a word behind "the authors present" is a noun or an adjective, which makes that a verb."""
    is_closed = word in _CLOSED or word in _FINITE or word in _SHOWING or word in _CLAUSE_WORDS
    return word.isalpha() and len(word) > 2 and not is_closed and not word.endswith("ed") and word not in _DAYS


def _has_distant_subject(sentence: Sequence[str], index: int, following: str) -> bool:
    """ "Critics of the plan object to it": a plural, a phrase behind it, and no other verb in the clause."""
    if following not in _OBJECTS and following not in ("to", "that"):
        return False
    start = _clause_start(sentence, index)
    links = [at for at in range(start + 1, index - 1) if _at(sentence, at) in _LINKS]
    if not links or not _is_plural(_at(sentence, links[0] - 1)) or _at(sentence, index - 1) in _CLOSED:
        return False
    around = [_at(sentence, at) for at in range(start, min(index + _REACH, len(sentence))) if at != index]
    return not any(word in _FINITE or word in _PERSONS or (word.endswith("ed") and len(word) > 4) for word in around)


def _has_plural_subject(sentence: Sequence[str], at: int) -> bool:
    """Whether a plural that can be the subject of a verb ends at `at`: "the two reports", "banks that"."""
    word = _at(sentence, at)
    if word in ("that", "which"):
        return _is_plural(_at(sentence, at - 1))
    if word == "states" and _at(sentence, at - 1) == "united":
        return False
    start = _clause_start(sentence, at)
    is_alone = start == at and word == "sales" and _at(sentence, at + 2) in _PREPOSITIONS
    if not _is_plural(word) and not is_alone:
        return False
    for back in range(at - 1, start - 1, -1):
        other = _at(sentence, back)
        if other in _FINITE or other in _PERSONS:
            return False
        if other == "to" or (other.endswith("ed") and len(other) > 4 and not _is_before_noun(sentence, back)):
            return False
        if other in _SINGULAR_MARKS and other not in ("his", "her", "its", "my", "your", "our", "their"):
            return False  # "a farm animals record"
    return True


def _is_plural(word: str) -> bool:
    if word in _PLURALS:
        return True
    if word.endswith("men") and len(word) > 4:
        return word not in ("specimen", "regimen", "abdomen", "acumen", "omen")
    is_form = len(word) > 3 and word[-1] == "s" and word[-2] not in "su'i"
    return is_form and word not in _NO_PLURALS and word not in _CLOSED and word not in _VERBS_IN_S


def _is_before_noun(sentence: Sequence[str], index: int) -> bool:
    """Whether a participle stands before its noun: "the tired workers"."""
    before = _at(sentence, index - 1)
    return before in _DETERMINERS or before in _PREPOSITIONS or not before[:1].isalpha()


def _clause_start(sentence: Sequence[str], at: int) -> int:
    start = at
    while start > 0 and at - start < _REACH:
        before = _at(sentence, start - 1)
        if before in _CLAUSE_WORDS or not before[:1].isalpha():
            break
        start -= 1
    return start


def _goes_on_as_noun(sentence: Sequence[str], index: int) -> bool:
    """Whether the words behind make a noun of the one at `index`: its clause has a verb there."""
    following = _at(sentence, index + 1)
    if (
        following in _SHOWING
        or following in ("of", "concerning", "regarding", "dating", "relating")
        or (following in _FINITE and following not in _BOTH_WAYS)
    ):
        return True
    for at in range(index + 1, min(index + _REACH, len(sentence))):
        word = _at(sentence, at)
        if word in _CLAUSE_WORDS or not word[:1].isalpha():
            return False
        if word in _FINITE and word not in _BOTH_WAYS:
            return True
    return False


def _is_asked(sentence: Sequence[str], at: int, following: str) -> bool:
    """ "Does anyone object to that?", "Did the company record a profit?": "do" or a modal comes first."""
    word = _at(sentence, at)
    is_person = word in _ANYONE
    if not is_person and (word in _CLOSED or not word[:1].isalpha()):
        return False
    if not is_person and following not in _OBJECTS and following not in _PREPOSITIONS and following != "to":
        return False
    for back in range(at - 1, max(at - 5, -1), -1):
        other = _at(sentence, back)
        if other in _ASKING:
            before = _at(sentence, back - 1)
            return before in _QUESTION_WORDS or not before[:1].isalpha()
        if other not in _DETERMINERS and other in _CLOSED:
            return False
    return False


def _is_caused(sentence: Sequence[str], at: int, previous: str, following: str) -> bool:
    """ "Let them record it", "it helps farmers produce milk"."""
    if _at(sentence, at - 1) in _CAUSES and previous in _THEM:
        return previous != "her" or following in _OBJECTS
    if not _is_plural(previous):
        return False
    back = at - 1
    while back > 0 and at - back < 3 and _at(sentence, back) in _DETERMINERS:
        back -= 1
    return _at(sentence, back) in _HELPS and not _goes_on_as_noun(sentence, at + 1)


def _is_thing_marker(word: str) -> bool:
    return word in _DETERMINERS or word in _PREPOSITIONS or word.endswith(("'s", "s'"))


def _is_noun(sentence: Sequence[str], index: int) -> bool:
    if _is_verb(sentence, index):
        return False
    if sentence[index].endswith("s") and _is_behind_singular(sentence, index):
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
    return is_narrated or not (previous.endswith("s") or _is_plural(previous))


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
    if at >= 0 and sentence[at][:1].isupper():
        return True
    return at >= 0 and _at(sentence, at) not in _CLOSED and previous[:1].isalpha() and _is_first_verb(sentence, index)


def _is_first_verb(sentence: Sequence[str], index: int) -> bool:
    """Whether the clause has no other finite verb: "the family used to live there", not "a tool used to ..."."""
    for at in range(_clause_start(sentence, index), min(index + _REACH, len(sentence))):
        word = _at(sentence, at)
        if at > index and not word[:1].isalpha():
            return True
        is_past = at < index and word.endswith("ed") and len(word) > 4
        if at != index and (word in _FINITE or is_past):
            return False
    return True


def _is_closing(sentence: Sequence[str], index: int) -> bool:
    """A thing with no other noun behind it: "it came to a close."."""
    following = _at(sentence, index + 1)
    return _at(sentence, index - 1) in ("a", "the", "its", "this") and not following[:1].isalpha()


def _is_adjective(sentence: Sequence[str], index: int) -> bool:
    """Behind a determiner and before another noun: "a learned judge", not "he learned a lesson"."""
    previous, following = _at(sentence, index - 1), _at(sentence, index + 1)
    if previous not in _DETERMINERS and previous not in ("very", "so", "most", "with", "of"):
        return False
    return following[:1].isalpha() and following not in _CLOSED and following not in _OBJECTS


def _is_place(sentence: Sequence[str], index: int) -> bool:
    """Capitalised behind a preposition: "he lives in Reading"."""
    is_capital = sentence[index][:1].isupper() and not sentence[index].isupper()
    return is_capital and _at(sentence, index - 1) in _PLACE_PREPOSITIONS


def _is_mass(sentence: Sequence[str], index: int) -> bool:
    """A material: "covered with lead.", not "with lead singer"."""
    following = _at(sentence, index + 1)
    is_closed = not following[:1].isalpha() or following in _BE or following in ("and", "or")
    return is_closed and _at(sentence, index - 1) in ("with", "from", "into", "in", "pure", "as")


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
    "PLACE": _is_place,
    "ADJECTIVE": _is_adjective,
    "MASS": _is_mass,
    "LOWER": lambda sentence, index: sentence[index].islower(),
}

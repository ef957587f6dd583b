"""How the shipped voice says English words: dictionary, reduced forms, homographs, word parts, then letters.

Every word gets phones (ARPAbet with stress); nothing is left in letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from common.text import homographs
from common.text.cmudict import DATA, load_cmudict
from common.text.letters import load_letter_reader

Phones = tuple[str, ...]

LETTER_NAMES: dict[str, Phones] = {
    letter: tuple(name.split())
    for letter, name in (
        entry.split(" ", 1)
        for entry in [
            "a EY1",
            "b B IY1",
            "c S IY1",
            "d D IY1",
            "e IY1",
            "f EH1 F",
            "g JH IY1",
            "h EY1 CH",
            "i AY1",
            "j JH EY1",
            "k K EY1",
            "l EH1 L",
            "m EH1 M",
            "n EH1 N",
            "o OW1",
            "p P IY1",
            "q K Y UW1",
            "r AA1 R",
            "s EH1 S",
            "t T IY1",
            "u Y UW1",
            "v V IY1",
            "w D AH1 B AH0 L Y UW0",
            "x EH1 K S",
            "y W AY1",
            "z Z IY1",
        ]
    )
}
_SPELLED = re.compile(r"([A-Z]{2,})('?s)?")
_SIBILANTS = frozenset(("S", "Z", "SH", "ZH", "CH", "JH"))
_VOICELESS = frozenset(("P", "T", "K", "F", "TH", "S", "SH", "CH"))

# After a capital "A" stands a pause, or before it one of these: the letter is meant, not the article.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LABELS = _words(
    """vitamin plan grade group class type exhibit section option part point block category hepatitis
    level unit company appendix column room gate zone line side series letter vitamins chapter"""
)
_SENTENCE_MARKS = frozenset(".?!:;")

# Before a hyphen these are said in full.
_HYPHENATED: dict[str, Phones] = {
    prefix: tuple(phones.split())
    for prefix, phones in (
        *(
            ("re", "R IY1"),
            ("co", "K OW1"),
            ("de", "D IY1"),
            ("pre", "P R IY1"),
            ("un", "AH1 N"),
            ("non", "N AA1 N"),
        ),
        *(
            ("bi", "B AY1"),
            ("e", "IY1"),
            ("semi", "S EH1 M IY0"),
            ("anti", "AE1 N T IY0"),
            ("multi", "M AH1 L T IY0"),
        ),
        *(("a", "AH0"), ("pro", "P R OW1"), ("sub", "S AH1 B"), ("tri", "T R AY1")),
    )
}
_PREFIXES: tuple[tuple[str, Phones], ...] = tuple(
    (prefix, tuple(phones.split()))
    for prefix, phones in (
        *(
            ("counter", "K AW2 N T ER0"),
            ("under", "AH2 N D ER0"),
            ("super", "S UW2 P ER0"),
            ("inter", "IH2 N T ER0"),
        ),
        *(
            ("multi", "M AH2 L T IY0"),
            ("micro", "M AY2 K R OW0"),
            ("hyper", "HH AY2 P ER0"),
            ("ultra", "AH2 L T R AH0"),
        ),
        *(("cyber", "S AY2 B ER0"), ("trans", "T R AE2 N Z"), ("over", "OW2 V ER0"), ("anti", "AE2 N T IY0")),
        *(("semi", "S EH2 M IY0"), ("post", "P OW2 S T"), ("fore", "F AO2 R"), ("mega", "M EH2 G AH0")),
        *(("mini", "M IH2 N IY0"), ("nano", "N AE2 N OW0"), ("tele", "T EH2 L AH0"), ("non", "N AA2 N")),
        *(("out", "AW2 T"), ("pre", "P R IY0"), ("mis", "M IH0 S"), ("dis", "D IH0 S"), ("sub", "S AH2 B")),
        *(("un", "AH0 N"), ("re", "R IY0"), ("co", "K OW0"), ("de", "D IY0")),
    )
)
# Endings that add themselves to a base without changing it; the base may have lost an "e" or doubled its last letter.
_SUFFIXES: tuple[tuple[str, Phones], ...] = tuple(
    (suffix, tuple(phones.split()))
    for suffix, phones in (
        *(
            ("lessness", "L AH0 S N AH0 S"),
            ("fulness", "F AH0 L N AH0 S"),
            ("ability", "AH0 B IH2 L AH0 T IY0"),
        ),
        *(
            ("ishly", "IH0 SH L IY0"),
            ("ingly", "IH0 NG L IY0"),
            ("fully", "F AH0 L IY0"),
            ("lessly", "L AH0 S L IY0"),
        ),
        *(
            ("ness", "N AH0 S"),
            ("less", "L AH0 S"),
            ("ment", "M AH0 N T"),
            ("able", "AH0 B AH0 L"),
            ("ship", "SH IH2 P"),
        ),
        *(
            ("hood", "HH UH2 D"),
            ("like", "L AY2 K"),
            ("ably", "AH0 B L IY0"),
            ("iest", "IY0 AH0 S T"),
            ("ful", "F AH0 L"),
        ),
        *(("ing", "IH0 NG"), ("ers", "ER0 Z"), ("ish", "IH0 SH"), ("ist", "IH0 S T"), ("ism", "IH2 Z AH0 M")),
        *(
            ("ize", "AY2 Z"),
            ("ise", "AY2 Z"),
            ("man", "M AH0 N"),
            ("men", "M EH0 N"),
            ("est", "AH0 S T"),
            ("er", "ER0"),
        ),
        *(("or", "ER0"), ("ly", "L IY0"), ("in'", "IH0 N"), ("y", "IY0")),
    )
)
_CONTRACTED: dict[str, Callable[[Phones], Phones]] = {
    "'s": lambda base: base + plural(base),
    "'ll": lambda base: (*base, "AH0", "L"),
    "'ve": lambda base: (*base, "V") if base[-1][-1].isdigit() else (*base, "AH0", "V"),
    "'re": lambda base: (*base, "ER0"),
    "'d": lambda base: (*base, "IH0", "D") if base[-1] in ("T", "D") else (*base, "D"),
    "n't": lambda base: (*base, "AH0", "N", "T"),
    "'em": lambda base: (*base, "AH0", "M"),
}
# Short words that make compounds (roominghouse, daybreak); other three-letter entries are mostly names.
_SHORT_PARTS = _words(
    """act age aid aim air arm art ash back bag bar bat bay bed bee big bin bit box boy bud bug bus buy
    can cap car cat cow cry cup cut dad day dew dog dot dry ear eat egg end eye fan far fat fig fin
    fit fix fly fog fox fun fur gap gas gem gun guy ham hat hay hen hit hop hot ice ink jam jar jaw
    jet job joy key kid lap law lay leg lid lie lip log lot low map mat mid mud net new nut oak oil
    old one out own pan paw pay pea pen pet pie pig pin pit pop pot raw ray red rib rim rod row run
    sad saw sea see set sex she sky sod son spy sub sun tag tap tar tax tea ten tie tin tip toe ton
    top toy two use van war wax way web wet wig win wit woe zoo"""
)


def plural(base: Phones) -> Phones:
    """The sound that -s or 's adds: cats, dogs, horses."""
    if base[-1] in _SIBILANTS:
        return ("IH0", "Z")
    return ("S",) if base[-1] in _VOICELESS else ("Z",)


def past(base: Phones) -> Phones:
    """The sound that -ed adds: walked, called, wanted."""
    if base[-1] in ("T", "D"):
        return ("IH0", "D")
    return ("T",) if base[-1] in _VOICELESS else ("D",)


def read(tokens: Sequence[str]) -> list[Phones]:
    """Phones of every token of a sentence. A token is a word, or a mark, which gets ().

    Words in capitals are spelled ("FBI", "GPUs"), and so are capital letters alone, but for "I" and the article.
    A word's part before a hyphen keeps it ("re-", "elect"); "A-" is the letter in any place.
    """
    out: list[Phones] = [()] * len(tokens)
    follower: Phones = ()
    for index in range(len(tokens) - 1, -1, -1):
        if not tokens[index][:1].isalpha() and not tokens[index][1:2].isalpha():
            follower = ()
            continue
        out[index] = follower = _in_context(tokens, index, follower)
    return out


def pronounce(word: str, before: Sequence[str] = (), after: Sequence[str] = ()) -> Phones:
    """Phones of one word between the words before and after it: `pronounce("read", ["have"])`."""
    tokens = [*before, word, *after]
    return read(tokens)[len(before)]


def _in_context(tokens: Sequence[str], index: int, follower: Phones) -> Phones:
    token = tokens[index]
    spelled = _SPELLED.fullmatch(token)
    if spelled:
        phones = spell(spelled[1])
        return phones + plural(phones) if spelled[2] else phones
    if token[0].isupper() and (token[1:] == "-" or (len(token) == 1 and _is_letter(tokens, index))):
        return LETTER_NAMES[token[0].lower()]
    word = token.lower()
    if word.endswith("-"):
        word = word.rstrip("-")
        if word in _HYPHENATED:
            return _HYPHENATED[word]
    forms = _function_words().get(word)
    if forms is not None:
        before = tokens[index - 1] if index else "."
        after = tokens[index + 1] if index + 1 < len(tokens) else "."
        if before in _SENTENCE_MARKS and forms[1]:
            return forms[1]
        if not after[:1].isalpha() and forms[2]:
            return forms[2]
        if follower and follower[0][-1].isdigit() and forms[3]:
            return forms[3]
        return forms[0]
    return homographs.choose(word, tokens, index) or of_word(word)


def _is_letter(tokens: Sequence[str], index: int) -> bool:
    """Whether a single capital is a letter's name. "A" and "I" are mostly words."""
    token = tokens[index]
    if token not in ("A", "I"):
        return True
    before = tokens[index - 1] if index else ""
    after = tokens[index + 1] if index + 1 < len(tokens) else ""
    neighbours = [
        t for t in (before, after) if len(t) == 1 and t.isalpha() and t.isupper() and t not in ("A", "I")
    ]
    if neighbours:
        return True
    return token == "A" and bool(before) and (before.lower() in _LABELS or not after[:1].isalpha())


@lru_cache(maxsize=4096)
def of_word(word: str) -> Phones:
    """Phones of a word in lower case by itself: never empty for a word with a letter a-z in it."""
    return _known(word) or _by_parts(word) or _by_letters(word)


def spell(letters: str) -> Phones:
    """The names of letters said as one word, the last one with the main stress."""
    names = [LETTER_NAMES[letter] for letter in letters.lower() if letter in LETTER_NAMES]
    weak = [phone.replace("1", "2") for name in names[:-1] for phone in name]
    return (*weak, *names[-1]) if names else ()


@lru_cache(maxsize=1)
def _function_words() -> dict[str, tuple[Phones, ...]]:
    """word -> its form, the sentence-initial one, the one before a pause, the one before a vowel (or ())."""
    table = {}
    for line in (DATA / "function_words.tsv").read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            word, *forms = line.split("\t")
            table[word] = tuple(tuple(form.split()) for form in (*forms, "", "", "")[:4])
    return table


@lru_cache(maxsize=1)
def _preferred() -> dict[str, Phones]:
    """Words that CMUdict does not have, then the preferred one of several pronunciations that it has."""
    table = {}
    for name in ("variants.tsv", "extra_words.tsv"):
        for line in (DATA / name).read_text(encoding="ascii").splitlines():
            if not line.startswith("#"):
                word, phones = line.split("\t")
                table[word] = tuple(phones.split())
    return table


def _known(word: str) -> Phones | None:
    forms = _function_words().get(word)
    if forms:
        return forms[0]
    found = homographs.default(word) or _preferred().get(word)
    if found is None:
        variants = load_cmudict().pronunciations(word)
        found = variants[0] if variants else None
    return found


def _by_parts(word: str, depth: int = 0) -> Phones | None:
    """An inflected, derived or compound word from words that are known."""
    if len(word) > 40 or depth > 2:
        return None

    def base_of(part: str) -> Phones | None:
        return _known(part) or (_by_parts(part, depth + 1) if len(part) > 3 else None)

    for ending, join in _CONTRACTED.items():
        if word.endswith(ending) and len(word) > len(ending):
            base = base_of(word[: -len(ending)]) or _by_letters(word[: -len(ending)])
            return join(base) if base else None
    if word.endswith("'") or word.startswith("'"):
        stem = word.strip("'")
        if word.endswith("in'") and _known(stem + "g"):
            return (*_known(stem + "g")[:-1], "N")
        return (base_of(stem) or _by_letters(stem)) if stem else None
    if len(word) < 4 or not word.isalpha():
        return None
    return _inflected(word, base_of) or _derived(word, base_of) or _compound(word)


def _bases(stem: str) -> tuple[str, ...]:
    """What may have lost its "e", doubled its last letter or changed "y" to "i" before an ending."""
    undoubled = (stem[:-1],) if len(stem) > 3 and stem[-1] == stem[-2] else ()
    unchanged = (stem[:-1] + "y",) if stem.endswith("i") else ()
    return (
        (*unchanged, stem + "e", *undoubled, stem)
        if stem[-1:] in "cgvuz"
        else (*unchanged, stem, *undoubled, stem + "e")
    )


def _inflected(word: str, base_of: Callable[[str], Phones | None]) -> Phones | None:
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        stems = [word[:-1]]
        if word.endswith("ies"):
            stems = [word[:-3] + "y", word[:-1]]
        elif word.endswith(("ches", "shes", "sses", "xes", "zes", "oes")):
            stems = [word[:-2], word[:-1]]
        for stem in stems:
            if len(stem) > 2 and (base := base_of(stem)):
                return base + plural(base)
    if word.endswith("ed") and len(word) > 4:
        for stem in _bases(word[:-2]):
            if len(stem) > 2 and (base := _known(stem)):
                return base + past(base)
    return None


def _derived(word: str, base_of: Callable[[str], Phones | None]) -> Phones | None:
    for suffix, phones in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            for stem in _bases(word[: -len(suffix)]):
                if len(stem) > 2 and (base := _known(stem)):
                    return base + phones
    for prefix, phones in _PREFIXES:
        if (
            word.startswith(prefix)
            and len(word) - len(prefix) >= 4
            and (base := base_of(word[len(prefix) :]))
        ):
            return phones + base
    return None


def _compound(word: str) -> Phones | None:
    """Two words of the dictionary in one, the evenest split of all."""
    best: tuple[int, Phones] | None = None
    for cut in range(3, len(word) - 2):
        first, second = word[:cut], word[cut:]
        shorter = min(cut, len(second))
        if best and shorter <= best[0]:
            continue
        if any(len(part) == 3 and part not in _SHORT_PARTS for part in (first, second)):
            continue
        if first[-1] in "tspcgw" and second[0] == "h" and shorter < 4:  # the two are one sound
            continue
        a, b = _known(first), _known(second)
        if a and b:
            best = shorter, (*a, *(phone.replace("1", "2") for phone in b))
    return best[1] if best else None


def _by_letters(word: str) -> Phones:
    letters = "".join(letter for letter in word if letter in LETTER_NAMES or letter == "'").strip("'")
    if not letters.strip("'"):
        return ()
    if not any(vowel in letters for vowel in "aeiouy"):
        return spell(letters)
    return load_letter_reader()(letters) or spell(letters)

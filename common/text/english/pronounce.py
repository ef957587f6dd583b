"""How the shipped voice says English words: reduced forms, homographs, dictionary, word parts, then letters.

Every word gets phones (ARPAbet with stress); nothing is left in letters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from melforge.common.text.cmudict import load_cmudict, load_rare_words
from melforge.common.text.english import homographs, word_parts
from melforge.common.text.english.letters import load_letter_reader
from melforge.common.text.english.word_parts import Phones, read_rows, table, words

LETTER_NAMES: dict[str, Phones] = dict(
    table("""a EY1 / b B IY1 / c S IY1 / d D IY1 / e IY1 / f EH1 F / g JH IY1 / h EY1 CH / i AY1 / j JH EY1 /
        k K EY1 / l EH1 L / m EH1 M / n EH1 N / o OW1 / p P IY1 / q K Y UW1 / r AA1 R / s EH1 S / t T IY1 / u
        Y UW1 / v V IY1 / w D AH1 B AH0 L Y UW0 / x EH1 K S / y W AY1 / z Z IY1""")
)
SPELLED = re.compile(r"([A-Z]{2,})('?(?:s|ed|es|ing)|'d)?-?")
_DRAWN_OUT = re.compile(r"([a-z])\1{2,}")  # "sooo"

# After one of these a capital "A" is the letter, not the article.
_LABELS = words("""vitamin plan grade group class type exhibit section option part point block category
    hepatitis level unit company appendix column room gate zone line side series letter vitamins chapter
    an the capital straight""")
_SENTENCE_MARKS = frozenset(".?!:;")


def read(tokens: Sequence[str], given: Sequence[Phones] = ()) -> list[Phones]:
    """Phones of every token of a sentence: those `given` for it, if any. A mark gets ().

    Words in capitals are spelled ("FBI", "GPUs"), and so are single capitals, but for "I" and the article. A
    word's part before a hyphen keeps it ("re-", "elect"); "A-" is the letter in any place.
    """
    out: list[Phones] = [()] * len(tokens)
    follower: Phones = ()
    fixed = in_phrases(tokens)
    for index in range(len(tokens) - 1, -1, -1):
        phones: Phones | None = given[index] if given else ()
        if not phones:
            phones = fixed[index][0] if index in fixed else _in_any_place(tokens[index])
        out[index] = follower = _in_context(tokens, index, follower) if phones is None else phones
    return out


@lru_cache(maxsize=4096)
def of_word(word: str, is_name: bool = False) -> Phones:
    """Phones of a word in lower case by itself: never empty for a word with a letter a-z in it.

    `is_name`: it is written with a capital, which matters where no dictionary has it.
    """
    return _known(word) or _rare(word) or by_rule(word, is_name)


def by_rule(word: str, is_name: bool = False) -> Phones:
    """Phones of a word that no dictionary has: of the words that it is made of, else of its letters."""
    return _by_parts(word, is_name) or _by_letters(word, is_name)


def is_known(word: str) -> bool:
    """Whether a dictionary has the word (in lower case)."""
    return _known(word) is not None


def is_function_word(word: str) -> bool:
    """Whether a word (in lower case) has forms by its place in a sentence."""
    return word in _function_words()


def is_variable(word: str) -> bool:
    """Whether a word (in lower case) is said by what stands beside it: a function word or a homograph."""
    return is_function_word(word) or homographs.usual(word) is not None


def is_rare(word: str) -> bool:
    """Whether the second dictionary has a word (in lower case), or its singular."""
    return _rare(word) is not None


def is_guessed(word: str) -> bool:
    """Whether a word (in lower case) gets its phones from its letters alone."""
    return not (_known(word) or _rare(word) or _by_parts(word))


def full_form(word: str) -> str:
    """The word in -ing that is written without its "g": "goin'", "lookin"; "" where it is none."""
    full = word.strip("'") + "g"
    return full if word.endswith(("in", "in'")) and (_known(full) or ())[-2:] == ("IH0", "NG") else ""


def readings(written: str) -> list[tuple[Phones, str]]:
    """How a word may be said, and where each reading comes from; the first is that of the word by itself."""
    word = written.lower()
    found: list[tuple[Phones, str]] = []
    if spelled := SPELLED.fullmatch(written):
        found.append((read([written])[0], f"letters: {' '.join(spelled[1])}"))
    places = ("", ", at the beginning of a sentence", ", before a pause", ", before a vowel")
    forms = zip(_function_words().get(word, ()), places, strict=False)
    found += [(phones, f"function word{place}") for phones, place in forms]
    found += homographs.readings(word)
    if phones := _preferred().get(word):
        found.append((phones, "Melforge's dictionary"))
    found += [(phones, "CMUdict") for phones in load_cmudict().pronunciations(word)]
    found += [(phones, "misaki's dictionary") for phones in load_rare_words().pronunciations(word)]
    return found or [
        (of_word(word, written[:1].isupper()), "its letters" if is_guessed(word) else "the words in it")
    ]


def in_phrases(tokens: Sequence[str]) -> dict[int, tuple[Phones, Phones]]:
    """What is said for the words of fixed expressions ("coup de grace"), and in Britain (or ()), by place."""
    found: dict[int, tuple[Phones, Phones]] = {}
    if _beginnings().isdisjoint(map(str.lower, tokens)):  # as in most sentences
        return found
    for start, token in enumerate(tokens):
        for phrase, *said in _phrases().get(token.lower().rstrip("-"), ()):
            end = start + len(phrase)
            if tuple(one.lower().rstrip("-") for one in tokens[start:end]) == phrase:
                found.update(zip(range(start, end), zip(*said, strict=True), strict=True))
    return found


def spell(letters: str, letter_names: Mapping[str, Phones] = LETTER_NAMES) -> Phones:
    """The names of letters said as one word, the last one with the main stress."""
    names = [letter_names[letter] for letter in letters.lower() if letter in letter_names]
    weak = [phone.replace("1", "2") for name in names[:-1] for phone in name]
    return (*weak, *names[-1]) if names else ()


def spell_inflected(spelled: re.Match[str], letter_names: Mapping[str, Phones] = LETTER_NAMES) -> Phones:
    """Phones of what `SPELLED` matches: "GPUs", "RSVP'd", "DMing"."""
    phones, ending = spell(spelled[1], letter_names), (spelled[2] or "").lstrip("'")
    if ending == "ing":
        return (*phones, "IH0", "NG")
    if ending[-1:] == "d":
        return phones + word_parts.past(phones)
    return phones + word_parts.plural(phones) if ending else phones


@lru_cache(maxsize=1 << 14)
def _in_any_place(token: str) -> Phones | None:
    """Phones of most words, and () of a mark; None where the words beside it tell how it is said."""
    if not (token[:1].isalpha() or token[1:2].isalpha()):
        return ()
    if spelled := SPELLED.fullmatch(token):
        return spell_inflected(spelled)
    if token[0].isupper() and token[1:] == "-":
        return LETTER_NAMES[token[0].lower()]
    word = token.lower()
    is_placed = len(word) == 1 or word[-1] == "-" or is_function_word(word) or homographs.find(word)
    return None if is_placed else of_word(word, token[0].isupper())


def _in_context(tokens: Sequence[str], index: int, follower: Phones) -> Phones:
    """Phones of a word that others tell how it is said. `follower`: those of the next token."""
    token = tokens[index]
    is_capital = token[0].isupper()
    if is_capital and len(token) == 1 and _is_letter(tokens, index):
        return LETTER_NAMES[token.lower()]
    word = token.lower()
    if word.endswith("-"):
        word = word.rstrip("-")
        is_within = index > 0 and tokens[index - 1].endswith("-")
        if word in word_parts.HYPHENATED and not (word == "de" and is_within):  # "fleur-de-lis"
            return word_parts.HYPHENATED[word]
    forms = _function_words().get(word)
    if forms is None:
        return homographs.choose(word, tokens, index) or of_word(word, is_capital)
    if word == "does" and (deer := homographs.choose(word, tokens, index)) != homographs.usual(word):
        return deer or forms[0]
    usual, initial, final, before_vowel = forms
    if initial and (index == 0 or tokens[index - 1] in _SENTENCE_MARKS):
        return initial
    if not follower:
        return final or usual
    return before_vowel if before_vowel and follower[0][-1].isdigit() else usual


def _is_letter(tokens: Sequence[str], index: int) -> bool:
    """Whether a single capital is a letter's name. "A" and "I" are mostly words."""
    token = tokens[index]
    if token not in ("A", "I"):
        return True
    before = tokens[index - 1] if index else ""
    after = tokens[index + 1] if index + 1 < len(tokens) else ""
    if any(len(t) == 1 and t.isupper() and t not in ("A", "I") for t in (before, after)):
        return True
    third = tokens[index + 2] if index + 2 < len(tokens) else ""
    is_listed = after in ("to", "and", "or") and len(third) == 1 and third.isupper()  # "from A to Z"
    if token == "A" and (is_listed or after == "is"):
        return True
    return token == "A" and bool(before) and (before.lower() in _LABELS or not after[:1].isalpha())


@lru_cache(maxsize=1)
def _function_words() -> dict[str, tuple[Phones, ...]]:
    """word -> its form, the sentence-initial one, the one before a pause, the one before a vowel (or ())."""
    return {
        word: tuple(tuple(form.split()) for form in (*forms, "", "", "")[:4])
        for word, *forms in read_rows("function_words.tsv")
    }


@lru_cache(maxsize=1)
def _phrases() -> dict[str, list[tuple[tuple[str, ...], list[Phones], list[Phones]]]]:
    """first word -> its expressions: their words, and how each is said in America, and in Britain (or ())."""
    phrases: dict[str, list[tuple[tuple[str, ...], list[Phones], list[Phones]]]] = {}
    for written, *said in read_rows("phrases.tsv"):
        each = tuple(written.split())
        american, british = (
            [tuple(one.split()) for one in way.split("|")] for way in (*said, "|" * (len(each) - 1))[:2]
        )
        phrases.setdefault(each[0], []).append((each, american, british))
    return phrases


@lru_cache(maxsize=1)
def _beginnings() -> frozenset[str]:
    """The first words of these expressions, also before a hyphen."""
    return frozenset(word + end for word in _phrases() for end in ("", "-"))


@lru_cache(maxsize=1)
def _preferred() -> dict[str, Phones]:
    """Which of CMUdict's pronunciations is read where it is not the first, and words that CMUdict lacks."""
    rows = [*read_rows("variants.tsv"), *read_rows("extra_words.tsv")]
    return {word: tuple(phones.split()) for word, phones in rows}


@lru_cache(maxsize=1)
def _own() -> dict[str, Phones]:
    """Words in their usual form whose pronunciation is not CMUdict's first one."""
    usual = {word: row.first for word, row in homographs.load().items()}
    return _preferred() | usual | {word: forms[0] for word, forms in _function_words().items()}


def _known(word: str) -> Phones | None:
    found = _own().get(word)
    if found is None:
        variants = load_cmudict().pronunciations(word)
        found = word_parts.assimilated(variants[0]) if variants else None
    return found


def _rare(word: str) -> Phones | None:
    """A word of the second dictionary, or its plural."""
    found = load_rare_words().pronunciations(word)
    if found:
        return found[0]
    stem = word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is", "'s")) else ""
    found = load_rare_words().pronunciations(stem) if len(stem) > 3 else ()
    return found[0] + word_parts.plural(found[0]) if found else None


def _by_parts(word: str, is_name: bool = False) -> Phones | None:
    if contraction := word_parts.split_contraction(word):
        base, join = contraction
        phones = of_word(base, is_name)
        return join(phones) if phones else None
    bare = word.strip("'")
    if full := full_form(word):
        return (*of_word(full)[:-1], "N")
    if bare != word:
        return of_word(bare, is_name)
    if _DRAWN_OUT.search(word):
        short, double = _DRAWN_OUT.sub(r"\1", word), _DRAWN_OUT.sub(r"\1\1", word)
        for candidate in (short, double) if short in _function_words() else (double, short):
            if phones := _known(candidate):
                return phones
    if american := word_parts.american_spelling(word, is_known):
        return of_word(american)
    return _of_verb(word) or word_parts.assemble(word, _known, is_name)


def _of_verb(word: str) -> Phones | None:
    """An inflected verb whose stem is a noun too: "conjugated", "overthrowing"."""
    ending = next((ending for ending in ("ed", "ing") if word.endswith(ending)), "")
    stem = word.removesuffix(ending)
    phones = ending and (homographs.verb(stem + "e") or homographs.verb(stem))
    if not phones:
        return None
    return phones + (word_parts.past(phones) if ending == "ed" else ("IH0", "NG"))


@lru_cache(maxsize=1 << 14)  # each takes a network milliseconds, and texts have the same names again
def _by_letters(word: str, is_name: bool) -> Phones:
    letters = _DRAWN_OUT.sub(r"\1\1", "".join(letter for letter in word if letter in LETTER_NAMES))
    if not any(vowel in letters for vowel in "aeiouy"):
        return spell(letters)
    return load_letter_reader()(letters, is_name) or spell(letters)

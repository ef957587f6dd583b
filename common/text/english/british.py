"""British pronunciation (southern England), made of the American one by learnt rules and what these miss.

Each American phone becomes British ones by its letters and its neighbours; a lexicon has the words that come
out otherwise. `recipes/english/british.py` makes both of misaki's British lexicons. Phones are ARPAbet and
`BRITISH`. In here an R stands wherever one is written; it is left out at the end where no vowel follows:
"far", "far away".
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from melforge.common.text.cmudict import DATA, CmuDict
from melforge.common.text.english import pronounce, word_parts
from melforge.common.text.english.word_parts import Phones, read_rows

LEXICON = DATA / "british.gz"
RULES = DATA / "british_rules.gz"

# The letters that a phone's spelling may begin with.
_SPELLINGS = {
    **{"AA": "aoe", "AE": "ae", "AH": "uaoiey", "AO": "aou", "AW": "ao", "AY": "iyae", "EH": "eaiu"},
    **{"ER": "eiuoay", "EY": "aei", "IH": "ieyuao", "IY": "ieya", "OW": "oaeu", "OY": "o", "UH": "uo"},
    **{"UW": "uoewy", "B": "b", "CH": "ct", "D": "d", "DH": "t", "F": "fpg", "G": "gx", "HH": "hwj"},
    **{
        "JH": "jgd",
        "K": "kcqx",
        "L": "l",
        "M": "m",
        "N": "nkgp",
        "NG": "n",
        "P": "p",
        "R": "rw",
        "S": "scpxz",
    },
    **{"SH": "sctx", "T": "td", "TH": "t", "V": "vfw", "W": "wuoq", "Y": "yujie", "Z": "zsx", "ZH": "sgzt"},
}
_VOWEL_LETTERS = frozenset("aeiouy")
_LONGEST_SPELLING = 4  # letters of one phone
_SILENT, _UNLIKE = 1.2, 2.0  # what a phone costs that no letter spells, or an unlikely one
_USUAL, _UNUSUAL = 0.5, 0.9  # and a further letter of its spelling
# Vowels that only American English has, where no rule tells more; and vowels before an R that is not said.
_OTHERWISE = {"AA": "OH", "OW": "OU", "ER": "UR"}
_BEFORE_R = {"AA": "AR", "EH": "EA", "IH": "IA", "IY": "IA", "UH": "AO", "UW": "UA", "OW": "AO", "ER": "UR"}
_WITH_Y = frozenset(("Y", "CH", "JH"))  # behind these no other Y is said
# What no rule leaves out, nor makes a Y of CH or JH where another has not made a T or D before it.
_NEVER_LOST = frozenset(("AA", "AE", "AO", "AW", "AY", "EY", "OW", "UW", "CH", "JH"))
_HAM = ("HH", "AH0", "M")
# How inflected forms end, how many letters are not the stem's, and what they add to its sounds.
_INFLECTIONS: tuple[tuple[str, int, Callable[[Phones], Phones]], ...] = (
    ("'s", 2, word_parts.plural),
    *((ending, 2, word_parts.plural) for ending in ("ies", "ches", "shes", "sses", "xes")),
    ("s", 1, word_parts.plural),
    ("es", 2, word_parts.plural),
    ("ed", 2, word_parts.past),
    ("ing", 3, lambda base: ("IH0", "NG")),
)


class British:
    """British pronunciation by these rules and this lexicon, with the functions that `pronounce` has."""

    def __init__(
        self, rules: Mapping[str, Phones], lexicon: CmuDict, forms: Mapping[tuple[str, Phones], Phones]
    ) -> None:
        """`rules`: context -> phones. `forms`: a word and an American reading -> what no rule makes of it."""
        self.rules, self.lexicon, self.forms = rules, lexicon, forms
        self._whole_of_word = lru_cache(maxsize=4096)(self._find)
        self._of_reading = lru_cache(maxsize=4096)(self._find_reading)
        self._known = lru_cache(maxsize=4096)(self._find_known)

    def read(self, tokens: Sequence[str], given: Sequence[Phones] = ()) -> list[Phones]:
        """Phones of every token of a sentence."""
        american = pronounce.read(tokens, given)
        out: list[Phones] = [()] * len(tokens)
        follower: Phones = ()
        fixed = pronounce.in_phrases(tokens)
        for index in range(len(tokens) - 1, -1, -1):
            phones = given[index] if given else ()
            if phones:
                phones = self.forms.get((tokens[index].lower(), phones)) or adapted(phones)
            elif index in fixed:
                phones = fixed[index][1] or adapted(fixed[index][0])
            else:
                phones = self._of_token(tokens[index], american[index])
            out[index] = follower = without_silent_r(phones, follower)
        return out

    def of_word(self, word: str) -> Phones:
        """Phones of a word in lower case by itself."""
        return without_silent_r(self._whole_of_word(word))

    def readings(self, written: str) -> list[tuple[Phones, str]]:
        """How a word may be said, and where each reading comes from; the first is that of the word alone."""
        word = written.lower()
        found = [(phones, "misaki's British dictionary") for phones in self.lexicon.pronunciations(word)]
        for phones, source in pronounce.readings(written):
            said = (
                self._of_token(written, phones)
                if pronounce.SPELLED.fullmatch(written)
                else self._of_reading(word, phones)
            )
            found.append((said, f"{source}, as said in Britain"))
        linked = [(phones, f"{source}, before a vowel") for phones, source in found if phones[-1:] == ("R",)]
        return [(without_silent_r(phones), source) for phones, source in found] + linked

    def by_rule(self, word: str, american: Phones) -> Phones:
        """American phones of a word to British ones, by the rules alone."""
        phones = rhotic(american)
        starts = spelled_from(word, phones)
        found = self._ruled(word, phones, starts, keep_stress=False)
        if not any(phone[-1] == "1" for phone in found):  # they were learnt from words stressed elsewhere
            found = self._ruled(word, phones, starts, keep_stress=True)
        if word.endswith("ham") and tuple(found[-3:]) == _HAM:  # "Beckham"
            del found[-3]
        return adapted(found)

    def _ruled(self, word: str, phones: Sequence[str], starts: Sequence[int], keep_stress: bool) -> list[str]:
        """`keep_stress`: without the rules that take the main stress from its vowel."""
        found: list[str] = []
        for index, phone in enumerate(phones):
            said: Phones = (phone,)
            for context in contexts(word, phones, starts, index):
                new = self.rules.get(context, said)
                is_lost = phone.rstrip("012") in _NEVER_LOST and (
                    not new or (new == ("Y",) and found[-1:] not in (["T"], ["D"]))
                )
                if keep_stress and phone[-1] == "1":
                    is_lost = not any(one[-1] == "1" for one in new)
                said = said if is_lost else new
            found += said
        return found

    def _of_token(self, token: str, american: Phones) -> Phones:
        if not american:  # a mark
            return ()
        if spelled := pronounce.SPELLED.fullmatch(token):
            return pronounce.spell_inflected(spelled, LETTER_NAMES)
        word = token.lower().rstrip("-") or token
        if token[0].isupper() and american == pronounce.LETTER_NAMES.get(word):
            return LETTER_NAMES[word]
        return self._of_reading(word, american)

    def _find_reading(self, word: str, american: Phones) -> Phones:
        """Of a word that is said so in America, where it may be said otherwise elsewhere."""
        if pronounce.is_variable(word) or american != pronounce.of_word(word):
            return self._of_american(word, american)
        return self._whole_of_word(word)

    def _of_american(self, word: str, american: Phones) -> Phones:
        if found := self.forms.get((word, american)):
            return found
        if len(word) > 1 and word_parts.bare(american) == word_parts.bare(pronounce.spell(word)):
            return pronounce.spell(word, LETTER_NAMES)
        # The rules know too little of short words without a stress.
        return adapted(american) if pronounce.is_function_word(word) else self.by_rule(word, american)

    def _find(self, word: str) -> Phones:
        if known := self._known(word):
            return known
        if contraction := word_parts.split_contraction(word):
            base, join = contraction
            return adapted(join(self._whole_of_word(base)))
        if full := pronounce.full_form(word):
            return (*self._whole_of_word(full)[:-1], "N")
        american = word_parts.american_spelling(word, pronounce.is_known)
        if american and not pronounce.is_rare(word):
            return self._whole_of_word(american)
        is_of_parts = not (pronounce.is_rare(word) or pronounce.is_guessed(word))
        if is_of_parts and (parts := word_parts.assemble(word, self._known)):
            return adapted(parts)
        return self.by_rule(word, pronounce.of_word(word))

    def _find_known(self, word: str) -> Phones | None:
        american = pronounce.of_word(word)
        found = self.lexicon.pronunciations(word)
        if found and (word, american) not in self.forms:
            return word_parts.assimilated(found[0])
        if not found and (found_stem := self._of_stem(word, american)):
            return found_stem
        return self._of_american(word, american) if found or pronounce.is_known(word) else None

    def _of_stem(self, word: str, american: Phones) -> Phones | None:
        """An inflected form as its stem is said, of which the rules know more: classes, planted, staff's."""
        for written, length, added in _INFLECTIONS:
            if not word.endswith(written) or len(word) < length + 3:
                continue
            if written == "ing" and not pronounce.is_known(f"{word[:-3]}ed"):  # "herring"
                continue
            for stem in filter(pronounce.is_known, word_parts.stems_of(word[:-length])):
                base = pronounce.of_word(stem)
                inflected = word_parts.bare(base + added(base))
                if word_parts.bare(american) in (inflected, (*inflected[:-2], "AH", inflected[-1])):
                    known = self._known(stem) or ()
                    is_stressed = any(phone[-1] == "1" for phone in known)  # "can" has a weak form only
                    return known + added(known) if is_stressed else None
        return None


@lru_cache(maxsize=1)
def load_british() -> British:
    """With the rules and the lexicon of the data; read once."""
    lines = zlib.decompress(RULES.read_bytes(), wbits=31).decode("ascii").splitlines()
    rules = {context: tuple(phones.split()) for context, phones in (line.split("\t") for line in lines)}
    rows = read_rows("british_forms.tsv")
    forms = {(word, tuple(american.split())): tuple(british.split()) for word, american, british in rows}
    return British(rules, CmuDict(zlib.decompress(LEXICON.read_bytes(), wbits=31)), forms)


def rhotic(phones: Sequence[str]) -> list[str]:
    """Phones with the R of ER as one of its own."""
    return [part for phone in phones for part in ((phone, "R") if phone[:2] == "ER" else (phone,))]


def contexts(word: str, phones: Sequence[str], starts: Sequence[int], index: int) -> Iterator[str]:
    """What the rules may know of a phone of a word: from what is common to what is rare, which counts."""
    if phones[index] == "R":  # is always kept
        return
    bare = [phone.rstrip("012") for phone in ("#", *phones[max(index - 1, 0) : index + 3], "#", "#")]
    before, after, second = (bare[1], *bare[3:5]) if index else ("#", *bare[2:4])
    letters, phone = f"  ^{word}$   ", phones[index]
    at = starts[index] + 3
    yield f"0{phone}"
    yield f"1{phone}{letters[at]}>{after}"
    yield f"2{phone}{letters[at : at + 2]}>{after}"
    yield f"3{phone}{letters[at : at + 2]}>{after}>{second}"
    yield f"4{before}<{phone}{letters[at : at + 2]}>{after}"
    yield f"5{phone}{letters[at - 1]}_{letters[at : at + 4]}"
    yield f"6{phone}{letters[at - 3 : at]}_{letters[at : at + 5]}"


def spelled_from(word: str, phones: Sequence[str]) -> list[int]:
    """The letter of a word at which the spelling of each phone begins: an alignment of least cost."""
    size = len(word)
    costs = [0.0] + [float("inf")] * size  # by the number of letters that are spent
    lengths: list[list[int]] = []
    for phone in phones:
        base, is_vowel = phone.rstrip("012"), phone[-1].isdigit()
        first = _SPELLINGS[base]
        new, chosen = [float("inf")] * (size + 1), [0] * (size + 1)
        for at, cost in enumerate(costs):
            for length in range(min(_LONGEST_SPELLING, size - at) + 1):
                if length == 0:
                    more = _SILENT
                elif length == 1:
                    more = 0.0 if word[at] in first else _UNLIKE
                else:
                    letter = word[at + length - 1]
                    is_like = (letter in _VOWEL_LETTERS) == is_vowel or letter == word[at]
                    more += _USUAL if is_like or (is_vowel and letter in "wgh") else _UNUSUAL
                if cost + more < new[at + length]:
                    new[at + length], chosen[at + length] = cost + more, length
        costs = new
        lengths.append(chosen)
    starts, at = [0] * len(phones), size
    for index in range(len(phones) - 1, -1, -1):
        at -= lengths[index][at]
        starts[index] = at
    return starts


def adapted(american: Sequence[str]) -> Phones:
    """Phones with British ones in place of those that only American English has, whatever the word."""
    phones = rhotic(american)
    before = ("", *phones[:-1])  # what two rules have both made
    phones = [one for one, last in zip(phones, before, strict=False) if one != "Y" or last not in _WITH_Y]
    out = []
    for index, phone in enumerate(phones):
        base, stress = (phone[:-1], phone[-1]) if phone[-1].isdigit() else (phone, "")
        is_before_r = phones[index + 1 : index + 2] == ["R"] and not _is_vowel(phones[index + 2 : index + 3])
        said = _BEFORE_R.get(base, base) if is_before_r else _OTHERWISE.get(base, base)
        out.append("AH0" if base == "ER" and stress == "0" else said + stress)
    return tuple(out)


def _is_vowel(phones: Sequence[str]) -> bool:
    """Whether the first of these phones, if there is one, is a vowel."""
    return bool(phones) and phones[0][-1].isdigit()


def without_silent_r(phones: Phones, follower: Phones = ()) -> Phones:
    """Without each R that no vowel follows; `follower`: the phones of the next word."""
    following = (*phones[1:], *follower[:1], "")
    pairs = zip(phones, following, strict=False)
    return tuple(phone for phone, after in pairs if phone != "R" or after[-1:].isdigit())


LETTER_NAMES = {letter: adapted(name) for letter, name in pronounce.LETTER_NAMES.items()}
LETTER_NAMES["z"] = ("Z", "EH1", "D")

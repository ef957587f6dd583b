"""Words made of known words: inflected (palmprints) and compound (roominghouse)."""

from __future__ import annotations

import re
from collections.abc import Callable

from melforge.common.text.cmudict import DATA

Phones = tuple[str, ...]
Lookup = Callable[[str], Phones | None]

MAX_LETTERS = 40  # nothing longer is taken apart

_SIBILANTS = frozenset(("S", "Z", "SH", "ZH", "CH", "JH"))
_VOICELESS = frozenset(("P", "T", "K", "F", "TH", "S", "SH", "CH"))


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


def assimilated(phones: Phones) -> Phones:
    """Phones whose end is as voiceless as what is before it: dictionaries err (nursed, popes)."""
    end = {"D": "T", "Z": "S"}.get(phones[-1], "") if phones[-2:-1] and phones[-2] in _VOICELESS else ""
    return (*phones[:-1], end) if end else phones


def bare(phones: Phones) -> Phones:
    """Phones without their stress."""
    return tuple(phone.rstrip("012") for phone in phones)


def words(text: str) -> frozenset[str]:
    """The words of a text, for the tables here and elsewhere."""
    return frozenset(text.split())


def read_rows(name: str) -> list[list[str]]:
    """The columns of every row of a table in data/."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def table(text: str) -> tuple[tuple[str, Phones], ...]:
    """ "un AH0 N / re R IY0" -> (("un", ("AH0", "N")), ("re", ("R", "IY0"))), longest first."""
    rows = [(name, tuple(phones)) for name, *phones in (entry.split() for entry in text.split("/"))]
    return tuple(sorted(rows, key=lambda row: -len(row[0])))


# Before a hyphen these are said in full ("re-elect").
HYPHENATED: dict[str, Phones] = dict(
    table("""re R IY1 / co K OW1 / de D IY1 / pre P R IY1 / un AH1 N / non N AA1 N / bi B AY1 / e IY1 / pro P
        R OW1 / semi S EH1 M IY0 / anti AE1 N T IY0 / multi M AH1 L T IY0 / a AH0 / sub S AH1 B / tri T R
        AY1""")
)
# Endings, said otherwise than the words: Warrington, Baumgarten, Soderberg, dimensionally.
_ENDINGS = words("""son ton ham berg burg burgh man mann men well ell hall dock land stein sen ville
    ley wood worth field ford brook er ers ini ino ina itz nick ing ling dorf horn hart hardt heim feld bach
    hof baum thal tal gard garten bauer meyer maier mayer ally pers ping hing lant""")
# Short words that make compounds (daybreak, airbag); other entries of three letters are mostly names.
_SHORT_PARTS = words("""act age aid aim air arm art ash back bag bar bat bay bed bee big bin bit box boy bud
    bug bus buy can cap car cat cow cry cup cut dad day dew dog dot dry ear eat egg end eye fan far fat fig
    fin fit fix fly fog fox fun fur gap gas gem gun guy ham hat hay hen hit hop hot ice ink jam jar jaw jet
    job joy key kid lap law lay leg lid lie lip log lot low map mat mid mud net new nut oak oil old one out
    own pan paw pay pea pen pet pie pig pin pit pop pot raw ray red rib rim rod row run sad saw sea see set
    sex she sky sod son spy sub sun tag tap tar tax tea ten tie tin tip toe ton top toy two use van war wax
    way web wet wig win wit woe zoo""")

# Said otherwise in compounds than by itself: livestreamer, interwar; and at their end: loveable.
_IN_COMPOUNDS: dict[str, Phones] = dict(table("live L AY1 V / inter IH1 N T ER0"))
_AT_THEIR_END: dict[str, Phones] = dict(table("able AH0 B AH0 L"))

# British spellings and the American ones, which the dictionary has.
_SPELLINGS = tuple(
    (re.compile(british), american)
    for british, american in (
        (r"(?<=[a-z]{3})is(?=(?:e[ds]?|ers?|ing|able|ations?|ational)$)", "iz"),
        (r"(?<=[a-z]{3})ys(?=(?:e[ds]?|ers?|ing)$)", "yz"),
        (r"(?<=[a-z]{3})our(?=[a-z]*$)", "or"),
        (r"(?<=[a-z]{4})ll(?=(?:ed|ing|ers?|ists?)$)", "l"),
        (r"(?<=[a-z]s)tre$", "ter"),
        (r"(?<=p)ae(?=d)|(?<=h)ae(?=m)|(?<=n)ae(?=[cs])|(?<=[kn])ae(?=mi)|ae(?=val$|sthe)", "e"),
        (r"(?<=[hu])oe(?=[au]v?)|(?<=f)oe(?=t)|^oe(?=str|soph|dem)", "e"),
    )
)

# What follows an apostrophe (or stands for "not"), with the sound that it adds.
_CONTRACTED: tuple[tuple[str, Callable[[Phones], Phones]], ...] = (
    ("'s", lambda base: base + plural(base)),
    ("n't", lambda base: (*base, "AH0", "N", "T")),
    ("'ll", lambda base: (*base, "AH0", "L")),
    ("'ve", lambda base: (*base, *(() if base[-1][-1].isdigit() else ("AH0",)), "V")),
    ("'re", lambda base: (*base, "ER0")),
    ("'d", lambda base: (*base, *(("IH0",) if base[-1] in ("T", "D") else ()), "D")),
    ("'em", lambda base: (*base, "AH0", "M")),
)


def split_contraction(word: str) -> tuple[str, Callable[[Phones], Phones]] | None:
    """ "hidell's" -> "hidell" and what makes its phones those of the whole."""
    for ending, join in _CONTRACTED:
        if word.endswith(ending) and len(word) > len(ending):
            return word[: -len(ending)], join
    return None


def american_spelling(word: str, is_known: Callable[[str], bool]) -> str:
    """How a dictionary spells a word that it has in its American spelling only ("honouring"), or ""."""
    spelled = word
    for british, american in _SPELLINGS:
        spelled = british.sub(american, spelled)
    return spelled if spelled != word and is_known(spelled) else ""


def assemble(word: str, known: Lookup, is_name: bool = False, depth: int = 0) -> Phones | None:
    """Phones of a word from the words it is made of, None where there are none. `known`: a dictionary.

    Names may be inflected, but are no compounds.
    """
    if not 4 <= len(word) <= MAX_LETTERS or depth > 2 or not word.isalpha():
        return None

    def base(part: str) -> Phones | None:
        return known(part) or assemble(part, known, is_name, depth + 1)

    return _inflected(word, known, base) or (None if is_name else _compound(word, known))


def stems_of(rest: str) -> list[str]:
    """What may have lost its "e", doubled its last letter or turned "y" to "i" before an ending."""
    stems = [rest[:-1] + "y"] if rest.endswith("i") else []
    doubled = [rest[:-1]] if len(rest) > 3 and rest[-1] == rest[-2] else []
    stems += [rest + "e", *doubled, rest] if rest[-1] in "cgvuz" else [rest, *doubled, rest + "e"]
    return [stem for stem in stems if len(stem) > 2]


def _inflected(word: str, known: Lookup, base: Lookup) -> Phones | None:
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        stems = [word[:-1]]
        if word.endswith("ies"):
            stems.insert(0, word[:-3] + "y")
        elif word.endswith(("ches", "shes", "sses", "xes", "zes", "oes")):
            stems.insert(0, word[:-2])
        for stem in stems:
            if len(stem) > 2 and (phones := base(stem)):
                return phones + plural(phones)
    if word.endswith("ed"):
        for stem in stems_of(word[:-2]):
            if phones := known(stem):
                return phones + past(phones)
    return None


def _is_inflected(word: str, known: Lookup) -> bool:
    """Whether the dictionary has a form of a word in -ed or -ing, which it has of few names."""
    stems = (word, word + word[-1], word[:-1] if word[-1] == "e" else word)
    return any(known(stem + ending) for stem in stems for ending in ("ed", "ing"))


def _is_common(word: str, known: Lookup) -> bool:
    """Whether the dictionary has another form of a word."""
    return any(known(word + ending) for ending in ("s", "es")) or _is_inflected(word, known)


def _compound(word: str, known: Lookup) -> Phones | None:
    """Two common words of the dictionary in one, at the evenest split."""
    best: Phones | None = None
    evenness = 2
    for cut in range(3, len(word) - 2):
        first, second = word[:cut], word[cut:]
        shorter = min(cut, len(second))
        is_rare = any(len(part) == 3 and part not in _SHORT_PARTS for part in (first, second))
        if shorter <= evenness or is_rare:
            continue
        if first[-1] in "tspcgw" and second[0] == "h" and shorter < 4:  # more likely one sound: "th", "sh"
            continue
        if (
            second in _ENDINGS
            or not (a := _IN_COMPOUNDS.get(first) or known(first))
            or not (b := _AT_THEIR_END.get(second) or known(second))
        ):
            continue
        if not _is_common(first, known):
            continue
        if _is_inflected(second, known) or (shorter > 3 and _is_common(second, known)):
            best, evenness = (*a, *(phone.replace("1", "2") for phone in b)), shorter
    return best

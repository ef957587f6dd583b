"""The published text cleaners: written text to the words and marks that the checkpoints were trained on."""

import re
from collections.abc import Callable, Iterable
from functools import reduce

from melforge.common.errors import InputError, unknown
from melforge.common.text.published.numbers import basic_numbers, clock_times, letters_and_digits, numbers
from melforge.common.text.published.transliterate import to_ascii_bundled, to_ascii_unidecode

Cleaner = Callable[[str], str]

_BLANKS = re.compile(r"\s+")


def collapse_blanks(text: str) -> str:
    """Every run of blanks as one space."""
    return _BLANKS.sub(" ", text)


# In the published order, which decides where one abbreviation touches another: "dr.mr." is "doctormister".
_ABBREVIATIONS = {
    **{"mrs": "misess", "mr": "mister", "dr": "doctor", "st": "saint", "co": "company", "jr": "junior"},
    **{"maj": "major", "gen": "general", "drs": "doctors", "rev": "reverend", "lt": "lieutenant"},
    **{"hon": "honorable", "sgt": "sergeant", "capt": "captain", "esq": "esquire", "ltd": "limited"},
    **{"col": "colonel", "ft": "fort"},
}
# FastPitch knows three more.
_MORE_ABBREVIATIONS = {"mrs": "misess", "ms": "miss", **_ABBREVIATIONS, "sen": "senator", "etc": "et cetera"}


def _expander(abbreviations: dict[str, str]) -> Cleaner:
    rules = [(re.compile(rf"\b{short}\.", re.IGNORECASE), full) for short, full in abbreviations.items()]

    def expand(text: str) -> str:
        for pattern, full in rules if "." in text else ():
            text = pattern.sub(full, text)
        return text

    return expand


_expand_abbreviations = _expander(_ABBREVIATIONS)
_expand_more_abbreviations = _expander(_MORE_ABBREVIATIONS)

_SIGNS = {"%": " percent", "&": " and ", "@": " at "}
_SIGN = re.compile(" ?%|[&@]")
_DOMAIN = re.compile(r"([a-zA-Z])\.(com|gov|org)")


def _expand_signs(text: str) -> str:
    """Percent, ampersand, at, and the dots of web addresses."""
    text = _SIGN.sub(lambda match: _SIGNS[match[0].strip()], text)
    return _DOMAIN.sub(r"\1 dot \2", text)


_EMAIL = re.compile(r"\bemail\b", re.IGNORECASE)
_ACRONYM = re.compile(r"([a-z]*[A-Z]{2,})s?\.?")


def _spell_acronyms(text: str) -> str:
    """Capitals letter by letter: "GPUs" is "G.P.U.'s", as are words in capitals."""
    return _ACRONYM.sub(_spell_acronym, _EMAIL.sub("e-mail", text))


def _spell_acronym(match: re.Match) -> str:
    acronym = match[1]
    text = "N.VIDIA" if acronym == "NVIDIA" else ".".join(acronym) + "."
    if "s" in match[0]:
        text += "'s"
    return text + "." * (match[0].endswith(".") and not text.endswith("."))


def _basic(text: str) -> str:
    return collapse_blanks(text.lower())


def _cleaners(to_ascii: Cleaner) -> dict[str, Cleaner]:
    def english(text: str) -> str:
        return collapse_blanks(_expand_abbreviations(basic_numbers(to_ascii(text).lower())))

    transliteration = {"transliteration_cleaners": lambda text: _basic(to_ascii(text))}
    return {"english_cleaners": english, **transliteration, "basic_cleaners": _basic}


def _english_fastpitch(text: str) -> str:
    text = numbers(to_ascii_bundled(text).lower())
    return collapse_blanks(_expand_more_abbreviations(_expand_signs(text)))


def _english_fastpitch_v2(text: str) -> str:
    text = clock_times(to_ascii_bundled(text))
    text = letters_and_digits(text)
    text = numbers(text)
    text = _expand_more_abbreviations(_expand_signs(text))
    return re.sub("/+", " ", _basic(_spell_acronyms(text)))


TACOTRON2, FASTSPEECH = _cleaners(to_ascii_bundled), _cleaners(to_ascii_unidecode)
FASTPITCH = TACOTRON2 | {"english_cleaners": _english_fastpitch, "english_cleaners_v2": _english_fastpitch_v2}


def chain(names: str | Iterable[str], cleaners: dict[str, Cleaner]) -> Cleaner:
    """The cleaners of these names, one after the other."""
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if name not in cleaners:
            raise InputError(unknown("text cleaner", name, cleaners))
    return lambda text: reduce(lambda cleaned, name: cleaners[name](cleaned), names, text)

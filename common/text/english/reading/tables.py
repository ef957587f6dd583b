"""What units, currencies, abbreviations, symbols and emoji are called: data of the English normaliser."""

from __future__ import annotations

from functools import cache

from melforge.common.text.english.word_parts import read_rows, words


@cache
def _tables() -> dict[str, dict[str, str]]:
    """The rows of data/tables.tsv: a table's name, words, and what they all are called there."""
    tables: dict[str, dict[str, str]] = {}
    for name, keys, value in read_rows("tables.tsv"):
        tables.setdefault(name, {}).update(dict.fromkeys(keys.split(), value))
    return tables


def _table(name: str) -> dict[str, str]:
    return dict(_tables()[name])


MAGNITUDES = _table("MAGNITUDES")
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)
MONTH_NUMBERS: dict[str, int] = {
    **{name.lower(): number for number, name in enumerate(MONTHS, 1)},
    **{name[:3].lower(): number for number, name in enumerate(MONTHS, 1)},
    "sept": 9,
}
WEEKDAYS = _table("WEEKDAYS")

# Singular names; plurals are made by rule but for these. With a full stop: written so, often.
_UNITS = _table("UNITS")
UNITS = {unit.rstrip("."): name for unit, name in _UNITS.items()}
STOPPED_UNITS = frozenset(unit[:-1] for unit in _UNITS if unit[-1] == ".")
# Written otherwise than is correct, mostly in other capitals.
LIKE_UNITS = _table("LIKE_UNITS")
# What something happens or is paid per, behind a slash.
PERIODS = words("s mi km sec min hr hour day wk week mo month yr year")
PER_ONLY = _table("PER_ONLY")
# These stand for a unit only where they touch the number ("5in"): apart from it they are words or letters.
TOUCHING_UNITS = words("us Ki Mi Gi Ti BA BD in t au AU MP IU mo v w CC mw MI")
PLURALS = _table("PLURALS")

# symbol or code -> name, names of more, hundredth, hundredths ("" where there is none)
CURRENCIES: dict[str, list[str]] = {
    sign: [*names.split(", "), "", ""][:4] for sign, names in _table("CURRENCIES").items()
}
CURRENCY_CODES = {code: code for code in CURRENCIES if code.isalpha() and code.isascii()} | _table(
    "CURRENCY_CODES"
)
DOLLARS = _table("DOLLARS")
STREETS = _table("STREETS")

# Written with a full stop. In small letters; the value keeps the case that is spoken. Behind a key stands "+"
# where no sentence ends ("Mr."); "#" where it is cut short before a number only, and otherwise a word or a
# sentence's end ("No. 5"); "~" where it is a word as well, whose full stop belongs to the sentence unless a
# capital or a number follows. Behind any other a sentence ends before a word that often begins one.
_ABBREVIATIONS = _table("ABBREVIATIONS")
# Cut short without a full stop too; none of them is a word, and most have no vowel to be said by.
_SHORT_FORMS = _table("SHORT_FORMS")
_SHORT_FORMS |= {
    f"{key.rstrip('+')}s": f"{name[:-1]}ies" if name[-1] == "y" and name[-2] != "a" else f"{name}s"
    for key, name in _SHORT_FORMS.items()
    if key.rstrip("+")[-1] != "s"
} | _SHORT_FORMS
# ... and in messages, never with one.
IN_MESSAGES = _table("IN_MESSAGES")
# With an apostrophe for what is left out.
SHORTENED = _table("SHORTENED")
# With a slash for what is left out.
SLASHED = _table("SLASHED")
# Written without their apostrophe.
SHORTENED |= {
    word.replace("'", ""): word
    for word in words("""they're you're they've you've we've could've should've would've that's what's
    there's here's who's can't won't i'm doesn't didn't don't isn't aren't wasn't weren't hasn't haven't
    hadn't wouldn't couldn't shouldn't they'll you'll ain't""")
}
# Digits for sounds, in small letters only.
RESPELLED = _table("RESPELLED")


def respelled(word: str) -> str:
    """ "gr8", "Gr8" -> "great"; "" for any other word. In capitals two characters are a name: "B4"."""
    is_meant = len(word) > 2 or word.islower()
    return RESPELLED.get(word.lower(), "") if is_meant else ""


# Books of the Bible as they are cut short before a chapter and a verse.
BOOKS = _table("BOOKS")
_MARKED = _SHORT_FORMS | _ABBREVIATIONS
BEFORE_NAMES, BEFORE_NUMBERS, ALSO_WORDS = (
    frozenset(key.rstrip("+#~") for key in _MARKED if mark in key) for mark in "+#~"
)
SHORT_FORMS = IN_MESSAGES | {key.rstrip("+"): value for key, value in _SHORT_FORMS.items()}
ABBREVIATIONS = {
    **{key: MONTHS[number - 1] for key, number in MONTH_NUMBERS.items() if key.title() not in MONTHS},
    **{unit: UNITS[unit] + "s" * (unit[-1] == "s") for unit in STOPPED_UNITS},
    **SHORT_FORMS,
    **{key.rstrip("+#~"): value for key, value in _ABBREVIATIONS.items()},
}
# Those with which a sentence may go on.
CUT_SHORT = frozenset((*ABBREVIATIONS, *WEEKDAYS, *map(str.lower, STREETS))) - IN_MESSAGES.keys()
CUT_SHORT |= {other.lower() for other, unit in LIKE_UNITS.items() if unit in STOPPED_UNITS}
TITLES = {
    f"{key.title()}s": f"{ABBREVIATIONS[key]}s" for key in words("prof gen sen rep gov col capt lt rev amb")
}
STATES_WITH_STOP = _table("STATES_WITH_STOP")
STATES = _table("STATES")
STATES_CUT_SHORT = frozenset(
    (*STATES_WITH_STOP, *(key.title() for key, name in ABBREVIATIONS.items() if name in STATES.values()))
)
PROVINCES = _table("PROVINCES")
# These are words as well, or common in capitals: a state's only before a ZIP code.
STATES_ALSO_WORDS = words("OK HI OH ME ID MS")

# In capitals, and said as a word.
ACRONYM_WORDS = frozenset(_table("ACRONYM_WORDS"))
ACRONYMS = _table("ACRONYMS")
# Capitals of three letters or fewer that are said as words wherever they stand; longer ones are looked up.
SHORT_WORDS = frozenset(_table("SHORT_WORDS"))
# Initials that are written in small letters too.
SMALL_ACRONYMS = frozenset(_table("SMALL_ACRONYMS"))
# ... but for these, which are letters unless the whole sentence is in capitals.
SPELLED = words("ERA US IT AM PM WHO UN UK EU SAT TV PC AI ID PA MA AC DC CD ER OT PS CV AD MS MR SOB BUN")

# Words that their accents tell from others, or whose letters without accents tell too little.
ACCENTED = _table("ACCENTED")
SYMBOLS = _table("SYMBOLS")
GREEK = _table("GREEK")
# Two signs or more that make one.
SIGNS = _table("SIGNS")
SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n", strict=True))
# Layout, which is silent: quotation marks, bullets, lines.
SILENT = frozenset('"*_`«»‹›“”„‟•·‣⁃◦▪▫■□●○◆◇►▶▸¿¡⟨⟩\u2500\u2501\u2502\u2503')

JOINER = "\u200d"
# Variation selectors, the keycap, skin tones.
EMOJI_PARTS = frozenset("\ufe0f\ufe0e\u20e3\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
EMOJI = _table("EMOJI")

TOP_LEVEL_DOMAINS = frozenset(_table("TOP_LEVEL_DOMAINS"))
HIDDEN_FILES = frozenset(_table("HIDDEN_FILES"))
FILE_ENDINGS = frozenset(_table("FILE_ENDINGS"))

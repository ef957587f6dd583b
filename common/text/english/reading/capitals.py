"""Words in capitals and in mixed case: acronyms, shouting, Roman numerals, names like YouTube or MP3."""

from __future__ import annotations

import re

from melforge.common.text.english.pronounce import is_known, of_word, spell
from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cursor import Cursor
from melforge.common.text.english.word_parts import bare, words

NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VOWELS = frozenset("aeiouy0123456789")
_UNSPEAKABLE = re.compile("(?!S|[CPT]H)[B-DF-HJ-NP-TV-XZ]{3}")  # "HDMI"
_OF_CITIES = words("san los las des el")  # of a dateline: "SAN JOSE, Calif."
_CITY_FOLLOWS = re.compile(r"\s[A-Z]{4}")
_BEFORE_US = ("", "THE", ".", ":", "!", "?")  # of a headline, in which the pronoun does not begin a sentence
_INFLECTED = re.compile(r"([A-Z]{2,})('?ed|'?ing|es)")  # "DMed", "ID'ing"
_LEVELS = re.compile(r"[- ][Ll]evels?\b")  # of examinations: "AS-levels"
_HASH = re.compile(r"(?=\D*\d+[a-f]+\d)[\da-f]{7,40}")  # of a commit
_INITIAL = re.compile(r"[A-Z]\.?")
_SURNAME = re.compile(r"(?:Mac|Mc|O|De|La|Di|Van|Fitz|Le)[A-Z][a-z]+")

# What is numbered in Roman numerals, and who.
NUMBERED = words("""chapter chap ch part volume vol book act scene section article appendix phase type class
    grade level figure table title war episode stage season round game mark element bowl verse canto unit
    lesson count division tier corps wars quarter amendment psalm annex category apollo rocky version protocol
    page p pp gallery saturn gemini artemis ares sc vatican gta fantasy""")
_IN_HUNDREDS = words("chapter chap ch psalm canto verse sonnet")
_REIGN = re.compile(
    r"\b(?:reign|rule[drs]?\b|king|queen|emperor|empress|pope|pharaoh|throne|crown|dynasty|died|death|monarch"
    r"|(?:sons?|daughter|brother|count)\sof|succe(?:ed|ss)|abdicat|duke|prince|earl\b|sultan|heir|bishop|caliph)",
    re.IGNORECASE,
)
_FICTION = re.compile(
    r"\b(?:films?|movies?|games?|sequel|trilogy|episode|played?|playing|watch|released?|album|model)\b"
)
_ALWAYS_NUMBERED = words("type class phase stage tier level category schedule")
_ALSO_IN_SMALL = words("chapter chap ch section part volume vol act scene sc book appendix page p pp")
_OF_TWO_REALMS = re.compile(r"\b([A-Z][a-z]+)\s[IVX]{1,5}\s(?:and|&)\s$")  # "James VI and I"
_TITLES = words("king queen pope emperor popes tsar kaiser")
_MONARCHS = _TITLES | words("""henry louis elizabeth george edward charles james william richard philip
    philippe felipe paul pius leo gregory innocent clement boniface urban alexander nicholas peter catherine
    ivan napoleon frederick wilhelm otto ferdinand alfonso carlos juan christian gustav gustavus ramses
    ramesses ptolemy cleopatra xerxes darius mary john david robert harald haakon olav oscar francis franz
    joseph josef leopold albert baudouin umberto victor emmanuel edmund harold stephen benedict sixtus julius
    adrian martin calixtus eugene honorius celestine cyrus artaxerxes constantine theodosius justinian basil
    michael manuel murad mehmed selim suleiman amenhotep thutmose seti margaret beatrix rainier sigismund
    casimir stanislaus vladislaus maximilian rudolf rudolph frederik erik eric magnus karl pedro sancho
    henri carol""")
# After "I" the person who speaks; "World War I was" is a numeral all the same.
_VERBS_OF_I = words("""am have had will would can could should think thought know knew do did want wanted like
    liked love need saw said say don't didn't can't won't may might must shall mean hope believe guess feel
    felt go went get got""")
_AFTER_NUMERAL_I = words("of and was is in to ended began the")
_BESIDE = {"i": ("(ii)",), "v": ("(iv)", "(vi)"), "x": ("(ix)", "(xi)")}  # items of a list
_ITEMS = 300  # characters
_AMBIGUOUS = words("IV VI XI XX XXX")  # abbreviations as well


_INFUSED = words("""@ q prn stat push pushes drip drips bolus bag bags line pole pump access fluid fluids
    antibiotics infusion infusions saline contrast catheter therapy""")  # beside "IV" of a vein
_DOSED = words("OD OS OU PO IV IM SC SQ PR SL mg mcg mL tab tabs cap caps")
_COUNTED_BY_ORDINALS = words("century centuries olympiad dynasty amendment legion congress")
_GIVEN_NAMES = words("""thomas walter arthur albert samuel benjamin donald kenneth steven brian ronald
    anthony kevin jason matthew gary timothy larry jeffrey frank scott andrew raymond gregory joshua
    jerry dennis patrick ryan roger jack jonathan justin terry gerald keith willie ralph lawrence roy
    bruce brandon adam harry fred wayne billy steve jeremy aaron randy howard carl russell bobby craig
    alan todd sean ernest alfred theodore chester hugh earl clarence leonard alvin marcus daniel thurston
    cornelius nelson sterling sam tom joe""")
_ELEMENT = "He|Li|Be|Ne|Na|Mg|Al|Si|Cl|Ar|Ca|Ti|Cr|Mn|Fe|Co|Ni|Cu|Zn|As|Br|Ag|Sn|Ba|Pt|Au|Hg|Pb|[HBCNOFPSKIU]"
_ELEMENT = f"{_ELEMENT}|Et|Me|Ph"  # and groups
_DECIMAL_FOLLOWS = re.compile(r"\s\d+\.\d")
_OF_FORMULA = re.compile(r"[A-Za-z\d]\([A-Z]{1,3}\)\d")  # "Fe(OH)3"
_FORMULA = re.compile(rf"(?=[A-Z]+[a-z0-9])(?:(?:{_ELEMENT})\d{{0,2}}){{2,10}}")


def _is_given_name(word: str) -> bool:
    """Whether a word is a man's first name, whose bearers are numbered: "Robert Kennedy III"."""
    return word.lower() in _GIVEN_NAMES or (word.lower() in _MONARCHS and word.lower() not in _TITLES)


def _is_ruler(cursor: Cursor, name: str) -> bool:
    """Whether a name that is not listed is a ruler's: no dictionary has it, or a reign is told of."""
    if not name.istitle() or len(name) < 4:
        return False
    if cursor.earlier.lower() in _TITLES:
        return True
    around = cursor.text[max(cursor.at - 60, 0) : cursor.at + 60]
    return _REIGN.search(around) is not None or not (is_known(name.lower()) or _FICTION.search(around))


def letter_name(letters: str) -> str:
    """The name of a letter: "A" and "I" get a hyphen, which tells them from the words."""
    return f"{letters}-" if letters in ("A", "I") else letters


def one_by_one(code: str) -> str:
    """ "ab9453" -> "AB nine four five three"."""
    parts = re.findall(r"[A-Za-z]+|\d+", code)
    return " ".join(say.digits(part) if part.isdecimal() else letter_name(part.upper()) for part in parts)


def cased(cursor: Cursor, word: str) -> str:
    """A word with capitals beyond its first letter: FBI, GPUs, CEO's, DON'T, YouTube."""
    base, _, tail = word.partition("'")
    if word.isupper() and tail:
        return word.lower() if is_known(word.lower()) or tail != "S" else f"{_capitals(cursor, base)}'s"
    possessive = word[len(base) :]
    if base.isupper():
        return _capitals(cursor, base) + possessive
    if inflected := _INFLECTED.fullmatch(word):
        return _capitals(cursor, inflected[1]) + inflected[2]
    if base[-1:] == "s" and base[:-1] in tables.ACRONYMS:
        return f"{tables.ACRONYMS[base[:-1]]}s{possessive}"
    if base[-1:] == "s" and len(base) > 2 and base[:-1].isupper():
        spoken = _capitals(cursor, base[:-1])
        return f"{spoken}s{possessive}" if spoken.isalpha() else word
    return camel(cursor, base) + possessive if len(base) > 2 else word


def _capitals(cursor: Cursor, word: str) -> str:
    """A word in capitals: kept so where it is spelled."""
    if word in tables.ACRONYMS:
        return tables.ACRONYMS[word]
    if word in tables.ACRONYM_WORDS:
        return word.capitalize()
    lower = word.lower()
    is_spelled = word in ("UN", "AI") or (word == "US" and cursor.previous in _BEFORE_US)
    if lower in tables.SMALL_ACRONYMS or is_spelled or (word in tables.SPELLED and not cursor.is_shouted):
        return word
    if word == "BID" and (
        cursor.previous in _DOSED or cursor.previous[:1].isdecimal() or cursor.next(cursor.word_end) == "x"
    ):  # twice a day
        return word
    is_term = cursor.next(cursor.word_end) == "="  # "OR = 2.3"
    is_term = is_term or (word == "AS" and cursor.next(cursor.word_end).isdecimal())  # "AS 64512"
    is_term = is_term or (word == "AS" and _LEVELS.match(cursor.text, cursor.word_end) is not None)
    is_term = is_term or (word == "OR" and _DECIMAL_FOLLOWS.match(cursor.text, cursor.word_end) is not None)
    is_term = is_term or _OF_FORMULA.match(cursor.text, max(cursor.at - 2, 0)) is not None
    is_term = is_term or (word == "ACT" and cursor.previous.lower() in ("the", "an", "on"))  # the test
    if lower in tables.SHORT_WORDS and not is_term:
        return lower
    if lower in _OF_CITIES and _CITY_FOLLOWS.match(cursor.text, cursor.word_end):
        return word.capitalize()
    if len(word) <= 3 and not cursor.is_shouted:
        return word
    if is_known(lower):  # the dictionary spells some of them
        return word if bare(of_word(lower)) == bare(spell(word)) else lower
    vowels = sum(letter in "AEIOUY" for letter in word) / len(word)
    is_long = len(word) > (3 if cursor.is_shouted else 4)
    if is_long and 0.25 <= vowels <= 0.6 and not _UNSPEAKABLE.match(word):
        return word.capitalize()
    return word


def camel(cursor: Cursor, word: str) -> str:
    """YouTube, McDonald, iPhone, GitHub, macOS."""
    if word in tables.ACRONYMS:
        return tables.ACRONYMS[word]
    if is_known(word.lower()) or _SURNAME.fullmatch(word):
        return word
    return formula(word) or " ".join(part_of_name(cursor, part) for part in NAME_PARTS.findall(word))


def part_of_name(cursor: Cursor, part: str) -> str:
    """A run of digits or letters in a name of several."""
    if part.isdecimal():
        return say.short(part)
    if len(part) == 1:
        return letter_name(part.upper())
    return _capitals(cursor, part) if part.isupper() else part


def formula(word: str) -> str:
    """ "NaCl" -> "NACL", "CaCO3" -> "CACO three"; "" where it is none."""
    if not _FORMULA.fullmatch(word) or is_known(word.lower()):
        return ""
    parts = re.findall(r"[A-Za-z]+|\d+", word)
    return " ".join(say.cardinal(int(part)) if part.isdecimal() else part.upper() for part in parts)


def _is_spelled(part: str) -> bool:
    """Whether small letters in a code are no word: "x86", "4Gt7"."""
    if is_known(part.lower()):
        return False
    return (part.islower() and len(part) < 4) or (len(part) == 2 and not _VOWELS & set(part.lower()))


def letters_and_digits(cursor: Cursor, word: str) -> str:
    """MP3, H2O, x86, F150, 1080p."""
    if word in tables.ACRONYMS:
        return tables.ACRONYMS[word]
    if spelled := formula(word):
        return spelled
    if _HASH.fullmatch(word):
        return one_by_one(word)
    spoken: list[str] = []
    for part in NAME_PARTS.findall(word):
        if part == "s" and len(spoken) > 1:  # MP3s
            spoken[-1] = say.plural(spoken[-1])
        elif part.isupper() and 1 < len(part) < 4:
            spoken.append(part)
        elif _is_spelled(part):
            spoken.append(letter_name(part.upper()))
        else:
            spoken.append(part_of_name(cursor, part))
    return " ".join(spoken)


def roman(cursor: Cursor, word: str, end: int) -> str | None:
    """The number of a Roman numeral that ends at `end`, with its "'s"; None where no number is meant."""
    base = word.removesuffix("'s")
    if len(base) > 8:
        return None
    part = base[-1:].upper()
    if part in ("A", "B", "C") and cursor.previous.lower() in _ALWAYS_NUMBERED:  # "stage IIIB", "IIIa"
        number = say.roman(base[:-1])
        return f"{say.cardinal(number)} {letter_name(part)}{word[len(base) :]}" if number else None
    if not (base.isupper() or base.islower()):
        return None
    number = say.roman(base.upper())
    if number is None:
        return None
    spoken = _said_roman(cursor, base, number, end)
    return spoken + word[len(base) :] if spoken else None


def _said_roman(cursor: Cursor, base: str, number: int, end: int) -> str:
    before, following = cursor.previous.rstrip("."), cursor.next(end)
    is_name = before[:1].isupper()
    key = before.lower()
    key = tables.ABBREVIATIONS.get(key, key).lower() if cursor.previous[-1:] == "." else key  # "Wm. I"
    key = key[:-1] if key[-1:] == "s" and key[:-1] in NUMBERED else key  # "Vols. I–III"
    if base == "I":
        both = _OF_TWO_REALMS.search(cursor.text, max(cursor.at - 30, 0), cursor.at)
        if both and both[1].lower() in _MONARCHS and (not following.isalpha() or following in ("of", "was")):
            return "the first"
        if not is_name or following.lower() in _VERBS_OF_I:
            return ""
        if key in _MONARCHS or cursor.earlier.lower() in _TITLES:
            return "" if key in _TITLES else "the first"
        if key in _ALWAYS_NUMBERED:
            return "one"
        is_number = not following[:1].islower() or following in _AFTER_NUMERAL_I
        return "one" if key in NUMBERED and is_number else ""
    if base in ("D", "M") or (base in ("C", "L") and key not in _IN_HUNDREDS):
        return ""  # "Appendix C", "Chapter D"
    if key in NUMBERED and (base.isupper() or (len(base) > 1 and key in _ALSO_IN_SMALL)):
        return say.cardinal(number)
    if before in ("-", "–") and say.roman(cursor.earlier.upper()) is not None:  # "pp. xii–xiv"
        is_same = cursor.earlier.isupper() == base.isupper()
        return say.cardinal(number) if is_same and (len(base) > 1 or base in "VX") else ""
    if base.islower():  # "(iii)"
        is_item = cursor.text[cursor.at - 1 : cursor.at] == "(" and cursor.text.startswith(")", end)
        if is_item and len(base) == 1:
            around = cursor.text[max(cursor.at - _ITEMS, 0) : end + _ITEMS]
            is_item = any(beside in around for beside in _BESIDE.get(base, ()))
        if cursor.at == 0 and base not in "vx":  # "ii. Second"
            is_item = cursor.text.startswith((". ", ") "), end)
        return say.cardinal(number) if is_item and set(base) <= set("ivx") else ""
    is_ruler = key in _MONARCHS or (len(base) > 1 and set(base) <= set("IVX") and _is_ruler(cursor, before))
    if is_ruler and is_name and (len(base) > 1 or base in "VX"):
        return f"the {say.ordinal(number)}"
    is_told = key == "the" and (cursor.earlier.lower() in _MONARCHS or _is_given_name(cursor.earlier))
    if is_told and base.isupper() and (len(base) > 1 or base in "VX"):  # "Henry the VIII"
        return say.ordinal(number)
    if following.lower() in _COUNTED_BY_ORDINALS and set(base) <= set("IVXL"):
        return say.ordinal(number)
    is_person = _is_given_name(cursor.earlier) or _is_given_name(before) or _INITIAL.fullmatch(cursor.earlier)
    if base in ("II", "III", "IV") and is_name and is_person:
        return f"the {say.ordinal(number)}"  # "John Smith III", "Sam II"
    if len(base) > 1 and set(base) <= set("IVX"):
        if key in ("and", "&") and cursor.earlier.isupper() and say.roman(cursor.earlier):
            return say.cardinal(number)  # "Rocky V and VI"
        is_kiss = set(base) == {"X"} and before.isupper()  # "LOVE JEN XXX"
        is_item = cursor.at == 0 and cursor.text[end : end + 2] in (".", ". ")  # "IV. Results"
        if base == "IV" and (following in _INFUSED or key in ("an", "her", "his", "the")):
            return ""
        is_sure = is_item or base not in _AMBIGUOUS or (is_name and len(before) > 1 and not is_kiss)
        return say.cardinal(number) if is_sure else ""
    is_year = (
        (len(base) > 4 or base.startswith(("MM", "MCM")))
        and len(base) > 3
        and number > 1000
        and not is_known(base.lower())
    )
    return say.year(number) if is_year else ""

"""Long text into sentences, and long sentences into clauses, in time linear in the text.

Text is not split at an ambiguous full stop ("U.S. Steel", "in the U.S. He left"): two sentences in one
utterance are a smaller error than a sentence cut in two.
"""

from __future__ import annotations

import re

from melforge.common.errors import InputError
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cut_short import is_in_run, whole_before_stop
from melforge.common.text.english.reading.senses import WITH_SENSES, is_told_behind
from melforge.common.text.english.reading.units import LETTERED
from melforge.common.text.english.reading.word_classes import CLOSED
from melforge.common.text.english.word_parts import words


class Pause(float):
    """Seconds of silence behind an utterance, and what is there: `Controls` have a control for each kind but
    BREAK, which is as long as the text asks for.
    """

    kind: str

    def __new__(cls, seconds: float, kind: str = "") -> Pause:
        made = super().__new__(cls, seconds)
        made.kind = kind
        return made


# Besides the silence that the acoustic model speaks itself.
NO_PAUSE = Pause(0.0)
CLAUSE_PAUSE = Pause(0.1, "clause")
SENTENCE_PAUSE = Pause(0.25, "sentence")
PARAGRAPH_PAUSE = Pause(0.6, "paragraph")
BREAK = "break"


_STARTERS = words("""a after all also although an and another are as at because before both but by can
    could did do does each even every finally first for from had has have he her here his how however i if
    in is it its let many may meanwhile might most must my next no not now of on one only or our she should
    since so some such that the their then there these they this those though to two was we were what when
    where which while who why will with would yet you your""")
# Behind a time these belong to it: "5 p.m. Monday", "9 a.m. Eastern".
_AFTER_TIME = words("eastern central mountain pacific greenwich") | frozenset(
    name.lower() for name in (*tables.WEEKDAYS, *tables.WEEKDAYS.values(), *tables.MONTHS)
)
_DAYTIMES = words("morning afternoon evening night noon")
_SPANS = words("millisecond minute hour second year week month mile foot yard")
_ARTICLES = ("the", "a", "an", "our", "their", "your", "my")
_LONG = words("no art long par p pp")  # before "I." they are mostly words

_OPENING = "\"'“‘„«([{—–-¿¡\u2060"
# No pattern has a lookahead behind a repetition: that takes quadratic time on 100 000 full stops.
MARK = re.compile(r"[.!?…。！？]+[\"'”’»)\]}*\u2060]*(?:\[\^?\d{1,4}\])*|[\n\f\u2028\u2029]\s*")
_WORD = re.compile(r"[^\W_]")
_NEXT_WORD = re.compile(rf"\s*[{re.escape(_OPENING)}]*(\w{{0,24}}\.?)")
_NUMERAL = re.compile(r"[IVXLC]{2,8}\.?|[VX]\.?")
_NUMBER_FOLLOWS = re.compile(r"\s*[+(#$£€'’<>≤≥~±]?\d")
_CODE_FOLLOWS = re.compile(r"\s(?:[A-Z]{1,4}[-/. ]?\d|[A-HJ-Z](?=\.?$|[,;)]))")  # "Ste. B"
_STREET_BEFORE = re.compile(r"\b(?:at|on|onto|to|near|of|off|down|up|along|\d+)\s(?:[A-Z][a-z]+\s){1,2}$")
_INITIAL_FOLLOWS = re.compile(r"\s[A-Z]\.\s[A-Z]")
_SUM_FOLLOWS = re.compile(r"\s[=+×÷/&@]\s")  # "5! = 120", "1 + 2 + ... + n"
_UNSAID = re.compile(r"[A-Z]?(?!x+$)[b-df-hj-np-tv-xz]{2,4}")  # cut short, and none of the tables: "prtd"
_DOTTED = re.compile(r"[^\W\d_](?:\.[^\W\d_])*")  # an initial, or U.S
_LIST_ITEM = re.compile(r"[-*•‣·–—]\s|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{2,5})[.)]\s")
_ITEM_NUMBER = re.compile(r"\d{1,3}|[ivx]{1,5}")
_CLAUSE_END = re.compile(r"[;:,][\"'”’)\]]*(?=\s)|[—，；：、](?=.)|\s[-–](?=\s)", re.DOTALL)
_BRACES = re.compile(r"\{[^{}]*\}")

_BEGINS_WITH_TIME = re.compile(
    r"\s*(?:(?:and|but|then|only|just|shortly)\s)?(?:at|by|around|about|before|after|until|since|from|on)\s"
    r"(?:about\s|around\s|nearly\s|exactly\s)?\d[\d:. -]{0,12}[ap]\.m\.$",
    re.IGNORECASE,
)
_MOVE_FOLLOWS = re.compile(r"\s(?:[KQRBN][a-h1-8]{0,2}x?[a-h][1-8]|O-O)")  # of chess: "2. Nf3"
_MOVED = re.compile(r"(?<![A-Za-z])(?:(?:[KQRBN][a-h1-8]{0,2}x?|[a-h]x)[a-h][1-8](?:=[QRBN])?|O-O)[+#]?$")
_CHAIN = re.compile(r"\s[A-Z]\.\s[A-Z][a-z]{1,4}\.")  # "Fed. R. Civ. P."
# Parts of the names of journals: "Phys. Rev. Lett. 95".
_JOURNALS = words("""phys rev lett mod chem soc am proc natl acad sci biol mol j trans acc appl math comput
    med clin exp eng int ann bull mater opt pub ct supp supr exh reg""")
_CITED_FOLLOWS = re.compile(
    r"\s(?:\d|(?:[A-Z][a-z]{0,6}|[A-Z]{1,3})\.\s?[\d(,A-Z]|of\s|(?:USA,?\s|[A-Z](?:,?\s|-))\d)"
)
_TO_TIME = re.compile(r"\s[-–—]\s?\d")  # "8 a.m. - 5 p.m."
_SHILLINGS = re.compile(r"\d{1,2}[ls]")
_LOOK_BACK = 24  # characters before a full stop that decide on it: room for every abbreviation
_ITEM_WIDTH = 36  # columns: so short is a line of a recipe
_AMOUNT = re.compile(r"\s*(?:\d+(?:[.,/]\d+)?\s?[½¼¾⅓⅔⅛]?|[½¼¾⅓⅔⅛])\s?[a-z]+[^.!?]*$", re.IGNORECASE)
_WRAP_WIDTH = 60  # lines of prose are not wrapped to fewer columns than this


def split_sentences(text: str) -> list[tuple[str, int]]:
    """The sentences of a text without the blanks around them, each with its offset in the text.

    Marks without a word ("...") go to the sentence that follows.
    """
    capitals = text != text.lower()
    items = 0  # of "1.) one 2.) two" in one line
    sentences: list[tuple[str, int]] = []
    start = line_start = widest = searched = 0
    has_word = False
    for mark in MARK.finditer(text):
        end = mark.end()
        if text[mark.start()] in "\n\f\u2028\u2029":
            line = text[line_start : mark.start()].rstrip()
            widest = max(widest, len(line))
            ends = _is_paragraph_break(mark.group()) or "\u2028" in mark.group()
            ends = ends or _is_line_break_meant(text, end, line, widest)
            line_start = end
            if _is_paragraph_break(mark.group()):
                widest = 0
        else:
            ends = _ends_sentence(text, start, mark, capitals)
        if mark.group() == ".)" and text.endswith(f"{items + 1}", start, mark.start()):
            items += 1
            end = mark.start() - len(str(items))
            ends = end > start and text[end - 1].isspace()
        has_word = has_word or _WORD.search(text, searched, end) is not None
        searched = end
        if ends and has_word:
            has_word = False
            _append_stripped(sentences, text, start, end)
            start = end
    _append_stripped(sentences, text, start, len(text))
    return sentences


def split_clauses(text: str, max_chars: int) -> list[tuple[str, int]]:
    """Pieces of at most max_chars characters with their offsets.

    Cuts behind the last ; : , or dash that fits, else at the last blank, else anywhere. Phonemes in braces
    stay together where they fit.
    """
    if max_chars < 1:
        raise InputError(f"max_chars must be at least 1, not {max_chars}")
    pieces: list[tuple[str, int]] = []
    masked = _BRACES.sub(lambda braces: "x" * len(braces[0]), text)
    start = 0
    while len(text) - start > max_chars:
        if text[start].isspace():
            start += 1
            continue
        cut = _last_cut(masked, start, start + max_chars)
        _append_stripped(pieces, text, start, cut)
        start = cut
    _append_stripped(pieces, text, start, len(text))
    return pieces


def pause_between(text: str, end: int, start: int) -> Pause:
    """The silence between a sentence that ends at `end` and one that begins at `start`."""
    return PARAGRAPH_PAUSE if _is_paragraph_break(text[end:start]) else SENTENCE_PAUSE


def _append_stripped(pieces: list[tuple[str, int]], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    stripped = piece.strip()
    if stripped:
        pieces.append((stripped, start + len(piece) - len(piece.lstrip())))


def _is_paragraph_break(gap: str) -> bool:
    return gap.count("\n") > 1 or "\f" in gap or "\u2029" in gap


def _is_line_break_meant(text: str, next_line: int, line: str, widest: int) -> bool:
    """Whether a line ends a sentence: before an item of a list, and where wrapped prose would have gone on.

    The writer meant the break where the next line's first word had room on this one.
    """
    is_amount = len(line) < _ITEM_WIDTH and _AMOUNT.match(line) and line.rpartition(" ")[2] not in CLOSED
    if is_amount or _LIST_ITEM.match(text, next_line):
        return True
    word = _next_word(text, next_line)[1]
    return not word[:1].islower() and len(line) + 1 + len(word) <= max(widest, _WRAP_WIDTH)


def _next_word(text: str, at: int) -> re.Match[str]:
    """The word after blanks and opening marks, which may be empty."""
    match = _NEXT_WORD.match(text, at)
    assert match
    return match


def _ends_sentence(text: str, start: int, mark: re.Match, capitals: bool) -> bool:
    marks = mark.group()
    if marks[0] in "。！？":
        return True
    end = mark.end()
    if end < len(text) and not text[end].isspace():
        return False
    following = _next_word(text, end)
    next_word = following[1]
    if following.end() == len(text) and not next_word:
        return True
    if _SUM_FOLLOWS.match(text, end):
        return False
    closed = marks[-1] not in ".!?…"
    lowercase = next_word[:1].islower()

    if "!" in marks or "?" in marks:
        if _MOVED.search(text, max(start, mark.start() - _LOOK_BACK), mark.start()):
            return not (lowercase or next_word[:1].isdigit())
        return not (lowercase and closed)  # “Stop!” he said
    before = text[max(start, mark.start() - _LOOK_BACK) : mark.start()]
    if marks.startswith(("..", "…")) or before[-1:].isspace():  # three dots, also with blanks between
        after = text[following.start(1) : following.start(1) + 1]
        return not (lowercase and capitals) and after not in (".", ",", ";")

    *earlier, word = before.split() or [""]
    word = word.lstrip(_OPENING)
    for joint in ("–", "./"):
        if joint in word and word[-1].isalpha():  # "Dec. 25th–Jan. 1st", "Main St./Rte. 9"
            word = word.rpartition(joint)[2]
    if not earlier and mark.start() - start < _LOOK_BACK and _ITEM_NUMBER.fullmatch(word):
        return False  # the number of an item: "1. Wash your hands."
    if word == "1" and earlier and earlier[-1].endswith(":"):  # "In order: 1. Leeds"
        return False
    is_next = word.isdecimal() and earlier and earlier[-1][-1] in ",;"
    if is_next and text.rfind(f"{int(word) - 1}. ", start, mark.start()) >= 0:  # "1. Leeds, 2. Hull"
        return False
    is_run = bool(earlier) and is_in_run(earlier[-1].lstrip(_OPENING)) and word.isalpha()
    is_run = is_run and (word[0].isupper() or not next_word[:1].isupper())
    sign = text[following.end() : following.end() + 1]
    is_whole = any(whole_before_stop(word, one, next_word or sign) for one in {False, is_run})
    if _is_cut_short_before(text, mark.start() - len(word), word, end, following, is_whole):
        return False
    key = _abbreviated(word)
    is_counted = key != word.lower() or (
        bool(earlier) and (earlier[-1][-1].isdigit() or earlier[-1] == "cu.")
    )
    is_inch = key == "in" and (is_counted or word[0].isdigit())
    known = is_inch or _DOTTED.fullmatch(word) is not None
    known = known or is_whole or (_is_known(word) and (is_counted or not _needs_number(key)))
    if lowercase:
        return not (capitals or known or (key == "cent" and earlier[-1:] == ["per"]))
    is_word = word.isalpha() and word.islower() and len(word) > 1 and not is_counted
    is_label = len(word) == 1 and bool(earlier) and earlier[-1].rstrip(".").lower() in LETTERED
    is_class = earlier[-2:-1] and earlier[-2].endswith(("1st", "nd", "rd", "th"))  # "Sgt. 1st Class J. Cole"
    if not known or (is_label and not is_class):  # "in Rm B. Zoom link below"
        return True
    is_sure = key in tables.ABBREVIATIONS or is_whole
    if is_word and (key in tables.ALSO_WORDS or not is_sure):
        return True
    is_day = key in tables.WEEKDAYS or key in tables.MONTH_NUMBERS
    before = earlier[-1] if earlier and earlier[-1] not in _ARTICLES else ""
    is_day = is_day and (before.islower() or before.isdigit())
    is_other = next_word[1:].islower() and next_word.lower() not in _AFTER_TIME | _DAYTIMES
    if (is_day or key in ("sat", "wed", "sun")) and is_other:
        return True  # "See you Sat. Bring wine.", "closed Mon. Admission is free."
    is_span = is_counted and tables.UNITS.get(word.rpartition("-")[2]) in _SPANS and earlier[-2:-1] != ["a"]
    if is_span and "-" in word:
        return False  # "10-yr. Treasuries"
    if is_span and next_word[1:2].islower():  # "ETA 20 min. Traffic is bad."
        return next_word.lower().rstrip(".") not in _AFTER_TIME
    if key in ("a.m", "p.m"):
        if _TO_TIME.match(text, end):
            return False
        if _BEGINS_WITH_TIME.match(text, start, end):  # "At 5 a.m. Mr. Smith left."
            return False
        zone = next_word.isupper() and 2 <= len(next_word) <= 4
        return not zone and next_word.lower().rstrip(".") not in _AFTER_TIME
    if text.startswith(":", following.end()) and len(next_word) == 1:  # "Opt. A: $5"
        return False
    return next_word.lower() in _STARTERS  # with a full stop it is an initial, and no starter


def _abbreviated(word: str) -> str:
    """ "Maj.-Gen" -> "gen", "6-oz" -> "oz", "mid-19th-cent" -> "cent", "Vice-Adm" -> "adm", "No" -> "no"."""
    is_joined = word[:1].isdigit() or any(part in word for part in (".-", "th-", "Vice-", "Rear-"))
    return word.lower().rpartition("-")[2] if is_joined else word.lower()


def _is_known(word: str) -> bool:
    key = _abbreviated(word)
    is_unsaid = _UNSAID.fullmatch(word) is not None and word not in tables.UNITS
    return key in tables.CUT_SHORT or key in WITH_SENSES or is_unsaid


def _needs_number(key: str) -> bool:
    return key in tables.BEFORE_NUMBERS or key == "p"


def _is_cut_short_before(
    text: str, at: int, word: str, end: int, following: re.Match, is_whole: bool
) -> bool:
    """Whether what follows tells that a word is cut short: "No. 5", "Vol. II", "Wed. Nov 11"."""
    key, next_word = _abbreviated(word), following[1]
    if key in tables.BEFORE_NAMES or word in tables.TITLES:
        is_drive = word == "Dr" and _STREET_BEFORE.search(text, max(at - _LOOK_BACK, 0), at)
        if is_drive and next_word.lower() in _STARTERS:
            return False  # "Turn onto Elm Dr. In 500 feet"
        return word not in tables.UNITS or not text[max(at - 2, 0) : at].strip().isdigit()  # "in 200 ms."
    is_sign = (
        word in tables.BOOKS
        or word in tables.STATES_WITH_STOP
        or word in tables.CURRENCY_CODES
        or key in ("n°", "nº")
        or (word.istitle() and key[1:].endswith("str"))  # "Hauptstr. 5"
    )
    is_sign = is_sign or _SHILLINGS.fullmatch(word) is not None  # "10s. 6d."
    if (is_sign or is_whole or _is_known(word)) and _NUMBER_FOLLOWS.match(text, end):
        return True
    is_name = len(key) > 1 and _INITIAL_FOLLOWS.match(text, end) is not None  # "dir. D. Villeneuve"
    if is_name and (is_whole or _is_known(word)):
        return True
    if key in WITH_SENSES and is_told_behind(word, text, at):
        return True
    if key in tables.WEEKDAYS and next_word.rstrip(".").lower() in tables.MONTH_NUMBERS:
        return True
    if key in _JOURNALS and _CITED_FOLLOWS.match(text, end):
        return True
    if word.isdigit() and _MOVE_FOLLOWS.match(text, end):
        return True
    if word.istitle() and len(word) < 5 and _CHAIN.match(text, end):
        return True
    if not _needs_number(key):
        return False
    behind = text[following.end() : following.end() + 1]
    is_part = next_word == "I." or (next_word == "I" and behind in ("-", "–", ",", ":", ")"))
    if is_part or (next_word[:1] == "I" and behind in ("-", "–")):  # "Vols. I–III", "Vol. I."
        return key not in _LONG or behind in ("-", "–") or text.startswith(", §", following.end(1))
    numeral = next_word.upper() if len(next_word) > 1 else next_word
    return _NUMERAL.fullmatch(numeral) is not None or _CODE_FOLLOWS.match(text, end) is not None


def _last_cut(text: str, start: int, limit: int) -> int:
    """Where to cut a piece that begins at `start` and may reach to `limit`."""
    ends = [mark.end() for mark in _CLAUSE_END.finditer(text, start, limit + 1) if mark.end() <= limit]
    if ends:
        return ends[-1]
    cut = limit
    while cut > start and not text[cut].isspace():
        cut -= 1
    return cut if cut > start else limit

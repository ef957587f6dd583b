"""Written English to words: numbers, dates, money, abbreviations, symbols, addresses, emoji.

One pass from left to right. At each place the rules for the character that stands there are tried in turn; the
first that fits says how its stretch of text is spoken. So every spoken word knows where it was written, and a
long text costs time in proportion to its length: no pattern reaches further than the stretch it reads.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from common.text import number_words as say
from common.text import spoken_tables as tables
from common.text.pronounce import is_known, of_word, spell
from common.text.word_parts import bare
from common.text.symbols import ARPABET


@dataclass(frozen=True)
class Piece:
    """Words and marks as spoken, and the part of the text that they stand for."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class LeftOut:
    """Something that is not spoken as written. Two with the same kind need to be told only once."""

    symbol: str
    position: int
    kind: str


def normalise(text: str) -> tuple[list[Piece], list[LeftOut]]:
    """A sentence in words and marks. Words in capitals are to be spelled; a word's "-" joins it to the next."""
    clean, positions, left_out = _clean(text)
    reader = _Reader(clean)
    reader.run()
    if positions is None:
        return reader.pieces, left_out + reader.left_out
    pieces = [Piece(p.text, positions[p.start], positions[p.end - 1] + 1) for p in reader.pieces]
    return pieces, left_out + [LeftOut(o.symbol, positions[o.position], o.kind) for o in reader.left_out]


# ---- characters

_ALIKE = {
    **dict.fromkeys("‘’‛ʼ`´ʹ＇", "'"),
    **dict.fromkeys("“”„‟«»〝〞＂", '"'),
    **dict.fromkeys("‐‑⁃", "-"),
    **dict.fromkeys("―⸺⸻", "—"),
    **{"⁄": "/", "∕": "/", "、": ",", "，": ",", "。": ".", "；": ";", "：": ":", "！": "!", "？": "?", "‚": ","},
    **{"・": " ", "【": "(", "】": ")", "「": '"', "」": '"', "『": '"', "』": '"', "（": "(", "）": ")", "؟": "?"},
    **{"،": ",", "؛": ";", "।": ".", "˚": "°", "∗": "*", "∶": ":", "∼": "~", "⁓": "~"},
}
_WORD_BREAKS = frozenset("\u00ad\u200b\ufeff\u2060")  # invisible, and nothing is lost
_JOINER = "\u200d"
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n", strict=True))
_NOT_CLEAN = re.compile("[^\t-\r -~]")


def _clean(text: str) -> tuple[str, list[int] | None, list[LeftOut]]:
    """Look-alikes unified and what is invisible removed; where each character was written (None: the same)."""
    if not _NOT_CLEAN.search(text):
        return text, None, []
    out: list[str] = []
    positions: list[int] = []
    left_out: list[LeftOut] = []
    for position, char in enumerate(text):
        new = char if " " <= char <= "~" or char.isspace() else _clean_char(char, out, left_out, position)
        out.extend(new)
        positions.extend([position] * len(new))
    return "".join(out), positions, left_out


def _clean_char(char: str, out: list[str], left_out: list[LeftOut], position: int) -> str:
    """What stands for a character; a combining mark joins the letter before it."""
    if char in _ALIKE:
        return _ALIKE[char]
    if char in _WORD_BREAKS:
        return ""
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if category[0] == "L" or char in tables.SYMBOLS or char in _SUPERSCRIPTS:
        if "\u00c0" <= char < "\u2000":
            return char
    elif category in ("Mn", "Me"):
        if out and len(joined := unicodedata.normalize("NFC", out[-1] + char)) == 1:
            out[-1] = joined
        return ""
    elif category[0] == "C":
        if char == _JOINER and out and out[-1] > "\u2190":  # inside an emoji
            return char
        left_out.append(LeftOut(char, position, char))
        return " " if category == "Cc" else ""
    if char in tables.SYMBOLS or char in _SUPERSCRIPTS or char in tables.EMOJI:
        return char
    plain = unicodedata.normalize("NFKC", char)
    if plain != char and all((c.isascii() and c.isalnum()) or c in ".,()/°'\u2044 " for c in plain):
        return plain.replace("\u2044", "/")
    return char


# ---- patterns: each is tried at one place only

_LETTER = r"[^\W\d_²³¹¼-¾⁰-ⁿ₀-₉⅐-↏①-⓿]"
_N = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(_N)
_WORD = re.compile(rf"{_LETTER}+(?:'{_LETTER}+)*")
_NEXT = re.compile(rf"\s*(\d+|{_LETTER}+|[^\w\s])?")
_PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SURNAME = re.compile(r"(?:Mac|Mc|O|De|La|Di|Van|Fitz|Le)[A-Z][a-z]+")
_SPACE = re.compile(r"\s+")

_ISO_DATE = re.compile(r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})(?!\d|-\d)(?:[T ](\d{2}):(\d{2})(?::\d{2}(?:\.\d+)?)?(Z|UTC)?)?")
_DATE = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})(?![\w/]|[.,-]\d)")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?(?![\d:])(?:\s?([AaPp])(?:\.\s?[Mm]\.|[Mm](?!\w)))?")
_HOUR = re.compile(r"(\d{1,2})\s?([AaPp])(?:\.\s?[Mm]\.|[Mm](?!\w))")
_RATIO = re.compile(r"(\d+):(\d+)(?![\d:])")
_PHONE = re.compile(
    r"(?:\+?(\d{1,3})[ .-])?(?:\((\d{3})\)\s?|(\d{3})[ .-])(\d{3})[ .-](\d{4})"
    r"(?:,?\s?(?:ext\.?|x)\s?(\d{1,6}))?(?![\w-]|\.\d)"
)
_PHONE_ABROAD = re.compile(r"\+(\d{1,3})((?:[ .-]?\(?\d{2,5}\)?){2,5})(?!\w)")
_SHORT_PHONE = re.compile(r"(\d{3})-(\d{4})(?![\w-]|,\d)")
_DOTTED_NUMBERS = re.compile(r"\d+(?:\.\d+){2,}(?!\w)")
_DIGIT_GROUPS = re.compile(r"\d+(?:-\d+){2,}(?!\w)|\d{4}(?: \d{4}){3}(?!\w)")
_FEET = re.compile(r"(\d{1,3})\s?['′]\s?(\d{1,2}(?:\.\d)?)\s?(?:\"|″|'')|(\d{1,3})′|(\d{1,3}(?:\.\d{1,3})?)″")
_DEGREES = re.compile(r"(\d{1,3})°\s?(\d{1,2})['′]\s?(?:(\d{1,2}(?:\.\d{1,4})?)(?:\"|″|'')\s?)?([NSEW])?(?!\w)")
_FRACTION = re.compile(r"(?:(\d{1,4})[ -])?(\d{1,4})/(\d{1,4})(?:rds?|ths?|nds?)?(?![\w/]|\.\d)")
_SHORT_FRACTION = re.compile(r"(\d{1,6})?\s?([½¼¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅐⅑⅒])")
_DECADE = re.compile(r"(?:(100|1000|1,000)s(?=\s+of\b)|(\d{3}0|\d0)'?s(?!\w))")
_ORDINAL = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+)\s?(?:st|nd|rd|th|ST|ND|RD|TH)(?!\w)")
_SCIENTIFIC = re.compile(r"(\d+(?:\.\d+)?)(?:[eE]|\s?[×x]\s?10(?:\^|(?=[⁻⁺⁰-⁹¹²³])))([+-]?\d{1,4}|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,4})(?!\w)")
_DURATION = re.compile(r"(\d{1,4})h\s?(\d{1,2})m(?:in)?(?:\s?(\d{1,2})s)?(?!\w)")
_MIXED = re.compile(r"(?:\d+[A-Za-z]|[A-Za-z]+\d)[A-Za-z\d]*")
_RANGE = re.compile(rf"(?:-|\s?[–—]\s?)([$£€¥₹]?)({_N})(?![-\d])")
_SPACED_RANGE = re.compile(rf"\s-\s()({_N})(?![-\d])")
_BY = re.compile(rf"(?:\s?x\s?|×)({_N})")
_MAGNITUDE = re.compile(
    r"\s?-?(hundred|thousand|million|billion|trillion|quadrillion|bn|mn|tn|mln|bln)(?!\w)|([kKMBT])(?!\w)"
)
_MAGNITUDES = {
    **{"bn": "billion", "mn": "million", "tn": "trillion", "mln": "million", "bln": "billion"},
    **{"k": "thousand", "K": "thousand", "M": "million", "B": "billion", "T": "trillion"},
}
_MONEY_AFTER = re.compile(r"\s?(€|£|¢|¥|₹|₩|₽|₺|₿|USD|EUR|GBP|JPY|INR|CHF|BTC)(?!\w)")
_UNIT = re.compile(r"(\s?|-)(?:(sq|cu)\.?\s)?([A-Za-zµμΩΩ]{1,5})(\^?[23²³])?(?![\w²³^])")
_PER = re.compile(r"\s?/\s?([A-Za-z]{1,12})(\^?[23²³])?(?![\w/])")
_BLANK_DIGIT = re.compile(r"\s?(?=\d)")
_PERCENT = re.compile(r"\s?([%‰])")
_DEGREE_SIGN = re.compile(r"\s?(?:°\s?([CFK])?|([℃℉]))(?!\w)")
_POWER = re.compile(r"([⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ]{1,5})|\^\{?([-+]?\w{1,5})\}?")

_CALENDAR = "Mon|Tues?|Wed|Thu(?:rs)?|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec"
_NAME_RANGE = re.compile(rf"({_CALENDAR})\.?\s?[-–]\s?({_CALENDAR})\.?(?!\w)")
_DOTTED = re.compile(rf"(?:{_LETTER}\.){{2,12}}(?:{_LETTER}(?!\w))?|[A-Z][a-z]?\.[A-Z]\.s?(?!\w)|[ap]\.m(?!\w)")
_PLURAL_BRACKET = re.compile(r"\((e?s)\)(?!\w)")
_PHONEMES = re.compile(r"\{((?:[A-Z]{1,2}[012]?\s?){1,40})\}")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>|<!--[^<>]{0,200}-->")
_CITATION = re.compile(r"\[\d{1,3}\]")
_APOSTROPHE_YEAR = re.compile(r"'(\d0)s(?!\w)|'(\d\d)(?![\w'])")
_ELISION = re.compile(r"'(?:twas|tis|em|til|cause|bout|round|n)(?!\w)", re.IGNORECASE)
_HASHTAG = re.compile(r"#(\w{1,100})")
_HANDLE = re.compile(r"@(\w[\w.]{0,62}\w|\w)")

_TLD = "|".join(sorted(tables.TOP_LEVEL_DOMAINS, key=len, reverse=True))
_EMAIL = re.compile(r"[\w.+%-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w@])")
_URL = re.compile(
    r"(?:(?:https?|ftp)://|www\.)[^\s<>\"]{1,2000}"
    rf"|(?:[A-Za-z0-9-]{{1,63}}\.){{1,8}}(?:{_TLD})(?![\w-]|\.\w)(?:[/?#:][^\s<>\"]{{0,2000}})?",
    re.IGNORECASE,
)
_FILE = re.compile(
    rf"(?:[\w.-]{{1,100}}[/\\]){{0,12}}[\w-]{{1,100}}(?:\.[\w-]{{1,40}}){{0,3}}\.(?:{'|'.join(tables.FILE_ENDINGS)})(?![\w])"
)
_PATH = re.compile(
    r"(?:[A-Za-z]:\\|\\\\|~/|\.{1,2}/|/)(?=[A-Za-z_.])[\w.+%@~-]{1,255}(?:[/\\][\w.+%@~-]{0,255}){0,40}"
)
_ADDRESS_MARKS = {
    **{".": "dot", "/": "slash", "\\": "backslash", "-": "dash", "_": "underscore", "?": "question mark"},
    **{"=": "equals", "&": "and", "#": "hash", "%": "percent", ":": "colon", "~": "tilde", "+": "plus", "@": "at"},
    **{",": "comma", ";": "semicolon", "!": "exclamation mark", "*": "star", "$": "dollar"},
}

_YEAR_BEFORE = frozenset(
    """in since by from until till of year years during circa after before around about summer winter spring fall
    autumn early late mid class ad ce january february march april may june july august september october november
    december born died established est founded model copyright © ( , - and""".split()
)
_COUNTED = frozenset("people men women children feet percent degrees police sheep fish pounds dollars or more per".split())
_ROOMS = frozenset(
    "room flight suite apartment apt highway route channel area unit bus interstate boeing airbus building gate".split()
)
_EMERGENCY = frozenset(("911", "999", "112", "411", "101", "988"))
_DIALLED = frozenset("call dial called dialed calls dialled text phone ring rang".split())
_NUMBERED = frozenset(
    """chapter part volume vol book act scene section article appendix phase type class grade level figure table title
    war episode stage season round game mark element bowl verse canto unit lesson division tier corps psalm annex
    category apollo rocky version protocol page""".split()
)
_MONARCHS = frozenset(
    """henry louis elizabeth george edward charles james william richard philip philippe felipe paul pius leo gregory
    innocent clement boniface urban alexander nicholas peter catherine ivan napoleon frederick wilhelm otto ferdinand
    alfonso carlos juan christian gustav gustavus ramses ramesses ptolemy cleopatra xerxes darius mary john david robert
    harald haakon olav oscar francis franz joseph josef leopold albert baudouin umberto victor emmanuel edmund
    harold stephen benedict sixtus julius adrian martin calixtus eugene honorius celestine cyrus artaxerxes constantine
    theodosius justinian basil michael manuel murad mehmed selim suleiman amenhotep thutmose seti margaret beatrix
    rainier sigismund casimir stanislaus vladislaus maximilian rudolf rudolph frederik erik eric magnus karl pedro
    sancho henri tudor popes king queen pope tsar kaiser emperor""".split()
)
_VERBS_OF_I = frozenset(
    """am was have had will would can could should think thought know knew do did want wanted like liked love need saw
    said say don't didn't can't won't may might must shall mean hope believe guess feel felt go went get got""".split()
)
_NUMBER_WORDS = frozenset(
    "one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty zero noon midnight".split()
)
_SHORT_MONTHS = frozenset("Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec".split())
_TURNS = frozenset("angle angles turn turns rotation view heat bend panorama arc swing".split())
_SCORES = {("24", "7"): "twenty-four seven", ("9", "11"): "nine eleven", ("7", "11"): "seven eleven"}
_EMOJI_PARTS = frozenset("\ufe0f\ufe0e\u20e3" + "".join(map(chr, range(0x1F3FB, 0x1F400))))


class _Reader:
    """Reads one text. Rules return the end of what they read, or 0 where they do not apply."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: list[Piece] = []
        self.left_out: list[LeftOut] = []
        self.previous = ""  # the last word, number or mark as written
        self.earlier = ""  # the one before
        self.at = 0
        words = re.findall(r"[A-Za-z]{2,}", text)
        capitals = sum(word.isupper() for word in words)
        self.is_shouted = len(words) > 2 and capitals > 0.7 * len(words)

    def run(self) -> None:
        text, length = self.text, len(self.text)
        while self.at < length:
            char = text[self.at]
            if char.isspace():
                self.at += 1
                continue
            start = self.at
            if "0" <= char <= "9" or (char == "." and text[start + 1 : start + 2].isdecimal() and not self._touches_word()):
                end = self._number(start)
            elif char.isalpha():
                end = self._word(start)
            elif _SHORT_FRACTION.match(text, start):
                end = self._number(start)
            else:
                end = self._symbol(start, char)
            assert end > start
            self.earlier, self.previous = self.previous, text[start:end] if end - start < 100 else ""
            self.at = end

    # -- small helpers

    def _emit(self, spoken: str, end: int, start: int | None = None) -> int:
        if spoken:
            self.pieces.append(Piece(spoken, self.at if start is None else start, end))
        return end

    def _leave_out(self, end: int, kind: str = "") -> int:
        symbol = self.text[self.at : end]
        self.left_out.append(LeftOut(symbol[:40], self.at, kind or symbol))
        return end

    def _next(self, at: int) -> str:
        """The word, number or sign that follows."""
        return _NEXT.match(self.text, at)[1] or ""

    def _touches_word(self) -> bool:
        return self.at > 0 and self.text[self.at - 1].isalnum()

    def _after_blank(self) -> bool:
        return self.at == 0 or self.text[self.at - 1] in " \t\n\r\"'([{<—–=,;:"

    # -- numbers

    def _number(self, start: int, currency: str = "", sign: str = "") -> int:
        """Anything that begins with a digit."""
        text = self.text
        if not currency:
            for pattern, rule in _NUMBER_RULES:
                match = pattern.match(text, start)
                if match and (spoken := rule(self, match)):
                    end = match.end()
                    if pattern is _SCIENTIFIC:
                        unit, end = self._unit(end, is_one=False)
                        spoken += unit
                    if pattern is _FRACTION or pattern is _SHORT_FRACTION:
                        unit, end = self._fraction_unit(match, end)
                        spoken += unit
                    return self._emit(sign + spoken, end)
        return self._amount(start, currency, sign)

    def _iso_date(self, m: re.Match) -> str:
        spoken = _date(int(m[1]), int(m[3]), int(m[4]))
        if spoken and m[5]:
            spoken += f", {_clock(int(m[5]), int(m[6]))}" + (" UTC" if m[7] else "")
        return spoken

    def _date(self, m: re.Match) -> str:
        if len(m[4]) == 2 and m[2] != "/":
            return ""
        year = int(m[4]) if len(m[4]) == 4 else int(m[4]) + (2000 if int(m[4]) < 50 else 1900)
        first, second = int(m[1]), int(m[3])
        return _date(year, first, second) or _date(year, second, first)

    def _time(self, m: re.Match) -> str:
        hour, minute, second = int(m[1]), int(m[2]), m[3]
        if hour > 24 or minute > 59:
            return ""
        spoken = _clock(hour, minute, bool(m[4]) or bool(second))
        if second:
            spoken += f" {say.two_digits(int(second))}"
        return spoken + self._half_day(m, m[4])

    def _hour(self, m: re.Match) -> str:
        return say.cardinal(int(m[1])) + self._half_day(m, m[2]) if int(m[1]) <= 24 else ""

    def _half_day(self, m: re.Match, letter: str | None) -> str:
        if not letter:
            return ""
        stop = "." if m[0].endswith(".") and not self.text[m.end() :].strip("\"') ") else ""
        return f" {letter.upper()}M{stop}"

    def _ratio(self, m: re.Match) -> str:
        return f"{say.integer(m[1])} to {say.integer(m[2])}"

    def _phone(self, m: re.Match) -> str:
        groups = [group for group in (m[1], m[2] or m[3], m[4], m[5]) if group]
        spoken = ", ".join(say.digits(group) for group in groups)
        return f"{spoken}, extension {say.digits(m[6])}" if m[6] else spoken

    def _short_phone(self, m: re.Match) -> str:
        return f"{say.digits(m[1])}, {say.digits(m[2])}"

    def _dotted_numbers(self, m: re.Match) -> str:
        parts = m[0].split(".")
        if len(parts) > 2 and all(len(part) == 3 for part in parts[1:]) and 1 <= len(parts[0]) <= 3:
            return say.integer(m[0].replace(".", ""))  # a European million
        return (" dot " if len(parts) == 4 else " point ").join(say.integer(part) for part in parts)

    def _digit_groups(self, m: re.Match) -> str:
        return ", ".join(say.digits(group) for group in re.split("[- ]", m[0]))

    def _feet(self, m: re.Match) -> str:
        if m[1]:
            return f"{_counted(m[1], 'foot')} {_counted(m[2], 'inch')}"
        return _counted(m[3], "foot") if m[3] else _counted(m[4], "inch")

    def _degrees(self, m: re.Match) -> str:
        spoken = f"{_counted(m[1], 'degree')} {_counted(m[2], 'minute')}"
        spoken += f" {_counted(m[3], 'second')}" if m[3] else ""
        return spoken + {"N": " north", "S": " south", "E": " east", "W": " west"}.get(m[4] or "", "")

    def _fraction(self, m: re.Match) -> str:
        whole, top, bottom = m[1], int(m[2]), int(m[3])
        if whole is None:
            if (m[2], m[3]) in _SCORES:
                return _SCORES[m[2], m[3]]
            if self.previous.lower() in ("on", "by", "until", "since", "before", "after") and _is_day(top, bottom):
                return f"{tables.MONTHS[top - 1]} {say.ordinal(bottom)}"
            if top + bottom == 100:
                return f"{say.cardinal(top)} {say.cardinal(bottom)}"
            return say.fraction(top, bottom)
        if top >= bottom:
            return ""
        return f"{say.integer(whole)} and {_part(top, bottom)}"

    def _short_fraction(self, m: re.Match) -> str:
        name = tables.SYMBOLS[m[2]]
        if not m[1]:
            return name
        top, part = name.split(" ")
        return f"{say.integer(m[1])} and " + (f"a {part}" if top == "one" and part != "eighth" else f"{name}")

    def _fraction_unit(self, m: re.Match, end: int) -> tuple[str, int]:
        """The unit behind a fraction: "two and a half miles", "three quarters of an inch"."""
        if self.text[end : end + 1] in ('"', "″"):
            name, end = "inch", end + 1
        else:
            name, end = self._unit(end, is_one=True)
        if not name or name.startswith((" percent", " degree")):
            return name, end
        if m[1]:
            return f" {_plural_unit(name.strip())}", end
        article = "an" if name.strip()[0] in "aeio" or name.strip().startswith("hour") else "a"
        return f" of {article} {name.strip()}", end

    def _decade(self, m: re.Match) -> str:
        if m[1]:
            return "hundreds" if m[1] == "100" else "thousands"
        return say.decade(int(m[2])) if int(m[2]) >= 10 else ""

    def _ordinal(self, m: re.Match) -> str:
        number = m[1].replace(",", "")
        return say.ordinal(int(number)) if len(number) <= say.MAX_DIGITS else ""

    def _scientific(self, m: re.Match) -> str:
        power = "".join(_SUPERSCRIPTS.get(c, c) for c in m[2])
        minus = "minus " if power[0] == "-" else ""
        mantissa = "" if m[0].startswith(("10⁰", "10^")) else f"{say.decimal(m[1])} times "
        return f"{mantissa}ten to the {minus}{say.integer(power.lstrip('+-'))}"

    def _duration(self, m: re.Match) -> str:
        spoken = f"{_counted(m[1], 'hour')} {_counted(m[2], 'minute')}"
        return spoken + (f" {_counted(m[3], 'second')}" if m[3] else "")

    def _mixed(self, m: re.Match) -> str:
        """2x4, 3D, 1080p, 5G; not 5km."""
        number = _NUMBER.match(m[0])[0]
        rest = m[0][len(number) :]
        if rest in ("x", "X"):
            return f"{say.decimal(number)} times"
        if rest in tables.UNITS or (len(rest) == 1 and rest in "kKMBT") or rest in ("bn", "mn", "tn", "mln", "bln"):
            return ""
        if re.fullmatch(r"x\d+", rest):
            return ""
        return self._letters_and_digits(m[0])

    def _amount(self, start: int, currency: str = "", sign: str = "") -> int:
        """A number or a range, with what it counts: magnitude, money, per cent, degrees, a unit."""
        text = self.text
        first = _NUMBER.match(text, start)
        numbers, end, joint = [first[0]], first.end(), ""
        ranged = _RANGE.match(text, end) or ("=" not in text[end : end + 40] and _SPACED_RANGE.match(text, end) or None)
        if ranged and (not ranged[1] or ranged[1] == currency) and not self._continues(ranged.end()):
            numbers.append(ranged[2])
            end, joint = ranged.end(), "to"
        while len(numbers) < 5 and joint != "to" and (by := _BY.match(text, end)):
            numbers.append(by[1])
            end, joint = by.end(), "by"
        is_one = numbers == ["1"]
        magnitude = _MAGNITUDE.match(text, end)
        after = ""
        if magnitude and magnitude[2] and not currency:  # "10K run", "221B Baker Street"
            is_name = len(numbers[-1]) > 2 and self._next(magnitude.end())[:1].isupper()
            magnitude = None if magnitude[2] in "kK" or is_name else magnitude
        if magnitude:
            word = magnitude[1] or magnitude[2]
            after, end = f" {_MAGNITUDES.get(word, word)}", magnitude.end()
        if not currency and (money := _MONEY_AFTER.match(text, end)):
            currency, end = tables.CURRENCY_CODES.get(money[1], money[1]), money.end()
        if currency:
            end = self._money(numbers, joint, after, currency, end, sign)
            return end
        unit, end = self._unit(end, is_one and not after)
        if unit and joint == "by":
            joint = "by"
        if unit and self.previous.lower() in ("a", "an") and not joint:
            unit = f" {_singular_unit(unit.strip())}"  # "a 10 km run"
        spoken = [self._cardinal_or_year(n, start, end, bool(unit or after or joint == "by")) for n in numbers]
        if joint == "to" and not unit and not after:
            spoken[1] = self._end_of_years(numbers, spoken[1])
        words = f" {joint} ".join(spoken) if joint else spoken[0]
        if not (unit or after or joint):
            words, end = self._dressed(numbers[0], words, start, end)
        if text[end : end + 2] == "'s" and not text[end + 2 : end + 3].isalnum():
            return self._emit(f"{sign}{words}{after}{unit}'s", end + 2)
        return self._emit(sign + words + after + unit, end)

    def _continues(self, end: int) -> bool:
        """Whether letters or another group follow, so that "10-12" is no range ("3-2x", "1-2/3")."""
        follows = self.text[end : end + 2]
        return follows[:1] in "/:" and follows[1:2].isdecimal()

    def _money(self, numbers: list[str], joint: str, after: str, currency: str, end: int, sign: str) -> int:
        one, many, cent, cents = tables.CURRENCIES[currency[-1] if currency not in tables.CURRENCIES else currency]
        kind = tables.DOLLARS.get(currency[:-1], "") if currency.endswith("$") else ""
        kind = f"{kind} " if kind else ""
        per = ""
        if match := _PER.match(self.text, end):
            per, end = f" per {_singular(match[1])}", match.end()
        whole, point, part = numbers[-1].partition(".")
        if point and len(part) == 2 and len(numbers) == 1 and not after and cents:
            pounds = f"{say.integer(whole or '0')} {kind}{one if whole.replace(',', '') == '1' else many}"
            pence = f"{say.cardinal(int(part))} {cent if part == '01' else cents}"
            if part == "00":
                spoken = pounds
            else:
                spoken = pence if not whole.strip("0") else f"{pounds} and {pence}"
        else:
            words = f" {joint} ".join(say.decimal(n.replace(",", "")) for n in numbers)
            is_one = (numbers == ["1"] and not after) or self.previous.lower() in ("a", "an")  # "a $5 bill"
            spoken = f"{words}{after} {kind}{one if is_one else many}"
        return self._emit(sign + spoken + per, end)

    def _unit(self, end: int, is_one: bool) -> tuple[str, int]:
        """What a number counts, and where that ends."""
        text = self.text
        if match := _PERCENT.match(text, end):
            return f" {tables.SYMBOLS[match[1]]}", match.end()
        if match := _DEGREE_SIGN.match(text, end):
            scale = match[1] or {"℃": "C", "℉": "F"}.get(match[2] or "", "")
            degrees = " degree" if is_one or (not scale and self._next(match.end()) in _TURNS) else " degrees"
            name = {"C": " Celsius", "F": " Fahrenheit", "K": " Kelvin", "": ""}[scale]
            return degrees + name, match.end()
        match = _UNIT.match(text, end)
        if not match or match[3] not in tables.UNITS:
            return "", end
        gap, square, symbol, power = match.groups()
        if symbol in tables.TOUCHING_UNITS and gap and not square:
            if not (symbol == "in" and text[match.end() : match.end() + 1] == "."):
                return "", end
        if len(symbol) == 1 and symbol.isupper() and (gap == "-" or (symbol == "K" and not gap)):
            return "", end
        name = tables.UNITS[symbol]
        end = match.end()
        if text[end : end + 1] == "." and (self._next(end + 1)[:1].islower() or text[end + 1 : end + 2] in (",", ")")):
            end += 1  # an abbreviation's full stop
        elif text[end : end + 1] == "." and self._next(end + 1)[:1].isdecimal():
            end += 1  # "5 lbs. 3 oz."
        named = name if is_one or gap == "-" else _plural_unit(name)
        if square or power:
            named = ("square " if (square or power[-1]) in ("sq", "2", "²") else "cubic ") + named
        if per := _PER.match(text, end):
            below = tables.UNITS.get(per[1]) or (per[1] if len(per[1]) > 2 else "")
            if below:
                power = per[2] or ""
                kind = "" if not power else "square " if power[-1] in "2²" else "cubic "
                kind_after = " squared" if power and power[-1] in "2²" and below == "second" else ""
                named += f" per {'' if kind_after else kind}{_singular(below)}{kind_after}"
                end = per.end()
        return ("-" if gap == "-" else " ") + named, end

    def _cardinal_or_year(self, number: str, start: int, end: int, is_counted: bool) -> str:
        previous = self.previous.lower()
        if "." in number:
            if previous in ("version", "python", "release") or previous.startswith("v"):
                return " point ".join(say.integer(part) for part in number.split("."))
            return say.decimal(number)
        if len(number) == 4 and not is_counted and self._is_year(int(number), previous, end):
            return say.year(int(number))
        if len(number) == 3 and previous in _ROOMS and number[1:] != "00":
            return f"{say.cardinal(int(number[0]))} {say.two_digits(int(number[1:]))}"
        if len(number) == 4 and previous in _ROOMS and number[2:] != "00" and number[0] != "0":
            return f"{say.cardinal(int(number[:2]))} {say.two_digits(int(number[2:]))}"
        if number in _EMERGENCY and previous in _DIALLED:
            return say.digits(number)
        if len(number) == 5 and self.previous in tables.STATES:
            return say.digits(number)  # a ZIP code
        return say.integer(number)

    def _is_year(self, value: int, previous: str, end: int) -> bool:
        if previous in ("#", "no", "nos", "number"):
            return False
        following = self._next(end).lower()
        if following in ("ad", "bc", "bce", "ce", "a", "b") and self.text[end : end + 8].replace(".", "").strip()[:2] in (
            *("AD", "BC", "CE"),
        ):
            return value >= 1000
        known = previous in _YEAR_BEFORE or previous.rstrip(".") in tables.MONTH_NUMBERS
        if value < 1100 or value > 2099:
            return known and 1000 < value < 2200 and previous not in ("and", "of", "about", "around", "-", ",", "(")
        strong = known and previous not in ("and", "of", "about", "around", "from", ",", "(", "-", "after", "before")
        plural = len(following) > 3 and following.endswith("s") and not following.endswith(("ss", "us", "is"))
        return strong or not (plural or following in _COUNTED)

    def _end_of_years(self, numbers: list[str], spoken: str) -> str:
        """1914-18, 2003-04."""
        first, second = numbers
        if len(first) == 4 and len(second) == 2 and second.isdecimal() and int(first[2:]) < int(second):
            return say.two_digits(int(second))
        return spoken

    def _dressed(self, number: str, words: str, start: int, end: int) -> tuple[str, int]:
        """Days of months, "50+", and powers."""
        text = self.text
        previous = self.previous.rstrip(".")
        if number.isdecimal() and len(number) <= 2 and 1 <= int(number) <= 31:
            if previous[:1].isupper() and previous.lower() in tables.MONTH_NUMBERS:
                if text[end : end + 1] != "%":
                    return say.ordinal(int(number)), end
            month = self._next(end)
            if month[:1].isupper() and month.lower() in tables.MONTH_NUMBERS and text[end : end + 1] == " ":
                article = "" if self.previous.lower() == "the" else "the "
                return f"{article}{say.ordinal(int(number))} of", end
        if text[end : end + 1] == "+" and not text[end + 1 : end + 2].isalnum() and text[end + 1 : end + 3] not in (" 0",):
            following = text[end + 1 :].lstrip()[:1]
            if not (following.isdecimal() or following in "=+("):
                return f"{words} plus", end + 1
        return words, end

    # -- words

    def _word(self, start: int) -> int:
        text = self.text
        if self._after_blank() and (end := self._address(start)):
            return end
        if m := _NAME_RANGE.match(text, start):
            return self._emit(f"{_calendar_name(m[1])} to {_calendar_name(m[2])}", m.end())
        if text[start : start + 1] in "vV" and not self._touches_word() and (m := re.compile(r"[vV]\.?\s?(\d+(?:\.\d+)*)(?!\w)").match(text, start)):
            spoken = " point ".join(say.integer(part) for part in m[1].split("."))
            return self._emit(f"version {spoken}", m.end())
        if (m := _DOTTED.match(text, start)) and m[0][0].isascii():
            return self._dotted(m)
        m = _WORD.match(text, start)
        if not m:
            return self._symbol(start, text[start])
        if text[m.end() : m.end() + 1].isdecimal() and (mixed := _MIXED.match(text, start)):
            return self._emit(self._letters_and_digits(mixed[0]), self._hyphen(mixed.end()))
        if m.end() - start == 1 and (end := self._sign_after_letter(m)):
            return end
        if text[m.end() : m.end() + 1] == "." and (end := self._abbreviation(m)):
            return end
        word, end = m[0], m.end()
        if word in tables.DOLLARS and text[end : end + 1] == "$" and text[end + 1 : end + 2].isdecimal():
            return self._number(end + 1, word + "$")
        if word in tables.CURRENCY_CODES and (m2 := _BLANK_DIGIT.match(text, end)):
            return self._number(m2.end(), tables.CURRENCY_CODES[word])
        if bracket := _PLURAL_BRACKET.match(text, end):
            word, end = word + bracket[1], bracket.end()
        if text[end : end + 2] == "/o" and word.lower() == "w":
            return self._emit("without", end + 2)
        if text[end : end + 1] == "/" and (spoken := {"w": "with", "c": "care of", "n": "N"}.get(word.lower())):
            tail = {"c": "/o", "n": "/a"}.get(word.lower(), "/")
            if text[end : end + len(tail)].lower() == tail:
                return self._emit("NA" if spoken == "N" else spoken, end + len(tail))
        if text[end : end + 1] == "&" and word.isupper() and (m2 := re.compile(r"&(?:amp;)?([A-Z]{1,3})(?!\w)").match(text, end)):
            return self._emit(f"{_letters(word)} and {_letters(m2[1])}", m2.end())
        if text[end : end + 1] == "/" and text[end + 1 : end + 2].isalpha() and word.isascii():
            other = _WORD.match(text, end + 1)[0].lower()
            if word.lower() in ("and", "he", "his", "him", "she", "her"):
                joint = "" if word.lower() == "and" else " or"
                return self._emit(f"{word}{joint}", end + 1)
            if other and word.islower() is not None:
                return self._emit(f"{self._plain(word, end)} slash", end + 1)
        spoken = self._plain(word, end)
        if not spoken:
            return end
        joined = self._hyphen(end)
        if joined > end and spoken[-1].isalnum() and self._next(joined)[:1].isalpha():
            spoken += "-"
        return self._emit(spoken, joined)

    def _hyphen(self, end: int) -> int:
        """Past a hyphen between two words."""
        text = self.text
        return end + 1 if text[end : end + 1] == "-" and text[end + 1 : end + 2].isalnum() else end

    def _plain(self, word: str, end: int) -> str:
        """A word without marks as it is said."""
        if not word.isascii():
            return self._foreign(word)
        if (number := self._roman(word, end)) is not None:
            return number
        base = word.removesuffix("'s") if word.endswith("'s") else word
        possessive = word[len(base) :]
        if len(base) > 1 and base.isupper() and "'" not in base:
            return self._capitals(base) + possessive
        if len(base) > 2 and base[-1] == "s" and base[:-1].isupper() and len(base[:-1]) > 1:  # GPUs
            spoken = self._capitals(base[:-1])
            return spoken + "s" if spoken.isalpha() else word
        if word.isupper() and "'" in word:
            head, mark, tail = word.partition("'")
            return word.lower() if is_known(word.lower()) or tail != "S" else f"{self._capitals(head)}'s"
        if base[-1] == "s" and base[:-1] in tables.ACRONYMS:
            return tables.ACRONYMS[base[:-1]] + "s" + possessive
        if base != base.lower() and not base[1:].islower() and len(base) > 2 and "'" not in base:
            return self._camel(base) + possessive
        lower = word.lower()
        if self.previous.isdecimal() and lower in ("bc", "ad"):
            return word.upper()
        if word in _SHORT_MONTHS and (self._next(end)[:1].isdecimal() or self.previous.isdecimal()):
            return tables.MONTHS[tables.MONTH_NUMBERS[lower] - 1]
        if len(word) == 1:
            is_item = self._after_blank() and self.text[end : end + 1] == ")"
            return _letters(word.upper()) if is_item else word if word in "aAI" else word.upper()
        return word

    def _foreign(self, word: str) -> str:
        """A word with letters beyond a-z."""
        from anyascii import anyascii

        if len(word) == 1 and word.lower() in tables.GREEK:
            return tables.GREEK[word.lower()]
        latin = anyascii(word)
        letters = re.findall(r"[A-Za-z']+", latin)
        script = next((_script(c) for c in word if not c.isascii() and _script(c) != "LATIN"), "LATIN")
        if script != "LATIN" or not letters:
            self.left_out.append(LeftOut(word[:40], self.at, script if letters else word))
        if script == "LATIN":
            joined = "".join(letters)
            return self._plain(joined, self.at + len(word)) if joined else ""
        return " ".join(part for token in letters for part in _PIECES.findall(token.replace("'", "").title() if token.isupper() else token.replace("'", "")))

    def _roman(self, word: str, end: int) -> str | None:
        """A Roman numeral's number where one is meant."""
        base = word.removesuffix("'s")
        possessive = word[len(base) :]
        upper = base.upper()
        if len(base) > 8 or base not in (upper, base.lower()) or (number := say.roman(upper)) is None:
            return None
        previous = self.previous.rstrip(".")
        before = previous.lower()
        following = self._next(end)
        is_capital = base == upper
        if base == "I":
            if following.lower() in _VERBS_OF_I or not previous[:1].isupper():
                return None
            if before in _MONARCHS and self._is_name_before():
                return f"the first{possessive}"
            if before in _NUMBERED and (following == "" or not following[:1].islower() or following in ("of", "and", "was", "is", "in", "to", "ended", "began", "the")):
                return f"one{possessive}"
            return None
        if before in _NUMBERED and (is_capital or len(base) > 1 or before in ("chapter", "section", "part")):
            return say.cardinal(number) + possessive
        if not is_capital:
            inside = self.text[self.at - 1 : self.at] + self.text[end : end + 1]
            return say.cardinal(number) if inside == "()" and set(base) <= set("ivx") and len(base) > 1 else None
        if before in _MONARCHS and previous[0].isupper() and (len(base) > 1 or base in "VX"):
            return f"the {say.ordinal(number)}{possessive}"
        if len(base) > 1 and set(base) <= set("IVX") and base not in ("IV", "XX", "XXX", "VI", "XI"):
            return say.cardinal(number) + possessive
        if base in ("IV", "VI", "XI", "XX") and previous[:1].isupper() and len(previous) > 1:
            return say.cardinal(number) + possessive
        if len(base) > 4 and number > 1000 and not is_known(base.lower()):
            return say.year(number)
        return None

    def _is_name_before(self) -> bool:
        return self.previous[:1].isupper() and self.previous.lower() not in ("king", "queen", "pope", "emperor")

    def _capitals(self, word: str) -> str:
        """A word in capitals: kept so where it is spelled."""
        if word in tables.ACRONYMS:
            return tables.ACRONYMS[word]
        if word in tables.ACRONYM_WORDS:
            return word.capitalize()
        if word in tables.STATES and self.previous == "," and (self.earlier[:1].isupper()):
            following = self.text[self.at + len(word) :].lstrip()
            if not following[:1].isalpha():
                return tables.STATES[word]
        lower = word.lower()
        if word in tables.SPELLED and not self.is_shouted:
            return word
        if lower in tables.SHORT_WORDS:
            return lower
        if len(word) <= 3 and not self.is_shouted:
            return word
        if is_known(lower):
            return word if bare(of_word(lower)) == bare(spell(word)) else lower  # the dictionary spells some
        vowels = sum(letter in "AEIOUY" for letter in word)
        if len(word) >= 5 and 0.25 <= vowels / len(word) <= 0.6 or self.is_shouted and len(word) > 3 and vowels:
            return word.capitalize()
        return word

    def _camel(self, word: str) -> str:
        """YouTube, McDonald, iPhone, GitHub, macOS."""
        if word in tables.ACRONYMS:
            return tables.ACRONYMS[word]
        if is_known(word.lower()) or _SURNAME.fullmatch(word):
            return word
        parts = _PIECES.findall(word)
        return " ".join(self._capitals(p) if p.isupper() and len(p) > 1 else _letters(p) if len(p) == 1 else p for p in parts)

    def _letters_and_digits(self, word: str) -> str:
        """MP3, H2O, x86, F150, 1080p."""
        if word in tables.ACRONYMS:
            return tables.ACRONYMS[word]
        spoken: list[str] = []
        for part in _PIECES.findall(word):
            if part.isdecimal():
                spoken.append(_short_number(part))
            elif part == "s" and spoken and len(word) > 2:
                spoken[-1] = say.plural(spoken[-1])  # MP3s
            elif len(part) == 1:
                spoken.append(_letters(part.upper()))
            elif part.isupper():
                spoken.append(part if len(part) <= 3 else self._capitals(part))
            else:
                spoken.append(part if len(part) > 3 or is_known(part.lower()) else part.upper())
        return " ".join(spoken)

    def _sign_after_letter(self, m: re.Match) -> int:
        """C++, C#, A+, and the power of a variable."""
        text, end = self.text, m.end()
        letter = _letters(m[0].upper())
        if text.startswith("++", end):
            return self._emit(f"{letter} plus plus", end + 2)
        if text[end : end + 1] in ("^", *_SUPERSCRIPTS):
            return self._emit(letter, end)
        if text.startswith("#", end) and m[0].isupper():
            return self._emit(f"{letter} sharp", end + 1)
        if text[end : end + 1] == "+" and m[0] in "ABCDEF" and not text[end + 1 : end + 2].isalnum():
            return self._emit(f"{letter} plus", end + 1)
        return 0

    def _dotted(self, m: re.Match) -> int:
        """U.S., e.g., p.m., J. R. R.; the last full stop may also end the sentence."""
        several = "s" if m[0].endswith(".s") else ""
        key = m[0].removesuffix("s").rstrip(".").lower() if several else m[0].rstrip(".").lower()
        letters = (m[0].removesuffix("s") if several else m[0]).replace(".", "")
        if key in tables.ABBREVIATIONS:
            spoken = tables.ABBREVIATIONS[key]
        elif letters.isupper() or key in ("a.m", "p.m", "b.c", "a.d", "u.s", "u.k"):
            spoken = letters.upper()
            if spoken in tables.ACRONYM_WORDS or spoken in tables.ACRONYMS:
                spoken = tables.ACRONYMS.get(spoken, spoken.capitalize())
        else:
            spoken = " ".join(_letters(letter.upper()) for letter in letters)
        return self._emit(spoken + several + self._last_stop(m.end()), m.end())

    def _last_stop(self, end: int) -> str:
        """The full stop of an abbreviation that ends the sentence is spoken as one."""
        return "" if self.text[end : end + 40].strip("\"') ]}") else "."

    def _abbreviation(self, m: re.Match) -> int:
        """A word with a full stop behind it: 0 where that ends the sentence or the word is no abbreviation."""
        text, word, end = self.text, m[0], m.end() + 1
        key = word.lower()
        following = self._next(end)
        number_next = following[:1].isdecimal()
        if len(word) == 1 and word.isalpha():
            is_initial = following[:1].isupper() and self.previous.lower() not in _NUMBERED
            if not is_initial and (number := self._roman(word, m.end())) is not None:
                return self._emit(number, m.end())
            if number_next and word in ("p", "c"):
                return self._emit({"p": "page", "c": "circa"}[word], end)
            if word == "v" and following:
                return self._emit("versus", end)
            if self.at == 0 and following:
                return self._emit(f"{_letters(word.upper())},", end)  # "a. First"
            if word.isupper() and (following[:1].isupper() or following == ","):
                return self._emit(f"{word}-" if word in "AI" else word, end)  # an initial
            return 0
        if key in ("dr", "st"):
            return self._emit(self._doctor_or_saint(key, following) + self._last_stop(end), end)
        if key not in tables.ABBREVIATIONS:
            return self._weekday(word, end) if word[:1].isupper() and key in tables.WEEKDAYS else 0
        if key in tables.BEFORE_NUMBERS and not number_next:
            roman = following.isupper() and say.roman(following)
            if not roman and not (key != "no" and re.match(r"\s\(\d", text[end : end + 3])):
                return 0
        if key in tables.ALSO_WORDS and not (number_next or (word[0].isupper() and following) or following.islower()):
            return 0
        if key in tables.MONTH_NUMBERS and not word[0].isupper():
            return 0
        if key in ("mt", "ft") and not following[:1].isupper():
            return 0
        spoken = tables.ABBREVIATIONS[key]
        return self._emit(spoken + self._last_stop(end), end)

    def _weekday(self, word: str, end: int) -> int:
        following = self._next(end)
        if following and (following in ",)" or following[:1].isdecimal() or following.rstrip(".").lower() in tables.MONTH_NUMBERS):
            return self._emit(tables.WEEKDAYS[word.lower()], end)
        return 0

    def _doctor_or_saint(self, key: str, following: str) -> str:
        is_street = (self.previous[:1].isupper() or re.match(r"\d+(st|nd|rd|th)$", self.previous) is not None) and (
            not following[:1].isupper() or following in ("Suite", "Apt", "NW", "NE", "SW", "SE", "Unit")
        )
        if key == "dr":
            return "Drive" if is_street else "Doctor"
        return "Street" if is_street else "Saint"

    # -- addresses

    def _address(self, start: int) -> int:
        """E-mail and web addresses, files and paths."""
        text = self.text
        chunk = text[start : start + 64]
        blank = _SPACE.search(chunk)
        head = chunk[: blank.start()] if blank else chunk
        if not any(mark in head for mark in "@./\\"):
            return 0
        for pattern in (_EMAIL, _URL, _PATH, _FILE):
            if m := pattern.match(text, start):
                address = m[0].rstrip(".,;:!?)]}'\"")
                spoken = self._spell_address(re.sub(r"^(?:https?|ftp)://", "", address, flags=re.IGNORECASE))
                return self._emit(spoken, start + len(address))
        return 0

    def _spell_address(self, address: str) -> str:
        spoken = []
        for part in re.findall(r"[A-Za-z]+|\d+|.", address):
            if part.isdecimal():
                spoken.append(_short_number(part))
            elif part.isascii() and part.isalpha():
                if part.lower() == "www":
                    spoken.append("WWW")
                elif part.lower() in ("uk", "us", "io", "ai", "edu", "pdf", "de", "txt", "py", "ca", "au", "eu", "me", "co", "fr"):
                    spoken.append(part.upper())
                elif len(part) == 1:
                    spoken.append(_letters(part.upper()))
                elif part.isupper() or is_known(part.lower()):
                    spoken.append(self._capitals(part) if part.isupper() else part)
                elif not part.islower():
                    spoken.append(self._camel(part))
                else:
                    spoken.append(part if len(part) > 3 else part.upper())
            elif part.isalpha():
                spoken.append(self._foreign(part))
            else:
                spoken.append(_ADDRESS_MARKS.get(part, tables.SYMBOLS.get(part, "")))
        return " ".join(word for word in spoken if word)

    # -- signs

    def _symbol(self, start: int, char: str) -> int:
        text = self.text
        following = text[start + 1 : start + 2]
        if char in "$£€¥₹₩₽₪₺₴₫₱₦฿₿" and (following.isdecimal() or re.match(r"[ .]\d", text[start + 1 : start + 3])):
            digit = start + 1 + (following == " ")
            return self._number(digit, char)
        if char in "-−–+±" and (end := self._signed(start, char)):
            return end
        if char == "'":
            return self._apostrophe(start)
        if char == "(" and (m := _PHONE.match(text, start)):
            return self._emit(self._phone(m), m.end())
        if char == "{" and (m := _PHONEMES.match(text, start)) and all(p in ARPABET for p in m[1].split()):
            return self._emit("{" + " ".join(m[1].split()) + "}", m.end())
        if char == "[" and not self._after_blank() and (m := _CITATION.match(text, start)):
            return self._leave_out(m.end(), "[")
        if char == "<" and (m := _TAG.match(text, start)):
            return self._leave_out(m.end())
        if char in "/~\\." and self._after_blank() and (end := self._address(start)):
            return end
        if sign := next((text[start : start + n] for n in (6, 5, 4, 3, 2) if text[start : start + n] in tables.SIGNS), ""):
            alone = not sign[-1].isalnum() or not text[start + len(sign) : start + len(sign) + 1].isalnum()
            if alone and (sign[0] not in ":;" or self._after_blank()):
                return self._emit(tables.SIGNS[sign], start + len(sign))
        if char in ".,;:?!…":
            return self._mark(start, char)
        if char in "#@" and (end := self._tag(start, char)):
            return end
        run = start + 1
        while run < len(text) and text[run] == char:
            run += 1
        if char in "-–—":
            return self._dash(start, run)
        if run - start > 2 and char in "=*_~#+.<>/\\|^" or char in "#" and (start == 0 or text[start - 1] == "\n"):
            return self._emit("blank" if char == "_" else "", run)
        if char == "(" and self._touches_word() and len(self.previous) == 1 and self.previous.isalpha():
            return self._emit("of", run)  # f(x)
        if char in "()[]":
            return self._emit(",", run)
        if char == "{" or char == "}" or char == "|":
            return self._emit(",", run)
        if char == "*":
            return self._star(start, run)
        if char == "^" or char in _SUPERSCRIPTS:
            return self._power(start)
        if char == "/" and self.previous[-1:].isdecimal() and self._next(run)[:1].isdecimal():
            return self._emit("divided by", run)
        if char in "§¶" and run - start > 1:
            return self._emit(tables.SYMBOLS[char] + "s", run)
        if char in "<>~" and self._next(run)[:1].isdecimal():
            return self._emit({"<": "less than", ">": "greater than", "~": "about"}[char], run)
        if char == "_" and self._touches_word():
            return run
        if char in "~≈" or char not in tables.SILENT:
            return self._name(start, run, char)
        return run

    def _mark(self, start: int, char: str) -> int:
        text, run = self.text, start + 1
        while run < len(text) and text[run] in ".,;:?!…":
            run += 1
        marks = text[start:run]
        if marks == ":" and self.previous.lower() in _NUMBER_WORDS and text[run : run + 1].isalpha():
            return run  # twelve:thirty
        if marks == "." and text[run : run + 1].isalpha() and self._touches_word() and not text[run : run + 1].isupper():
            return self._emit("dot", run)  # node.js
        strongest = next((mark for mark in "?!" if mark in marks), "")
        if not strongest and ("…" in marks or ".." in marks):
            strongest = "." if not text[run:].strip("\"')") or self._next(run)[:1].isupper() else ","
        return self._emit(strongest or next(mark for mark in ".;:," if mark in marks), run)

    def _dash(self, start: int, run: int) -> int:
        text = self.text
        before, after = text[start - 1 : start], text[run : run + 1]
        if run - start == 1 and text[start] != "—":
            if before.strip() and after.isalnum():
                is_range = self.previous[:1].isdecimal() and (after.isdecimal() or text[start] == "–")
                return self._emit("to" if is_range else "", run)
            if start == 0 and after.isspace():
                return run  # an item of a list
            if before.isdecimal() and after.isspace() and self._next(run)[:1].isdecimal():
                return self._emit("to", run)
            if before.isspace() and after.isspace() and self.previous[-1:].isalnum() and self._next(run)[:1].isdecimal():
                if any(c.isdecimal() for c in self.previous) or len(self.previous) == 1:
                    return self._emit("minus", run)
            if (before.isalnum() and not after.strip()) or not before.strip() and after.isalnum():
                return self._emit("-" if text[start] == "–" else "", run)
        return self._emit("-", run)

    def _signed(self, start: int, char: str) -> int:
        """A number with a sign, or a telephone number from abroad."""
        text = self.text
        if char == "+" and self._after_blank():
            for pattern in (_PHONE, _PHONE_ABROAD):
                if m := pattern.match(text, start):
                    groups = re.findall(r"\d+", m[0])
                    return self._emit("plus " + ", ".join(say.digits(group) for group in groups), m.end())
        m = re.compile(r"[-−–+±]\s?([$£€¥₹]?)(?=\.?\d)").match(text, start)
        if not m or not self._after_blank():
            return 0
        if char in "-–" and m[0][1:2] == " " or (self.previous[-1:].isdecimal() and char == "–"):
            return 0
        if char in "-–+" and self.previous[-1:].isalnum() and m[0][1:2] == " ":
            return 0
        sign = {"+": "plus ", "±": "plus or minus "}.get(char, "minus ")
        return self._number(m.end(), m[1], sign)

    def _apostrophe(self, start: int) -> int:
        text = self.text
        if not self._touches_word():
            if m := _APOSTROPHE_YEAR.match(text, start):
                return self._emit(say.decade(int(m[1])) if m[1] else say.two_digits(int(m[2])), m.end())
            if m := _ELISION.match(text, start):
                word = m[0][1:].lower()
                full = {"em": "them", "til": "until", "cause": "because", "bout": "about", "round": "around", "n": "and"}
                end = m.end() + (text[m.end() : m.end() + 1] == "'")
                return self._emit(full.get(word, m[0][1:]), end)
        return start + 1

    def _tag(self, start: int, char: str) -> int:
        text = self.text
        if self._touches_word() and char == "#":
            return 0
        if char == "#":
            if m := re.compile(r"#\s?(?=\d)").match(text, start):
                return self._emit("number", m.end())
            if m := _HASHTAG.match(text, start):
                return self._emit("hashtag " + self._name_words(m[1]), m.end())
            return 0
        if m := _HANDLE.match(text, start):
            return self._emit("at " + self._name_words(m[1]), m.end())
        return 0

    def _name_words(self, name: str) -> str:
        if not name.isascii():
            return " ".join(self._plain(part, 0) for part in _WORD.findall(name))
        marks = {"_": "underscore", ".": "dot"}
        words = []
        for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|.", name):
            if part.isdecimal():
                words.append(_short_number(part))
            elif part.isalpha():
                words.append(self._capitals(part) if len(part) > 1 and part.isupper() else _letters(part.upper()) if len(part) == 1 else part)
            else:
                words.append(marks.get(part, ""))
        return " ".join(word for word in words if word)

    def _star(self, start: int, run: int) -> int:
        before = self.text[:start].rstrip()[-1:]
        if run - start == 1 and (before.isdecimal() or before == ")") and self._next(run)[:1].isdecimal():
            return self._emit("times", run)
        return run

    def _power(self, start: int) -> int:
        m = _POWER.match(self.text, start)
        if not m:
            return self._emit(tables.SYMBOLS.get(self.text[start], ""), start + 1)
        power = "".join(_SUPERSCRIPTS[c] for c in m[1]) if m[1] else m[2]
        if not self.previous[-1:].isalnum() and self.previous[-1:] not in (")", "π"):
            return self._emit(say.integer(power) if power.isdecimal() else power, m.end())
        if power in ("2", "3"):
            return self._emit({"2": "squared", "3": "cubed"}[power], m.end())
        minus = "minus " if power[0] == "-" else ""
        rest = power.lstrip("+-")
        words = say.integer(rest) if rest.isdecimal() else " ".join(_letters(c.upper()) for c in rest if c.isascii() and c.isalpha())
        return self._emit(f"to the power of {minus}{words}", m.end())

    def _name(self, start: int, run: int, char: str) -> int:
        """A symbol or an emoji by its name; a row of the same is named once."""
        text = self.text
        if char in tables.SYMBOLS and char.isascii():
            return self._emit(tables.SYMBOLS[char], run)
        if "\U0001f1e6" <= char <= "\U0001f1ff":
            pair = text[start : start + 2]
            if len(pair) == 2 and "\U0001f1e6" <= pair[1] <= "\U0001f1ff":
                return self._emit("flag " + "".join(chr(ord(c) - 0x1F1E6 + 65) for c in pair), start + 2)
        end, names = start, []
        while end < len(text) and end - start < 24:
            names.append(_name_of(text[end]))
            end += 1
            while end < len(text) and text[end] in _EMOJI_PARTS:
                end += 1
            if text[end : end + 1] != _JOINER or end + 1 >= len(text):
                break
            end += 1
        if not any(names):
            return self._leave_out(max(end, run), char)
        cluster = text[start:end]
        while text.startswith(cluster, end) and char not in tables.SYMBOLS:
            end += len(cluster)
        spoken = " ".join(name for name in names if name)
        return self._emit(spoken if char in tables.SYMBOLS else f"{spoken},", end)


_NUMBER_RULES = (
    (_ISO_DATE, _Reader._iso_date),
    (_DATE, _Reader._date),
    (_TIME, _Reader._time),
    (_HOUR, _Reader._hour),
    (_RATIO, _Reader._ratio),
    (_PHONE, _Reader._phone),
    (_SHORT_PHONE, _Reader._short_phone),
    (_DOTTED_NUMBERS, _Reader._dotted_numbers),
    (_DIGIT_GROUPS, _Reader._digit_groups),
    (_DEGREES, _Reader._degrees),
    (_FEET, _Reader._feet),
    (_FRACTION, _Reader._fraction),
    (_SHORT_FRACTION, _Reader._short_fraction),
    (_DECADE, _Reader._decade),
    (_ORDINAL, _Reader._ordinal),
    (_SCIENTIFIC, _Reader._scientific),
    (_DURATION, _Reader._duration),
    (_MIXED, _Reader._mixed),
)


def _is_day(month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= (29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31)


def _date(year: int, month: int, day: int) -> str:
    return f"{tables.MONTHS[month - 1]} {say.ordinal(day)}, {say.year(year)}" if _is_day(month, day) else ""


def _clock(hour: int, minute: int, is_exact: bool = False) -> str:
    if minute:
        return f"{say.cardinal(hour)} {say.two_digits(minute)}"
    if is_exact:
        return say.cardinal(hour)
    return f"{say.cardinal(hour)} o'clock" if 1 <= hour <= 12 else f"{say.cardinal(hour)} hundred"


def _calendar_name(short: str) -> str:
    month = tables.MONTH_NUMBERS.get(short.lower())
    return tables.MONTHS[month - 1] if month else tables.WEEKDAYS[short.lower()]


def _part(top: int, bottom: int) -> str:
    """The fraction behind a whole number: "a half", "three quarters"."""
    words = say.fraction(top, bottom)
    return f"a {words.removeprefix('one ')}" if words in ("one half", "one quarter", "one third") else words


def _counted(number: str, unit: str) -> str:
    return f"{say.decimal(number)} {unit if number == '1' else _plural_unit(unit)}"


def _plural_unit(name: str) -> str:
    head, *tail = name.split(" ")
    if head in ("cubic", "square"):
        head, *tail = tail[0], *tail[1:]
        return f"{name.split(' ')[0]} {tables.PLURALS.get(head, head + 's')}"
    return " ".join([tables.PLURALS.get(head, head + "s"), *tail])


def _singular_unit(name: str) -> str:
    """ "kilometers per hour" -> "kilometer per hour"."""
    for unit in (*tables.UNITS.values(), "degree"):
        plural = _plural_unit(unit)
        if name.startswith(plural):
            return unit + name[len(plural) :]
    return name


def _singular(unit: str) -> str:
    return tables.UNITS.get(unit, unit)


def _short_number(number: str) -> str:
    """Digits inside a name: "150" is one fifty, "3090" thirty ninety."""
    if number[0] == "0" or len(number) > 4:
        return say.digits(number)
    if len(number) < 3 or number.endswith("00"):
        return say.cardinal(int(number))
    head, tail = int(number[:-2]), int(number[-2:])
    return f"{say.cardinal(head)} {say.two_digits(tail)}"


def _letters(letters: str) -> str:
    """A single letter "A" is marked, lest it be read as the article."""
    return f"{letters}-" if letters in ("A", "I") else letters


def _script(char: str) -> str:
    return unicodedata.name(char, "UNKNOWN").split(" ")[0]


def _name_of(char: str) -> str:
    """The name of a symbol or emoji, "" where it has none."""
    if char in tables.EMOJI or char in tables.SYMBOLS:
        return tables.EMOJI.get(char) or tables.SYMBOLS[char]
    if char < "\u2190":
        return ""
    from anyascii import anyascii

    short = anyascii(char)
    if len(short) > 2 and short[0] == short[-1] == ":":
        return " ".join(re.findall(r"[a-z]+", short.lower()))
    return ""

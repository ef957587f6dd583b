"""What a British reader says for numbers where an American says something else."""

from __future__ import annotations

import re
from itertools import groupby

from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cursor import Cursor, Reading
from melforge.common.text.english.reading.dates import is_month

_DIGIT = "(?:zero|one|two|three|four|five|six|seven|eight|nine)"
# Numbers below a hundred, and which one of several comes.
_STEM = "(?:one|tw[eo]|th(?:ree|ir)|fo(?:ur|rt)|fi(?:ve|f|rst)|six|seven|eigh|nin|ten|eleven)"
_SMALL = rf"{_STEM}[a-z]*(?:-[a-z]+)?\b"
_ORDINAL = r"[a-z-]*(?:first|second|third|th)"
_MONTH = f"(?:{'|'.join(tables.MONTHS)})"
_REWRITTEN = [
    (re.compile(pattern), said)
    for pattern, said in (
        (rf"\bhundred (?={_SMALL})", "hundred and "),
        (rf"\b(thousand|[mbtr]+illion) (?={_SMALL}(?! (?:hundred|thousand|\w+illion)))", r"\1 and "),
        (r"\bzero point\b", "nought point"),
        (rf"(?<=point)(?: zero)+(?= {_DIGIT})", lambda match: match[0].replace("zero", "nought")),
        (rf"\b(pounds?|euros?|dollars?) and (?!{_DIGIT} )([a-z-]+) (?:pence|cents)\b", r"\1 \2"),
        (r"\b((?:kilo|centi|milli|micro|nano|deci)?(?:met|lit))er(s?)\b", r"\1re\2"),
        (r"^(\w+) (?:to )?zero$", lambda match: f"{match[1].replace('zero', 'nil')} nil"),
    )
]
_SECOND = re.compile(r"\bhundred second$")  # the 102nd
_DATE = re.compile(rf"({_MONTH}) ({_ORDINAL})(?=,|$)")
_DAYS = re.compile(rf"({_ORDINAL})(?: to ({_ORDINAL}))?")
_DIGITS = re.compile(rf"(?:(?:plus|extension|{_DIGIT})(?:,? |$))+")
_LEAST_DIGITS = 3
_HUNDRED = re.compile(r"^oh (\w+) double oh\b")  # 0800, 0300
_REPEATED = {2: "double {0}", 3: "triple {0}", 4: "double {0} double {0}"}


def in_britain(cursor: Cursor, reading: Reading) -> Reading:
    """The same stretch of text as it is said in Britain."""
    written = cursor.text[cursor.at : reading.end]
    if written == "#" and reading.spoken == "pound":
        return reading._replace(spoken="hash")
    if not any(map(str.isdecimal, written)):
        return reading
    spoken = reading.spoken
    if spoken.count(" ") + 1 >= _LEAST_DIGITS and _DIGITS.fullmatch(spoken):
        return reading._replace(spoken=_telephone(spoken))
    if written.endswith("nd"):
        spoken = _SECOND.sub("hundred and second", spoken)
    for pattern, said in _REWRITTEN:
        spoken = pattern.sub(said, spoken)
    if date := _DATE.match(spoken):
        day = f"the {date[2]} of {date[1]}" if written[0].isdecimal() else f"{date[1]} the {date[2]}"
        spoken = day + spoken[date.end() :]
    elif (days := _DAYS.fullmatch(spoken)) and is_month(cursor.previous, cursor.earlier):
        spoken = f"the {days[1]}" + (f" to the {days[2]}" if days[2] else "")
    return reading._replace(spoken=spoken)


def _telephone(digits: str) -> str:
    """ "zero two zero, nine four four" -> "oh two oh, nine double four"; 999 and its like stay."""
    groups = [group.split() for group in digits.replace("zero", "oh").split(", ")]
    if len(groups) == 1 and len(groups[0]) == _LEAST_DIGITS and len(set(groups[0])) == 1:
        return " ".join(groups[0])
    said = [" ".join(_counted(word, len(list(run))) for word, run in groupby(group)) for group in groups]
    return _HUNDRED.sub(r"oh \1 hundred", ", ".join(said))


def _counted(word: str, times: int) -> str:
    return _REPEATED[times].format(word) if times in _REPEATED else " ".join([word] * times)

"""What a British reader says for numbers where an American says something else."""

from __future__ import annotations

import re
from itertools import groupby

from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.capitals import NUMBERED, letter_name
from melforge.common.text.english.reading.cursor import Cursor, Reading
from melforge.common.text.english.reading.dates import is_month
from melforge.common.text.english.reading.times import WEEKDAYS
from melforge.common.text.english.word_parts import words

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
        (r"^season (?=\S+ episode\b)", "series "),
        (r"^([\w-]+) (?:to )?zero$", lambda match: f"{match[1].replace('zero', 'nil')} nil"),
    )
]
_SECOND = re.compile(r"\bhundred second$")  # the 102nd
_DATE = re.compile(rf"({_MONTH}) ({_ORDINAL})(?=,|$)")
_DAYS = re.compile(rf"({_ORDINAL})(?: to ({_ORDINAL}))?")
_DIGITS = re.compile(rf"(?:(?:plus|extension|{_DIGIT})(?:,? |$))+")
_LEAST_DIGITS = 3
_HUNDRED = re.compile(r"^oh (\w+) double oh\b")  # 0800, 0300
_ROAD = re.compile(r"[AB]\d{4}")
_MOTORWAY = re.compile(r"\((?:M|T)\)")  # behind "A1"
_JUNCTIONS = re.compile(r"J\d{1,2}[Aa]?(?:[-–](?:J?\d{1,2}[Aa]?)?)?")
_OF_MOTORWAYS = re.compile(r"\b(?:M\d{1,2}|A\d{1,3}\(M\)|[Jj]unctions?)(?!\w)")
_SCORE = re.compile(r"(\d{1,3})[-–](\d{1,3})")
_PLAYED = re.compile(
    r"\b(?:w[io]ns?|winn\w+|lost|los(?:es|ing|s)|beat(?:s|en|ing)?|dr[ae]wn?s?|led|leads?|leading"
    r"|victor(?:y|ies)|defeat\w*|thrash\w+|hammered|goals?|half-?time|full-?time|HT|FT|agg(?:regate)?|pens"
    r"|penalties|scored?|(?:st|d) set|trail\w*|hat-trick|equalis\w+|sent off|went down|made it|final score)\b"
)
_TEAM = re.compile(r"(?:^|[:;.(]\s?)(?:[A-Z][\w.']+\s){1,3}$")
_OTHER_TEAM = re.compile(r"\s[A-Z][a-z]")
_NO_TEAMS = NUMBERED | WEEKDAYS | words("zone age year flat room bus platform")
_TWO_TEAMS = re.compile(r"\b[A-Z][\w.']+\s\d{1,2},?\s(?:[A-Z][\w.']+\s){1,3}\d{1,2}(?![\w:-]|\.\d)")
# What else is written so in sport: odds, votes, amounts of things.
_NO_SCORE = re.compile(
    r"\b(?:shots?|odds|fav\w*|outsiders?|each way|priced|chances?|vot\w+|rul(?:ing|ed)|majority)\b"
)
_THINGS = re.compile(
    r"\s(?!(?:loss|success|thanks|as|was|is)\b)(?:[a-z]+s|people|men|women|children|stone)\b"
)
_CRICKET = re.compile(
    r"\b(?:wickets?|wkts?|innings|overs|stumps|T20|ODI|dec|bowled|lbw|runs|(?:not|all) out|\d+ & \d+)\b"
)
_LOOK_BACK = 40  # characters
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
    if _ROAD.fullmatch(written):  # "B4009"
        return reading._replace(spoken=f"{letter_name(written[0])} {_telephone(say.digits(written[1:]))}")
    if _JUNCTIONS.fullmatch(written) and cursor.is_near(_OF_MOTORWAYS):  # "M25 J15"
        return reading._replace(spoken=spoken.replace("J ", "junction "))
    if written[0] == "A" and (part := _MOTORWAY.match(cursor.text, reading.end)):  # "A1(M)"
        return reading._replace(spoken=f"{spoken} {part[0][1]}", end=part.end())
    if written == "0" and _is_team(cursor) and cursor.is_near(_TWO_TEAMS):
        return reading._replace(spoken="nil")  # "Rangers 0 Celtic 0"
    if score := _SCORE.fullmatch(written):
        spoken = _score(cursor, reading, int(score[1]), int(score[2]))
    if written.endswith("nd"):
        spoken = _SECOND.sub("hundred and second", spoken)
    for pattern, said in _REWRITTEN:
        spoken = pattern.sub(said, spoken)
    if date := _DATE.match(spoken):
        day = f"the {date[2]} of {date[1]}" if written[0].isdecimal() else f"{date[1]} the {date[2]}"
        spoken = day + spoken[date.end() :]
    elif (days := _DAYS.fullmatch(spoken)) and (
        is_month(cursor.previous, cursor.earlier) or cursor.previous.rstrip(".").lower() in WEEKDAYS
    ):  # also "Mon 8th"
        spoken = f"the {days[1]}" + (f" to the {days[2]}" if days[2] else "")
    return reading._replace(spoken=spoken)


def _score(cursor: Cursor, reading: Reading, first: int, second: int) -> str:
    """3-1 -> "three one", 245-6 -> "two hundred and forty-five for six"; odds, votes and ranges stay."""
    spoken, text = reading.spoken, cursor.text
    if _THINGS.match(text, reading.end):
        return spoken
    took = cursor.previous in ("took", "takes")
    is_bowled = first < 11 <= second and (took or cursor.previous.istitle())
    if (is_bowled or (second < 11 and first > 24)) and (took or cursor.is_near(_CRICKET)):
        return spoken.replace(" to zero", " for nought").replace(" to ", " for ")
    is_behind_team = _is_team(cursor) and _TEAM.search(text, max(cursor.at - _LOOK_BACK, 0), cursor.at)
    is_of_teams = is_behind_team and _OTHER_TEAM.match(text, reading.end)
    is_odds = max(first, second) > 99 or (cursor.previous == "at" and first and second)  # "at 9-4"
    is_score = not (is_odds or cursor.is_near(_NO_SCORE)) and (is_of_teams or cursor.is_near(_PLAYED))
    return re.sub("^zero\\b", "nil", spoken.replace(" to ", " ")) if is_score else spoken


def _is_team(cursor: Cursor) -> bool:
    return cursor.previous[:1].isupper() and cursor.previous.lower().rstrip("s") not in _NO_TEAMS


def _telephone(digits: str) -> str:
    """ "zero two zero, nine four four" -> "oh two oh, nine double four"; 999 and its like stay."""
    groups = [group.split() for group in digits.replace("zero", "oh").split(", ")]
    if len(groups) == 1 and len(groups[0]) == _LEAST_DIGITS and len(set(groups[0])) == 1:
        return " ".join(groups[0])
    said = [" ".join(_counted(word, len(list(run))) for word, run in groupby(group)) for group in groups]
    return _HUNDRED.sub(r"oh \1 hundred", ", ".join(said))


def _counted(word: str, times: int) -> str:
    return _REPEATED[times].format(word) if times in _REPEATED else " ".join([word] * times)

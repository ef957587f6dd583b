"""How much regular expressions look at while English is read: the same numbers on every machine.

    python -m tests.regex_work LENGTH PIECE...      # a JSON list: for each piece repeated to this length

It counts calls, and the characters that these look at: of a match those that it holds, of a search all that
is searched, and where there is no match, what a matcher compares that never comes to a place twice.
"""

import functools
import json
import re
import sys
from re import _constants as op
from re import _parser as parser
from typing import Any

work = 0
compile_pattern = re._compile


@functools.cache
def one_character(code: Any, value: Any, flags: int) -> re.Pattern:
    """For a parsed element that stands for one character."""
    if code is op.ANY:
        return compile_pattern(".", flags)
    if code is op.GROUPREF:
        return compile_pattern(r"[\s\S]", flags)
    members = value if code is op.IN else ((code, value),)
    inside = "".join(map(member, members))
    return compile_pattern(f"[{inside}]", flags)


def member(item: tuple[Any, Any]) -> str:
    """It as it stands in brackets."""
    code, value = item
    if code is op.NEGATE or code is op.NOT_LITERAL:
        return "^" + ("" if value is None else re.escape(chr(value)))
    if code is op.RANGE:
        return "-".join(re.escape(chr(end)) for end in value)
    if code is op.CATEGORY:
        letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[value.name.split("_")[-1]]
        return "\\" + (letter.upper() if "NOT" in value.name else letter)
    return re.escape(chr(value))


def ends(parts: Any, starts: set[int], text: str, flags: int) -> set[int]:
    """Where a parsed pattern may end that begins at these places; what it compares counts as work."""
    global work
    for code, value in parts:
        if code in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN, op.GROUPREF):
            work += len(starts)
            found = one_character(code, tuple(value) if code is op.IN else value, flags)
            starts = {start + 1 for start in starts if found.match(text, start)}
        elif code is op.BRANCH:
            starts = set().union(*(ends(branch, starts, text, flags) for branch in value[1]))
        elif code is op.SUBPATTERN:
            starts = ends(value[3], starts, text, (flags | value[1]) & ~value[2])
        elif code is op.ATOMIC_GROUP:
            starts = ends(value, starts, text, flags)
        elif code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            least, most, repeated = value
            last, starts = starts, starts if least == 0 else set()
            seen: set[int] = set()
            for count in range(1, min(int(most), len(text)) + 1):
                seen |= last
                last = ends(repeated, last, text, flags)
                if count >= least:
                    last -= seen if count > least else set()
                    starts = starts | last
                if not last:
                    break
        elif code in (op.ASSERT, op.ASSERT_NOT):
            direction, asserted = value
            back = asserted.getwidth()[1] if direction < 0 else 0
            wanted = code is op.ASSERT
            starts = {
                start
                for start in starts
                if (start >= back and bool(ends(asserted, {start - back}, text, flags))) == wanted
            }
        if not starts:
            break
    return starts


class Counted:
    """A compiled pattern whose calls are counted."""

    def __init__(self, pattern: re.Pattern):
        self.pattern = pattern
        self.parsed = parser.parse(pattern.pattern, pattern.flags)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.pattern, name)
        return functools.partial(self.call, found) if callable(found) else found

    def call(self, method: Any, *given: Any, **named: Any) -> Any:
        global work
        text = given[1] if method.__name__ in ("sub", "subn") else given[0]
        start = given[1] if len(given) > 1 and isinstance(given[1], int) else 0
        result = method(*given, **named)
        work += 1
        if isinstance(result, re.Match):
            work += result.end() - start
        elif method.__name__ in ("match", "fullmatch"):
            ends(self.parsed, {start}, text, self.pattern.flags)
        else:
            work += len(text) - start
        return result


@functools.cache
def counted(pattern: str, flags: int) -> Any:
    return Counted(compile_pattern(pattern, flags))


def main() -> None:
    global work
    re._compile = lambda pattern, flags: (
        counted(pattern, int(flags)) if isinstance(pattern, str) else compile_pattern(pattern, flags)
    )
    from melforge.common.text.frontends import get_frontend

    frontend, found = get_frontend("english"), []
    for piece in sys.argv[2:]:
        frontend(piece * 100)  # loads what is loaded at first use
        work = 0
        frontend(piece * (int(sys.argv[1]) // len(piece)))
        found.append(work)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

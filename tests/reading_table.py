"""How much of written English is read right, by category: the table of docs/reading.md.

    python -m tests.reading_table            # prints it
    python -m tests.reading_table --write    # puts it into docs/reading.md, and notes what is wrong
    python -m tests.reading_table --wrong dates money
    python -m tests.reading_table --wrong homographs

The cases stand in tests/data/reading, a file a category; " | " parts readings that are right alike, and
"{one|a} half" parts words. A third of them is held out: the rules were not written with them in view. Below a
line "# held out" all are, below "# in view" none. "⏎" is a new line. `--wrong` lists what is wrong of those
in view only. tests/data/reading_wrong.txt has hashes of all that are wrong.
"""

import argparse
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from melforge.common.text.english.pronounce import read
from melforge.common.text.frontends import get_frontend
from recipes.english.dictionary import edit_distance

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "reading"
DOCUMENT = ROOT / "docs" / "reading.md"
WRONG = ROOT / "tests" / "data" / "reading_wrong.txt"
HEAD = "| category | right of cases | held out |\n|---|---|---|\n"
HOMOGRAPHS, READINGS = "homographs", "homograph_readings"
FRONTEND = get_frontend("english")
_CHOICE = re.compile(r"\{([^{}]*)\}")  # the innermost
_TITLES = {"mr": "mister", "mrs": "missus"}


class Case(NamedTuple):
    written: str
    wanted: str
    said: str
    right: bool
    held_out: bool

    @property
    def key(self) -> str:
        return f"{zlib.crc32(f'{self.written} {self.wanted}'.encode()):08x}"


def categories() -> list[str]:
    return sorted(path.stem for path in DATA.glob("*.tsv") if path.stem != READINGS)


def cases(category: str) -> list[Case]:
    """Every case of a category as it is read now."""
    return list(_homographs() if category == HOMOGRAPHS else _forms(category))


def loose(words: str) -> str:
    """What readings share that differ in case, marks, hyphens, "and", or letters apart ("A B": "AB") only."""
    found = re.findall(r"[a-z0-9]+", words.lower().replace("-", " ").replace("'", ""))
    words = " ".join(_TITLES.get(word, word) for word in found if word != "and")
    return re.sub(r"\b([a-z]) (?=[a-z]\b)", r"\1", words)


def table() -> str:
    """The table in Markdown, its last row the sum."""
    rows, total = [], []
    for category in categories():
        read_now = cases(category)
        total += read_now
        rows.append(_row(category, read_now))
    return HEAD + "".join([*rows, _row("all", total)])


def shares(document: str) -> dict[str, tuple[int, int]]:
    """What the table in a document says: category -> (right of those in view, right of those held out)."""
    rows = re.findall(r"^\| (\w+) \| (\d+)/\d+ \| (\d+)/\d+ \|", document, re.MULTILINE)
    return {category: (int(right), int(held)) for category, right, held in rows}


def known_wrong() -> set[str]:
    """The keys of the cases that were wrong when the table was written."""
    return set(WRONG.read_text(encoding="ascii").split())


def counts(read_now: list[Case]) -> tuple[int, int]:
    """How many of those in view are right, and how many of those held out."""
    right = [case.held_out for case in read_now if case.right]
    return right.count(False), right.count(True)


def _row(name: str, read_now: list[Case]) -> str:
    held = sum(case.held_out for case in read_now)
    right, right_held = counts(read_now)
    return f"| {name} | {right}/{len(read_now) - held} | {right_held}/{held} |\n"


def _rows(name: str) -> Iterator[list[str]]:
    for line in (DATA / f"{name}.tsv").read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            yield line.split("\t")


def _is_held_out(written: str) -> bool:
    return zlib.crc32(written.encode()) % 3 == 0


def _with_place(name: str) -> Iterator[tuple[str, str, bool]]:
    """The rows of two columns, each with whether it is held out."""
    held_out = None
    for line in (DATA / f"{name}.tsv").read_text(encoding="utf-8").splitlines():
        if line in ("# held out", "# in view"):
            held_out = line == "# held out"
        elif "\t" in line:
            first, second = line.replace("⏎", "\n").rsplit("\t", 1)
            yield first, second, _is_held_out(first) if held_out is None else held_out


def readings(wanted: str) -> Iterator[str]:
    """ "{one|a} half | 0.5" -> "one half", "a half", "0.5"."""
    found = _CHOICE.search(wanted)
    if found is None:
        yield from wanted.split(" | ")
        return
    for words in found[1].split("|"):
        yield from readings(wanted[: found.start()] + words + wanted[found.end() :])


def _forms(category: str) -> Iterator[Case]:
    for written, wanted, held_out in _with_place(category):
        said = " ".join(utterance.normalised for utterance in FRONTEND(written).utterances)
        yield Case(written, wanted, said, loose(said) in set(map(loose, readings(wanted))), held_out)


def _homographs() -> Iterator[Case]:
    """A word's phones must be nearer to the reading that is wanted than to any other."""
    known = {word: dict(form.split("=") for form in forms) for word, *forms in _rows(READINGS)}
    for wanted, marked, held_out in _with_place(HOMOGRAPHS):
        tokens = re.findall(r"\*?[A-Za-z'-]+\*?|[.,;:?!]", marked)
        at = next(index for index, token in enumerate(tokens) if token[0] == "*")
        phones = read([token.strip("*") for token in tokens])[at]
        forms = known[tokens[at].strip("*").lower()]
        distance = {name: edit_distance(form.split(), phones) for name, form in forms.items()}
        nearest = [name for name in forms if distance[name] == min(distance.values())]
        alike = all(forms[name] == forms[wanted] for name in nearest)
        yield Case(marked, wanted, " ".join(phones), alike, held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/reading.md")
    parser.add_argument("--wrong", nargs="+", default=[], metavar="CATEGORY", help="list what is read wrong")
    args = parser.parse_args()
    for category in args.wrong:
        for case in cases(category):
            if not (case.right or case.held_out):
                print(f"{case.written}\n    wanted {case.wanted}\n    said   {case.said}")
    if not args.wrong:
        made = table()
        print(made)
        if args.write:
            document = DOCUMENT.read_text(encoding="utf-8")
            begin = document.index(HEAD)
            end = document.index("\n\n", begin) + 1
            DOCUMENT.write_text(document[:begin] + made + document[end:], encoding="utf-8")
            wrong = sorted(case.key for name in categories() for case in cases(name) if not case.right)
            WRONG.write_text("\n".join(wrong) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()

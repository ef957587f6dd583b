"""Makes common/text/data from the published CMUdict 0.7b and FastPitch's list of heteronyms.

Both are public: https://github.com/Alexir/CMUdict (cmudict-0.7b) and, in NVIDIA/DeepLearningExamples,
PyTorch/SpeechSynthesis/FastPitch/cmudict/heteronyms.
"""

import gzip
import operator
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from common.cli import options
from common.text.cmudict import DATA, DICTIONARY, FIRST_PHONE_CODE
from common.text.symbols import ARPABET


def read_cmudict(source: str) -> dict[str, list[tuple[str, ...]]]:
    """The published file's words and their pronunciations; not the names of punctuation marks (`,COMMA`)."""
    words: dict[str, list[tuple[str, ...]]] = {}
    for line in source.splitlines():
        if re.match(r"[A-Z0-9']", line):
            word, phones = line.split("  ", 1)
            words.setdefault(re.sub(r"\(\d+\)$", "", word), []).append(tuple(phones.split()))
    return words


def pack_cmudict(source: str) -> bytes:
    """The file that `common.text.cmudict` reads."""
    codes = {phone: chr(FIRST_PHONE_CODE + i) for i, phone in enumerate(ARPABET)}
    lines = [
        " ".join([word, *("".join(map(codes.get, phones)) for phones in variants)])
        for word, variants in read_cmudict(source).items()
    ]
    return b"\n".join([" ".join(ARPABET).encode("ascii"), *sorted(line.encode("latin-1") for line in lines)])


def edit_distance(
    a: Sequence[str], b: Sequence[str], replacing: Callable[[str, str], float] = operator.ne
) -> float:
    """Levenshtein's; `replacing` is what it costs to have one phone for the other."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + replacing(x, y))
    return row[-1]


def licence(source: str) -> str:
    """The copyright notice of the dictionary's header, without its comment marks."""
    notice = source.split("# ====", 2)[1].split("\n", 1)[1]
    return "\n".join(re.sub(r"^;;; #? ?", "", line) for line in notice.splitlines()).strip(" \n;#") + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    parser = options.Parser(description=__doc__.splitlines()[0])
    parser.add_argument("cmudict", type=Path, help="the published file cmudict-0.7b")
    parser.add_argument("heteronyms", type=Path, help="the published list, one word a line")
    args = parser.parse_args(argv)

    source = args.cmudict.read_text(encoding="latin-1")
    DATA.mkdir(exist_ok=True)
    DICTIONARY.write_bytes(gzip.compress(pack_cmudict(source), compresslevel=9, mtime=0))
    (DATA / "cmudict-0.7b.LICENSE.txt").write_text(licence(source), encoding="ascii")
    heteronyms = args.heteronyms.read_text(encoding="ascii").strip()
    (DATA / "heteronyms.txt").write_text(heteronyms + "\n", encoding="ascii")

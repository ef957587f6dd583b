"""Makes common/text/data from the published CMUdict 0.7b, a list of heteronyms and misaki's lexicon.

All are public: https://github.com/Alexir/CMUdict (cmudict-0.7b); in NVIDIA/DeepLearningExamples
PyTorch/SpeechSynthesis/FastPitch/cmudict/heteronyms; and data/us_gold.json of misaki 0.9.4 (Apache-2.0).
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.english.dictionary")

import gzip
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from melforge.common.cli.parser import Parser
from melforge.common.text.cmudict import DATA, DICTIONARY, FIRST_PHONE_CODE, RARE_WORDS, load_cmudict
from melforge.common.text.english import pronounce
from melforge.common.text.symbols import ARPABET
from recipes.misaki import from_misaki


def read_cmudict(source: str) -> dict[str, list[tuple[str, ...]]]:
    """The published file's words and their pronunciations; not the names of punctuation marks (`,COMMA`)."""
    words: dict[str, list[tuple[str, ...]]] = {}
    for line in source.splitlines():
        if re.match(r"[A-Z0-9']", line):
            word, phones = line.split("  ", 1)
            words.setdefault(re.sub(r"\(\d+\)$", "", word), []).append(tuple(phones.split()))
    return words


def pack_cmudict(source: str) -> bytes:
    """The file that `melforge.common.text.cmudict` reads."""
    return pack(read_cmudict(source))


def pack(words: Mapping[str, Sequence[tuple[str, ...]]], phone_set: Sequence[str] = ARPABET) -> bytes:
    """Words in upper case and their pronunciations as `melforge.common.text.cmudict` reads them."""
    codes = {phone: chr(FIRST_PHONE_CODE + i) for i, phone in enumerate(phone_set)}
    lines = [
        " ".join([word, *("".join(codes[phone] for phone in phones) for phones in variants)])
        for word, variants in words.items()
    ]
    return b"\n".join(
        [" ".join(phone_set).encode("ascii"), *sorted(line.encode("latin-1") for line in lines)]
    )


def edit_distance(
    a: Sequence[str], b: Sequence[str], replacing: Callable[[str, str], float] = operator.ne
) -> float:
    """Levenshtein's; `replacing` is what it costs to have one phone for the other."""
    row: list[float] = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + replacing(x, y))
    return row[-1]


def rare_words(lexicon: Mapping[str, str | Mapping[str, str | None]]) -> dict[str, list[tuple[str, ...]]]:
    """The words of misaki's lexicon that CMUdict lacks and that rules and letters read otherwise."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for written, entry in sorted(lexicon.items(), key=lambda item: item[0].lower()):
        word, spoken = written.lower(), entry if isinstance(entry, str) else entry.get("DEFAULT")
        is_word = re.fullmatch(r"[a-z]{3,}", word) and not written.isupper()
        if not is_word or not spoken or word in load_cmudict() or pronounce.is_known(word):
            continue
        phones = tuple(from_misaki(spoken))
        if any(phone[-1].isdigit() for phone in phones) and _alike(phones) != _alike(
            pronounce.by_rule(word, written[0].isupper())
        ):
            found.setdefault(word.upper(), [phones])
    return found


def _alike(phones: Sequence[str]) -> list[str]:
    """Without stress, and with one weak vowel."""
    return [phone.rstrip("012").replace("IH", "AH") for phone in phones]


def licence(source: str) -> str:
    """The copyright notice of the dictionary's header, without its comment marks."""
    notice = source.split("# ====", 2)[1].split("\n", 1)[1]
    return "\n".join(re.sub(r"^;;; #? ?", "", line) for line in notice.splitlines()).strip(" \n;#") + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m recipes.english.dictionary", description="Makes common/text/data.")
    parser.add_argument("cmudict", type=Path, help="the published file cmudict-0.7b")
    parser.add_argument("heteronyms", type=Path, help="the published list, one word a line")
    parser.add_argument("lexicon", type=Path, help="misaki's us_gold.json")
    args = parser.parse_args(argv)

    source = args.cmudict.read_text(encoding="latin-1")
    DATA.mkdir(exist_ok=True)
    DICTIONARY.write_bytes(gzip.compress(pack_cmudict(source), compresslevel=9, mtime=0))
    (DATA / "cmudict-0.7b.LICENSE.txt").write_text(licence(source), encoding="ascii")
    words = rare_words(json.loads(args.lexicon.read_text(encoding="utf-8")))
    RARE_WORDS.write_bytes(gzip.compress(pack(words), compresslevel=9, mtime=0))
    heteronyms = args.heteronyms.read_text(encoding="ascii").strip()
    (DATA / "heteronyms.txt").write_text(heteronyms + "\n", encoding="ascii")

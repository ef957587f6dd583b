"""Makes the rules and the lexicon of British English: `python -m recipes.english.british GOLD SILVER`.

They come from data/gb_gold.json and data/gb_silver.json of misaki 0.9.4 (Apache-2.0). The rules say what
becomes of each phone of an American pronunciation; a context earns a rule where it puts more phones right
than it costs. The lexicon holds the words that come out otherwise, and those of the first that no American
dictionary has. `--held-out N` says first how well the rules alone read N words of the first, and N that
are read by their letters, which they were not learnt from.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.english.british")

import contextlib
import gzip
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from melforge.common.cli.parser import Parser
from melforge.common.errors import InputError
from melforge.common.text.cmudict import CmuDict
from melforge.common.text.english import british, pronounce
from melforge.common.text.english.word_parts import Phones, bare
from melforge.common.text.symbols import ARPABET, BRITISH
from recipes.english.dictionary import edit_distance, pack
from recipes.misaki import from_british_misaki

LEAST_GAIN = 2  # phones that a rule must put right
# What becomes what, and is no great change: for the alignment of both pronunciations.
_ALIKE = {
    *(
        ("AA", "OH"),
        ("AA", "AR"),
        ("AE", "AR"),
        ("OW", "OU"),
        ("ER", "UR"),
        ("ER", "AH"),
        ("EH", "EA"),
        ("IH", "IA"),
    ),
    *(
        ("UH", "UA"),
        ("UH", "AO"),
        ("AO", "OH"),
        ("IH", "AH"),
        ("AH", "IH"),
        ("IY", "IH"),
        ("UW", "UH"),
        ("EH", "AE"),
    ),
}
SILENT_R = 0.2
# By their contexts, rules that errors of the lexicon and the names of letters teach: what is right, or None.
CORRECTED: dict[str, Phones | None] = {
    "5Zt_s$  ": None,  # "bouquets"
    **dict.fromkeys(("1AA0a>D", "1AA0a>JH"), ("AH0",)),
    "1AA0a>SH": ("AE0",),
    **dict.fromkeys(("1AA1a>F", "1AA1a>IY", "1AA1a>SH"), ("AR1",)),  # "Akashi"
}


def read_lexicon(path: Path) -> dict[str, Phones]:
    """Words in lower case and how they are said; of several readings the first."""
    content = json.loads(path.read_text(encoding="utf-8"))
    words: dict[str, Phones] = {}
    for written, entry in content.items():
        word, spoken = written.lower(), entry if isinstance(entry, str) else entry.get("DEFAULT")
        is_name_too = written[0].isupper() and word in content
        is_word = re.fullmatch(r"[A-Za-z][a-z']+", written) and not pronounce.is_variable(word)
        if not spoken or not is_word or is_name_too:
            continue
        with contextlib.suppress(InputError):  # a few have sounds of other languages
            phones = tuple(from_british_misaki(spoken, word))
            if any(phone[-1].isdigit() for phone in phones):
                words[word] = phones
    return words


def paired(american: Sequence[str], said: Sequence[str]) -> list[Phones]:
    """What is said for each American phone, by an alignment of least cost."""
    n, m = len(american), len(said)
    leaving = [SILENT_R if phone == "R" else 1.0 for phone in american]
    costs = [[0.0] * (m + 1) for _ in range(n + 1)]
    for i in range(n + 1):
        for j in range(m + 1):
            ways = [costs[i - 1][j] + leaving[i - 1]] if i else []
            ways += [costs[i][j - 1] + 1] if j else []
            ways += [costs[i - 1][j - 1] + replacing(american[i - 1], said[j - 1])] if i and j else []
            costs[i][j] = min(ways, default=0.0)
    pairs: list[Phones] = [()] * n
    i, j, pending = n, m, list[str]()
    while i or j:
        if i and j and costs[i][j] == costs[i - 1][j - 1] + replacing(american[i - 1], said[j - 1]):
            i, j = i - 1, j - 1
            pairs[i], pending = (said[j], *pending), []
        elif j and costs[i][j] == costs[i][j - 1] + 1:
            j -= 1
            if i < n and pairs[i] and pairs[i][0][-1].isdigit() and not said[j][-1].isdigit():
                pairs[i] = (said[j], *pairs[i])  # "Y" belongs to the vowel behind it
            else:
                pending.insert(0, said[j])
        else:
            i -= 1
            pairs[i], pending = tuple(pending), []
    pairs[0] = (*pending, *pairs[0])
    return pairs


def replacing(american: str, said: str) -> float:
    one, other = american.rstrip("012"), said.rstrip("012")
    if one == other:
        return 0.0 if american == said else 0.125
    if american[-1].isdigit() != said[-1].isdigit():
        return 3.0
    return 0.25 if (one, other) in _ALIKE else 0.75 if american[-1].isdigit() else 1.125


def learn(words: Mapping[str, tuple[Phones, Phones]]) -> dict[str, Phones]:
    """Rules of words with their American and British phones."""
    wanted: list[Phones] = []
    known: list[list[str]] = []
    said: list[Phones] = []
    for word, (american, spoken) in words.items():
        phones = british.rhotic(american)
        starts = british.spelled_from(word, phones)
        for index, target in enumerate(paired(phones, spoken)):
            if found := list(british.contexts(word, phones, starts, index)):
                wanted.append(target)
                known.append(found)
                said.append((phones[index],))
    rules: dict[str, Phones] = {}
    for level in range(len(known[0])):
        counts: dict[str, Counter[Phones]] = defaultdict(Counter)
        right: Counter[str] = Counter()
        for target, found, now in zip(wanted, known, said, strict=True):
            counts[found[level]][target] += 1
            right[found[level]] += now == target
        new = {}
        for context, targets in counts.items():
            best, count = targets.most_common(1)[0]
            if count - right[context] >= LEAST_GAIN:
                new[context] = best
        said = [new.get(found[level], now) for found, now in zip(known, said, strict=True)]
        rules |= new
    return rules


def heard(phones: Phones) -> Phones:
    """Without what only a vowel behind the word would make audible."""
    return british.without_silent_r(phones)


def packed(words: Mapping[str, Phones]) -> bytes:
    """The lexicon as `melforge.common.text.cmudict` reads it."""
    phone_set = [phone for phone in (*ARPABET, *BRITISH) if phone[-1].isdigit() or phone + "1" not in ARPABET]
    return pack({word.upper(): [phones] for word, phones in words.items()}, phone_set)


def make(
    pairs: Mapping[str, tuple[Phones, Phones]],
    lexicon: Mapping[str, Phones],
    unseen: Collection[str] = (),
    corrected: Mapping[str, Phones | None] | None = None,
) -> tuple[dict[str, Phones], dict[str, Phones]]:
    """Rules, some `corrected`, and the words of the lexicon that they miss, but for those `unseen`."""
    learnt, listed = {**learn(pairs), **(corrected or {})}, {}
    rules = {context: phones for context, phones in learnt.items() if phones is not None}
    words = [word for word in lexicon if word not in unseen]
    for are_known in (True, False):  # what is made of other words comes behind these
        pronouncer = british.British(rules, CmuDict(packed(listed)), {})
        group = [word for word in words if pronounce.is_known(word) == are_known]
        listed |= {word: lexicon[word] for word in group if pronouncer.of_word(word) != heard(lexicon[word])}
    return rules, listed


def score(pronouncer: british.British, words: Iterable[str], lexicon: Mapping[str, Phones]) -> str:
    """How many phones, and words, are not as the lexicon has them."""
    rows = [(pronouncer.of_word(word), heard(lexicon[word])) for word in words]
    phones = sum(len(wanted) for _, wanted in rows)
    told = []
    for name, form in (("", tuple), (" without stress", bare)):
        wrong = sum(edit_distance(form(said), form(wanted)) for said, wanted in rows)
        words_wrong = sum(form(said) != form(wanted) for said, wanted in rows)
        share = 100 * words_wrong / len(rows)
        told.append(f"{100 * wrong / phones:.2f} % of phones{name} wrong, {share:.1f} % of words")
    return f"{len(rows)} words: {'; '.join(told)}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(
        prog="python -m recipes.english.british", description="Makes british.gz and british_rules.gz."
    )
    parser.add_argument("gold", type=Path, help="misaki's gb_gold.json")
    parser.add_argument("silver", type=Path, help="misaki's gb_silver.json")
    parser.add_argument(
        "--held-out", type=int, default=0, metavar="N", help="words of the first to be read unseen"
    )
    args = parser.parse_args(argv)

    gold = read_lexicon(args.gold)
    guessed = {word for word in gold if pronounce.is_guessed(word)}
    # Of the second lexicon, which is large and less sure, the words of the American dictionary.
    silver = {word: phones for word, phones in read_lexicon(args.silver).items() if pronounce.is_known(word)}
    lexicon = silver | gold
    american = {word: pronounce.of_word(word) for word in lexicon if word not in guessed and "'" not in word}
    pairs = {word: (phones, lexicon[word]) for word, phones in american.items()}
    if args.held_out:
        draw = random.Random(0).sample
        unseen = draw(sorted(gold.keys() & pairs), args.held_out), draw(sorted(guessed), args.held_out)
        left = {word: pair for word, pair in pairs.items() if word not in unseen[0]}
        rules, listed = make(left, lexicon, {*unseen[0], *unseen[1]}, CORRECTED)
        pronouncer = british.British(rules, CmuDict(packed(listed)), {})
        for told, words in zip(("of a dictionary", "by their letters"), unseen, strict=True):
            print(f"held out, {told}: {score(pronouncer, words, lexicon)}", flush=True)
    rules, listed = make(pairs, lexicon, corrected=CORRECTED)
    lines = "\n".join(f"{context}\t{' '.join(phones)}" for context, phones in sorted(rules.items()))
    british.RULES.write_bytes(gzip.compress(lines.encode("ascii"), compresslevel=9, mtime=0))
    british.LEXICON.write_bytes(gzip.compress(packed(listed), compresslevel=9, mtime=0))
    size = british.RULES.stat().st_size + british.LEXICON.stat().st_size
    print(f"{len(rules)} rules, {len(listed)} words of {len(lexicon)}: {size} bytes")

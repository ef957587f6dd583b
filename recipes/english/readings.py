"""Derives how the shipped voice's teacher reads frequent words: two small tables for the English frontend.

`function_words.tsv` holds the reduced forms of closed-class words ("of" is AH0 V), by place in a sentence.
`variants.tsv` holds, for other words with several pronunciations in CMUdict, the one nearest to the teacher.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.english.readings")

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from melforge.common.cli.parser import Parser
from melforge.common.text.cmudict import DATA, load_cmudict
from melforge.common.text.english.word_parts import words
from recipes.english.dictionary import edit_distance
from recipes.misaki import from_misaki

FUNCTION_WORDS = words("""a an the of to and for from at as is was were are am that than in on with by or but
    nor he she it his her him them they you your yours i my me we our us its their be been do does did have
    has had can could would should will shall may might must not so if this these those there who whom whose
    which what when where while why how then some any such out up down off over into onto upon until till
    since because though about above after before between through during against among toward towards within
    without under once though unless whether ours theirs hers mine himself herself itself themselves myself
    ourselves yourself no yes all both each every either neither own just i'm i've i'd i'll it's he's she's
    that's there's they're they've they'd they'll we're we've we'd we'll you're you've you'd you'll he'd
    he'll she'd she'll it'd it'll don't didn't doesn't wasn't isn't aren't weren't hadn't hasn't haven't
    can't couldn't wouldn't shouldn't won't mustn't who's who'd who'll what's where's how's let's here's""")


def readings(teacher, text: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """hibari's G2P: (written, marks that follow, phones) of every whitespace-delimited word."""
    out, written, spoken = [], "", ""
    for token in teacher.phonemize_tokens(teacher.tokenize(text)):
        written, spoken = written + token.text, spoken + (token.phonemes or "")
        if token.whitespace:
            out.append((written, spoken))
            written = spoken = ""
    out.append((written, spoken))
    strip = "\"'()[]“”,.;:?!-"
    return [
        (w.strip(strip), w[len(w.rstrip(strip)) :].strip("'\"“”"), tuple(from_misaki(p))) for w, p in out if p
    ]


def confusion(a: str, b: str) -> float:
    """What another phone costs: a wrong stress is a small error and AH0 for IH0 a middling one."""
    if a.rstrip("012") == b.rstrip("012"):
        return 0.0 if a == b else 0.3
    return 0.5 if {a[:2], b[:2]} == {"AH", "IH"} else 1.0


def write_table(name: str, columns: str, rows: Iterable[str]) -> None:
    (DATA / name).write_text("\n".join([f"# {columns}", *rows]) + "\n", encoding="ascii")


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m recipes.english.readings", description=__doc__)
    parser.add_argument("transcripts", type=Path, nargs="+", help="files of id|text lines")
    parser.add_argument("--words", type=int, default=3000, help="how many frequent words to consider")
    args = parser.parse_args(argv)

    from hibari import Hibari
    from hibari.g2p import G2P

    teacher, dictionary = G2P(), load_cmudict()
    everywhere: dict[str, Counter] = defaultdict(Counter)
    by_place: dict[str, dict[str, Counter]] = defaultdict(lambda: defaultdict(Counter))
    for path in args.transcripts:
        for line in path.read_text(encoding="utf-8").splitlines():
            for sentence in Hibari.split_sentences(line.partition("|")[2]):
                spoken = readings(teacher, sentence)
                for i, (written, marks, phones) in enumerate(spoken):
                    word = written.lower().replace("’", "'")
                    if not re.fullmatch(r"[a-z]+(?:'[a-z]+)?", word) or not phones:
                        continue
                    if len(written) == 1 and written not in ("a", "I"):
                        continue  # an initial, or a sentence that begins with "A"
                    follower = spoken[i + 1][2][0] if i + 1 < len(spoken) and spoken[i + 1][2] else ""
                    place = "initial" if i == 0 else "final" if marks or not follower else ""
                    place = place or ("vowel" if follower[-1].isdigit() else "else")
                    everywhere[word][phones] += 1
                    by_place[word][place][phones] += 1

    frequent = sorted(everywhere, key=lambda w: (-everywhere[w].total(), w))
    for word in FUNCTION_WORDS - set(everywhere):  # too rare in the transcripts
        form = readings(teacher, f"I think {word} quite good")[2][2]
        everywhere[word][form] = by_place[word]["else"][form] = 1

    rows = []
    for word in sorted(FUNCTION_WORDS):
        seen = by_place[word]
        default = (seen["else"] or everywhere[word]).most_common(1)[0][0]
        row = [word, " ".join(default)]
        for place in ("initial", "final", "vowel"):
            (form, n), *_ = seen[place].most_common(1) or [(default, 0)]
            row.append(" ".join(form) if n >= 3 and form != default else "")
        rows.append("\t".join(row).rstrip("\t"))
    columns = "word, form, sentence-initial form, form before a pause, form before a vowel"
    write_table("function_words.tsv", f"{columns} (where they differ)", rows)

    rows = []
    for word in frequent[: args.words]:
        variants = dictionary.pronunciations(word)
        if word in FUNCTION_WORDS or len(variants) < 2 or len(word) < 3:
            continue
        spoken, n = everywhere[word].most_common(1)[0]
        nearest = min(variants, key=lambda v, spoken=spoken: edit_distance(spoken, v, confusion))
        if nearest != variants[0] and n >= 2:
            rows.append(f"{word}\t{' '.join(nearest)}")
    columns = "word, the one of its CMUdict pronunciations that is read (where it is not the first)"
    write_table("variants.tsv", columns, sorted(rows))

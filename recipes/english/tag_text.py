"""Sentences with the part of speech of every word, for train_homographs.py: texts tagged by a teacher.

The teacher is a spaCy model (en_core_web_sm 3.8, MIT). Tags are Penn Treebank's; a contraction has two
("it's": PRP+VBZ).
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.english.tag_text")

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from melforge.common.cli.parser import Parser
from melforge.common.text.english.normalise import normalise
from melforge.common.text.split import split_sentences

_SECOND_PARTS = re.compile(r"(n't|'(?:s|ll|ve|re|d|m)|')", re.IGNORECASE)


def spoken_words(text: str) -> Iterator[list[str]]:
    """The words and marks of each sentence as the English frontend reads them."""
    for sentence, _ in split_sentences(text):
        spans, _ = normalise(sentence)
        yield [token for span in spans for token in re.findall(r"[A-Za-z']+-?|[.,;:?!-]", span.text)]


def taught(model: str, sentences: Iterable[list[str]]) -> Iterator[tuple[list[str], list[str]]]:
    import spacy
    from spacy.tokens import Doc

    nlp = spacy.load(model, disable=["parser", "ner", "lemmatizer", "senter"])

    def documents() -> Iterator[tuple[Doc, tuple[list[str], list[int]]]]:
        for words in sentences:
            pieces = [(piece, i) for i, word in enumerate(words) for piece in _pieces(word)]
            yield Doc(nlp.vocab, words=[piece for piece, _ in pieces]), (words, [i for _, i in pieces])

    for document, (words, owners) in nlp.pipe(documents(), as_tuples=True, batch_size=256):
        tags = [""] * len(words)
        for token, owner in zip(document, owners, strict=True):
            if token.tag_ not in ("POS", "HYPH") or not tags[owner]:
                tags[owner] += "+" * bool(tags[owner]) + token.tag_
        yield words, tags


def _pieces(word: str) -> list[str]:
    """As Penn Treebank parts them: "do", "n't"; "re", "-"."""
    bare = word.rstrip("-")
    found = re.fullmatch(rf"(.+?){_SECOND_PARTS.pattern}", bare, re.IGNORECASE)
    return [*(found.groups() if found else [bare] * bool(bare)), *["-"] * (bare != word)]


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m recipes.english.tag_text", description=__doc__)
    parser.add_argument("texts", type=Path, nargs="+", help="text files, a sentence or paragraph a line")
    parser.add_argument("--teacher", default="en_core_web_sm", help="an installed spaCy model")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="JSON file to write, a sentence a line"
    )
    args = parser.parse_args(argv)
    lines = (line for path in args.texts for line in path.read_text(encoding="utf-8").splitlines())
    sentences = (words for line in lines for words in spoken_words(line) if len(words) > 2)
    with args.output.open("w", encoding="utf-8") as out:
        for tagged in taught(args.teacher, sentences):
            out.write(json.dumps(tagged) + "\n")

"""Counts the words of books for an ear's language model.

`python -m recipes.english.train_language_model BOOKS --held-out test.txt -o ears/rowan/language_model.npz`:
absolute discounting with interpolation (Ney and others 1994); those bigrams and trigrams are kept that add
most to the books' probability. A book in which six words in a row are of a text held out is not read.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.english.train_language_model")

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from melforge.common.cli.parser import Parser
from melforge.common.errors import InputError
from melforge.common.recognition.language_model import LanguageModel
from melforge.common.text.cmudict import load_cmudict
from melforge.common.training.model_folders import print_size

DISCOUNT = 0.7
IN_A_ROW = 6
FEWEST = 6  # times that a word must stand in the books
BREAK = 0  # the number of what ends a sentence; words count from 1, those left out from the last
_TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)*|[.!?;:\d]|\n\s*\n")
_ABBREVIATION = re.compile(r"\b(mr|mrs|dr|st)\.")
SAID = {"dr": "doctor", "st": "saint"}  # others are written as an ear writes them


def tokens(text: str) -> list[str]:
    """Words in lower case, and what ends a sentence."""
    plain = text.lower().replace("’", "'").replace("-", " ").translate(dict.fromkeys(map(ord, "_*")))
    words: list[str] = _TOKEN.findall(_ABBREVIATION.sub(r"\1", plain))
    return [SAID.get(word, word) for word in words]


def in_a_row(words: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(words[at : at + IN_A_ROW]) for at in range(len(words) - IN_A_ROW + 1)}


def read_books(
    books: Sequence[Path], held_out: set[tuple[str, ...]], most: int
) -> tuple[np.ndarray, list[str]]:
    """Numbers of words int64 [N], BREAK between sentences, of up to `most` words, and the words."""
    numbers: dict[str, int] = {}
    read: list[np.ndarray] = [np.zeros(1, np.int64)]
    count = 0
    for book in tqdm(books, "books", mininterval=5):
        found = tokens(book.read_text(encoding="utf-8", errors="replace"))
        if held_out & in_a_row([word for word in found if word[0].isalpha()]):
            continue
        ids = [numbers.setdefault(word, len(numbers) + 1) if word[0].isalpha() else BREAK for word in found]
        read.append(np.array([*ids, BREAK]))
        if (count := count + len(ids)) > most:
            break
    if not numbers:
        raise InputError("there is no word in these books that may be read")
    return np.concatenate(read), list(numbers)


def most_frequent(ids: np.ndarray, words: list[str], most: int) -> tuple[np.ndarray, list[str]]:
    """The same with so many words at most, in alphabetical order; all others have the last number."""
    counts = np.bincount(ids, minlength=len(words) + 1)[1:]
    kept = [at for at in np.argsort(-counts, kind="stable")[:most] if counts[at] >= FEWEST]
    names = sorted(words[at] for at in kept)
    new = {word: number for number, word in enumerate(names, 1)}
    table = np.array([BREAK, *(new.get(word, len(names) + 1) for word in words)])
    return table[ids], names


def estimate(ids: np.ndarray, words: list[str], rare: list[str], worth: tuple[float, float]) -> LanguageModel:
    """ids [N] as `most_frequent` has them; `worth` are what a bigram and a trigram must add to the logarithm
    of the books' probability to be kept.
    """
    size, other = len(words) + 1, len(words) + 1
    known = ids != other

    def counted(order: int) -> tuple[np.ndarray, np.ndarray]:
        """The n-grams of known words, of which only the first may be a BREAK: keys, and how many of each."""
        key, whole = np.zeros(len(ids) - order + 1, np.int64), np.ones(len(ids) - order + 1, bool)
        for place in range(order):
            one = slice(place, len(ids) - order + 1 + place)
            key, whole = key * size + ids[one], whole & known[one] & ((ids[one] != BREAK) | (place == 0))
        return np.unique(key[whole], return_counts=True)

    def discounted(key: np.ndarray, count: np.ndarray, lower: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities of n-grams whose last words alone have `lower`, and what backing off gives."""
        _, context = np.unique(key // size, return_inverse=True)
        total, kinds = np.bincount(context, count), np.bincount(context)
        backed = (DISCOUNT * kinds / total)[context] * lower
        return np.maximum(count - DISCOUNT, 0) / total[context] + backed, backed

    single = np.bincount(ids[known], minlength=size) + 0.5
    single[BREAK] = 0
    single /= single.sum()
    key2, count2 = counted(2)
    p2, backed2 = discounted(key2, count2, single[key2 % size])
    key3, count3 = counted(3)
    last = np.searchsorted(key2, key3 % size**2)  # its last two words are always counted too
    p3, backed3 = discounted(key3, count3, p2[last])
    keep3 = (count3 > 2) & (count3 * np.log(p3 / backed3) > worth[1])
    key3, p3 = key3[keep3], p3[keep3]
    keep2 = (count2 > 1) & (count2 * np.log(p2 / backed2) > worth[0])
    keep2 |= np.isin(key2, key3 // size)  # a trigram's context
    key2, p2 = key2[keep2], p2[keep2]
    first, second = key2 // size, key2 % size
    weight2 = _rest(first, p2, size) / _rest(first, single[second], size)
    context, third = np.searchsorted(key2, key3 // size), key3 % size
    pair = key3 % size**2
    at = np.searchsorted(key2, pair).clip(max=len(key2) - 1)
    lower = np.where(key2[at] == pair, p2[at], weight2[second[context]] * single[third])
    weight3 = _rest(context, p3, len(key2)) / _rest(context, lower, len(key2))
    single[BREAK] = 1  # never asked for
    return LanguageModel(
        words,
        rare,
        key2,
        context * size + third,
        (np.log(single), np.log(p2), np.log(p3)),
        (np.log(weight2), np.log(weight3)),
    )


def _rest(row: np.ndarray, probability: np.ndarray, rows: int) -> np.ndarray:
    """What the probabilities of each row leave of one."""
    return np.maximum(1 - np.bincount(row, probability, rows), 1e-4)


def books_in(folder: Path, seed: int) -> list[Path]:
    books = sorted(path for path in folder.rglob("*") if path.suffix in (".txt", ".md"))
    random.Random(seed).shuffle(books)
    return books


def held_out_lines(lists: Sequence[Path]) -> Iterator[str]:
    for path in lists:
        yield from (line.rpartition("|")[2] for line in path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    parser = Parser(prog="python -m recipes.english.train_language_model", description=__doc__)
    option = parser.add_argument
    option("books", type=Path, help="folder of .txt and .md files")
    option(
        "--held-out", type=Path, nargs="+", default=[], help="texts that may not be in them, name|text a line"
    )
    option("--most", type=int, default=32_000_000, help="words that are read (default: 32,000,000)")
    option("--words", type=int, default=60_000, help="words with n-grams (default: 60,000)")
    option("--worth", type=float, nargs=2, default=(25.0, 40.0), help="of a bigram and a trigram to be kept")
    option("--seed", type=int, default=1, help="by which books are drawn")
    option("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    words = (re.findall(r"[a-z']+", line.lower().replace("’", "'")) for line in held_out_lines(args.held_out))
    held_out = set().union(*map(in_a_row, words))
    ids, names = most_frequent(*read_books(books_in(args.books, args.seed), held_out, args.most), args.words)
    rare = {word.lower() for word in load_cmudict().words()}
    rare = sorted(word for word in rare - set(names) if re.fullmatch("[a-z][a-z']+", word))
    model = estimate(ids, names, rare, tuple(args.worth))
    model.save(args.output)
    print(
        f"{len(ids)} words; of {len(names)} kept {len(model.bigrams)} bigrams, {len(model.trigrams)} trigrams"
    )
    print_size(args.output.parent)

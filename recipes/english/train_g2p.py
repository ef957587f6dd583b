"""Trains the letter-to-sound network of the English frontend on CMUdict and misaki's lexicon.

Every letter is aligned with the nought to two phones that it stands for (expectation-maximisation over all
alignments). Two layers of LSTM in both directions see the whole word; a third goes from letter to letter and
sees the phones of the letter before. The first symbol of a word says in whose manner it is said: CMUdict's,
or misaki's of words or of names. So two dictionaries that differ in weak vowels do not blur each other. It
learns for an hour on one thread of a CPU.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.english.train_g2p")

import argparse
import json
import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from melforge.common.cli.parser import Parser
from melforge.common.text.english import word_parts
from melforge.common.text.english.letters import CMUDICT, NAMES, WORDS, LetterReader
from melforge.common.text.english.word_parts import Phones
from melforge.common.training.model_folders import quarter
from melforge.common.weights.voices import SCALE
from recipes.english.dictionary import edit_distance, read_cmudict
from recipes.english.letters_graph import Stored, save_letters
from recipes.misaki import from_misaki

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
HELD_OUT = (2000, 1500, 1200)  # words of each, and all that have their stems
NAMES_COUNT = 3  # times: they are few
WIDTH, HIDDEN, CHUNK_WIDTH, DECODER = 64, 128, 48, 160
DROPOUT, FORGOTTEN = 0.2, 0.15  # FORGOTTEN: of the chunks before
_ENDINGS = word_parts.words(
    """'s s es ed ing er ers or ors ly ness less ful able ably ible ibly al ally ic ical
    ically ism ist ists ity ities ity ize izes ized izing ise ation ations ion ions ive ively ment ments ish y
    ies ied ian ians ia an ans o a e en i man men son sons ship hood ous ously"""
)
_ENDING = re.compile(rf"(?<=....)(?:{'|'.join(sorted(_ENDINGS, key=len, reverse=True))})$")
_BEGINNING = re.compile(r"^(?:un|re|non|pre|over|under|out|inter|anti|super|counter|dis|mis)(?=.....)")

Words = dict[str, list[Phones]]


def read_words(source: str) -> Words:
    """CMUdict's pronunciations of words that are only letters and apostrophes and begin with a letter."""
    words = {word.lower(): variants for word, variants in read_cmudict(source).items()}
    return {word: words[word] for word in words if set(word) <= set(LETTERS) and word[0] != "'"}


def read_lexicon(lexicon: Mapping[str, str | Mapping[str, str | None]]) -> tuple[Words, Words]:
    """The words and the names of misaki's lexicon that have three letters or more."""
    words: Words = {}
    names: Words = {}
    for written, entry in lexicon.items():
        if re.fullmatch(r"[A-Za-z][a-z]{2,}", written):
            spoken = [entry] if isinstance(entry, str) else filter(None, entry.values())
            said = [tuple(from_misaki(one)) for one in spoken]
            said = [phones for phones in dict.fromkeys(said) if any(p[-1].isdigit() for p in phones)]
            if said:
                (names if written[0].isupper() else words)[written.lower()] = said
    return words, {name: names[name] for name in names.keys() - words.keys()}


def stem(word: str) -> str:
    """What is left of a word without what words and names of one root differ in: "hartmanns" -> "hart"."""
    word, last = _BEGINNING.sub("", word.replace("'s", "").replace("'", "")), ""
    while word != last:
        word, last = _ENDING.sub("", word), word
    return word[:-1] if len(word) > 4 and word[-1] == word[-2] else word


def hold_out(all_words: Sequence[Words], counts: Sequence[int], random: np.random.Generator) -> list[Words]:
    """Takes so many words out of each, and returns them; no word of their stems is left in any."""
    known = set(all_words[CMUDICT])
    held = []
    for words, count in zip(all_words, counts, strict=True):
        order = sorted(words if words is all_words[CMUDICT] else words.keys() - known)
        random.shuffle(order)
        held.append({word: words[word] for word in order[:count]})
    stems = {stem(word) for words in held for word in words}
    for words in all_words:
        for word in [word for word in words if stem(word) in stems]:
            del words[word]
    return held


def spans(phones: tuple[str, ...]) -> list[tuple[int, int, tuple[str, ...]]]:
    """All that a letter can stand for, nought to two phones: (start, end, the phones)."""
    count = len(phones)
    return [(j, k, phones[j:k]) for j in range(count + 1) for k in range(j, min(j + 2, count) + 1)]


def expect(pairs: list, chance: dict) -> dict:
    """One round of EM: the new chance of each chunk of phones for each letter."""
    counts = defaultdict(Counter)
    for word, phones in pairs:
        chunks = spans(phones)
        # The probability of all alignments before, and behind, so many letters and phones.
        ahead, behind = (np.zeros((len(word) + 1, len(phones) + 1)) for _ in range(2))
        ahead[0, 0] = behind[-1, -1] = 1.0
        for i, letter in enumerate(word):
            for j, k, chunk in chunks:
                ahead[i + 1, k] += ahead[i, j] * chance[letter].get(chunk, 1e-7)
        total = ahead[-1, -1]
        if total < 1e-60:
            continue
        for i, letter in reversed(list(enumerate(word))):
            for j, k, chunk in chunks:
                odds = chance[letter].get(chunk, 1e-7) * behind[i + 1, k]
                behind[i, j] += odds
                if ahead[i, j] and odds:
                    counts[letter][chunk] += ahead[i, j] * odds / total
    return {letter: {c: n / sum(seen.values()) for c, n in seen.items()} for letter, seen in counts.items()}


def best_alignment(word: str, phones: tuple[str, ...], chance: dict) -> list[tuple[str, ...]] | None:
    """The chunk of phones of every letter on the likeliest path, None where no sensible one exists."""
    best = {0: (0.0, [])}
    for letter in word:
        after = {}
        for j, k, chunk in spans(phones):
            if j in best:
                score = best[j][0] + math.log(max(chance[letter].get(chunk, 0.0), 1e-9))
                if k not in after or score > after[k][0]:
                    after[k] = (score, [*best[j][1], chunk])
        best = after
    score, path = best.get(len(phones), (-math.inf, None))
    return path if score > -8.0 * len(word) else None


class LetterNetwork(nn.Module):
    """Symbols [B, T + 2] and chunks [B, T] -> logits [B, T, chunks]: each in view of the chunks before."""

    def __init__(self, chunks: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS) + 4, WIDTH)  # letters, the end, whose manner
        self.encoder = nn.LSTM(WIDTH, HIDDEN, 2, batch_first=True, bidirectional=True, dropout=DROPOUT)
        self.previous = nn.Embedding(chunks + 1, CHUNK_WIDTH)
        self.decoder = nn.LSTM(2 * HIDDEN + CHUNK_WIDTH, DECODER, batch_first=True)
        self.head = nn.Linear(DECODER + 2 * HIDDEN, chunks)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, symbols: torch.Tensor, chunks: torch.Tensor) -> torch.Tensor:
        seen = self.dropout(self.encoder(self.embed(symbols))[0])[:, 1:-1]
        before = self.previous(F.pad(chunks[:, :-1], (1, 0), value=self.previous.num_embeddings - 1))
        if self.training:
            before = before * (torch.rand(before.shape[:2]) > FORGOTTEN)[..., None]
        after = self.dropout(self.decoder(torch.cat([seen, before.to(seen.dtype)], -1))[0])
        return self.head(torch.cat([after, seen], -1))


def encode(word: str, manner: int) -> list[int]:
    end = len(LETTERS)
    return [end + 1 + manner, *map(LETTERS.index, word), end]


def save(network: LetterNetwork, chunks: Sequence[Phones], out: Path) -> None:
    """As the graph that `LetterReader` runs: large matrices in bytes with a scale a row."""
    stored = quarter({name: value.half().numpy() for name, value in network.state_dict().items()})
    weights: dict[str, Stored] = {}
    for name in network.state_dict():
        scale = stored.get(name + SCALE)
        weights[name] = (stored[name],) if scale is None else (stored[name], scale[:, None])
    save_letters(weights, LETTERS, chunks, out)


def phone_errors(read: Callable[[str], Phones], words: Words) -> str:
    """The share of wrong phones against the nearest variant, and the same without stress."""
    errors = bare_errors = phones = 0
    for word, variants in words.items():
        spoken = read(word)
        nearest = min(variants, key=partial(edit_distance, spoken))
        errors += edit_distance(spoken, nearest)
        phones += len(nearest)
        bare, *bare_variants = (word_parts.bare(said) for said in (spoken, *variants))
        bare_errors += min(edit_distance(bare, variant) for variant in bare_variants)
    return f"{errors / phones:.1%} ({bare_errors / phones:.1%} without stress)"


def align(all_words: Sequence[Words], random: np.random.Generator) -> tuple[list[Phones], list[tuple]]:
    """The chunks of phones, and (word, number of each letter's chunk, manner) of each pronunciation."""
    plain = [
        (word, said, manner)
        for manner, words in enumerate(all_words)
        for word, variants in words.items()
        for said in variants
        if manner != WORDS or word not in all_words[CMUDICT]
    ]
    phones = sorted({phone for _, said, _ in plain for phone in said})
    start = {(): 0.2} | {(p,): 0.02 for p in phones} | {(p, q): 1e-5 for p in phones for q in phones}
    chance = dict.fromkeys(LETTERS, start)
    sample = [plain[i][:2] for i in random.permutation(len(plain))[:8000]]
    for _ in range(5):
        chance = expect(sample, chance)
        chance = {letter: chance.get(letter, start) for letter in LETTERS}
    aligned = [
        (word, path, manner) for word, said, manner in plain if (path := best_alignment(word, said, chance))
    ]
    counts = Counter(chunk for _, path, _ in aligned for chunk in path)
    chunks = [(), *sorted(c for c, n in counts.items() if c and n >= 15)]
    index = {c: i for i, c in enumerate(chunks)}
    known = [(word, path, manner) for word, path, manner in aligned if index.keys() >= set(path)]
    print(f"{len(plain)} pronunciations, {len(known)} aligned, {len(chunks)} chunks", flush=True)
    return chunks, [(word, [index[c] for c in path], manner) for word, path, manner in known]


def batches(data: Iterable[tuple], size: int, random: np.random.Generator) -> list[tuple[torch.Tensor, ...]]:
    """Words of one length each, so that nothing is padded."""
    lengths = defaultdict(list)
    for word, path, manner in data:
        lengths[len(word)] += [(encode(word, manner), path)] * (NAMES_COUNT if manner == NAMES else 1)
    made = []
    for rows in lengths.values():
        symbols, chunks = (torch.tensor(part) for part in zip(*rows, strict=True))
        for part in torch.from_numpy(random.permutation(len(rows))).split(size):
            made.append((symbols[part], chunks[part]))
    random.shuffle(made)
    return made


def train(all_words: Sequence[Words], out: Path, minutes: float, batch_size: int, seed: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    held_out = hold_out(all_words, HELD_OUT, random)
    chunks, data = align(all_words, random)
    network = LetterNetwork(len(chunks))
    print(f"{sum(p.numel() for p in network.parameters())} parameters", flush=True)
    average = {name: value.detach().clone() for name, value in network.state_dict().items()}
    optimiser = torch.optim.AdamW(network.parameters(), betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    began, done, step = time.monotonic(), 0.0, 0
    while done < 1.0:
        for symbols, target in batches(data, batch_size, random):
            done = (time.monotonic() - began) / (60.0 * minutes)
            if done >= 1.0:
                break
            rate = 2.5e-3 * min((step + 1) / 300, 0.5 * (1.0 + math.cos(math.pi * done)) + 0.003)
            optimiser.param_groups[0]["lr"] = rate
            logits = network(symbols, target).flatten(0, 1)
            loss = F.cross_entropy(logits, target.flatten(), label_smoothing=0.03, reduction="sum")
            optimiser.zero_grad()
            (loss / (9 * batch_size)).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            step += 1
            for name, value in network.state_dict().items():
                average[name].lerp_(value, max(0.002, 1.0 / step))
            if step % 200 == 0:
                print(f"step {step} loss {loss.item() / target.numel():.3f} done {done:.2f}", flush=True)
    network.load_state_dict(average)
    save(network, chunks, out)
    reader = LetterReader(out)
    for manner, words in enumerate(held_out):
        name = ("CMUdict", "misaki's words", "misaki's names")[manner]
        read = partial(reader, is_name=manner == NAMES)
        print(f"held out of {name}: {phone_errors(read, words)} of the phones are wrong", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(
        prog="python -m recipes.english.train_g2p",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--dictionary", type=Path, required=True, help="CMUdict 0.7b, the text file")
    parser.add_argument("--lexicon", type=Path, required=True, help="misaki's us_gold.json")
    parser.add_argument("-o", "--output", dest="out", type=Path, required=True, help="ONNX file to write")
    parser.add_argument("--minutes", type=float, default=60.0, help="training time in minutes")
    parser.add_argument("--batch-size", type=int, default=256, help="words a step")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    words, names = read_lexicon(json.loads(args.lexicon.read_text(encoding="utf-8")))
    all_words = (read_words(args.dictionary.read_text(encoding="latin-1")), words, names)
    train(all_words, args.out, args.minutes, args.batch_size, args.seed)

"""Trains the letter-to-sound network of the English frontend on CMUdict (twenty minutes on one CPU thread).

Every letter is aligned with the nought to two phones that it stands for (expectation-maximisation over all
alignments), so that reading a word is one classification a letter: nothing autoregressive, one pass of a
small transformer whose second half also sees what the first half thinks (self-conditioning).
"""

import argparse
import math
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import nn
from torch.nn import functional as F

from common.cli import options

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
HELD_OUT = 2000
WIDTH, HIDDEN, HEADS, LAYERS, REACH, KERNEL = 96, 216, 4, 3, 8, 5


def read_dictionary(path: Path) -> dict[str, list[tuple[str, ...]]]:
    """The pronunciations of every word that is only letters and apostrophes."""
    words = defaultdict(list)
    for line in path.read_text(encoding="latin-1").splitlines():
        name, _, phones = line.partition("  ")
        word = name.split("(")[0].lower()
        if word.strip("'") and set(word) <= set(LETTERS) and word[0] != "'":
            words[word].append(tuple(phones.split()))
    return words


def alignments(word: str, phones: tuple[str, ...], chance: dict) -> np.ndarray:
    """Forward table [letters + 1, phones + 1] of the probability of all alignments."""
    table = np.zeros((len(word) + 1, len(phones) + 1))
    table[0, 0] = 1.0
    for i, letter in enumerate(word):
        odds = chance[letter]
        for j in range(len(phones) + 1):
            if table[i, j]:
                for size in range(min(2, len(phones) - j) + 1):
                    table[i + 1, j + size] += table[i, j] * odds.get(phones[j : j + size], 1e-7)
    return table


def expect(pairs: list, chance: dict) -> dict:
    """One round of EM: the new chance of each chunk of phones for each letter."""
    counts = defaultdict(Counter)
    for word, phones in pairs:
        ahead = alignments(word, phones, chance)
        total = ahead[-1, -1]
        if total < 1e-60:
            continue
        behind = np.zeros_like(ahead)
        behind[-1, -1] = 1.0
        for i in range(len(word) - 1, -1, -1):
            for j in range(len(phones) + 1):
                for size in range(min(2, len(phones) - j) + 1):
                    chunk = phones[j : j + size]
                    odds = chance[word[i]].get(chunk, 1e-7) * behind[i + 1, j + size]
                    behind[i, j] += odds
                    if ahead[i, j] and odds:
                        counts[word[i]][chunk] += ahead[i, j] * odds / total
    return {letter: {c: n / sum(seen.values()) for c, n in seen.items()} for letter, seen in counts.items()}


def best_alignment(word: str, phones: tuple[str, ...], chance: dict) -> list[tuple[str, ...]] | None:
    """The chunk of phones of every letter on the likeliest path, None where no sensible one exists."""
    best = {0: (0.0, [])}
    for letter in word:
        after = {}
        for j, (score, path) in best.items():
            for size in range(min(2, len(phones) - j) + 1):
                chunk = phones[j : j + size]
                candidate = score + math.log(max(chance[letter].get(chunk, 0.0), 1e-9))
                if j + size not in after or candidate > after[j + size][0]:
                    after[j + size] = (candidate, [*path, chunk])
        best = after
    score, path = best.get(len(phones), (-math.inf, None))
    return path if score > -8.0 * len(word) else None


def bare(phones: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(p.rstrip("012") for p in phones)


class Reader(nn.Module):
    """Letters [B, T] -> two rounds of logits [B, T, chunks]; the second is the answer."""

    def __init__(self, chunks: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS) + 2, WIDTH)  # 0 pads, the last one bounds the word
        self.context = nn.Linear(KERNEL * WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, chunks)
        self.thought = nn.Linear(chunks, WIDTH, bias=False)

    def forward(self, letters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embed(letters)
        wide = F.pad(x, (0, 0, KERNEL // 2, KERNEL // 2))
        x = x + F.gelu(self.context(torch.cat([wide[:, k : k + x.shape[1]] for k in range(KERNEL)], -1)))
        mask = torch.zeros(letters.shape).masked_fill(letters == 0, -1e4)[:, None, None]
        place = torch.arange(letters.shape[1])
        distance = (place[None] - place[:, None]).clamp(-REACH, REACH) + REACH
        x = self.blocks[0](x, mask, distance)
        first = self.head(self.norm(x))
        x = x + self.thought(first.softmax(-1))
        for block in self.blocks[1:]:
            x = block(x, mask, distance)
        return first, self.head(self.norm(x))


class Block(nn.Module):
    """Self-attention with a learned bias for each distance, then a feed-forward layer (both pre-norm)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.bias = nn.Parameter(torch.zeros(HEADS, 2 * REACH + 1))
        self.dropout = nn.Dropout(0.05)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + self.bias[:, distance] + mask
        x = x + self.dropout(self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, WIDTH)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


def encode(word: str) -> list[int]:
    edge = len(LETTERS) + 1
    return [edge, *(LETTERS.index(letter) + 1 for letter in word), edge]


def pad(rows: list[list[int]], fill: int) -> torch.Tensor:
    length = max(map(len, rows))
    return torch.tensor([row + [fill] * (length - len(row)) for row in rows])


def distance(a: tuple, b: tuple) -> int:
    """Levenshtein."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


def one_primary_stress(phones: list[str]) -> tuple[str, ...]:
    vowels = [i for i, p in enumerate(phones) if p[-1].isdigit()]
    if vowels and not any(phones[i][-1] == "1" for i in vowels):
        i = next((i for i in vowels if phones[i][-1] == "2"), vowels[0])
        phones[i] = phones[i][:-1] + "1"
    return tuple(phones)


@torch.no_grad()
def phone_error_rates(
    model: Reader, words: dict, names: list[str], chunks: list
) -> tuple[float, float, float]:
    """Against the nearest variant: phone errors with stress, without, and words with any error."""
    model.eval()
    errors = bare_errors = phones = wrong = 0
    for start in range(0, len(names), 500):
        batch = names[start : start + 500]
        answer = model(pad([encode(w) for w in batch], 0))[1].argmax(-1)
        for word, row in zip(batch, answer.tolist(), strict=True):
            spoken = one_primary_stress([p for c in row[1 : len(word) + 1] for p in chunks[c]])
            nearest = min(words[word], key=lambda variant, spoken=spoken: distance(spoken, variant))
            errors += distance(spoken, nearest)
            wrong += spoken != nearest
            bare_errors += min(distance(bare(spoken), bare(variant)) for variant in words[word])
            phones += len(nearest)
    model.train()
    return errors / phones, bare_errors / phones, wrong / len(names)


def main(argv: Sequence[str] | None = None) -> None:
    parser = options.Parser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--dictionary", type=Path, required=True, help="CMUdict 0.7b, the text file")
    parser.add_argument("--out", type=Path, required=True, help="safetensors file to write")
    parser.add_argument("--minutes", type=float, default=20.0, help="training time in minutes")
    parser.add_argument("--batch-size", type=int, default=384, help="words a step")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    random = np.random.default_rng(args.seed)

    words = read_dictionary(args.dictionary)
    names = sorted(words)
    random.shuffle(names)
    held_out, train = names[:HELD_OUT], names[HELD_OUT:]
    plain = [(w, v) for w in train for v in words[w]]
    phones = sorted({p for _, v in plain for p in v})
    start = {(): 0.2} | {(p,): 0.02 for p in phones} | {(p, q): 1e-5 for p in phones for q in phones}
    chance = dict.fromkeys(LETTERS, start)
    sample = [plain[i] for i in random.permutation(len(plain))[:8000]]
    for _ in range(5):
        chance = expect(sample, chance)
        chance = {letter: chance.get(letter, start) for letter in LETTERS}
    aligned = [(w, path) for w, v in plain if (path := best_alignment(w, v, chance))]
    counts = Counter(chunk for _, path in aligned for chunk in path)
    chunks = [(), *sorted(c for c, n in counts.items() if c and n >= 15)]
    index = {c: i for i, c in enumerate(chunks)}
    data = [
        (encode(w), [0, *(index[c] for c in path), 0]) for w, path in aligned if all(c in index for c in path)
    ]
    print(f"{len(plain)} pronunciations, {len(data)} aligned, {len(chunks)} chunks", flush=True)

    model = Reader(len(chunks))
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    average = {k: v.detach().clone() for k, v in model.state_dict().items()}
    optimiser = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.98), weight_decay=0.01)
    began, done, step, epoch = time.monotonic(), 0.0, 0, 0
    while done < 1.0:
        order = random.permutation(len(data))
        # Neighbours of like length waste no padding.
        blocks = [
            sorted(order[i : i + 8192], key=lambda n: len(data[n][0])) for i in range(0, len(order), 8192)
        ]
        batches = [b[i : i + args.batch_size] for b in blocks for i in range(0, len(b), args.batch_size)]
        random.shuffle(batches)
        for batch in batches:
            done = (time.monotonic() - began) / (60.0 * args.minutes)
            if done >= 1.0:
                break
            rate = 3e-3 * min((step + 1) / 200, 0.5 * (1.0 + math.cos(math.pi * done)) + 0.003)
            for group in optimiser.param_groups:
                group["lr"] = rate
            letters, target = pad([data[n][0] for n in batch], 0), pad([data[n][1] for n in batch], -1)
            first, second = model(letters)
            flat = target.flatten()
            loss = F.cross_entropy(second.flatten(0, 1), flat, ignore_index=-1, label_smoothing=0.02)
            loss = loss + 0.3 * F.cross_entropy(first.flatten(0, 1), flat, ignore_index=-1)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            step += 1
            for k, v in model.state_dict().items():
                average[k].lerp_(v, max(0.002, 1.0 / step))
            if step % 200 == 0:
                print(f"step {step} loss {loss.item():.3f} done {done:.2f}", flush=True)
        epoch += 1
        rates = phone_error_rates(model, words, held_out, chunks)
        print(
            f"epoch {epoch}: phone errors {rates[0]:.2%}, stress aside {rates[1]:.2%}; words {rates[2]:.1%}",
            flush=True,
        )

    model.load_state_dict({k: v.half().float() for k, v in average.items()})
    rates = phone_error_rates(model, words, held_out, chunks)
    summary = f"{rates[0]:.2%} phone errors, {rates[1]:.2%} without stress, {rates[2]:.1%} of words"
    print(f"held out ({HELD_OUT} words): {summary}")
    tensors = {k: v.half().numpy() for k, v in average.items()}
    meta = {
        "letters": LETTERS,
        "chunks": ",".join(" ".join(c) for c in chunks),
        "heads": str(HEADS),
        "held_out": summary,
    }
    save_file(tensors, args.out, metadata=meta)

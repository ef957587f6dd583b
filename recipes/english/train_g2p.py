"""Trains the letter-to-sound network of the English frontend on CMUdict (twenty minutes on one CPU thread).

Every letter is aligned with the nought to two phones that it stands for (expectation-maximisation over all
alignments), so that reading a word is one classification a letter: nothing autoregressive, one pass of a
small transformer whose second half also sees what the first half thinks (self-conditioning).
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.english.train_g2p")

import argparse
import math
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from melforge.common.cli.parser import Parser
from melforge.common.text.english.letters import with_primary_stress
from recipes.english.dictionary import edit_distance, read_cmudict

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
HELD_OUT = 2000
WIDTH, HIDDEN, HEADS, LAYERS, REACH, KERNEL = 96, 216, 4, 3, 8, 5


def read_words(source: str) -> dict[str, list[tuple[str, ...]]]:
    """The pronunciations of every word that is only letters and apostrophes; it begins with a letter."""
    words = {word.lower(): variants for word, variants in read_cmudict(source).items()}
    return {word: words[word] for word in words if set(word) <= set(LETTERS) and word[0] != "'"}


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
    """Letters [B, T] -> two rounds of logits [B, T, chunks]; the second is the answer."""

    def __init__(self, chunks: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS) + 2, WIDTH)  # 0 pads, the last one bounds the word
        self.context = nn.Linear(KERNEL * WIDTH, WIDTH)
        self.blocks = nn.ModuleList(LetterBlock() for _ in range(LAYERS))
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


class LetterBlock(nn.Module):
    """Self-attention with a learned bias for each distance, then a feed-forward layer (both pre-norm)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.bias = nn.Parameter(torch.zeros(HEADS, 2 * REACH + 1))
        self.dropout = nn.Dropout(0.05)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, self.bias[:, distance] + mask)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


def encode(word: str) -> list[int]:
    edge = len(LETTERS) + 1
    return [edge, *(LETTERS.index(letter) + 1 for letter in word), edge]


def pad(rows: list[list[int]], fill: int) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=fill)


@torch.no_grad()
def phone_errors(model: LetterNetwork, words: dict, names: list[str], chunks: list) -> str:
    """Shares of wrong phones against the nearest variant, with stress and without, and of wrong words."""
    model.eval()
    errors = bare_errors = phones = wrong = 0
    for start in range(0, len(names), 500):
        batch = names[start : start + 500]
        answer = model(pad([encode(w) for w in batch], 0))[1].argmax(-1)
        for word, row in zip(batch, answer.tolist(), strict=True):
            spoken = with_primary_stress([p for c in row[1 : len(word) + 1] for p in chunks[c]])
            nearest = min(words[word], key=partial(edit_distance, spoken))
            errors += edit_distance(spoken, nearest)
            wrong += spoken != nearest
            phones += len(nearest)
            bare, *variants = ([p.rstrip("012") for p in said] for said in (spoken, *words[word]))
            bare_errors += min(edit_distance(bare, variant) for variant in variants)
    model.train()
    return (
        f"{errors / phones:.2%} phone errors, {bare_errors / phones:.2%} without stress, "
        f"{wrong / len(names):.1%} of words"
    )


def train(dictionary: Path, out: Path, minutes: float, batch_size: int, seed: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)

    words = read_words(dictionary.read_text(encoding="latin-1"))
    names = sorted(words)
    random.shuffle(names)
    held_out, learnt = names[:HELD_OUT], names[HELD_OUT:]
    plain = [(w, v) for w in learnt for v in words[w]]
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

    model = LetterNetwork(len(chunks))
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
        batches = [b[i : i + batch_size] for b in blocks for i in range(0, len(b), batch_size)]
        random.shuffle(batches)
        for batch in batches:
            done = (time.monotonic() - began) / (60.0 * minutes)
            if done >= 1.0:
                break
            rate = 3e-3 * min((step + 1) / 200, 0.5 * (1.0 + math.cos(math.pi * done)) + 0.003)
            optimiser.param_groups[0]["lr"] = rate
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
        print(f"epoch {epoch}: {phone_errors(model, words, held_out, chunks)}", flush=True)

    model.load_state_dict({k: v.half().float() for k, v in average.items()})
    summary = phone_errors(model, words, held_out, chunks)
    print(f"held out ({HELD_OUT} words): {summary}")
    tensors = {k: v.half().numpy() for k, v in average.items()}
    meta = {"letters": LETTERS, "chunks": ",".join(" ".join(c) for c in chunks)}
    save_file(tensors, out, metadata={**meta, "heads": str(HEADS), "held_out": summary})


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(
        prog="python -m recipes.english.train_g2p",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--dictionary", type=Path, required=True, help="CMUdict 0.7b, the text file")
    parser.add_argument(
        "-o", "--output", dest="out", type=Path, required=True, help="safetensors file to write"
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="training time in minutes")
    parser.add_argument("--batch-size", type=int, default=384, help="words a step")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    train(args.dictionary, args.out, args.minutes, args.batch_size, args.seed)

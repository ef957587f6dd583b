"""Trains the network that tells readings of homographs apart (`common/text/english/homographs/network.py`).

It learns from sentences of three kinds. Those of WikipediaHomographData are labelled by hand (Apache-2.0,
github.com/google-research-datasets; the folder train). In texts tagged by `tag_text.py` the tags
tell the readings; and of other words there the network guesses the part of speech without seeing the word.
Our own are short: `homographs.yaml` and, but for those held out, tests/data/reading/homographs.tsv.

The texts of the shipped one: LJSpeech's transcripts, NLTK's inaugural and state_union (public domain) and
masc_tagged without its tags (the American National Corpus: any use), and the Wikipedia sentences themselves.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.english.train_homographs")

import argparse
import csv
import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import yaml
from safetensors.numpy import save_file
from torch import nn
from torch.nn import functional as F

from melforge.common.cli.parser import Parser
from melforge.common.text.english.homographs.network import AROUND, EDGE, KERNEL, REACH, WEIGHTS, Vocabulary
from melforge.common.text.english.homographs.table import KINDS, cue_for, find, load
from melforge.common.text.english.word_parts import words
from recipes.english.dictionary import edit_distance
from recipes.english.tag_text import spoken_words

CASES = Path(__file__).parents[2] / "tests" / "data" / "reading"
SENTENCES = yaml.safe_load(Path(__file__).with_name("homographs.yaml").read_text(encoding="utf-8"))
KNOWN, TAILS = 1900, 512  # words with a row of their own, and rows for the last letters of the others
WIDTH, BAG, NEAR, HIDDEN = 20, 10, 24, 64
BATCH, PLACES, OFTEN = 384, 200_000, 1500
SLOTS = words("NN NNS NNP VB VBZ VBD VBN VBG JJ RB")
PARTS = sorted(SLOTS)
TAGS = [
    *PARTS,
    *["VBP", "IN", "DT", "PRP", "PRP$", "CC", "TO", "MD", "CD", ".", "WDT", "WP", "WRB", "RP", "EX"],
]
ALIKE = {"VBP": "VB", "NNPS": "NNP", "JJR": "JJ", "JJS": "JJ", "RBR": "RB", "RBS": "RB"}
# The parts of speech that have the second reading, and those that have the first, of words that are no KINDS.
BY_PART = {
    **dict.fromkeys(("read", "reread"), ("VBD VBN", "VB")),
    **dict.fromkeys(("wound", "dove", "moped"), ("VBD VBN", "NN")),
    **dict.fromkeys(("winds", "tears", "analyses", "diagnoses", "confines", "deserts"), ("VBZ", "NNS")),
    **dict.fromkeys(("lives", "proceeds"), ("NNS", "VBZ")),
    **{"live": ("JJ RB", "VB"), "wind": ("VB", "NN"), "refuse": ("NN", "VB")},
    **dict.fromkeys(("close", "commune"), ("", "")),
}
# WikipediaHomographData's names of second readings, where they are no verbs of VERB, or no nouns of NOUN.
SECOND = words(
    """aged_adj analyses_vrb august_adj axes_nou bass_corp blessed_adj bologna bow_nou-knot
    celtic_adj-nou-sports compress confines_vrb content_adj-nou-vrb diagnoses_vrb diffuse_adj
    dove_vrb intrigue_nou-vrb invalid_nou jesus_es job_bible lead_nou learned_adj live_adj mate_nou
    minute_adj mobile_geo mobile_nou-art moped_vrb nestle_nam pasty_nou polish_geo ravel_nam
    reading_geo read_past resume_nou rodeo_geo row_2 sake_jp sow_nou tear_nou winds_vrb wound_vrb"""
)


class Example(NamedTuple):
    words: list[str]
    at: int
    homograph: str  # "" for another word
    label: int  # 1: its second reading; of another word which of PARTS
    weight: float = 1.0
    tags: list[str] | None = None


def labelled(folder: Path) -> Iterator[Example]:
    """WikipediaHomographData's sentences of a folder (train or eval)."""
    for path in sorted(folder.glob("*.tsv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                word, name = row["homograph"].lower(), row["wordid"]
                entry = find(word)
                if entry is None or word == "upset":  # it reads "he was upset" as the noun
                    continue
                noun = entry.kind == "NOUN" and "nou" in name and "vrb" not in name
                verb = entry.kind == "VERB" and name.endswith("_vrb")
                label = int(noun or verb or name in SECOND)
                if place := _place(row["sentence"], word, int(row["start"])):
                    yield Example(*place, entry.word, label, 3.0)


def _place(text: str, word: str, start: int) -> tuple[list[str], int] | None:
    """The spoken sentence of a text that has a word that begins at a byte, and the word's place there."""
    before = text.encode()[:start].decode(errors="ignore")
    count = len(re.findall(rf"\b{word}\b", before, re.IGNORECASE))
    for sentence in spoken_words(text):
        places = [at for at, spoken in enumerate(sentence) if spoken.lower().rstrip("-") == word]
        if count < len(places):
            return sentence, places[count]
        count -= len(places)
    return None


def tagged(
    paths: Sequence[Path], known: set[tuple[str, int]], rng: random.Random
) -> tuple[list[Example], list[Example], list[list[str]]]:
    """What tags tell of homographs, at most OFTEN of a reading; PLACES of other words; all sentences.

    `known`: sentences and places that are labelled already.
    """
    homographs, places, sentences = [], [], []
    for line in (line for path in paths for line in path.read_text(encoding="utf-8").splitlines()):
        sentence, tags = json.loads(line)
        sentences.append(sentence)
        text = " ".join(sentence)
        for at, word in enumerate(sentence):
            word, part = word.lower().rstrip("-"), _part(tags[at])
            entry = find(word)
            if entry and (text, at) not in known:
                label = _by_part(entry.word, entry.kind, sentence, tags, at)
                if label is not None:
                    homographs.append(Example(sentence, at, entry.word, label, 0.8, tags))
            if part in SLOTS and len(word) > 2:
                places.append(Example(sentence, at, "", PARTS.index(part), 1.0, tags))
    rng.shuffle(homographs)
    rng.shuffle(places)
    seen: Counter = Counter()
    kept = []
    for example in homographs:
        seen[example.homograph, example.label] += 1
        if seen[example.homograph, example.label] <= OFTEN:
            kept.append(example)
    return kept, places[:PLACES], sentences


def _part(tag: str) -> str:
    return ALIKE.get(tag.split("+")[0], tag.split("+")[0])


def _by_part(word: str, kind: str, sentence: list[str], tags: list[str], at: int) -> int | None:
    part = _part(tags[at])
    if word in BY_PART:
        second, first = (parts.split() for parts in BY_PART[word])
        return 1 if part in second else 0 if part in first else None
    is_verb, is_noun = part in ("VB", "VBZ"), part in ("NN", "NNS")
    if part in ("VBD", "VBN"):
        is_verb = sentence[at].lower() == word and kind == "NOUN"  # "upset", "overrun"
    if not kind or not (is_verb or is_noun or part in ("JJ", "NNP")):
        return None
    return int(is_verb if kind == "VERB" else is_noun)


def composed(rng: random.Random) -> Iterator[Example]:
    """Sentences of `homographs.yaml`."""
    frames = {name: _frames(SENTENCES[name]) for name in ("verb", "verb_s", "noun", "noun_s", "adjective")}
    adjectives = SENTENCES["adjectives"].split()
    for word, entry in load().items():
        if not entry.kind or re.search("[^s]s$", word):
            continue
        with_s = 0 if re.search("[sxyhz]$", word) or f"{word}s" in load() else 6
        counts = {
            "verb": 16,
            "verb_s": with_s,
            "noun": 13 * (word != "close"),
            "noun_s": with_s,
            "adjective": 6 * (word in adjectives),
        }
        for name, count in counts.items():
            label = int(name.startswith("verb") == (entry.kind == "VERB"))
            if name == "adjective":
                label = int(word == "diffuse")
            for _ in range(count):
                yield Example(*_filled(rng.choice(frames[name]), word, rng), word, label)
    for frame in _frames(SENTENCES["own"]):
        label, *tokens = frame.split()
        at, sentence = _marked(tokens)
        yield Example(sentence, at, sentence[at].lower(), int(label), 4.0)


def cases() -> Iterator[Example]:
    """The sentences of the reading tests that are in view."""
    lines = (CASES / "homograph_readings.tsv").read_text(encoding="utf-8").splitlines()
    said = {
        word: dict(form.split("=") for form in forms) for word, *forms in (line.split("\t") for line in lines)
    }
    text = (CASES / "homographs.tsv").read_text(encoding="utf-8").partition("# held out\n")[0]
    for wanted, written in (line.split("\t") for line in text.splitlines() if line[0] != "#"):
        at, sentence = _marked(re.findall(r"\*?[A-Za-z'-]+\*?|[.,;:?!]", written))
        entry = find(sentence[at].lower())
        if entry:
            phones = said[sentence[at].lower()][wanted].split()
            far = [edit_distance(phones, reading) for reading in (entry.first, entry.second)]
            yield Example(sentence, at, entry.word, int(far[1] < far[0]), 14.0)


def _marked(tokens: Sequence[str]) -> tuple[int, list[str]]:
    """The place of the one in asterisks, and all without."""
    return next(i for i, token in enumerate(tokens) if token[0] == "*"), [
        token.strip("*") for token in tokens
    ]


def _frames(text: str) -> list[str]:
    return [frame.strip() for frame in re.split(r"[|\n]", text) if frame.strip()]


def _filled(frame: str, word: str, rng: random.Random) -> tuple[list[str], int]:
    choices = {slot: text.split(", ") for slot, text in SENTENCES["words"].items()}
    sentence = re.sub(r"\{(\w+)\}", lambda match: rng.choice(choices[match[1]]), frame).split()
    at = next(i for i, token in enumerate(sentence) if token[0] == "*")
    sentence[at] = word + sentence[at][1:]
    sentence[0] = sentence[0][0].upper() + sentence[0][1:]
    return sentence, at


class Network(nn.Module):
    """As `ReadingNetwork`, and a head that tells the neighbours' tags."""

    kinds: torch.Tensor  # int64 [homographs]

    def __init__(self, size: int, homographs: Sequence[str]) -> None:
        super().__init__()
        kinds = {word: entry.kind for word, entry in load().items()}
        self.register_buffer("kinds", torch.tensor([(*KINDS, "").index(kinds[word]) for word in homographs]))
        self.word, self.bag = _normal(size, WIDTH), _normal(size, BAG)
        self.shape = _normal(EDGE + 1, WIDTH)
        self.near = nn.Linear(KERNEL * WIDTH, NEAR)
        self.mix = nn.Linear((2 * REACH + 1) * NEAR + BAG + 3 * WIDTH, HIDDEN)
        self.deep = nn.Linear(HIDDEN, HIDDEN)
        self.kind = nn.Parameter(torch.zeros(len(KINDS) + 1, HIDDEN))  # shared by all words of a kind
        self.own = nn.Parameter(torch.zeros(len(homographs), HIDDEN))
        self.bias, self.cue = (nn.Parameter(torch.full([len(homographs)], start)) for start in (0.0, 1.0))
        self.tag, self.part = nn.Linear(NEAR, len(TAGS)), nn.Linear(HIDDEN, len(PARTS))
        self.dropout = nn.Dropout(0.15)

    def forward(
        self, rows: torch.Tensor, shapes: torch.Tensor, bag: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and shapes [B, W], bag [B, N] -> neighbours [B, 2 * REACH + 1, NEAR], hidden [B, HIDDEN]."""
        x = F.embedding(rows, self.word) + F.embedding(shapes, self.shape)
        wide = torch.cat([x[:, i : i + 2 * REACH + 1] for i in range(KERNEL)], -1)
        near = F.relu(self.near(wide))
        count = (bag >= 0).sum(1, keepdim=True)
        around = (F.embedding(bag.clamp(min=0), self.bag) * (bag >= 0)[..., None]).sum(1) / (count + 3).sqrt()
        middle = x.shape[1] // 2
        h = torch.cat([near.flatten(1), around, x[:, middle - 1 : middle + 2].flatten(1)], -1)
        h = F.relu(self.mix(self.dropout(h)))
        return near, h + F.relu(self.deep(self.dropout(h)))

    def readings(self) -> torch.Tensor:
        """The vector of every homograph [homographs, HIDDEN]."""
        return self.kind[self.kinds] + self.own

    def packed(self) -> dict[str, np.ndarray]:
        """What `ReadingNetwork` reads: matrices in bytes."""
        matrices = {
            **{"word": self.word, "bag": self.bag, "shape": self.shape, "reading": self.readings()},
            **{name: getattr(self, name).weight for name in ("near", "mix", "deep", "part")},
        }
        tensors = {f"{name}.bias": getattr(self, name).bias for name in ("near", "mix", "deep", "part")}
        tensors |= {"reading.bias": self.bias, "cue": self.cue}
        for name, matrix in matrices.items():
            scale = matrix.abs().amax(int(name not in ("word", "bag")), keepdim=True).clamp(min=1e-6) / 127
            tensors |= {name: (matrix / scale).round().to(torch.int8), f"{name}.scale": scale}
        return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def _normal(rows: int, width: int) -> nn.Parameter:
    return nn.Parameter(0.3 * torch.randn(rows, width))


def train(examples: list[Example], vocabulary: Vocabulary, homographs: list[str], epochs: int) -> Network:
    windows = [vocabulary.window(example.words, example.at) for example in examples]
    rows, shapes = (torch.tensor([window[i] for window in windows]) for i in range(2))
    bags = nn.utils.rnn.pad_sequence([torch.tensor(window[2]) for window in windows], True, -1)
    index = {word: row for row, word in enumerate(homographs)}
    own = torch.tensor([index.get(example.homograph, -1) for example in examples])
    label = torch.tensor([example.label for example in examples])
    cue = torch.tensor(
        [float(cue_for(load()[e.homograph], e.words, e.at)) if e.homograph else 0.0 for e in examples]
    )
    # A word's two readings count alike, nearly.
    total: defaultdict[tuple[str, int], float] = defaultdict(float)
    for example in examples:
        total[example.homograph, example.label] += example.weight
    weight = torch.tensor(
        [min(20, e.weight * ((total[e.homograph, 1 - e.label] / total[e.homograph, e.label] + 1) / 2) ** 0.5)
         for e in examples]
    )  # fmt: skip
    tags = torch.tensor([_tags_around(example) for example in examples])
    # Of other words those that are VERB, or NOUN, or neither: [part, kind].
    is_kind = torch.tensor([[float(p in ("VB", "VBZ", "VBD", "VBN")), float(p[:2] == "NN")] for p in PARTS])
    counts = torch.tensor([[float(p in ("VB", "VBZ", "NN", "NNS", "JJ"))] for p in PARTS])

    network = Network(vocabulary.size, homographs)
    average = {name: value.detach().clone() for name, value in network.named_parameters()}
    groups = [{"params": [p for n, p in network.named_parameters() if n != "own"], "weight_decay": 0.01}]
    optimiser = torch.optim.AdamW(
        [*groups, {"params": [network.own], "weight_decay": 0.1}], betas=(0.9, 0.98)
    )
    steps, step = epochs * (len(examples) // BATCH), 0
    for epoch in range(epochs):
        order, losses = torch.randperm(len(examples)), 0.0
        for batch in order.split(BATCH)[: len(examples) // BATCH]:
            rate = 4e-3 * min((step + 1) / 300, 0.5 * (1 + math.cos(math.pi * step / steps)) + 0.002)
            for group in optimiser.param_groups:
                group["lr"] = rate
            hidden_words = (torch.rand(rows[batch].shape) < 0.03) & (rows[batch] < vocabulary.edge)
            near, h = network(
                rows[batch].masked_fill(hidden_words, vocabulary.edge), shapes[batch], bags[batch]
            )
            of_word = own[batch] >= 0
            row = own[batch].clamp(min=0)
            score = (h * network.readings()[row]).sum(-1) + network.bias[row] + network.cue[row] * cue[batch]
            wanted = label[batch].float() * 0.98 + 0.01
            loss = F.binary_cross_entropy_with_logits(score, wanted.clamp(0, 1), reduction="none")
            loss = 2 * (loss * weight[batch])[of_word].sum() / BATCH
            loss = loss + 0.3 * F.cross_entropy(network.tag(near).flatten(0, 1), tags[batch].flatten())
            parts = label[batch][~of_word]
            loss = loss + 0.5 * F.cross_entropy(network.part(h[~of_word]), parts)
            kinds = F.binary_cross_entropy_with_logits(
                h[~of_word] @ network.kind[:2].T, is_kind[parts], reduction="none"
            )
            loss = loss + 0.5 * (kinds * counts[parts]).sum() / BATCH
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            step += 1
            losses += loss.item()
            with torch.no_grad():
                for name, value in network.named_parameters():
                    average[name].lerp_(value, max(0.002, 1 / step))
        print(f"epoch {epoch + 1}: loss {losses * BATCH / len(examples):.3f}", flush=True)
    with torch.no_grad():
        for name, value in network.named_parameters():
            value.copy_(average[name])
    return network


def _tags_around(example: Example) -> list[int]:
    """The places in TAGS of the neighbours' tags; -100 where there is none."""
    out = []
    for at in range(example.at - REACH, example.at + REACH + 1):
        tag = ""
        if example.tags and 0 <= at < len(example.tags) and at != example.at:
            first, _, second = example.tags[at].partition("+")
            is_contraction = first in ("PRP", "DT", "EX", "WP", "WDT") and second[:2] in ("MD", "VB")
            tag = second if is_contraction else first
            tag = tag if tag == "VBP" else ALIKE.get(tag, tag)
        out.append(TAGS.index(tag) if tag in TAGS else -100)
    return out


def save(network: Network, homographs: Sequence[str], vocabulary: Sequence[str], path: Path) -> None:
    meta = {"homographs": " ".join(homographs), "words": " ".join(vocabulary), "parts": " ".join(PARTS)}
    save_file(network.packed(), path, metadata={**meta, "tails": str(TAILS)})


def common_words(gold: list[Example], sentences: list[list[str]]) -> list[str]:
    """The KNOWN most frequent words; those around homographs that differ in meaning count for more."""
    count: Counter = Counter()
    for sentence, weight in [
        *((sentence, 1) for sentence in sentences),
        *(
            (e.words[max(e.at - AROUND, 0) : e.at + AROUND], 1 if load()[e.homograph].kind else 8)
            for e in gold
        ),
    ]:
        for token in sentence:
            count[token.lower().rstrip("-") or token] += weight
    return [word for word, _ in count.most_common(KNOWN)]


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(
        prog="python -m recipes.english.train_homographs",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("data", type=Path, help="the folder data of WikipediaHomographData")
    parser.add_argument("tagged", type=Path, nargs="+", help="what tag_text.py wrote")
    parser.add_argument("-o", "--output", type=Path, default=WEIGHTS, help="safetensors file to write")
    parser.add_argument("--epochs", type=int, default=4, help="rounds over all examples")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    rng = random.Random(args.seed)

    gold = list(labelled(args.data / "train"))
    known = {(" ".join(example.words), example.at) for example in gold}
    silver, places, sentences = tagged(args.tagged, known, rng)
    homographs = sorted({e.homograph for e in gold} | set(BY_PART) | {w for w, e in load().items() if e.kind})
    silver = [example for example in silver if example.homograph in homographs]
    own = [e for e in (*composed(rng), *cases()) if e.homograph in homographs]
    examples = [*gold, *silver, *own, *places]
    print(
        f"{len(gold)} labelled, {len(silver)} tagged, {len(own)} of our own, {len(places)} other words",
        flush=True,
    )
    vocabulary = common_words(gold, sentences)
    network = train(examples, Vocabulary(vocabulary, TAILS), homographs, args.epochs)
    save(network, homographs, vocabulary, args.output)


if __name__ == "__main__":
    main()

"""Lets a trained FastPitch's yes/no questions rise further at their ends:
`python -m recipes.hazel.rise RUN/weights.safetensors --corpus DIR --semitones 3 -o risen.safetensors`.

The rise that the corpus has (`intonation.py`) is short, and a predictor's means are flatter than any reading.
Only the pitch predictor is trained, on what it predicts itself, higher at the ends of the questions: the
decoder follows the pitch that it is given.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("recipes.hazel.rise")

import copy
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from melforge.common.arrays import length_mask
from melforge.common.cli.options import finite, positive
from melforge.common.cli.parser import Parser
from melforge.common.errors import InputError
from melforge.common.files import require_writable_file
from melforge.common.text.frontends import get_frontend
from melforge.common.training.corpus.alignment import is_phone
from melforge.common.training.corpus.batches import batches_of_like_length
from melforge.common.training.corpus.dataset import load_labels
from melforge.common.training.corpus.predict import trained_network
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import replace_weights
from melforge.fastpitch.infer import pitch_units
from melforge.fastpitch.model import FastPitch
from recipes.hazel.intonation import asks_yes_or_no, is_question

BATCH = 32
LEARNING_RATE = 3e-4
QUESTIONS = 20  # at least that many must be in the corpus
UNVOICED = frozenset(["P", "T", "K", "F", "TH", "S", "SH", "CH", "HH"])


def rising_symbols(symbols: Sequence[str]) -> np.ndarray:
    """Which symbols of a question rise, bool [N]: the voiced ones from its last stressed vowel on, as
    `rising_part` of the corpus's teacher says in the teacher's own alphabet.
    """
    vowels = [i for i, symbol in enumerate(symbols) if is_phone(symbol) and symbol[-1] in "012"]
    stressed = [i for i in vowels if symbols[i][-1] == "1"]
    first = (stressed or vowels or [len(symbols)])[-1]
    voiced = [is_phone(symbol) and symbol[1:] not in UNVOICED for symbol in symbols]
    return np.array(voiced, bool) & (np.arange(len(symbols)) >= first)


def raised(
    pitch: Tensor, where: Tensor, semitones: float, mean: Tensor, deviation: Tensor, least: float = -math.inf
) -> Tensor:
    """Pitch (B, N), in deviations (B, 1) from means (B, 1) in Hz, so many semitones higher `where` (B, N)
    says, and there at least `least` semitones above the mean.
    """
    higher = (pitch * deviation + mean) * 2 ** (semitones / 12)
    higher = torch.maximum(higher, mean * 2 ** (least / 12))
    return torch.where(where, (higher - mean) / deviation, pitch)


def chosen(texts: Sequence[str], questions: Sequence[int]) -> list[int]:
    """Numbers of the texts to learn from: these questions, all others, and twice as many statements."""
    rising = set(questions)
    others = [row for row, text in enumerate(texts) if is_question(text) and row not in rising]
    statements = [row for row, text in enumerate(texts) if not is_question(text)]
    drawn = np.random.default_rng(0).permutation(statements)[: 2 * len(questions)]
    return [*questions, *others, *map(int, drawn)]


def train(
    model: FastPitch,
    ids: Sequence[np.ndarray],
    rising: Sequence[np.ndarray],
    speakers: Tensor,
    semitones: float,
    units: Tensor,
    epochs: int,
    least: float = -math.inf,
) -> float:
    """Trains the pitch predictor, with the symbols int64 [N] and which of them rise, bool [N], of each text,
    and the numbers of its speakers (texts,).

    `units`: mean and deviation of each speaker's pitch in Hz (2, speakers). `least` as in `raised`. Returns
    the mean squared error of the last epoch.
    """
    model.eval().requires_grad_(False)
    predictor = model.pitch_predictor
    before = copy.deepcopy(model)
    weights = list(predictor.requires_grad_(True).parameters())
    optimiser = torch.optim.Adam(weights, LEARNING_RATE)
    lengths = np.array([len(row) for row in ids])
    steps = epochs * -(-len(ids) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    error = 0.0
    with tqdm(total=steps, unit="step") as bar:
        for epoch in range(epochs):
            error = 0.0
            for rows in batches_of_like_length(lengths, BATCH, epoch):
                symbols = pad_sequence([torch.from_numpy(ids[row]).long() for row in rows], batch_first=True)
                where = pad_sequence([torch.from_numpy(rising[row]) for row in rows], batch_first=True)
                mask = length_mask(torch.from_numpy(lengths[rows]), symbols.shape[1])[:, :, None]
                speaker = speakers[rows]
                with torch.no_grad():
                    encoded, _, pitch = before.encode(symbols, torch.from_numpy(lengths[rows]), speaker)
                    wanted = raised(pitch[:, 0], where, semitones, *units[:, speaker, None], least=least)
                loss = F.mse_loss(predictor(encoded, mask), wanted, reduction="sum") / mask.sum()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                bar.update()
                bar.set_postfix(mse=f"{loss.item():.4f}")
                error += loss.item() * len(rows) / len(ids)
    return error


def main() -> None:
    parser = Parser(prog="python -m recipes.hazel.rise", description=__doc__)
    parser.add_argument("weights", type=Path, help="weights.safetensors of a training run")
    parser.add_argument("--corpus", type=Path, required=True, help="a prepared corpus, for its texts")
    parser.add_argument("--semitones", type=finite, required=True, help="how much higher questions end")
    what = "how far above the speaker's mean pitch they end at least (default: anywhere)"
    parser.add_argument("--least", type=finite, default=-math.inf, metavar="SEMITONES", help=what)
    what = "how many times each text is seen (default: %(default)s)"
    parser.add_argument("--epochs", type=positive, default=4, help=what)
    parser.add_argument("-o", "--output", type=Path, required=True, help="file to write")
    args = parser.parse_args()
    require_writable_file(args.output)
    source = read_checkpoint(args.weights, "fastpitch")
    labels = load_labels(args.corpus)
    names = get_frontend(labels.frontend).symbols
    questions = [row for row, text in enumerate(labels.texts) if asks_yes_or_no(text)]
    if len(questions) < QUESTIONS:
        raise InputError(
            f"{args.corpus} has {len(questions)} yes/no questions: at least {QUESTIONS} are needed, "
            "as recipes.hazel.prepare --extra adds them"
        )
    rows = chosen(labels.texts, questions)
    ids = [labels.ids[row] for row in rows]
    rising = [rising_symbols([names[number] for number in row]) for row in ids[: len(questions)]]
    rising += [np.zeros(len(row), bool) for row in ids[len(questions) :]]
    model = trained_network(source, FastPitch)
    units, speakers = torch.tensor(pitch_units(source)).float(), torch.from_numpy(labels.speaker[rows])
    torch.manual_seed(0)
    error = train(model, ids, rising, speakers, args.semitones, units, args.epochs, args.least)
    learnt = model.pitch_predictor.state_dict(prefix="pitch_predictor.")
    replace_weights(args.weights, args.output, {name: value.numpy() for name, value in learnt.items()})
    print(f"{args.output}: {len(questions)} of {len(rows)} texts are raised; mean squared error {error:.4f}")

"""Lets a trained FastSpeech learn a FastPitch's durations from more texts than anyone has read aloud:
`python -m recipes.hazel.learn_durations WEIGHTS --voice NAME --texts LIST -o timed.safetensors`.

A corpus of a day's speech has so few texts that its durations are learnt by heart. FastPitch's need no audio,
and before they are rounded they say more than frames do. Only the duration predictor is trained, on log
durations; some texts are held out, to show what it makes of sentences that it has not seen.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("recipes.hazel.learn_durations")

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from melforge.common.arrays import length_mask
from melforge.common.cli.options import positive
from melforge.common.cli.parser import Parser
from melforge.common.errors import InputError
from melforge.common.files import require_writable_file
from melforge.common.text import Frontend
from melforge.common.training.corpus.batches import batches_of_like_length
from melforge.common.training.corpus.predict import trained_network
from melforge.common.training.loop import Ema
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import load_voice, replace_weights
from melforge.fastpitch.model import FastPitch
from melforge.fastspeech.model import FastSpeech
from recipes.corpus import read_transcripts

BATCH = 32
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-4
EMA_DECAY = 0.99
HELD_OUT = 500  # texts that are not trained on, at most a tenth of all
PREDICTOR = "length_regulator.duration_predictor."
# FastPitch's stage "encoder": symbols (B, N), lengths (B,) -> encoded, unrounded frames (B, N), pitch
Teacher = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


class Errors(NamedTuple):
    """How far FastSpeech's durations are from FastPitch's, over symbols."""

    log: float  # mean square of the difference of log(1 + frames)
    frames: float  # mean absolute difference

    def __str__(self) -> str:
        return f"mean squared log error {self.log:.4f}, {self.frames:.2f} frames in the mean"


def symbols_of(texts: Iterable[str], frontend: Frontend) -> list[np.ndarray]:
    """The ids (N,) of every sentence of these texts."""
    bar = tqdm(texts, desc="reading", unit="text", mininterval=5)
    return [np.asarray(utterance.ids) for text in bar for utterance in frontend(text).utterances]


def padded(ids: Sequence[np.ndarray], rows: np.ndarray) -> tuple[Tensor, Tensor]:
    """The symbols (B, N) of these rows, and their lengths (B,)."""
    chosen = [torch.from_numpy(ids[row]).long() for row in rows]
    return pad_sequence(chosen, batch_first=True), torch.tensor([len(one) for one in chosen])


def both(
    student: FastSpeech, teacher: Teacher, symbols: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """log(1 + frames) (B, N) of the student and of the teacher, and where symbols are, bool (B, N)."""
    with torch.no_grad():
        wanted = torch.log1p(teacher(symbols, lengths)[1])
    return student.log_durations(symbols, lengths), wanted, length_mask(lengths, symbols.shape[1])


@torch.no_grad()
def compare(student: FastSpeech, teacher: Teacher, ids: Sequence[np.ndarray]) -> Errors:
    """Over all symbols of these texts, ids (N,) each."""
    logs, frames, symbols = 0.0, 0.0, 0
    lengths = np.array([len(row) for row in ids])
    for rows in batches_of_like_length(lengths, BATCH, seed=0):
        found, wanted, there = both(student, teacher, *padded(ids, rows))
        logs += (found - wanted)[there].square().sum().item()
        frames += (found.expm1().clamp(min=0) - wanted.expm1())[there].abs().sum().item()
        symbols += int(there.sum())
    return Errors(logs / symbols, frames / symbols)


def train(student: FastSpeech, teacher: Teacher, ids: Sequence[np.ndarray], epochs: int) -> None:
    """Trains the student's duration predictor on texts, ids (N,) each; its weights end as their average."""
    student.eval().requires_grad_(False)
    predictor = student.length_regulator.duration_predictor.requires_grad_(True)
    optimiser = torch.optim.AdamW(predictor.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    lengths = np.array([len(row) for row in ids])
    steps = epochs * -(-len(ids) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    average = Ema(predictor, EMA_DECAY)
    with tqdm(total=steps, unit="step", mininterval=5) as bar:
        for rows in _in_turn(lengths, epochs):
            found, wanted, there = both(student, teacher, *padded(ids, rows))
            loss = (found - wanted)[there].square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            average.update()
            bar.update()
            bar.set_postfix(mse=f"{loss.item():.4f}", refresh=False)
    predictor.load_state_dict(average.state_dict())


def _in_turn(lengths: np.ndarray, epochs: int) -> Iterator[np.ndarray]:
    for epoch in range(epochs):
        yield from batches_of_like_length(lengths, BATCH, epoch)


def main() -> None:
    parser = Parser(prog="python -m recipes.hazel.learn_durations", description=__doc__)
    parser.add_argument("weights", type=Path, help="weights.safetensors of a training run of FastSpeech")
    parser.add_argument("--voice", required=True, help="a voice with the FastPitch to learn from")
    what = "files of name|text lines, such as a corpus's metadata.csv"
    parser.add_argument("--texts", type=Path, nargs="+", required=True, help=what)
    what = "how many times each text is seen (default: %(default)s)"
    parser.add_argument("--epochs", type=positive, default=1, help=what)
    parser.add_argument("-o", "--output", type=Path, required=True, help="file to write")
    args = parser.parse_args()
    require_writable_file(args.output)
    source, voice = read_checkpoint(args.weights, "fastspeech"), load_voice(args.voice)
    taught = voice.source("fastpitch")
    assert taught.frontend is not None  # an acoustic model of a voice has one
    if source.config.n_symbols != taught.config.n_symbols:
        raise InputError(
            f"{args.weights} has {source.config.n_symbols} symbols, the FastPitch of voice {args.voice} "
            f"{taught.config.n_symbols}: take a FastSpeech that was trained on that voice's symbols"
        )
    texts = [line.text for path in args.texts for line in read_transcripts(path)]
    np.random.default_rng(0).shuffle(texts)
    ids = symbols_of(dict.fromkeys(texts), taught.frontend.build())
    held_out = min(HELD_OUT, len(ids) // 10)
    if not held_out:
        raise InputError(f"{len(ids)} sentences are too few: give texts of 10 at least, better of 10,000")
    student, teacher = trained_network(source, FastSpeech), trained_network(taught, FastPitch).encode
    unseen, seen = ids[:held_out], ids[held_out:]
    print(f"before: {compare(student, teacher, unseen)}, on {held_out} sentences that are held out")
    torch.manual_seed(0)
    train(student, teacher, seen, args.epochs)
    learnt = student.length_regulator.duration_predictor.state_dict(prefix=PREDICTOR)
    replace_weights(args.weights, args.output, {name: value.numpy() for name, value in learnt.items()})
    print(f"after:  {compare(student, teacher, unseen)}; on as many that were trained on:")
    print(f"        {compare(student, teacher, seen[:held_out])}")
    print(f"{args.output}: learnt from {len(seen)} sentences")

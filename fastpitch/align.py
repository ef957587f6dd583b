"""Durations from FastPitch's own aligner, learned from nothing but mels and their symbols (arXiv 2108.10447):
`python -m melforge.fastpitch.align --voice NAME --corpus DIR -o durations.npy`.

The aligner is trained alone: by the forward sum of all monotonic alignments, near the diagonal by a
beta-binomial prior, then also towards one path. The embeddings of the symbols are the network's, as they are.
Shape letters as in model.py: B batch, N symbols, T mel frames.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.fastpitch.align")

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from melforge.common.arrays import length_mask
from melforge.common.cli.training import load, prediction_parser
from melforge.common.training.corpus.batches import Utterances
from melforge.common.training.corpus.dataset import save_array
from melforge.common.training.corpus.predict import by_length, compare_boundaries
from melforge.fastpitch.aligner import monotonic_alignment
from melforge.fastpitch.model import FastPitch, average_over_symbols, make_repeat_index

STEPS, BATCH_SIZE, LEARNING_RATE = 1000, 16, 2e-3
BINARY_FROM = 0.5  # the share of the steps after which the loss of one path counts too
BLANK_LOGPROB = -1.0  # of a frame that belongs to no symbol, as published


def padded_prior(lengths: Tensor, mel_lengths: Tensor) -> Tensor:
    """The beta-binomial prior (B, T, N): how probable each symbol is at each frame of an utterance that is
    spoken at an even pace.
    """
    device, counts, sizes = lengths.device, lengths[:, None, None], mel_lengths[:, None, None]
    symbol = torch.arange(int(lengths.max()), device=device)
    late = torch.arange(1, int(mel_lengths.max()) + 1, device=device)[:, None]  # of a frame
    early, left = (sizes + 1 - late).clamp(min=1), (counts - symbol).clamp(min=0)  # 1, 0: outside
    log_gamma = torch.arange(len(symbol) + len(late) + 2, dtype=torch.float64, device=device).lgamma()

    def log_beta(a: Tensor, b: Tensor) -> Tensor:
        return log_gamma[a] + log_gamma[b] - log_gamma[a + b]

    ways = -log_beta(symbol + 1, left + 1) - (counts + 1).double().log()
    prior = (ways + log_beta(symbol + late, left + early) - log_beta(late, early)).exp().float()
    return prior * ((symbol < counts) & (late <= sizes))


def forward_sum_loss(logprob: Tensor, lengths: Tensor, mel_lengths: Tensor) -> Tensor:
    """Of log-probabilities (B, 1, T, N): how improbable all monotonic alignments are together, by symbol.

    It is a CTC loss whose labels are the symbols' numbers, with a blank of fixed probability.
    """
    n_symbols = logprob.size(3)
    outside = ~length_mask(lengths + 1, n_symbols + 1)[:, None]
    padded = F.pad(logprob[:, 0], (1, 0), value=BLANK_LOGPROB).masked_fill(outside, -1e4)
    targets = torch.arange(1, n_symbols + 1, device=logprob.device).expand(len(lengths), -1)
    scores = padded.log_softmax(2).transpose(0, 1)
    return F.ctc_loss(scores, targets, mel_lengths, lengths, zero_infinity=True)


def binarisation_loss(hard: Tensor, soft: Tensor) -> Tensor:
    """Mean negative log of the soft attention on the hard path, both (B, 1, T, N)."""
    return -(soft.clamp(min=1e-12).log() * hard).sum() / hard.sum()


def attend(model: FastPitch, corpus: Utterances, members: Tensor) -> tuple[Tensor, Tensor]:
    """Soft attention and its log (B, 1, T, N), of utterances (B,)."""
    n_symbols, n_frames = corpus.longest(members)
    symbols, lengths, frames = (
        corpus.ids[members, :n_symbols],
        corpus.lengths[members],
        corpus.frames[members],
    )
    with torch.no_grad():
        text = model.encoder.word_emb(symbols).transpose(1, 2)
    mask, prior = length_mask(lengths, n_symbols), padded_prior(lengths, frames)
    return model.attention(corpus.padded_mel(members, n_frames), text, mask, prior)


@torch.no_grad()
def hard_path(soft: Tensor, corpus: Utterances, members: Tensor) -> Tensor:
    """The most probable path (B, T, N) of zeros and ones."""
    return monotonic_alignment(
        soft[:, 0].clamp(min=1e-12).log(), corpus.lengths[members], corpus.frames[members]
    )


def learn(model: FastPitch, corpus: Utterances, steps: int = STEPS, seed: int = 0) -> None:
    """Trains the network's aligner on all utterances; the rest of it stays as it is."""
    model.attention.requires_grad_(True)
    optimiser = torch.optim.Adam(model.attention.parameters(), LEARNING_RATE)
    random = np.random.default_rng(seed)
    batches = corpus.frames.argsort().split(BATCH_SIZE)
    for step in tqdm(range(steps), desc="learning to align", mininterval=5):
        members = batches[random.integers(len(batches))]
        soft, logprob = attend(model, corpus, members)
        loss = forward_sum_loss(logprob, corpus.lengths[members], corpus.frames[members])
        if step >= BINARY_FROM * steps:
            loss = loss + binarisation_loss(hard_path(soft, corpus, members)[:, None], soft)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.attention.parameters(), 1.0)
        optimiser.step()
    model.attention.requires_grad_(False)


@torch.no_grad()
def durations_of(model: FastPitch, corpus: Utterances) -> list[np.ndarray]:
    """Frames int64 (N,) of every utterance's symbols, in the corpus's order; each symbol has one at least."""
    found = {}
    for members in by_length(corpus, BATCH_SIZE, "aligning"):
        rows = hard_path(attend(model, corpus, members)[0], corpus, members).sum(1).long()
        found |= zip(members.tolist(), rows.cpu().numpy(), strict=True)
    return [found[i][:length] for i, length in enumerate(corpus.lengths.tolist())]


def realign(corpus: Utterances, path: Path) -> None:
    """Takes a file's durations, and the means of the corpus's pitch over them."""
    frames = int(corpus.frames.max())
    by_frame = corpus.pitch.gather(1, make_repeat_index(corpus.durations, frames))
    by_frame = by_frame * length_mask(corpus.frames, frames)
    corpus.replace_durations(path)
    corpus.pitch = average_over_symbols(by_frame[:, None], corpus.durations)[:, 0]


def main() -> None:
    about = "Learns to align a corpus, and writes its durations."
    parser = prediction_parser("melforge.fastpitch.align", about, "durations (.npy)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of training (default: {STEPS})")
    args = parser.parse_args()
    torch.manual_seed(0)
    model, corpus = load(args, "fastpitch", FastPitch)
    learn(model, corpus, args.steps)
    found = durations_of(model, corpus)
    save_array(args.out, np.concatenate(found))
    print(f"{args.out}: {compare_boundaries(found, corpus)}")

"""Durations from Tacotron 2's attention, which is how NVIDIA's FastSpeech gets them:
`python -m melforge.fastspeech.align_tacotron2 --weights WEIGHTS --corpus DIR -o durations.npy`.

Tacotron 2 is shown the corpus's own mel; each frame goes to the symbol that its step looked at most. A .png
beside the file shows the attention on the corpus's last utterance.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.fastspeech.align_tacotron2")

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from melforge.common.arrays import length_mask
from melforge.common.cli.training import load, prediction_parser
from melforge.common.registry import get_model
from melforge.common.training.corpus.batches import Utterances
from melforge.common.training.corpus.dataset import save_array
from melforge.common.training.corpus.predict import by_length, compare_boundaries
from melforge.common.training.log import save_alignment_picture

TEACHER = "tacotron2"
BATCH_SIZE = 192


def attend(model: nn.Module, corpus: Utterances, members: Tensor) -> Tensor:
    """Attention (B, S, N) of utterances (B,)."""
    return get_model(TEACHER).module("train").teach(model, corpus, members).alignment


def count_frames(alignment: Tensor, frames: Tensor, frames_per_step: int) -> Tensor:
    """Attention (B, S, N) -> durations (B, N) int64 that add up to frames (B,)."""
    looked_at = alignment.argmax(2).repeat_interleave(frames_per_step, 1)  # (B, S * frames_per_step)
    durations = torch.zeros(len(frames), alignment.size(2), dtype=torch.long, device=frames.device)
    return durations.scatter_add_(1, looked_at, length_mask(frames, looked_at.size(1)).long())


def align(model: nn.Module, corpus: Utterances) -> list[np.ndarray]:
    """Durations int64 (N,) of every utterance, in the corpus's order."""
    found, step = {}, cast(Any, model.config).n_frames_per_step
    for members in by_length(corpus, BATCH_SIZE, "aligning"):
        alignment = attend(model, corpus, members)
        rows = count_frames(alignment, corpus.frames[members], step)
        found |= zip(members.tolist(), rows.cpu().numpy(), strict=True)
    return [found[i][:length] for i, length in enumerate(corpus.lengths.tolist())]


@torch.no_grad()
def main() -> None:
    about = "Writes a corpus's durations from Tacotron 2's attention."
    args = prediction_parser("melforge.fastspeech.align_tacotron2", about, "durations (.npy)").parse_args()
    model, corpus = load(args, TEACHER, nn.Module)
    found = align(model, corpus)
    save_array(args.out, np.concatenate(found))
    last = torch.tensor([len(corpus) - 1], device=corpus.device)
    save_alignment_picture(args.out.with_suffix(".png"), attend(model, corpus, last)[0])
    print(f"{args.out}: {compare_boundaries(found, corpus)}")

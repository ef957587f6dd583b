"""Durations from Tacotron 2's attention, which is how NVIDIA's FastSpeech gets them:
`python -m fastspeech.align_tacotron2 --weights RUN/weights.safetensors --corpus DIR --out durations.npy`.

Tacotron 2 is shown the corpus's own mel; each frame goes to the symbol that its step looked at most. A .png
beside the file shows the attention on the corpus's last utterance.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from common.cli.parser import Parser
from common.registry import get_model
from common.training.corpus import predict
from common.training.corpus.utterances import Utterances
from common.training.loop import plot_alignment

TEACHER = "tacotron2"
BATCH_SIZE = 192


def count_frames(alignment: Tensor, frames: Tensor, frames_per_step: int) -> Tensor:
    """Attention (B, S, N) -> durations (B, N) int64 that add up to frames (B,)."""
    looked_at = alignment.argmax(2).repeat_interleave(frames_per_step, 1)  # (B, S * frames_per_step)
    inside = torch.arange(looked_at.size(1), device=frames.device) < frames[:, None]
    durations = torch.zeros(len(frames), alignment.size(2), dtype=torch.long, device=frames.device)
    return durations.scatter_add_(1, looked_at, inside.long())


@torch.no_grad()
def align(model: nn.Module, corpus: Utterances) -> list[np.ndarray]:
    """Durations int64 (N,) of every utterance, in the corpus's order."""
    attend = get_model(TEACHER).module("predict_mels").attend
    found: list[np.ndarray] = [np.zeros(0, np.int64)] * len(corpus)
    for members in tqdm(corpus.frames.argsort().split(BATCH_SIZE), desc="aligning", mininterval=5):
        symbols, frames = int(corpus.lengths[members].max()), int(corpus.frames[members].max())
        alignment = attend(model, corpus, members, symbols, frames)
        rows = count_frames(alignment, corpus.frames[members], model.config.n_frames_per_step)
        for member, row in zip(members.tolist(), rows.cpu().numpy(), strict=True):
            found[member] = row[: int(corpus.lengths[member])]
    return found


def compare(found: list[np.ndarray], corpus: Utterances) -> str:
    """How far the durations' boundaries are from those of the corpus's own, in a sentence."""
    off = [
        np.abs(row.cumsum() - own[: len(row)].cumsum())[:-1]
        for row, own in zip(found, corpus.durations.cpu().numpy(), strict=True)
    ]
    off = np.concatenate(off)
    return (
        f"boundaries differ from the corpus's own by {np.median(off):.0f} frames in the median, "
        f"{np.percentile(off, 95):.0f} at the 95th percentile"
    )


def main() -> None:
    parser = Parser(
        prog="python -m fastspeech.align_tacotron2",
        description="Writes a corpus's durations from Tacotron 2's attention.",
    )
    predict.add_arguments(parser, "durations (.npy)")
    args = parser.parse_args()
    device = torch.device(args.device)
    model, source = predict.load_network(args.weights, args.voice, TEACHER, device)
    corpus = Utterances(args.corpus, source.mel, device)
    found = align(model, corpus)
    temporary = args.out.with_suffix(".tmp.npy")
    np.save(temporary, np.concatenate(found))
    temporary.replace(args.out)
    last = corpus.frames.new_tensor([len(corpus) - 1])
    with torch.no_grad():
        attend = get_model(TEACHER).module("predict_mels").attend
        alignment = attend(model, corpus, last, int(corpus.lengths[last]), int(corpus.frames[last]))
    plot_alignment(args.out.with_suffix(".png"), alignment[0])
    print(f"{args.out}: {compare(found, corpus)}")


if __name__ == "__main__":
    from common.cli.run import run

    run(main)

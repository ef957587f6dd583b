"""`python -m melforge.<model>.predict_mels`: mels of a corpus, to fine-tune a vocoder on."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from melforge.common.cli.parser import Parser
from melforge.common.registry import load_attribute
from melforge.common.stages import stages_of
from melforge.common.training.corpus.batches import Utterances
from melforge.common.training.corpus.dataset import save_array
from melforge.common.training.loop import pick_device
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import load_voice

# A network's prediction for utterances (B,); its `mel` is (B, n_mels, T).
Predict = Callable[[nn.Module, Utterances, Tensor], NamedTuple]


def load(args: argparse.Namespace, model: str) -> tuple[nn.Module, Utterances]:
    """The network of that model in eval mode, and the corpus, on the device."""
    device = pick_device(args.device)
    source = load_voice(args.voice).source(model) if args.voice else read_checkpoint(args.weights, model)
    network = load_attribute(stages_of(model, source.config)[0].network)(source.config)
    state = {name: torch.from_numpy(value) for name, value in source.state.items()}
    network.load_state_dict(state, strict=False)  # what only training needs is not in the file
    corpus = Utterances(args.corpus, source.mel, device)
    if source.speakers:
        corpus.number_speakers(source.speakers)
    if deviation := getattr(source.settings, "pitch_std", 0.0):
        corpus.measure_pitch_by(source.settings.pitch_mean, deviation)
    return network.to(device).eval(), corpus


def by_length(corpus: Utterances, batch_size: int, doing: str) -> Iterable[Tensor]:
    """All utterances, in batches (B,) of similar length."""
    return tqdm(corpus.frames.argsort().split(batch_size), desc=doing, mininterval=5)


def compare_boundaries(found: Sequence[np.ndarray], corpus: Utterances) -> str:
    """How far the boundaries of durations (N,) are from those of the corpus's own, in a sentence."""
    own = corpus.durations.cpu().numpy()
    pairs = zip(found, own, strict=True)
    off = np.concatenate([np.abs(row.cumsum() - other[: len(row)].cumsum())[:-1] for row, other in pairs])
    return (
        f"boundaries differ from the corpus's own by {np.median(off):.0f} frames in the median, "
        f"{np.percentile(off, 95):.0f} at the 95th percentile"
    )


def prediction_parser(prog: str, description: str, out: str) -> Parser:
    """Which weights run over which corpus, and what is written."""
    parser = Parser(prog=f"python -m {prog}", description=description)
    weights = parser.add_mutually_exclusive_group(required=True)
    weights.add_argument("--weights", type=Path, help="weights.safetensors of a training run")
    weights.add_argument("--voice", help="a voice instead, by name or folder")
    option = parser.add_argument
    option("--corpus", type=Path, required=True, help="folder that scripts/prepare_corpus.py wrote")
    option("--out", type=Path, required=True, help=f"the {out} file to write")
    option("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cuda or cpu")
    return parser


@torch.no_grad()
def main(model: str, batch_size: int, predict: Predict, freely: Predict | None = None) -> None:
    """The command of one model. `freely` predicts what `predict` takes from the corpus, but for durations."""
    description = "Writes a trained model's mels of a whole corpus, for a vocoder to be fine-tuned on."
    parser = prediction_parser(f"melforge.{model}.predict_mels", description, ".npy")
    if freely:
        what = "pitch and energy as the model predicts them: targets for another model to learn from"
        parser.add_argument("--predicted", action="store_true", help=what)
    args = parser.parse_args()
    network, corpus = load(args, model)
    chosen = freely if freely and args.predicted else predict
    mels = torch.empty_like(corpus.mel)
    for members in by_length(corpus, batch_size, "predicting mels"):
        places = zip(corpus.first[members].tolist(), corpus.frames[members].tolist(), strict=True)
        for mel, (first, length) in zip(chosen(network, corpus, members).mel, places, strict=True):
            mels[:, first : first + length] = mel[:, :length].half()
    save_array(args.out, mels.cpu().numpy())

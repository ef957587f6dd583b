"""`python -m <model>.predict_mels`: an acoustic model's mels of a corpus, to fine-tune a vocoder on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from common.cli.parser import Parser
from common.registry import load_attribute
from common.stages import stages_of
from common.training.corpus.mels import save_mels
from common.training.corpus.utterances import Utterances
from common.weights.published import read_checkpoint
from common.weights.voices import load_voice

# Predicts utterances (B,) padded to so many symbols and frames: mel (B, n_mels, frames).
Predict = Callable[[nn.Module, Utterances, Tensor, int, int], Tensor]


@torch.no_grad()
def predict_mels(model: nn.Module, corpus: Utterances, predict: Predict, batch_size: int) -> Tensor:
    """float16 mels of all utterances end to end, `[n_mels, frames]`."""
    mels = torch.empty_like(corpus.mel)
    order = corpus.frames.argsort()
    for members in tqdm(order.split(batch_size), desc="predicting mels", mininterval=5):
        symbols, frames = int(corpus.lengths[members].max()), int(corpus.frames[members].max())
        corpus.store_mels(mels, predict(model, corpus, members, symbols, frames), members)
    return mels


def load_network(weights: Path | None, voice: str | None, model: str, device: torch.device) -> tuple:
    """A trained model's network in eval mode, from weights or from a voice, and its `ModelSource`."""
    source = load_voice(voice).source(model) if voice else read_checkpoint(weights, model)
    network = load_attribute(stages_of(model, source.config)[0].network)(source.config)
    # What only training needs is not in the file.
    network.load_state_dict(
        {name: torch.from_numpy(value) for name, value in source.state.items()}, strict=False
    )
    return network.to(device).eval(), source


def add_arguments(parser: Parser, out: str) -> None:
    """Which weights run over which corpus, and what is written."""
    weights = parser.add_mutually_exclusive_group(required=True)
    weights.add_argument("--weights", type=Path, help="weights.safetensors of a training run")
    weights.add_argument("--voice", help="a voice instead, by name or folder")
    parser.add_argument(
        "--corpus", type=Path, required=True, help="folder that scripts/prepare_corpus.py wrote"
    )
    parser.add_argument("--out", type=Path, required=True, help=f"the {out} file to write")
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cuda or cpu"
    )


def main(model: str, batch_size: int, predict: Predict, freely: Predict | None = None) -> None:
    """The command of one model. `freely` predicts what `predict` takes from the corpus, but for durations."""
    parser = Parser(
        prog=f"python -m {model}.predict_mels",
        description="Writes a trained model's mels of a whole corpus, for a vocoder to be fine-tuned on.",
    )
    add_arguments(parser, ".npy")
    if freely:
        parser.add_argument(
            "--predicted",
            action="store_true",
            help="pitch and energy as the model predicts them: targets for another model to learn from",
        )
    args = parser.parse_args()
    device = torch.device(args.device)
    network, source = load_network(args.weights, args.voice, model, device)
    corpus = Utterances(args.corpus, source.mel, device)
    chosen = freely if freely and args.predicted else predict
    save_mels(args.out, predict_mels(network, corpus, chosen, batch_size))

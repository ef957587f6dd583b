"""Writes a trained FastPitch's mels of a whole corpus, for a vocoder to be fine-tuned on:
`python -m fastpitch.predict_mels --weights RUN/weights.safetensors --corpus DIR --out mels.npy`.

Durations, pitch and energy are the corpus's own, so that each mel stays in time and in tune with its audio.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from common.audio import MelContract
from common.corpus.mels import save_mels
from common.published import read_checkpoint
from fastpitch.model import FastPitch
from fastpitch.train import CorpusTensors

BATCH_SIZE = 32


def load_model(weights: Path, device: torch.device) -> tuple[FastPitch, MelContract]:
    """The network of a recipe's weights.safetensors or of a published file, and its mel contract."""
    source = read_checkpoint(weights, "acoustic")
    model = FastPitch(source.config)
    model.load_state_dict(
        {name: torch.from_numpy(value) for name, value in source.state.items()}, strict=False
    )
    return model.to(device).eval(), source.mel


@torch.no_grad()
def predict_mels(model: FastPitch, corpus: CorpusTensors) -> Tensor:
    """float16 mels of all utterances end to end, `[n_mels, frames]`."""
    mels = torch.empty_like(corpus.mel)
    order = corpus.frames.argsort()
    for members in tqdm(order.split(BATCH_SIZE), desc="predicting mels", mininterval=5):
        symbols, frames = int(corpus.lengths[members].max()), int(corpus.frames[members].max())
        out = model(**corpus.batch(members, symbols, frames))
        for mel, first, length in zip(out.mel, corpus.first[members], corpus.frames[members], strict=True):
            mels[:, first : first + length] = mel[:, :length].half()
    return mels


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], prog="python -m fastpitch.predict_mels"
    )
    parser.add_argument("--weights", type=Path, required=True, help="weights.safetensors of a training run")
    parser.add_argument(
        "--corpus", type=Path, required=True, help="folder that scripts/prepare_corpus.py wrote"
    )
    parser.add_argument("--out", type=Path, required=True, help="the .npy file to write")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    model, contract = load_model(args.weights, device)
    save_mels(args.out, predict_mels(model, CorpusTensors(args.corpus, contract, device)))


if __name__ == "__main__":
    from common.cli import run

    run(main)

"""Trains FastPitch: `python -m fastpitch.train --hparam hparams/fastpitch/train.yaml --corpus DIR --out DIR`.

Durations come from the corpus's forced alignment, so that no alignment has to be learnt. A vocoder is then
fine-tuned on the mels that `python -m fastpitch.predict_mels` writes.
"""

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor

from common.cli.run import run
from common.training.acoustic import AcousticRecipe, AcousticTrainer, Losses, load_corpus, masked_mean
from common.training.corpus.batches import Bucket, Utterances
from common.training.loop import autocast, recipe_parser, run_training
from fastpitch.model import FastPitch, Prediction, Synthesis, make_repeat_index


@dataclass(frozen=True)
class FastPitchRecipe(AcousticRecipe):
    duration_loss_weight: float
    pitch_loss_weight: float
    energy_loss_weight: float


def batch(corpus: Utterances, members: Tensor, symbols: int, frames: int) -> dict[str, Tensor]:
    """Utterance numbers (B,) -> the arguments of `FastPitch.forward`, padded to the given sizes."""
    mel = corpus.padded_mel(members, frames)
    durations = corpus.durations[members, :symbols]
    pitch = corpus.pitch[members, :symbols].gather(1, make_repeat_index(durations, frames))
    return {
        "symbols": corpus.ids[members, :symbols],
        "lengths": corpus.lengths[members],
        "mel": mel,
        "mel_lengths": corpus.frames[members],
        "pitch": (pitch * corpus.inside(members, frames))[:, None],
        "energy": mel.norm(dim=1),
        "durations": durations,
    }


def teach(model: FastPitch, corpus: Utterances, members: Tensor) -> Prediction:
    return model(**batch(corpus, members, *corpus.longest(members)))


def predict_freely(model: FastPitch, corpus: Utterances, members: Tensor) -> Synthesis:
    """Only the durations are the corpus's."""
    symbols, _ = corpus.longest(members)
    durations = corpus.durations[members, :symbols]
    return model.infer(corpus.ids[members, :symbols], corpus.lengths[members], durations=durations)


class FastPitchTrainer(AcousticTrainer):
    leave_out = ("attention.",)

    def __init__(self, args: argparse.Namespace, corpus: Utterances):
        model = FastPitch(args.built[0]).to(corpus.device)
        model.attention.requires_grad_(False)  # durations are given: the aligner is not trained
        model.pitch_mean.fill_(corpus.pitch_mean)
        model.pitch_std.fill_(corpus.pitch_std)
        super().__init__(args, corpus, model)

    def losses(self, model: FastPitch, bucket: Bucket, members: Tensor) -> Losses:
        given = batch(self.corpus, members, bucket.symbols, bucket.frames)
        with autocast(self.device):
            out = model(**given)
        symbols = given["symbols"] != self.config.padding_idx

        def squared(predicted: Tensor, target: Tensor) -> Tensor:
            return masked_mean((predicted.float() - target.float()).square(), symbols)

        losses = {
            "mel": masked_mean((out.mel.float() - given["mel"]).abs(), out.mel_mask[:, None]),
            "duration": squared(out.log_duration, torch.log1p(given["durations"].float())),
            "pitch": squared(out.pitch[:, 0], out.pitch_target[:, 0]),
        }
        if self.config.energy_conditioning:
            losses["energy"] = squared(out.energy, out.energy_target)
        return losses, out


def main() -> None:
    args = recipe_parser("fastpitch", FastPitchRecipe).parse_args()
    run_training(args, FastPitchTrainer(args, load_corpus(args)), log_every=1000)


if __name__ == "__main__":
    run(main)

"""Trains FastSpeech: `python -m melforge.fastspeech.train --corpus DIR -o DIR`.

Durations are the corpus's forced alignment, or with `--durations` Tacotron 2's attention (`python -m
melforge.fastspeech.align_tacotron2`). With `--mels` the targets are another model's mels instead of the
recorded ones, as in the paper (section 3.3, sequence-level knowledge distillation). FastSpeech has no pitch
input, so that on recordings it learns the average over all intonations of a sentence.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.fastspeech.train")

from dataclasses import dataclass

import torch
from torch import Tensor

from melforge.common.arrays import length_mask
from melforge.common.cli.training import durations_option, mels_option, parse_recipe, recipe_parser
from melforge.common.training.acoustic import (
    AcousticRecipe,
    AcousticTrainer,
    Losses,
    load_corpus,
    masked_mean,
)
from melforge.common.training.corpus.batches import LengthGroup
from melforge.common.training.loop import autocast, run_training
from melforge.fastspeech.model import FastSpeech


@dataclass(frozen=True)
class FastSpeechRecipe(AcousticRecipe):
    duration_loss_weight: float


class FastSpeechTrainer(AcousticTrainer[FastSpeech, FastSpeechRecipe]):
    def losses(self, model: FastSpeech, group: LengthGroup, members: Tensor, mel: Tensor) -> Losses:
        corpus = self.corpus
        symbols, lengths = corpus.ids[members, : group.symbols], corpus.lengths[members]
        durations = corpus.durations[members, : group.symbols]
        with autocast(self.device):
            out = model(symbols, lengths, durations, torch.arange(group.frames, device=self.device))
        off = out.log_duration.float() - torch.log1p(durations.float())
        return {
            "mel": masked_mean((out.mel.float() - mel).abs(), out.mel_mask[:, None]),
            "duration": masked_mean(off.square(), length_mask(lengths, off.size(1))),
        }, out


def main() -> None:
    parser = recipe_parser("fastspeech", FastSpeechRecipe)
    mels_option(parser)
    durations_option(parser)
    args, settings, plan = parse_recipe(parser)
    corpus = load_corpus(settings, args.corpus, plan.contract, args.mels)
    if args.durations:
        corpus.replace_durations(args.durations)
    model = FastSpeech(plan.config).to(corpus.device)
    run_training(settings, FastSpeechTrainer(model, plan, corpus), log_every=1000)

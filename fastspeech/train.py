"""Trains FastSpeech: `python -m fastspeech.train --corpus DIR --out DIR`.

Durations are the corpus's forced alignment, or with `--durations` Tacotron 2's attention (`python -m
fastspeech.align_tacotron2`). With `--mels` the targets are another model's mels of the corpus instead of the
recorded ones, as in the paper (section 3.3, sequence-level knowledge distillation). FastSpeech has no pitch
input, so that on recordings it learns the average over all intonations of a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from common.arrays import length_mask
from common.audio.contract import MelContract
from common.training.corpus.mels import load_mels
from common.training.corpus.utterances import Bucket, Utterances, batches, make_buckets
from common.training.loop import OneNetwork, Schedule, adamw, autocast, recipe_parser, run_training
from fastspeech.config import FastSpeechConfig
from fastspeech.model import FastSpeech


@dataclass(frozen=True)
class FastSpeechRecipe:
    """Training settings; hparams/fastspeech/train.yaml has their values."""

    frames_per_batch: int
    max_batch_size: int
    bucket_frames: tuple[int, ...]  # upper limits of the length buckets; longer utterances are not used
    learning_rate: float
    final_learning_rate: float
    warm_up_steps: int
    weight_decay: float
    ema_decay: float
    clip_norm: float
    duration_loss_weight: float


def batch(corpus: Utterances, members: Tensor, symbols: int, frames: int) -> dict[str, Tensor]:
    """Utterance numbers (B,) -> the arguments of `FastSpeech.forward`, padded to the given sizes."""
    return {
        "symbols": corpus.ids[members, :symbols],
        "lengths": corpus.lengths[members],
        "durations": corpus.durations[members, :symbols],
        "frames": torch.arange(frames, device=corpus.device),
    }


class Trainer(OneNetwork):
    """Network, optimiser and one step on one device."""

    def __init__(
        self, config: FastSpeechConfig, contract: MelContract, recipe: FastSpeechRecipe, corpus: Utterances
    ):
        self.recipe, self.corpus, self.device = recipe, corpus, corpus.device
        model = FastSpeech(config).to(corpus.device)
        optimiser = adamw([model], recipe.learning_rate, (0.9, 0.98), recipe.weight_decay)
        super().__init__(model, optimiser, recipe.ema_decay, contract)

    def losses(self, model: FastSpeech, bucket: Bucket, members: Tensor) -> dict[str, Tensor]:
        given = batch(self.corpus, members, bucket.symbols, bucket.frames)
        with autocast(self.device):
            out = model(**given)
        frames = out.mel_mask.float()[:, None]
        target = self.corpus.padded_mel(members, bucket.frames)
        difference = (out.mel.float() - target) * frames
        inside = length_mask(given["lengths"], out.log_duration.size(1)).float()
        off = (out.log_duration.float() - torch.log1p(given["durations"].float())) * inside
        return {
            "mel": difference.abs().sum() / (frames.sum() * difference.size(1)),
            "duration": off.square().sum() / inside.sum(),
        }

    def step(self, bucket: Bucket, members: Tensor) -> dict[str, Tensor]:
        self.optimiser.zero_grad(set_to_none=True)
        losses = self.losses(self.model, bucket, members)
        (losses["mel"] + self.recipe.duration_loss_weight * losses["duration"]).backward()
        torch.nn.utils.clip_grad_norm_(
            [p for p in self.model.parameters() if p.requires_grad], self.recipe.clip_norm
        )
        self.optimiser.step()
        self.ema.update()
        return {name: loss.detach() for name, loss in losses.items()}

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        bucket = self.corpus.validation()
        members = torch.tensor(bucket.members, device=self.device)
        losses = self.losses(self.averaged_model(), bucket, members)
        return {f"validation_{name}": loss.item() for name, loss in losses.items()}


def main() -> None:
    parser = recipe_parser(
        "fastspeech",
        "Trains FastSpeech on a labelled corpus.",
        FastSpeechConfig,
        MelContract,
        FastSpeechRecipe,
    )
    parser.add_argument("--mels", type=Path, help="mels to learn instead of the corpus's own (.npy)")
    parser.add_argument("--durations", type=Path, help="durations instead of the corpus's own (.npy)")
    args = parser.parse_args()
    config, contract, recipe = args.built
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    corpus = Utterances(args.corpus, contract, torch.device(args.device))
    if args.mels:
        corpus.mel = load_mels(args.mels, corpus.mel.size(1), corpus.device)
    if args.durations:
        corpus.replace_durations(args.durations)
    trainer = Trainer(config, contract, recipe, corpus)
    schedule = Schedule(
        recipe.learning_rate, recipe.final_learning_rate, recipe.warm_up_steps, args.steps, args.minutes
    )
    buckets = make_buckets(corpus, recipe.bucket_frames, recipe.frames_per_batch, recipe.max_batch_size)
    run_training(args, trainer, schedule, batches(buckets, args.seed, corpus.device), log_every=1000)


if __name__ == "__main__":
    from common.cli.run import run

    run(main)

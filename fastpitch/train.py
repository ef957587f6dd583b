"""Trains FastPitch: `python -m fastpitch.train --hparam hparams/fastpitch/train.yaml --corpus DIR --out DIR`.

Durations come from the corpus's forced alignment, so that no alignment has to be learnt. Batches of similar
length run as CUDA graphs, one per length bucket, on a corpus in the GPU's memory. A vocoder is then
fine-tuned on the mels that `python -m fastpitch.predict_mels` writes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from common.audio.contract import MelContract
from common.training.corpus.utterances import Bucket, Utterances, batches, make_buckets
from common.training.loop import OneNetwork, Schedule, adamw, autocast, recipe_parser, run_training
from fastpitch.config import FastPitchConfig
from fastpitch.model import FastPitch, make_repeat_index


@dataclass(frozen=True)
class FastPitchRecipe:
    """Training settings; hparams/fastpitch/train.yaml has their values."""

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


class Trainer(OneNetwork):
    """Network, optimiser and one step on one device."""

    leave_out = "attention."

    def __init__(
        self,
        config: FastPitchConfig,
        contract: MelContract,
        recipe: FastPitchRecipe,
        corpus: Utterances,
        device: torch.device,
    ):
        self.config, self.recipe, self.corpus, self.device = config, recipe, corpus, device
        model = FastPitch(config).to(device)
        model.attention.requires_grad_(False)  # durations are given: the aligner is not trained
        model.pitch_mean.fill_(corpus.pitch_mean)
        model.pitch_std.fill_(corpus.pitch_std)
        optimiser = adamw([model], recipe.learning_rate, (0.9, 0.98), recipe.weight_decay)
        super().__init__(model, optimiser, recipe.ema_decay, contract)

    def losses(self, model: FastPitch, bucket: Bucket, members: Tensor) -> dict[str, Tensor]:
        given = batch(self.corpus, members, bucket.symbols, bucket.frames)
        with autocast(self.device):
            out = model(**given)
        symbols = (given["symbols"] != self.config.padding_idx).float()
        frames = out.mel_mask.float()[:, None]
        count = symbols.sum()

        def per_symbol(predicted: Tensor, target: Tensor) -> Tensor:
            return ((predicted.float() - target.float()).square() * symbols).sum() / count

        difference = (out.mel.float() - given["mel"]) * frames
        losses = {
            "mel": difference.abs().sum() / (frames.sum() * difference.size(1)),
            "duration": per_symbol(out.log_duration, torch.log1p(given["durations"].float())),
            "pitch": per_symbol(out.pitch[:, 0], out.pitch_target[:, 0]),
        }
        if self.config.energy_conditioning:
            losses["energy"] = per_symbol(out.energy, out.energy_target)
        return losses

    def step(self, bucket: Bucket, members: Tensor) -> dict[str, Tensor]:
        self.optimiser.zero_grad(set_to_none=True)
        losses = self.losses(self.model, bucket, members)
        recipe = self.recipe
        weights = {
            "mel": 1.0,
            "duration": recipe.duration_loss_weight,
            "pitch": recipe.pitch_loss_weight,
            "energy": recipe.energy_loss_weight,
        }
        sum(weights[name] * loss for name, loss in losses.items()).backward()
        torch.nn.utils.clip_grad_norm_(
            [p for p in self.model.parameters() if p.requires_grad], recipe.clip_norm
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
    args = recipe_parser(
        "fastpitch", "Trains FastPitch on a labelled corpus.", FastPitchConfig, MelContract, FastPitchRecipe
    ).parse_args()
    device = torch.device(args.device)
    config, contract, recipe = args.built
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    corpus = Utterances(args.corpus, contract, device)
    trainer = Trainer(config, contract, recipe, corpus, device)
    schedule = Schedule(
        recipe.learning_rate, recipe.final_learning_rate, recipe.warm_up_steps, args.steps, args.minutes
    )
    buckets = make_buckets(corpus, recipe.bucket_frames, recipe.frames_per_batch, recipe.max_batch_size)
    run_training(args, trainer, schedule, batches(buckets, args.seed, device), log_every=1000)


if __name__ == "__main__":
    from common.cli.run import run

    run(main)

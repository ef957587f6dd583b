"""Trains Tacotron 2: `python -m tacotron2.train --corpus DIR --out DIR`.

The corpus's forced alignment supervises the attention (a cross entropy besides the mel losses), so that it
converges within minutes. Batches of similar length run as CUDA graphs, all decoder steps in one, on a corpus
in the GPU's memory. With every log line `alignment.png` shows the attention on a held-out utterance, and some
utterances are synthesised free-running.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from common.arrays import length_mask
from common.audio.contract import MelContract
from common.training.corpus.utterances import Bucket, Utterances, batches, make_buckets
from common.training.loop import OneNetwork, Schedule, adamw, plot_alignment, recipe_parser, run_training
from tacotron2.config import Tacotron2Config
from tacotron2.model import PRENET_LAYERS, Tacotron2

SILENCE = -11.5  # log mel behind an utterance's end, the decoder's input while it learns to stop
STEPS_AFTER_END = 4  # with the gate's target at stop
GATE_WEIGHT = 5.0  # of the few steps with target stop, against the many others
SPOKEN_UTTERANCES = 16  # held-out ones, synthesised free-running with every log line
WEIGHT_FLOOR = 1e-6  # lower bound of an attention weight in the logarithm


@dataclass(frozen=True)
class Tacotron2Recipe:
    """Training settings; hparams/tacotron2/train.yaml has their values."""

    frames_per_batch: int
    max_batch_size: int
    bucket_frames: tuple[int, ...]  # upper limits of the length buckets; longer utterances are not used
    learning_rate: float
    final_learning_rate: float
    warm_up_steps: int
    weight_decay: float
    ema_decay: float
    clip_norm: float
    gate_loss_weight: float
    alignment_loss_weight: float


def batch(corpus: Utterances, members: Tensor, symbols: int, frames: int) -> dict[str, Tensor]:
    """Utterance numbers (B,) -> the arguments of `Tacotron2.forward` without noise, padded to these sizes."""
    return {
        "symbols": corpus.ids[members, :symbols],
        "lengths": corpus.lengths[members],
        "mel": corpus.padded_mel(members, frames, padding=SILENCE),
        "mel_lengths": corpus.frames[members],
    }


def prenet_noise(config: Tacotron2Config, mel: Tensor) -> Tensor:
    """Uniform noise for every step of mel (B, n_mels, T): (2, S, B, P)."""
    steps = mel.size(2) // config.n_frames_per_step
    return torch.rand(PRENET_LAYERS, steps, mel.size(0), config.prenet_dim, device=mel.device)


def spoken_symbols(durations: Tensor, frames: int, step: int) -> Tensor:
    """Durations in frames (B, N) -> each decoder step's symbol (B, frames / step).

    It is the symbol at the middle of a step, and behind the end the last symbol.
    """
    ends = durations.cumsum(1)
    middles = torch.arange(step // 2, frames, step, device=durations.device)
    symbol = torch.searchsorted(ends, middles.expand(len(ends), -1).contiguous(), right=True)
    return torch.minimum(symbol, (durations > 0).long().cumsum(1).argmax(1)[:, None])


class Trainer(OneNetwork):
    """Network, optimiser and one step on one device."""

    def __init__(
        self,
        config: Tacotron2Config,
        contract: MelContract,
        recipe: Tacotron2Recipe,
        corpus: Utterances,
        out: Path,
    ):
        self.config, self.recipe, self.out = config, recipe, out
        self.corpus, self.device = corpus, corpus.device
        model = Tacotron2(config).to(self.device)
        # Starts at the mean frame, so that the first updates need not learn this level.
        mean = corpus.mel.float().mean(1).repeat(config.n_frames_per_step)
        model.decoder.linear_projection.linear_layer.bias.data.copy_(mean)
        optimiser = adamw([model], recipe.learning_rate, (0.9, 0.999), recipe.weight_decay)
        super().__init__(model, optimiser, recipe.ema_decay, contract)

    def losses(self, model: Tacotron2, bucket: Bucket, members: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Each loss, and the alignment (B, S, N)."""
        given = batch(self.corpus, members, bucket.symbols, bucket.frames)
        out = model(**given, prenet_noise=prenet_noise(self.config, given["mel"]))
        frames = self.corpus.inside(members, bucket.frames)[:, None].float()
        values = frames.sum() * self.config.n_mel_channels
        mel = sum(
            ((difference.abs() + difference.square()) * frames).sum() / values
            for difference in (out.mel_before_postnet - given["mel"], out.mel - given["mel"])
        )
        steps = -(-given["mel_lengths"] // self.config.n_frames_per_step)
        count = out.gate.size(1)
        ended = (~length_mask(steps - 1, count)).float()
        counted = length_mask(steps + STEPS_AFTER_END, count).float()
        gate = F.binary_cross_entropy_with_logits(
            out.gate,
            ended,
            counted,
            pos_weight=torch.full_like(out.gate[:1, :1], GATE_WEIGHT),
            reduction="sum",
        )
        durations = self.corpus.durations[members, : bucket.symbols]
        spoken = spoken_symbols(durations, bucket.frames, self.config.n_frames_per_step)
        weights = out.alignment.gather(2, spoken[:, :, None])[:, :, 0]
        inside = length_mask(steps, count).float()
        alignment = -(weights.clamp(min=WEIGHT_FLOOR).log() * inside).sum() / inside.sum()
        return {"mel": mel, "gate": gate / counted.sum(), "alignment": alignment}, out.alignment

    def step(self, bucket: Bucket, members: Tensor) -> dict[str, Tensor]:
        self.optimiser.zero_grad(set_to_none=True)
        losses, _ = self.losses(self.model, bucket, members)
        recipe = self.recipe
        total = (
            losses["mel"]
            + recipe.gate_loss_weight * losses["gate"]
            + recipe.alignment_loss_weight * losses["alignment"]
        )
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip_norm)
        self.optimiser.step()
        self.ema.update()
        return {name: loss.detach() for name, loss in losses.items()}

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Teacher-forced losses; and, free-running, the share of items that stopped and the mean relative
        difference in length."""
        model, bucket = self.averaged_model(), self.corpus.validation()
        members = torch.tensor(bucket.members, device=self.device)
        losses, alignment = self.losses(model, bucket, members)
        length = int(self.corpus.lengths[members[0]])
        steps = int(self.corpus.frames[members[0]]) // self.config.n_frames_per_step
        plot_alignment(self.out / "alignment.png", alignment[0, :steps, :length])
        members = members[:SPOKEN_UTTERANCES]
        lengths, frames = self.corpus.lengths[members], self.corpus.frames[members]
        limit = 2 * int(frames.max()) // self.config.n_frames_per_step
        noise = torch.rand(limit, PRENET_LAYERS, len(members), self.config.prenet_dim, device=self.device)
        spoken = model.infer(
            self.corpus.ids[members, : int(lengths.max())], lengths, prenet_noise=noise, max_steps=limit
        )
        off = (spoken.mel_lengths - frames).abs() / frames
        return {
            **{f"validation_{name}": loss.item() for name, loss in losses.items()},
            "stopped": spoken.stopped.float().mean().item(),
            "length_off": off.mean().item(),
        }


def main() -> None:
    args = recipe_parser(
        "tacotron2", "Trains Tacotron 2 on a labelled corpus.", Tacotron2Config, MelContract, Tacotron2Recipe
    ).parse_args()
    device = torch.device(args.device)
    config, contract, recipe = args.built
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    corpus = Utterances(args.corpus, contract, device)
    trainer = Trainer(config, contract, recipe, corpus, args.out)
    schedule = Schedule(
        recipe.learning_rate, recipe.final_learning_rate, recipe.warm_up_steps, args.steps, args.minutes
    )
    buckets = make_buckets(corpus, recipe.bucket_frames, recipe.frames_per_batch, recipe.max_batch_size)
    run_training(args, trainer, schedule, batches(buckets, args.seed, device), log_every=500)


if __name__ == "__main__":
    from common.cli.run import run

    run(main)

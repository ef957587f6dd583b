"""Trains FastPitch: `python -m fastpitch.train --hparam hparams/fastpitch/train.yaml --corpus DIR --out DIR`.

Durations come from the corpus's forced alignment, so that the model learns to speak from the first step.
Batches of similar length run as CUDA graphs, one a length bucket, on a corpus that lies in the GPU's memory.
A vocoder is then fine-tuned on what `python -m fastpitch.predict_mels` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common.audio import MelContract
from common.corpus.dataset import load_audio, load_labels
from common.corpus.mels import corpus_mel
from common.hparams import load_hparams
from common.training import Ema, Schedule, adamw, autocast, recipe_parser, run_training, save_weights
from fastpitch.config import FastPitchConfig
from fastpitch.model import FastPitch, make_repeat_index

VALIDATION_UTTERANCES = 64


@dataclass(frozen=True)
class FastPitchRecipe:
    """How the network is trained; one value each in hparams/fastpitch/train.yaml."""

    frames_per_batch: int
    max_batch_size: int
    bucket_frames: tuple[int, ...]  # upper ends of the length buckets; longer utterances are left out
    learning_rate: float
    final_learning_rate: float
    warm_up_steps: int
    weight_decay: float
    ema_decay: float
    clip_norm: float
    duration_loss_weight: float
    pitch_loss_weight: float
    energy_loss_weight: float


@dataclass(frozen=True, eq=False)  # compared by identity: a bucket is the key of its CUDA graph
class Bucket:
    """Utterances of similar length, padded to one shape."""

    symbols: int
    frames: int
    batch_size: int
    members: tuple[int, ...]


class CorpusTensors:
    """The labelled corpus on the device; `batch` gathers padded tensors from utterance numbers."""

    def __init__(self, folder: Path, contract: MelContract, device: torch.device):
        labels = load_labels(folder)
        samples, offsets = load_audio(folder, labels, contract.hop_length)
        self.mel = corpus_mel(torch.from_numpy(samples).to(device), contract)
        self.first = torch.from_numpy(offsets[:-1] // contract.hop_length).to(device)
        self.frames = torch.from_numpy(labels.frames).to(device)
        self.lengths = torch.tensor([len(ids) for ids in labels.ids], device=device)
        self.pitch_mean, self.pitch_std = labels.pitch_statistics()
        self.ids = self._table(labels.ids, torch.int64, device)
        self.durations = self._table(labels.durations, torch.int64, device)
        pitch = self._table(labels.pitch, torch.float32, device)
        self.pitch = torch.where(pitch > 0, (pitch - self.pitch_mean) / self.pitch_std, 0.0)

    @staticmethod
    def _table(rows: list[np.ndarray], dtype: torch.dtype, device: torch.device) -> Tensor:
        padded = np.zeros((len(rows), max(map(len, rows))), dtype=np.float32)
        for target, row in zip(padded, rows, strict=True):
            target[: len(row)] = row
        return torch.from_numpy(padded).to(device, dtype)

    def batch(self, members: Tensor, symbols: int, frames: int) -> dict[str, Tensor]:
        """Utterance numbers (B,) -> the arguments of `FastPitch.forward`, padded to the given sizes."""
        mel_lengths = self.frames[members]
        step = torch.arange(frames, device=members.device)
        inside = step < mel_lengths[:, None]
        at = (self.first[members][:, None] + step).clamp(max=self.mel.size(1) - 1)
        mel = self.mel[:, at].transpose(0, 1).float() * inside[:, None]
        durations = self.durations[members, :symbols]
        pitch = self.pitch[members, :symbols].gather(1, make_repeat_index(durations, frames)) * inside
        return {
            "symbols": self.ids[members, :symbols],
            "lengths": self.lengths[members],
            "mel": mel,
            "mel_lengths": mel_lengths,
            "pitch": pitch[:, None],
            "energy": mel.norm(dim=1),
            "durations": durations,
        }


def make_buckets(corpus: CorpusTensors, recipe: FastPitchRecipe) -> list[Bucket]:
    """Length buckets over all utterances but the last ones, which validate."""
    frames, lengths = corpus.frames.cpu().numpy(), corpus.lengths.cpu().numpy()
    usable = np.arange(len(frames)) < len(frames) - VALIDATION_UTTERANCES
    buckets, low = [], 0
    for high in recipe.bucket_frames:
        members = np.flatnonzero(usable & (frames > low) & (frames <= high))
        low = high
        if len(members):
            batch = min(recipe.max_batch_size, recipe.frames_per_batch // high, len(members))
            buckets.append(
                Bucket(-(-int(lengths[members].max()) // 8) * 8, high, batch, tuple(members.tolist()))
            )
    if not buckets:
        raise ValueError("the corpus is too small: no utterance is left for training")
    return buckets


def batches(
    buckets: list[Bucket], seed: int, device: torch.device
) -> Iterator[tuple[Bucket, dict[str, Tensor]]]:
    """Endless batches; every utterance comes equally often, in a new order each time."""
    random = np.random.default_rng(seed)
    weights = np.array([len(b.members) / b.batch_size for b in buckets])
    queues: list[list[int]] = [[] for _ in buckets]
    while True:
        index = random.choice(len(buckets), p=weights / weights.sum())
        bucket, queue = buckets[index], queues[index]
        if len(queue) < bucket.batch_size:
            queue.extend(random.permutation(bucket.members).tolist())
        members, queue[: bucket.batch_size] = queue[: bucket.batch_size], []
        yield bucket, {"members": torch.tensor(members, device=device)}


class Trainer:
    """Network, optimiser and one step on one device."""

    def __init__(
        self,
        config: FastPitchConfig,
        contract: MelContract,
        recipe: FastPitchRecipe,
        corpus: CorpusTensors,
        device: torch.device,
    ):
        self.config, self.contract, self.recipe = config, contract, recipe
        self.corpus, self.device = corpus, device
        self.model = FastPitch(config).to(device)
        self.model.attention.requires_grad_(False)  # durations are given: the aligner is not trained
        self.model.pitch_mean.fill_(corpus.pitch_mean)
        self.model.pitch_std.fill_(corpus.pitch_std)
        self.optimiser = adamw([self.model], recipe.learning_rate, (0.9, 0.98), recipe.weight_decay)
        self.optimisers = [self.optimiser]
        self.ema = Ema(self.model, recipe.ema_decay)

    def state_dict(self) -> dict:
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "ema": self.ema.state_dict(),
        }

    def load_networks(self, state: dict) -> None:
        self.model.load_state_dict(state["model"])
        self.ema.load_state_dict(state["ema"])

    def load_state_dict(self, state: dict) -> None:
        self.load_networks(state)
        self.optimiser.load_state_dict(state["optimiser"])

    def losses(self, model: FastPitch, bucket: Bucket, members: Tensor) -> dict[str, Tensor]:
        batch = self.corpus.batch(members, bucket.symbols, bucket.frames)
        with autocast(self.device):
            out = model(**batch)
        symbols = (batch["symbols"] != self.config.padding_idx).float()
        frames = out.mel_mask.float()[:, None]
        count = symbols.sum()

        def per_symbol(predicted: Tensor, target: Tensor) -> Tensor:
            return ((predicted.float() - target.float()).square() * symbols).sum() / count

        difference = (out.mel.float() - batch["mel"]) * frames
        losses = {
            "mel": difference.abs().sum() / (frames.sum() * difference.size(1)),
            "duration": per_symbol(out.log_duration, torch.log1p(batch["durations"].float())),
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

    def averaged_model(self) -> FastPitch:
        """A copy with the moving average's weights, for validation and for shipping."""
        copy = FastPitch(self.config).to(self.device)
        copy.load_state_dict(self.model.state_dict() | self.ema.state_dict())
        return copy.eval()

    def save_weights(self, path: Path, info: dict) -> None:
        info = {"mel": asdict(self.contract), **info}
        save_weights(path, self.averaged_model(), self.config, info, leave_out="attention.")

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        total = len(self.corpus.frames)
        members = torch.arange(total - VALIDATION_UTTERANCES, total, device=self.device)
        bucket = Bucket(
            int(self.corpus.lengths[members].max()), int(self.corpus.frames[members].max()), len(members), ()
        )
        losses = self.losses(self.averaged_model(), bucket, members)
        return {f"validation_{name}": loss.item() for name, loss in losses.items()}


def main() -> None:
    args = recipe_parser("fastpitch", "Trains FastPitch on a labelled corpus.").parse_args()
    device = torch.device(args.device)
    config, contract, recipe = load_hparams(
        args.hparam, FastPitchConfig, MelContract, FastPitchRecipe, overrides=args.set
    )
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    corpus = CorpusTensors(args.corpus, contract, device)
    trainer = Trainer(config, contract, recipe, corpus, device)
    schedule = Schedule(
        recipe.learning_rate, recipe.final_learning_rate, recipe.warm_up_steps, args.steps, args.minutes
    )
    buckets = make_buckets(corpus, recipe)
    used, longest = sum(len(bucket.members) for bucket in buckets), recipe.bucket_frames[-1]
    left_out = len(corpus.frames) - used - VALIDATION_UTTERANCES
    print(f"{used} utterances train, {left_out} are longer than {longest} frames and left out")
    run_training(args, trainer, schedule, batches(buckets, args.seed, device), log_every=1000)


if __name__ == "__main__":
    from common.cli import run

    run(main)

"""Trains Jasper: `python -m melforge.jasper.train --hparam hparams/jasper/train.yaml --corpus DIR -o DIR`.

Recordings stay in the GPU's memory; augmentation and features are computed there. A step is two CUDA graphs:
PyTorch's CTC loss, which takes lengths from the host, runs between them.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.jasper.train")

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from melforge.common.cli.training import parse_recipe, recipe_parser
from melforge.common.errors import InputError
from melforge.common.recognition.transcript import error_rate, greedy_text, reference_words
from melforge.common.training.corpus.recordings import Recordings, load_recordings
from melforge.common.training.loop import (
    GraphedSteps,
    Recipe,
    Trainer,
    TrainingPlan,
    adamw,
    autocast,
    run_training,
    start,
)
from melforge.jasper.augment import (
    Augmentation,
    augmented_features,
    clean_features,
    read_at_speeds,
    warped_bases,
)
from melforge.jasper.config import JasperConfig
from melforge.jasper.features_network import JasperFeatures
from melforge.jasper.model import Jasper
from melforge.jasper.training_forward import kernel_or, training_encoder

HELD_OUT = 100  # recordings that are looked at; so many are held out where no folder "val" says which
VALIDATION_BATCH = 16


@dataclass(frozen=True)
class JasperRecipe(Augmentation, Recipe):
    """`Augmentation` and the settings of batches. Recordings longer than the last bucket are not used."""

    seconds_per_batch: float = 600.0
    bucket_seconds: tuple[float, ...] = (3.0, 5.0, 7.0, 9.0, 12.0, 16.7)  # upper limits
    weight_decay: float = 1e-3
    clip_norm: float = 1.0


class Targets:
    """Texts as label ids, and which recordings can be trained on."""

    def __init__(self, recordings: Recordings, config: JasperConfig, longest: float, fastest: float):
        known = set(config.labels)  # a corpus may be written as a recogniser writes already
        self.words = [
            text.split() if known.issuperset(text) else reference_words(text, config.labels)
            for text in recordings.texts
        ]
        rows = [[config.labels.index(c) for c in " ".join(words)] for words in self.words]
        self.lengths = torch.tensor([len(row) for row in rows])
        self.ids = torch.zeros(len(rows), max(1, int(self.lengths.max())), dtype=torch.int64)
        for target, row in zip(self.ids, rows, strict=True):
            target[: len(row)] = torch.tensor(row, dtype=torch.int64)
        # CTC needs an output for each character and a blank between equal ones, at any speed.
        needed = np.array([len(row) + sum(a == b for a, b in pairwise(row)) for row in rows])
        outputs = np.array([config.steps(config.frames(int(n / fastest))) for n in recordings.lengths])
        fits = recordings.lengths <= longest * config.sampling_rate
        self.usable = fits & (needed > 0) & (needed < outputs)
        if not self.usable.any():
            raise InputError(f"none of {len(rows)} recordings is up to {longest:g} s and as long as its text")


def evenly_chosen(members: np.ndarray, count: int) -> np.ndarray:
    """So many of members [N], or all, evenly from the first to the last: of every part of a corpus some."""
    return members[np.linspace(0, len(members) - 1, min(count, len(members))).astype(int)]


class JasperTrainer(Trainer[Jasper, JasperRecipe]):
    """One network and AdamW, with CTC loss."""

    def __init__(
        self, plan: TrainingPlan[JasperConfig, JasperRecipe], recordings: Recordings, device: torch.device
    ):
        config, _, recipe = plan
        model = Jasper(config).to(device)
        super().__init__(model, config.mel, recipe, recipe.clip_norm)
        self.config, self.recordings = config, recordings
        self.encode = training_encoder(model)
        self.read_at_speeds = kernel_or(read_at_speeds, device)
        self.features = JasperFeatures(config).to(device)
        self.bases = warped_bases(self.features, config, recipe.warp).to(device) if recipe.warp else None
        self.targets = Targets(recordings, config, recipe.bucket_seconds[-1], max(1.0, recipe.speed_max))
        self.audio = torch.from_numpy(recordings.audio).to(device)
        self.starts = torch.from_numpy(recordings.offsets[:-1])
        self.lengths = torch.from_numpy(recordings.lengths)
        usable = np.flatnonzero(self.targets.usable)
        held_out = recordings.held_out[usable]
        if not held_out.any():
            held_out = np.arange(len(usable)) % max(2, len(usable) // HELD_OUT) == 1
        self.training, self.validation = usable[~held_out], evenly_chosen(usable[held_out], HELD_OUT)
        if not len(self.training) or not len(self.validation):
            raise InputError(f"{recordings.folder}: {len(usable)} recordings can be used; give at least two")
        self.networks = {"model": model}
        self.optimisers = {"optimiser": adamw(model, recipe.learning_rate, (0.9, 0.98), recipe.weight_decay)}
        self.hear, self.learn = self.captured = GraphedSteps(self._hear), GraphedSteps(self._learn)
        self.heard: dict[object, Tensor] = {}  # a key's log-probabilities, with what leads back from them

    def batches(self, seed: int) -> Iterator[tuple[object, dict[str, Tensor]]]:
        """Recordings (B,) and their speeds (B,) on the host, of one bucket's lengths: the key's seconds."""
        rng, recipe = np.random.default_rng(seed), self.recipe
        rate = self.config.sampling_rate
        while True:
            order = rng.permutation(self.training)
            seconds = self.recordings.lengths[order] / rate
            bucket = np.searchsorted(recipe.bucket_seconds, seconds)
            made = []
            for number, longest in enumerate(recipe.bucket_seconds):
                members, size = order[bucket == number], max(1, int(recipe.seconds_per_batch / longest))
                parts = [members[i : i + size] for i in range(0, len(members), size)]
                if len(parts) > 1 and len(parts[-1]) <= size // 2:
                    parts.pop()  # a few recordings' gradient is noise; the next pass has others of them
                made += [(longest, part) for part in parts]
            for place in rng.permutation(len(made)).tolist():
                longest, members = made[place]
                speeds = rng.uniform(recipe.speed_min, recipe.speed_max, len(members))
                if recipe.speed_discrete:
                    speeds = rng.choice([recipe.speed_min, 1.0, recipe.speed_max], len(members))
                yield (
                    (longest, len(members)),
                    {"members": torch.from_numpy(members), "speeds": torch.from_numpy(speeds).float()},
                )

    def placed(self, members: Tensor, speeds: Tensor, longest: float) -> tuple[dict[str, Tensor], Tensor]:
        """Recordings (B,) at these speeds (B,), up to so many seconds at the slowest: what `read` takes, and
        their samples (B,) on the host.
        """
        ends = torch.clamp((self.lengths[members] / speeds).long(), max=self.samples(longest))
        given = {"starts": self.starts[members], "lengths": self.lengths[members]}
        given |= {"speeds": speeds, "ends": ends}
        return {name: value.to(self.device, non_blocking=True) for name, value in given.items()}, ends

    def samples(self, longest: float) -> int:
        """Of a batch whose recordings last up to so many seconds, at the slowest speed."""
        config = self.config
        most = int(longest * config.sampling_rate / min(1.0, self.recipe.speed_min))
        return config.padded_frames(most) * config.hop_length

    def read(self, longest: float, place: Mapping[str, Tensor]) -> Tensor:
        """Audio (B, T * hop) of what `placed` gives."""
        where = (place[name] for name in ("starts", "lengths", "speeds"))
        audio, _ = self.read_at_speeds(self.audio, *where, self.samples(longest))
        return audio

    def log_probs(
        self, model: Jasper, encode: Callable[[Tensor, Tensor], Tensor], features: Tensor, frames: Tensor
    ) -> Tensor:
        """features (B, n_mels, T), frames (B,) -> log-probabilities (B, F, labels + 1).

        `encode` is the model's encoder, or what computes the same.
        """
        with autocast(self.device):
            encoded = encode(features, frames)
        return model.decoder(encoded.float())

    def ctc(self, log_probs: Tensor, members: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """log-probabilities (B, F, labels + 1) of recordings (B,) with so many samples (B,), both on the host
        -> mean CTC loss for each character, and outputs (B,) of each.
        """
        hop = self.config.hop_length
        counts = self.model.steps(torch.div(ends + hop - 1, hop, rounding_mode="floor"))
        loss = F.ctc_loss(
            log_probs.transpose(0, 1),
            self.targets.ids[members].to(self.device, non_blocking=True),
            counts,
            self.targets.lengths[members],
            blank=self.config.blank,
            zero_infinity=True,
        )
        return loss, counts

    def step(self, key: object, members: Tensor, speeds: Tensor) -> dict[str, Tensor]:
        """One update with recordings (B,) of a bucket at speeds (B,), both on the host."""
        assert isinstance(key, tuple)
        place, ends = self.placed(members, speeds, key[0])
        log_probs = self.hear(key, **place)["log_probs"].requires_grad_()
        loss, _ = self.ctc(log_probs, members, ends)
        (gradient,) = torch.autograd.grad(loss, log_probs)
        self.learn(key, gradient=gradient)
        return {"ctc": loss.detach()}

    def _hear(self, key: object, **place: Tensor) -> dict[str, Tensor]:
        """The log-probabilities of a batch, augmented."""
        assert isinstance(key, tuple)
        with torch.no_grad():
            audio = self.read(key[0], place)
            made = augmented_features(self.features, self.bases, audio, place["ends"], self.recipe)
        self.heard[key] = self.log_probs(self.model, self.encode, *made)
        return {"log_probs": self.heard[key].detach()}

    def _learn(self, key: object, gradient: Tensor) -> dict[str, Tensor]:
        """An update by the gradient of what was heard of this key."""
        self.optimisers["optimiser"].zero_grad()
        self.heard.pop(key).backward(gradient)
        self.update()
        return {}

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Loss and word error rate of held-out recordings as they are."""
        model = self.averaged_model()
        losses, pairs = [], []
        for first in range(0, len(self.validation), VALIDATION_BATCH):
            members = torch.from_numpy(self.validation[first : first + VALIDATION_BATCH])
            longest = self.recipe.bucket_seconds[-1]
            place, ends = self.placed(members, torch.ones(len(members)), longest)
            made = clean_features(self.features, self.read(longest, place), place["ends"])
            log_probs = self.log_probs(model, model.encoder, *made)
            loss, counts = self.ctc(log_probs, members, ends)
            losses.append(loss.item())
            best = log_probs.argmax(2).cpu().numpy()
            for row, count, member in zip(best, counts.tolist(), members.tolist(), strict=True):
                heard = greedy_text(row[:count], self.config.labels).split()
                pairs.append((self.targets.words[member], heard))
        return {"validation_ctc": float(np.mean(losses)), "validation_wer": error_rate(pairs)}


def main() -> None:
    args, settings, plan = parse_recipe(recipe_parser("jasper", JasperRecipe))
    device = start(settings)
    recordings = load_recordings(args.corpus, plan.config.sampling_rate)
    run_training(settings, JasperTrainer(plan, recordings, device))

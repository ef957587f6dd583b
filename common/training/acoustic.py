"""What the recipes of acoustic models share: settings, loss, update and validation.

Batches of similar length run as CUDA graphs, one per length bucket.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from melforge.common.audio.contract import MelContract
from melforge.common.training.corpus.batches import Drawn, LengthGroup, Utterances, utterance_batches
from melforge.common.training.loop import Network, Recipe, RunSettings, Trainer, TrainingPlan, adamw, start

VALIDATION = "validation_"  # begins the names of losses on held-out utterances
# Scalars by name, without their weights, and the network's prediction.
Losses = tuple[dict[str, Tensor], Any]
AcousticRecipeType = TypeVar("AcousticRecipeType", bound="AcousticRecipe")


@dataclass(frozen=True)
class AcousticRecipe(Recipe):
    """Training settings. A recipe adds the weights of its losses, `<name>_loss_weight`; the mel's is 1."""

    frames_per_batch: int
    max_batch_size: int
    bucket_frames: tuple[int, ...]  # upper limits of the length buckets; longer utterances are not used
    weight_decay: float
    clip_norm: float


class AcousticTrainer(Trainer[Network, AcousticRecipeType]):
    """One network and its optimiser; a recipe states the losses."""

    betas = (0.9, 0.98)
    padding = 0.0  # what mels have behind their ends

    def __init__(self, model: Network, plan: TrainingPlan[Any, AcousticRecipeType], corpus: Utterances):
        self.corpus, recipe = corpus, plan.recipe
        super().__init__(model, plan.contract, recipe, recipe.clip_norm)
        self.networks = {"model": model}
        rate, decay, factors = recipe.learning_rate, recipe.weight_decay, self.rate_factors(model, recipe)
        self.optimisers = {"optimiser": adamw(model, rate, self.betas, decay, factors)}

    def rate_factors(self, model: Network, recipe: AcousticRecipeType) -> dict[str, float]:
        """Factors of the learning rate, by the names of parameters."""
        return {}

    @abstractmethod
    def losses(self, model: Network, group: LengthGroup, members: Tensor, mel: Tensor) -> Losses:
        """Of utterances (B,) and their mels (B, n_mels, T), padded to the group's shape."""

    def batches(self, seed: int) -> Iterator[tuple[LengthGroup, Drawn]]:
        sizes = self.recipe.bucket_frames, self.recipe.frames_per_batch, self.recipe.max_batch_size
        return utterance_batches(self.corpus, *sizes, seed)

    def fetch(self, key: LengthGroup, drawn: Drawn) -> Drawn:
        return self.corpus.fetch(drawn["members"], key.frames)

    def place(self, key: LengthGroup, fetched: Drawn) -> dict[str, Tensor]:
        return self.corpus.place(fetched, key.frames, self.padding)

    def step(self, key: LengthGroup, members: Tensor, mel: Tensor) -> dict[str, Tensor]:
        self.optimisers["optimiser"].zero_grad()
        losses, _ = self.losses(self.model, key, members, mel)
        self.weighted(losses).backward()
        self.update()
        return {name: loss.detach() for name, loss in losses.items()}

    def weighted(self, losses: Mapping[str, Any]) -> Any:
        """The sum of the losses, times their weights."""
        weights = {name: getattr(self.recipe, f"{name}_loss_weight") for name in losses if name != "mel"}
        return sum(weights.get(name, 1.0) * loss for name, loss in losses.items())

    def score(self, values: Mapping[str, float]) -> float:
        """The held-out loss, of `validate`'s values: the best weights have the least."""
        held_out = {name: value for name, value in values.items() if name.startswith(VALIDATION)}
        return self.weighted({name.removeprefix(VALIDATION): value for name, value in held_out.items()})

    def samples(self) -> Iterator[tuple[str, np.ndarray, None]]:
        """Names and mels [n_mels, T] of held-out sentences as the averaged model speaks them."""
        return iter(())

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Losses on the held-out utterances, and what `inspect` adds."""
        model, group = self.averaged_model(), self.corpus.validation()
        given = self.inputs(group, {"members": torch.tensor(group.members)})
        losses, prediction = self.losses(model, group, **given)
        shown = {f"{VALIDATION}{name}": loss.item() for name, loss in losses.items()}
        return shown | self.inspect(model, given["members"], prediction)

    def inspect(self, model: Network, members: Tensor, prediction: Any) -> dict[str, float]:
        """More to log of the averaged model."""
        return {}


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of values (B, T) where mask (B, T) is true, or of (B, C, T) where mask (B, 1, T) is."""
    mask = mask.float()
    return (values * mask).sum() / (mask.sum() * (values.numel() // mask.numel()))


def load_corpus(
    settings: RunSettings, folder: Path, contract: MelContract, mels: Path | None = None
) -> Utterances:
    """The corpus of a run that starts, with these mels of it in place of those of its audio, if any."""
    return Utterances(folder, contract, start(settings), mels)

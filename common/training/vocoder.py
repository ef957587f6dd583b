"""What the recipes of vocoders share: settings, the adversarial update and the command's steps."""

from __future__ import annotations

import argparse
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from common.cli.parser import Parser
from common.training.adversarial import Adversary, AdversaryRecipe, backward_both
from common.training.corpus.segments import Segments
from common.training.loop import Recipe, Trainer, recipe_parser, run_training, start


@dataclass(frozen=True)
class VocoderRecipe(Recipe):
    """Training settings."""

    batch_size: int
    segment_frames: int
    predicted_share: float  # share of a batch with predicted mels as input, with --mels


class VocoderTrainer(Trainer):
    """A vocoder against discriminators; each step, all updates and the moving average are one CUDA graph."""

    def __init__(
        self, args: argparse.Namespace, segments: Segments, model: nn.Module, clip_norm: float | None = None
    ):
        self.config, contract, recipe, adversary = args.built
        super().__init__(model, recipe, contract, clip_norm)
        self.held_out = segments.held_out()  # mel (1, n_mels, T), audio (1, 1, T * hop)
        self.adversary = Adversary(adversary, contract, self.device)
        self.discriminators = self.adversary.discriminators

    @abstractmethod
    def generate(self, model: nn.Module, mel: Tensor) -> Tensor:
        """mel (B, n_mels, T) -> audio (B, 1, S), in training's precision."""

    def step(self, key: object, mel: Tensor, audio: Tensor) -> dict[str, Tensor]:
        """One update of all networks: mel (B, n_mels, T), audio (B, 1, T * hop)."""
        losses = self.adversary.losses(self.generate(self.model, mel), audio)
        backward_both(losses, self.discriminators, self.parameters)
        self.update()
        return losses.shown()

    def shipped_model(self) -> nn.Module:
        """The averaged model with its weight norm folded, as in a voice."""
        return self.averaged_model().remove_weight_norm()


def vocoder_parser(model: str, description: str, config: type, recipe: type) -> Parser:
    parser = recipe_parser(model, description, config, recipe, AdversaryRecipe)
    parser.add_argument("--mels", type=Path, nargs="*", default=[], help="predicted mels to train on too")
    return parser


def load_segments(args: argparse.Namespace) -> Segments:
    torch.backends.cudnn.benchmark = True
    device = start(args)
    return Segments(args.corpus, args.built[1], args.mels, device)


def train(args: argparse.Namespace, trainer: VocoderTrainer, segments: Segments) -> None:
    recipe = trainer.recipe
    batches = segments.batches(recipe.batch_size, recipe.segment_frames, recipe.predicted_share, args.seed)
    run_training(args, trainer, batches, log_every=500)

"""What the recipes of vocoders share: settings, discriminators and losses, the update, the command's steps.

HiFi-GAN's losses (LSGAN, feature matching; arXiv:2010.05646) with UnivNet's spectrogram discriminators
(arXiv:2106.07889) in place of the multi-scale one, and mel losses at several resolutions.
"""

import argparse
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.audio.contract import MelContract
from common.audio.mel_torch import MelSpectrogram
from common.cli.parser import Parser
from common.training.corpus.segments import Segments
from common.training.discriminators import MultiPeriodDiscriminator, MultiResolutionDiscriminator
from common.training.loop import Recipe, Trainer, autocast, recipe_parser, start


@dataclass(frozen=True)
class VocoderRecipe(Recipe):
    """Training settings."""

    batch_size: int
    segment_frames: int
    predicted_share: float  # share of a batch with predicted mels as input, with --mels
    mel_loss_weight: float
    feature_loss_weight: float
    mel_loss_filter_lengths: tuple[int, ...]
    mel_loss_channels: tuple[int, ...]
    period_channels: int
    resolution_channels: int


class VocoderTrainer(Trainer):
    """A vocoder against discriminators; each step, all updates and the moving average are one CUDA graph."""

    def __init__(
        self, args: argparse.Namespace, segments: Segments, model: nn.Module, clip_norm: float | None = None
    ):
        self.config, contract, recipe = args.built
        super().__init__(model, recipe, contract, clip_norm)
        self.segments = segments
        self.held_out = segments.held_out()  # mel (1, n_mels, T), audio (1, 1, T * hop)
        self.discriminators = make_discriminators(recipe.period_channels, recipe.resolution_channels)
        self.discriminators.to(self.device)
        shapes = zip(recipe.mel_loss_filter_lengths, recipe.mel_loss_channels, strict=True)
        contracts = [
            MelContract(contract.sampling_rate, size, size // 4, size, bands, mel_fmax=None)
            for size, bands in shapes
        ]
        self.mels = nn.ModuleList(map(MelSpectrogram, contracts)).to(self.device)

    def batches(self, seed: int) -> Iterator[tuple[str, dict[str, Tensor]]]:
        sizes = self.recipe.batch_size, self.recipe.segment_frames
        return self.segments.batches(*sizes, self.recipe.predicted_share, seed)

    @abstractmethod
    def generate(self, model: nn.Module, mel: Tensor) -> Tensor:
        """mel (B, n_mels, T) -> audio (B, 1, S), in training's precision."""

    def losses(self, fake: Tensor, audio: Tensor) -> dict[str, Tensor]:
        """Generated and true audio (B, 1, S): the generator's loss, what it consists of, the discriminators'.

        Both sides' losses come from the same two looks at the audio, so that each judge runs forward only
        twice a step instead of four times; it sees the generator of this step, not of the last.
        """
        discriminator, adversarial, matching = (torch.zeros((), device=self.device) for _ in range(3))
        for (real_scores, targets), (fake_scores, features) in zip(
            self._judge(audio), self._judge(fake), strict=True
        ):
            for real, generated in zip(real_scores, fake_scores, strict=True):
                real, generated = real.float(), generated.float()
                discriminator = discriminator + (1 - real).square().mean() + generated.square().mean()
                adversarial = adversarial + (1 - generated).square().mean()
            for maps, target_maps in zip(features, targets, strict=True):
                for mine, target in zip(maps, target_maps, strict=True):
                    matching = matching + F.l1_loss(mine.float(), target.detach().float())
        mel = self.mel_loss(fake, audio)
        recipe = self.recipe
        generator = adversarial + recipe.feature_loss_weight * matching + recipe.mel_loss_weight * mel
        parts = {"adversarial": adversarial, "matching": matching, "mel": mel}
        return {"generator": generator, "discriminator": discriminator, **parts}

    def _judge(self, audio: Tensor) -> list[tuple[list[Tensor], list[list[Tensor]]]]:
        with autocast(self.device):
            return [judge(audio) for judge in self.discriminators]

    def mel_loss(self, fake: Tensor, audio: Tensor) -> Tensor:
        """Mean absolute difference of log mels over all resolutions and up to the Nyquist frequency."""
        losses = [F.l1_loss(mel(fake[:, 0]), mel(audio[:, 0])) for mel in self.mels]
        return sum(losses) / len(losses)

    def step(self, key: object, mel: Tensor, audio: Tensor) -> dict[str, Tensor]:
        """One update of all networks: mel (B, n_mels, T), audio (B, 1, T * hop)."""
        losses = self.losses(self.generate(self.model, mel), audio)
        generator = losses.pop("generator")
        # Both sides' gradients before any update: both need the graph's old weights.
        set_gradients([*self.discriminators.parameters()], losses["discriminator"], keep_graph=True)
        set_gradients(self.parameters, generator)
        self.update()
        return {name: loss.detach() for name, loss in losses.items()}

    def shipped_model(self) -> nn.Module:
        """The averaged model with its weight norm folded, as in a voice."""
        return self.averaged_model().remove_weight_norm()


def make_discriminators(period_channels: int, resolution_channels: int) -> nn.ModuleList:
    panels = MultiPeriodDiscriminator(period_channels), MultiResolutionDiscriminator(resolution_channels)
    return nn.ModuleList(panels)


def set_gradients(parameters: list[Tensor], loss: Tensor, keep_graph: bool = False) -> None:
    gradients = torch.autograd.grad(loss, parameters, retain_graph=keep_graph)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


def vocoder_parser(model: str, recipe: type) -> Parser:
    parser = recipe_parser(model, recipe)
    parser.add_argument("--mels", type=Path, nargs="*", default=[], help="predicted mels to train on too")
    return parser


def load_segments(args: argparse.Namespace) -> Segments:
    torch.backends.cudnn.benchmark = True
    device = start(args)
    return Segments(args.corpus, args.built[1], args.mels, device)

"""What a vocoder is trained against: discriminators, feature matching and mel losses at several resolutions.

HiFi-GAN's losses (LSGAN; arXiv:2010.05646) with UnivNet's spectrogram discriminators (arXiv:2106.07889) in
place of the multi-scale one. Imported by the recipes only; needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.audio.contract import MelContract
from common.audio.mel_torch import MelSpectrogram
from common.training.discriminators import MultiPeriodDiscriminator, MultiResolutionDiscriminator
from common.training.loop import autocast


@dataclass(frozen=True)
class AdversaryRecipe:
    """Losses and judges; one value each in the vocoders' train.yaml."""

    mel_loss_weight: float
    feature_loss_weight: float
    mel_loss_filter_lengths: tuple[int, ...]
    mel_loss_channels: tuple[int, ...]
    period_channels: int
    resolution_channels: int


class Losses(NamedTuple):
    """`generator` and `discriminator` are to be minimised; the others are what `generator` consists of."""

    generator: Tensor
    discriminator: Tensor
    adversarial: Tensor
    matching: Tensor
    mel: Tensor

    def shown(self) -> dict[str, Tensor]:
        """Without the sum, for logs."""
        return {name: loss.detach() for name, loss in self._asdict().items() if name != "generator"}


class Adversary:
    """The judges and the mel losses on one device."""

    def __init__(self, recipe: AdversaryRecipe, contract: MelContract, device: torch.device):
        self.recipe, self.device = recipe, device
        self.discriminators = nn.ModuleList(
            [
                MultiPeriodDiscriminator(recipe.period_channels),
                MultiResolutionDiscriminator(recipe.resolution_channels),
            ]
        ).to(device)
        shapes = zip(recipe.mel_loss_filter_lengths, recipe.mel_loss_channels, strict=True)
        contracts = [
            MelContract(contract.sampling_rate, size, size // 4, size, bands, mel_fmax=None)
            for size, bands in shapes
        ]
        self.mels = nn.ModuleList(map(MelSpectrogram, contracts)).to(device)

    def losses(self, fake: Tensor, audio: Tensor) -> Losses:
        """Generated and true audio (B, 1, S).

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
        return Losses(generator, discriminator, adversarial, matching, mel)

    def _judge(self, audio: Tensor) -> list[tuple[list[Tensor], list[list[Tensor]]]]:
        with autocast(self.device):
            return [judge(audio) for judge in self.discriminators]

    def mel_loss(self, fake: Tensor, audio: Tensor) -> Tensor:
        """Mean absolute difference of log mels over all resolutions and up to the Nyquist frequency."""
        losses = [F.l1_loss(mel(fake[:, 0]), mel(audio[:, 0])) for mel in self.mels]
        return sum(losses) / len(losses)


def backward_both(losses: Losses, discriminators: nn.Module, generator: Sequence[Tensor]) -> None:
    """Sets each side's gradients from its own loss, before any update: both need the graph's old weights."""
    sides = ((list(discriminators.parameters()), losses.discriminator), (generator, losses.generator))
    for parameters, loss in sides:
        gradients = torch.autograd.grad(loss, parameters, retain_graph=loss is losses.discriminator)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient

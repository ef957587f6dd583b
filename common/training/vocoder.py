"""What the recipes of vocoders share: settings, discriminators and losses, the update.

HiFi-GAN's losses (LSGAN, feature matching; arXiv:2010.05646) with UnivNet's spectrogram discriminators
(arXiv:2106.07889) in place of the multi-scale one, and mel losses at several resolutions. The spectra may be
complex, as in EnCodec's (arXiv:2210.13438), which sees phases too.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from melforge.common.audio.contract import MelContract
from melforge.common.audio.mel_torch import MelSpectrogram
from melforge.common.errors import InputError
from melforge.common.training.corpus.batches import Drawn, Segments
from melforge.common.training.loop import Network, Recipe, Trainer, TrainingPlan, autocast

LEAKY_SLOPE = 0.1
VocoderRecipeType = TypeVar("VocoderRecipeType", bound="VocoderRecipe")
SAMPLE_FRAMES = 600  # of the held-out mel, about 7 seconds


@dataclass(frozen=True)
class VocoderRecipe(Recipe):
    """Training settings."""

    batch_size: int
    segment_frames: int
    judged_frames: int  # the most that losses are of, in a segment's middle: their context lies within it
    predicted_share: float  # share of a batch with predicted mels as input, with --mels
    mel_loss_weight: float
    feature_loss_weight: float
    mel_loss_filter_lengths: tuple[int, ...]
    mel_loss_channels: tuple[int, ...]
    period_channels: int
    resolution_channels: int
    complex_spectra: bool  # spectrogram discriminators on real and imaginary parts, not on magnitudes


class VocoderTrainer(Trainer[Network, VocoderRecipeType]):
    """A vocoder against discriminators; each step, all updates and the moving average are one CUDA graph."""

    def __init__(
        self,
        model: Network,
        plan: TrainingPlan[Any, VocoderRecipeType],
        segments: Segments,
        clip_norm: float | None = None,
    ):
        contract, recipe = plan.contract, plan.recipe
        if recipe.judged_frames < 1:
            raise InputError(f"judged_frames={recipe.judged_frames}: give 1 or more")
        super().__init__(model, contract, recipe, clip_norm)
        torch.backends.cudnn.benchmark = True
        self.segments = segments
        self.held_out = segments.held_out()  # mel (1, n_mels, T), audio (1, 1, T * hop)
        self.discriminators = make_discriminators(
            recipe.period_channels, recipe.resolution_channels, recipe.complex_spectra
        )
        self.discriminators.to(self.device)
        shapes = zip(recipe.mel_loss_filter_lengths, recipe.mel_loss_channels, strict=True)
        rate = contract.sampling_rate
        contracts = [MelContract(rate, n, n // 4, n, bands, mel_fmax=None) for n, bands in shapes]
        self.mels = nn.ModuleList(map(MelSpectrogram, contracts)).to(self.device)

    def batches(self, seed: int) -> Iterator[tuple[str, Drawn]]:
        sizes = self.recipe.batch_size, self.recipe.segment_frames
        return self.segments.batches(*sizes, self.recipe.predicted_share, seed)

    def fetch(self, key: object, drawn: Drawn) -> Drawn:
        return self.segments.fetch(drawn, self.recipe.segment_frames)

    def place(self, key: object, fetched: Drawn) -> dict[str, Tensor]:
        return self.segments.place(fetched, self.recipe.segment_frames)

    @abstractmethod
    def generate(self, model: Network, mel: Tensor) -> Tensor:
        """mel (B, n_mels, T) -> audio (B, 1, S), in training's precision."""

    def losses(self, fake: Tensor, audio: Tensor) -> dict[str, Tensor]:
        """Generated and true audio (B, 1, S): the generator's loss, what it consists of, the discriminators'.

        Both sides' losses come from the same two looks at the audio, so that each judge runs forward only
        twice a step instead of four times; it sees the generator of this step, not of the last.
        """
        discriminator, adversarial, matching = (torch.zeros((), device=self.device) for _ in range(3))
        looks = zip(self._judge(audio), self._judge(fake), strict=True)
        for (real, target_maps), (generated, maps) in looks:
            real, generated = real.float(), generated.float()
            discriminator = discriminator + (1 - real).square().mean() + generated.square().mean()
            adversarial = adversarial + (1 - generated).square().mean()
            for mine, target in zip(maps, target_maps, strict=True):
                matching = matching + F.l1_loss(mine.float(), target.detach().float())
        mel = self.mel_loss(fake, audio)
        recipe = self.recipe
        generator = adversarial + recipe.feature_loss_weight * matching + recipe.mel_loss_weight * mel
        parts = {"adversarial": adversarial, "matching": matching, "mel": mel}
        return {"generator": generator, "discriminator": discriminator, **parts}

    def score(self, values: Mapping[str, float]) -> float:
        """The held-out loss, of `validate`'s values: the best weights have the least."""
        return values["validation_mel"]

    def samples(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """A name, the mel [n_mels, T] of held-out audio, and the averaged model's audio [S] of it."""
        mel = self.held_out[0][:, :, :SAMPLE_FRAMES]
        with torch.no_grad():
            audio = self.generate(self.averaged_model(), mel)
        yield "held-out", mel[0].cpu().numpy(), audio[0, 0].float().cpu().numpy()

    def _judge(self, audio: Tensor) -> list[tuple[Tensor, list[Tensor]]]:
        with autocast(self.device):
            panels = cast(Iterable[nn.ModuleDict], self.discriminators)
            return [judge(audio) for panel in panels for judge in cast(nn.ModuleList, panel["judges"])]

    def mel_loss(self, fake: Tensor, audio: Tensor) -> Tensor:
        """Mean absolute difference of log mels over all resolutions and up to the Nyquist frequency."""
        losses = [F.l1_loss(mel(fake[:, 0]), mel(audio[:, 0])) for mel in self.mels]
        return torch.stack(losses).mean()

    def step(self, key: object, mel: Tensor, audio: Tensor) -> dict[str, Tensor]:
        """One update of all networks: mel (B, n_mels, T), audio (B, 1, T * hop)."""
        losses = self.losses(self.judged(self.generate(self.model, mel)), self.judged(audio))
        return self.learn(losses, losses.pop("generator"))

    def learn(self, losses: Mapping[str, Tensor], total: Tensor) -> dict[str, Tensor]:
        """Updates the model by the total loss, and the discriminators where these losses have theirs."""
        # Both sides' gradients before any update: both need the graph's old weights.
        if "discriminator" in losses:
            set_gradients([*self.discriminators.parameters()], losses["discriminator"], keep_graph=True)
        set_gradients(self.parameters, total)
        self.update()
        return {name: loss.detach() for name, loss in losses.items()}

    def judged(self, audio: Tensor) -> Tensor:
        """The part of segments (B, 1, S) that losses are of, (B, 1, frames * hop)."""
        recipe, hop = self.recipe, self.contract.hop_length
        frames = min(recipe.judged_frames, recipe.segment_frames)
        first = (recipe.segment_frames - frames) // 2 * hop
        return audio[:, :, first : first + frames * hop]

    def shipped_model(self) -> Network:
        """The averaged model with its weight norm folded, as in a voice."""
        return cast(Any, self.averaged_model()).remove_weight_norm()


class Judge(nn.Module, ABC):
    """Two-dimensional convolutions over an image of the audio (B, 1, S): a score, and the feature maps."""

    def __init__(self, convs: list[nn.Conv2d], score: nn.Conv2d) -> None:
        super().__init__()
        self.convs = nn.ModuleList(weight_norm(conv) for conv in convs)
        self.score = weight_norm(score)

    @abstractmethod
    def image(self, audio: Tensor) -> Tensor:
        """audio (B, 1, S) -> (B, channels, height, width)."""

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = self.image(audio)
        features = []
        for index, conv in enumerate(self.convs):
            x = F.leaky_relu(conv(x), LEAKY_SLOPE)
            if index == 0:  # from here on in the layout of the tensor cores, not converted for every layer
                x = x.contiguous(memory_format=torch.channels_last)
            features.append(x)
        features.append(self.score(x))
        return features[-1].flatten(1), features


class PeriodDiscriminator(Judge):
    """Looks at every `period`-th sample: audio folded to a width of `period`, strided along the height."""

    def __init__(self, period: int, channels: int) -> None:
        widths = [1, channels, 4 * channels, 16 * channels, 32 * channels]
        convs = [nn.Conv2d(narrow, wide, (5, 1), (3, 1), padding=(2, 0)) for narrow, wide in pairwise(widths)]
        convs.append(nn.Conv2d(widths[-1], widths[-1], (5, 1), padding=(2, 0)))
        super().__init__(convs, nn.Conv2d(widths[-1], 1, (3, 1), padding=(1, 0)))
        self.period = period

    def image(self, audio: Tensor) -> Tensor:
        missing = -audio.shape[2] % self.period
        return F.pad(audio, (0, missing), mode="reflect").unflatten(2, (-1, self.period))


class SpectrogramDiscriminator(Judge):
    """Looks at the spectrogram of windows of so many samples, a quarter of a window apart.

    It is one of magnitudes, or with `complex_spectra` of real and imaginary parts.
    """

    def __init__(self, window: int, channels: int, complex_spectra: bool = False) -> None:
        convs = [nn.Conv2d(2 if complex_spectra else 1, channels, (3, 9), padding=(1, 4))]
        convs += [nn.Conv2d(channels, channels, (3, 9), (1, 2), padding=(1, 4)) for _ in range(3)]
        convs.append(nn.Conv2d(channels, channels, 3, padding=1))
        super().__init__(convs, nn.Conv2d(channels, 1, 3, padding=1))
        self.complex_spectra = complex_spectra
        self.window: Tensor
        self.register_buffer("window", torch.hann_window(window), persistent=False)

    def image(self, audio: Tensor) -> Tensor:
        size, hop = len(self.window), len(self.window) // 4
        padding = (size - hop) // 2
        with torch.autocast(audio.device.type, enabled=False):
            padded = F.pad(audio.float(), (padding, padding), mode="reflect")[:, 0]
            spectrum = torch.stft(padded, size, hop, window=self.window, center=False, return_complex=True)
            if self.complex_spectra:
                return torch.stack((spectrum.real, spectrum.imag), dim=1)
            # Silence must not give the square root an infinite slope.
            return (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt()[:, None]


def make_discriminators(
    period_channels: int, resolution_channels: int, complex_spectra: bool = False
) -> nn.ModuleList:
    """Two panels of judges. HiFi-GAN's paper has 32 channels for the periods."""
    periods = nn.ModuleList(PeriodDiscriminator(n, period_channels) for n in (2, 3, 5, 7, 11))
    windows = nn.ModuleList(
        SpectrogramDiscriminator(n, resolution_channels, complex_spectra) for n in (512, 1024, 2048)
    )
    return nn.ModuleList(nn.ModuleDict({"judges": panel}) for panel in (periods, windows))


def set_gradients(parameters: Sequence[Tensor], loss: Tensor, keep_graph: bool = False) -> None:
    gradients = torch.autograd.grad(loss, parameters, retain_graph=keep_graph)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient

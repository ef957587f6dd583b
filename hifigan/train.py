"""Trains a HiFi-GAN generator: `python -m hifigan.train --corpus DIR --out DIR`.

The paper's recipe (LSGAN, feature matching, mel loss; arXiv:2010.05646) with two changes that a small budget
pays for: the multi-scale discriminator is replaced by a multi-resolution spectrogram discriminator
(UnivNet, arXiv:2106.07889), and the mel loss is taken at several resolutions. Each step, both updates and
the moving average run as one CUDA graph. `--mels` fine-tunes on an acoustic model's own mels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from common.audio import MelContract
from common.corpus.dataset import load_audio, load_labels
from common.corpus.mels import corpus_mel, load_mels
from common.hparams import load_hparams
from common.mel_torch import MelSpectrogram
from common.training import Ema, Schedule, adamw, autocast, recipe_parser, run_training, save_weights
from hifigan.config import HifiganConfig
from hifigan.discriminators import MultiPeriodDiscriminator, MultiResolutionDiscriminator
from hifigan.model import HifiganGenerator

VALIDATION_FRAMES = 6_000  # the corpus's last 70 seconds are never trained on


@dataclass(frozen=True)
class HifiganRecipe:
    """How the generator is trained; one value each in hparams/hifigan/train.yaml."""

    batch_size: int
    segment_frames: int
    learning_rate: float
    final_learning_rate: float
    warm_up_steps: int
    ema_decay: float
    mel_loss_weight: float
    feature_loss_weight: float
    mel_loss_filter_lengths: tuple[int, ...]
    mel_loss_channels: tuple[int, ...]
    period_channels: int
    resolution_channels: int
    predicted_share: float  # share of a batch whose input is a predicted mel, where --mels is given


class Trainer:
    """Networks, optimisers and one step; state lives on one device."""

    def __init__(
        self,
        config: HifiganConfig,
        contract: MelContract,
        recipe: HifiganRecipe,
        device: torch.device,
        held_out: tuple[Tensor, Tensor],
    ):
        self.config, self.contract, self.recipe, self.device = config, contract, recipe, device
        self.held_out = held_out  # mel (1, n_mels, T), audio (1, 1, T * hop)
        self.generator = HifiganGenerator(config).to(device)
        self.discriminators = torch.nn.ModuleList(
            [
                MultiPeriodDiscriminator(channels=recipe.period_channels),
                MultiResolutionDiscriminator(channels=recipe.resolution_channels),
            ]
        ).to(device)
        self.mels = torch.nn.ModuleList(
            MelSpectrogram(
                MelContract(
                    sampling_rate=contract.sampling_rate,
                    filter_length=size,
                    win_length=size,
                    hop_length=size // 4,
                    n_mel_channels=bands,
                    mel_fmin=0.0,
                    mel_fmax=None,
                )
            )
            for size, bands in zip(recipe.mel_loss_filter_lengths, recipe.mel_loss_channels, strict=True)
        ).to(device)
        betas = (0.8, 0.99)
        self.generator_optimiser = adamw([self.generator], recipe.learning_rate, betas, 0.01)
        self.discriminator_optimiser = adamw([self.discriminators], recipe.learning_rate, betas, 0.01)
        self.optimisers = [self.generator_optimiser, self.discriminator_optimiser]
        self.ema = Ema(self.generator, recipe.ema_decay)

    def state_dict(self) -> dict:
        return {
            "generator": self.generator.state_dict(),
            "discriminators": self.discriminators.state_dict(),
            "generator_optimiser": self.generator_optimiser.state_dict(),
            "discriminator_optimiser": self.discriminator_optimiser.state_dict(),
            "ema": self.ema.state_dict(),
        }

    def load_networks(self, state: dict) -> None:
        self.generator.load_state_dict(state["generator"])
        self.discriminators.load_state_dict(state["discriminators"])
        self.ema.load_state_dict(state["ema"])

    def load_state_dict(self, state: dict) -> None:
        self.load_networks(state)
        self.generator_optimiser.load_state_dict(state["generator_optimiser"])
        self.discriminator_optimiser.load_state_dict(state["discriminator_optimiser"])

    def generate(self, mel: Tensor) -> Tensor:
        """mel (B, n_mels, T) -> audio (B, 1, S); the last convolution in float32."""
        with autocast(self.device):
            features = self.generator.body(mel)
        return self.generator.head(features.float())

    def judge(self, audio: Tensor) -> list[tuple[list[Tensor], list[list[Tensor]]]]:
        with autocast(self.device):
            return [judge(audio) for judge in self.discriminators]

    def step(self, _key: object, mel: Tensor, audio: Tensor) -> dict[str, Tensor]:
        """One update of all networks: mel (B, n_mels, T), audio (B, 1, T * hop).

        Both losses come from the same two looks at the audio, so that each judge runs forward only twice a
        step instead of four times; it sees the generator of this step, not of the last.
        """
        fake = self.generate(mel)
        device = self.device
        discriminator_loss, adversarial, matching = (torch.zeros((), device=device) for _ in range(3))
        for (real_scores, targets), (fake_scores, features) in zip(
            self.judge(audio), self.judge(fake), strict=True
        ):
            for real, generated in zip(real_scores, fake_scores, strict=True):
                real, generated = real.float(), generated.float()
                discriminator_loss = (
                    discriminator_loss + (1 - real).square().mean() + generated.square().mean()
                )
                adversarial = adversarial + (1 - generated).square().mean()
            for maps, target_maps in zip(features, targets, strict=True):
                for mine, target in zip(maps, target_maps, strict=True):
                    matching = matching + F.l1_loss(mine.float(), target.detach().float())
        mel_loss = self.mel_loss(fake, audio)
        loss = (
            adversarial + self.recipe.feature_loss_weight * matching + self.recipe.mel_loss_weight * mel_loss
        )
        self._gradients(self.discriminators, discriminator_loss, keep_graph=True)
        self._gradients(self.generator, loss)  # before any update: the graph still needs the old weights
        self.discriminator_optimiser.step()
        self.generator_optimiser.step()
        self.ema.update()
        return {
            "discriminator": discriminator_loss.detach(),
            "adversarial": adversarial.detach(),
            "matching": matching.detach(),
            "mel": mel_loss.detach(),
        }

    @staticmethod
    def _gradients(module: torch.nn.Module, loss: Tensor, keep_graph: bool = False) -> None:
        """Gradients of the loss for this module's parameters only."""
        parameters = list(module.parameters())
        gradients = torch.autograd.grad(loss, parameters, retain_graph=keep_graph)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient

    def mel_loss(self, fake: Tensor, audio: Tensor) -> Tensor:
        """Mean absolute difference of log mels over all resolutions and up to the Nyquist frequency."""
        losses = [F.l1_loss(mel(fake[:, 0]), mel(audio[:, 0])) for mel in self.mels]
        return sum(losses) / len(losses)

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Mel loss of the averaged generator on the held-out mel and audio."""
        mel, audio = self.held_out
        return {"validation_mel": self.mel_loss(self.averaged_generator()(mel), audio).item()}

    def averaged_generator(self) -> HifiganGenerator:
        """A copy with the moving average's weights, weight norm folded: what a voice ships."""
        copy = HifiganGenerator(self.config).to(self.device)
        copy.load_state_dict(self.ema.state_dict())
        return copy.remove_weight_norm()

    def save_weights(self, path: Path, info: dict) -> None:
        save_weights(path, self.averaged_generator(), self.config, {"mel": asdict(self.contract), **info})


class Segments:
    """Random segments cut on the device from the whole corpus standing end to end."""

    def __init__(self, corpus: Path, contract: MelContract, mels: list[Path], device: torch.device):
        samples, _ = load_audio(corpus, load_labels(corpus), contract.hop_length)
        self.audio = torch.from_numpy(samples).to(device)
        self.hop = contract.hop_length
        self.frames = len(self.audio) // self.hop
        self.mels = [corpus_mel(self.audio, contract)]
        self.mels += [load_mels(path, self.frames, device) for path in mels]

    def cut(self, starts: Tensor, frames: int, source: Tensor) -> tuple[Tensor, Tensor]:
        """Start frames (B,) and which mel each takes -> mel (B, n_mels, frames), audio (B, 1, S)."""
        at = starts[:, None] + torch.arange(frames, device=starts.device)
        mel = self.mels[0][:, at]
        for index, other in enumerate(self.mels[1:], 1):
            mel = torch.where((source == index)[None, :, None], other[:, at], mel)
        samples = starts[:, None] * self.hop + torch.arange(frames * self.hop, device=starts.device)
        return mel.transpose(0, 1).float(), self.audio[samples][:, None].float() / 32768

    def held_out(self) -> tuple[Tensor, Tensor]:
        """The corpus's last frames, which no batch holds: mel (1, n_mels, T), audio (1, 1, T * hop)."""
        start = torch.tensor([self.frames - VALIDATION_FRAMES], device=self.audio.device)
        return self.cut(start, VALIDATION_FRAMES, torch.zeros_like(start))

    def batches(self, recipe: HifiganRecipe, seed: int) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """Endless batches of random segments, some with a predicted mel."""
        device, size = self.audio.device, (recipe.batch_size,)
        random = torch.Generator(device).manual_seed(seed)
        limit = self.frames - VALIDATION_FRAMES - recipe.segment_frames
        while True:
            starts = torch.randint(0, limit, size, device=device, generator=random)
            source = torch.randint(1, max(2, len(self.mels)), size, device=device, generator=random)
            true = torch.rand(size, device=device, generator=random) >= recipe.predicted_share
            mel, audio = self.cut(starts, recipe.segment_frames, torch.where(true, 0, source))
            yield "segment", {"mel": mel, "audio": audio}


def main() -> None:
    parser = recipe_parser("hifigan", "Trains a HiFi-GAN generator on a corpus.")
    parser.add_argument("--mels", type=Path, nargs="*", default=[], help="predicted mels to fine-tune on")
    args = parser.parse_args()
    device = torch.device(args.device)
    config, contract, recipe = load_hparams(
        args.hparam, HifiganConfig, MelContract, HifiganRecipe, overrides=args.set
    )
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    segments = Segments(args.corpus, contract, args.mels, device)
    trainer = Trainer(config, contract, recipe, device, segments.held_out())
    schedule = Schedule(
        recipe.learning_rate, recipe.final_learning_rate, recipe.warm_up_steps, args.steps, args.minutes
    )
    run_training(args, trainer, schedule, segments.batches(recipe, args.seed), log_every=500)


if __name__ == "__main__":
    from common.cli import run

    run(main)

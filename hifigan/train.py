"""Trains a HiFi-GAN generator: `python -m hifigan.train --corpus DIR --out DIR`.

The paper's recipe (LSGAN, feature matching, mel loss; arXiv:2010.05646) with two changes that a small budget
pays for: the multi-scale discriminator is replaced by a multi-resolution spectrogram discriminator
(UnivNet, arXiv:2106.07889), and the mel loss is taken at several resolutions. Each step, both updates and
the moving average run as one CUDA graph. `--mels` fine-tunes on an acoustic model's own mels.
"""

from __future__ import annotations

import argparse
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
from common.training import (
    Ema,
    GraphedSteps,
    Log,
    Schedule,
    adamw,
    autocast,
    load_checkpoint,
    save_checkpoint,
    save_weights,
    set_rate,
)
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
        self, config: HifiganConfig, contract: MelContract, recipe: HifiganRecipe, device: torch.device
    ):
        self.config, self.contract, self.recipe, self.device = config, contract, recipe, device
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
    def validate(self, mel: Tensor, audio: Tensor) -> float:
        """Mel loss of the averaged generator: held-out mel (1, n_mels, T), audio (1, 1, T * hop)."""
        live = [p.detach().clone() for p in self.ema.parameters]
        torch._foreach_copy_(self.ema.parameters, self.ema.averages)
        loss = self.mel_loss(self.generator(mel), audio).item()
        torch._foreach_copy_(self.ema.parameters, live)
        return loss

    def folded_generator(self) -> HifiganGenerator:
        """The averaged generator with its weight norm folded: what a voice ships."""
        copy = HifiganGenerator(self.config).to(self.device)
        copy.load_state_dict(self.ema.state_dict())
        return copy.remove_weight_norm()


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

    def sample(self, recipe: HifiganRecipe, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        device = self.audio.device
        limit = self.frames - VALIDATION_FRAMES - recipe.segment_frames
        starts = torch.randint(0, limit, (recipe.batch_size,), device=device, generator=generator)
        source = torch.randint(
            1, max(2, len(self.mels)), (recipe.batch_size,), device=device, generator=generator
        )
        true = torch.rand(recipe.batch_size, device=device, generator=generator) >= recipe.predicted_share
        source = torch.where(true, 0, source)
        return self.cut(starts, recipe.segment_frames, source)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], prog="python -m hifigan.train")
    parser.add_argument(
        "--hparam", type=Path, default=Path("hparams/hifigan/train.yaml"), help="sizes and recipe"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change one value of it"
    )
    parser.add_argument(
        "--corpus", type=Path, required=True, help="folder that scripts/prepare_corpus.py wrote"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="run folder: last.pt, weights.safetensors, losses"
    )
    parser.add_argument("--mels", type=Path, nargs="*", default=[], help="predicted mels to fine-tune on")
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes")
    parser.add_argument("--resume", type=Path, help="checkpoint to continue (its schedule too)")
    parser.add_argument("--init", type=Path, help="checkpoint whose networks start a new run")
    parser.add_argument(
        "--save-minutes", type=float, default=2.0, help="minutes between checkpoints (default 2)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    device = torch.device(args.device)
    overrides = dict(pair.split("=", 1) for pair in args.set)
    config, contract, recipe = load_hparams(
        args.hparam, HifiganConfig, MelContract, HifiganRecipe, overrides=overrides
    )
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    args.out.mkdir(parents=True, exist_ok=True)

    segments = Segments(args.corpus, contract, args.mels, device)
    trainer = Trainer(config, contract, recipe, device)
    schedule = Schedule(
        recipe.learning_rate, recipe.final_learning_rate, recipe.warm_up_steps, args.steps, args.minutes
    )
    if args.init:
        trainer.load_networks(load_checkpoint(args.init, device)["trainer"])
    if args.resume:
        state = load_checkpoint(args.resume, device)
        trainer.load_state_dict(state["trainer"])
        schedule.load_state_dict(state["schedule"])
    held_out = segments.cut(
        torch.tensor([segments.frames - VALIDATION_FRAMES], device=device),
        VALIDATION_FRAMES,
        torch.zeros(1, dtype=torch.int64, device=device),
    )
    random = torch.Generator(device).manual_seed(args.seed)
    steps = GraphedSteps(trainer.step)
    log = Log(args.out)

    def save() -> None:
        save_checkpoint(args.out / "last.pt", trainer=trainer.state_dict(), schedule=schedule.state_dict())
        info = {"mel": asdict(contract), "steps": schedule.step, "minutes": round(schedule.seconds / 60, 1)}
        save_weights(args.out / "weights.safetensors", trainer.folded_generator(), config, info)

    saved = schedule.seconds
    while not schedule.done:
        mel, audio = segments.sample(recipe, random)
        rate = schedule.rate()
        set_rate(trainer.generator_optimiser, rate)
        set_rate(trainer.discriminator_optimiser, rate)
        losses = steps("segment", mel=mel, audio=audio)
        schedule.step += 1
        if schedule.step % 500 == 0 or schedule.step in (1, 10, 100):
            values = {name: loss.item() for name, loss in losses.items()}
            log.write(schedule.step, {**values, "validation_mel": trainer.validate(*held_out), "rate": rate})
        if schedule.seconds - saved > args.save_minutes * 60:
            saved = schedule.seconds
            save()
    save()
    log.plot()


if __name__ == "__main__":
    from common.cli import run

    run(main)

"""Trains a HiFi-GAN generator: `python -m hifigan.train --corpus DIR --out DIR`.

The losses and the judges are training/adversarial.py's. Each step, both updates and the moving average run as
one CUDA graph. `--mels` fine-tunes on mels predicted by acoustic models.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from common.audio.contract import MelContract
from common.training.adversarial import Adversary, AdversaryRecipe, backward_both
from common.training.corpus.segments import Segments
from common.training.loop import Ema, Schedule, adamw, autocast, recipe_parser, run_training, save_weights
from hifigan.config import HifiganConfig
from hifigan.model import HifiganGenerator


@dataclass(frozen=True)
class HifiganRecipe:
    """Training settings; hparams/hifigan/train.yaml has their values."""

    batch_size: int
    segment_frames: int
    learning_rate: float
    final_learning_rate: float
    warm_up_steps: int
    ema_decay: float
    predicted_share: float  # share of a batch with predicted mels as input, with --mels


class Trainer:
    """Networks, optimisers and one step; state lives on one device."""

    def __init__(
        self,
        config: HifiganConfig,
        contract: MelContract,
        recipe: HifiganRecipe,
        adversary: AdversaryRecipe,
        device: torch.device,
        held_out: tuple[Tensor, Tensor],
    ):
        self.config, self.contract, self.device = config, contract, device
        self.held_out = held_out  # mel (1, n_mels, T), audio (1, 1, T * hop)
        self.generator = HifiganGenerator(config).to(device)
        self.adversary = Adversary(adversary, contract, device)
        self.discriminators = self.adversary.discriminators
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

    def step(self, _key: object, mel: Tensor, audio: Tensor) -> dict[str, Tensor]:
        """One update of all networks: mel (B, n_mels, T), audio (B, 1, T * hop)."""
        losses = self.adversary.losses(self.generate(mel), audio)
        backward_both(losses, self.discriminators, list(self.generator.parameters()))
        self.discriminator_optimiser.step()
        self.generator_optimiser.step()
        self.ema.update()
        return losses.shown()

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Mel loss of the averaged generator on the held-out mel and audio."""
        mel, audio = self.held_out
        return {"validation_mel": self.adversary.mel_loss(self.averaged_generator()(mel), audio).item()}

    def averaged_generator(self) -> HifiganGenerator:
        """A copy with the averaged weights, weight norm folded, as in a voice."""
        copy = HifiganGenerator(self.config).to(self.device)
        copy.load_state_dict(self.ema.state_dict())
        return copy.remove_weight_norm()

    def save_weights(self, path: Path, info: dict) -> None:
        save_weights(path, self.averaged_generator(), self.config, {"mel": asdict(self.contract), **info})


def main() -> None:
    parser = recipe_parser(
        "hifigan",
        "Trains a HiFi-GAN generator on a corpus.",
        HifiganConfig,
        MelContract,
        HifiganRecipe,
        AdversaryRecipe,
    )
    parser.add_argument("--mels", type=Path, nargs="*", default=[], help="predicted mels to fine-tune on")
    args = parser.parse_args()
    device = torch.device(args.device)
    config, contract, recipe, adversary = args.built
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    segments = Segments(args.corpus, contract, args.mels, device)
    trainer = Trainer(config, contract, recipe, adversary, device, segments.held_out())
    schedule = Schedule(
        recipe.learning_rate, recipe.final_learning_rate, recipe.warm_up_steps, args.steps, args.minutes
    )
    batches = segments.batches(recipe.batch_size, recipe.segment_frames, recipe.predicted_share, args.seed)
    run_training(args, trainer, schedule, batches, log_every=500)


if __name__ == "__main__":
    from common.cli.run import run

    run(main)

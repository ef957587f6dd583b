"""Trains one WaveGlow for all voices: `python -m recipes.kokoro.waveglow --corpus DIR --from VOICE -o RUN`.

As `recipes.kokoro.vocoder`, whose corpora and options it has. The harmonics in the noise have the phases of
Kokoro's source, so that sound can be compared with Kokoro's wave by wave. The pitch network has lessons
alone, or is another vocoder's (`--pitch-from`).
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.kokoro.waveglow")

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from melforge.common.errors import InputError
from melforge.common.training.corpus.batches import Drawn
from melforge.common.training.loop import TrainingPlan
from melforge.common.weights.voices import ModelSource
from melforge.waveglow.config import WaveglowConfig
from melforge.waveglow.noise import harmonics, noise_shape
from melforge.waveglow.train import WaveglowRecipe, WaveglowTrainer
from recipes.kokoro.vocoder import AllVoices, PitchedSegments, train

RAMP = 500  # steps in which new discriminators come to count


@dataclass(frozen=True)
class AllVoicesRecipe(WaveglowRecipe):
    phase_loss_weight: float
    phase_shift: float  # cycles from Kokoro's pulses to those that the start's sound goes with best
    alone_steps: int  # in which new discriminators learn, but do not teach


class AllVoicesWaveglow(AllVoices, WaveglowTrainer):
    """Both sides' updates in one step."""

    recipe: AllVoicesRecipe

    def __init__(
        self,
        plan: TrainingPlan[WaveglowConfig, WaveglowRecipe],
        segments: PitchedSegments,
        begun: ModelSource | None = None,
    ):
        if begun is None:
            raise InputError("give a voice that this training begins with: --from VOICE")
        super().__init__(plan, segments, begun)
        self.seen = 0
        self.trust = torch.zeros((), device=self.device)  # how much the discriminators count

    def place(self, key: Any, fetched: Drawn) -> dict[str, Tensor]:
        self.seen += 1
        self.trust.fill_(min(1.0, max(0.0, (self.seen - self.recipe.alone_steps) / RAMP)))
        return super().place(key, fetched)

    def step(
        self, key: object, mel: Tensor, audio: Tensor, source: Tensor, weight: Tensor
    ) -> dict[str, Tensor]:
        """mel (B, n_mels, T), audio (B, 1, S), source (B, 2, T), weight (B, T)."""
        recipe, losses = self.recipe, self.compared(mel, audio, source)
        mel_part = recipe.mel_loss_weight * losses["mel"]
        judged_part = losses.pop("generator") - mel_part
        return self.learn(
            losses, mel_part + recipe.phase_loss_weight * losses["phase"] + self.trust * judged_part
        )

    def made_of(self, mel: Tensor, source: Tensor) -> Tensor:
        z = torch.randn(noise_shape(self.config, mel.size(0), mel.size(2)), device=mel.device)
        z = z + harmonics(source[:, 1], self.config, known=source[:, 0] + self.recipe.phase_shift)
        return self.model.generate(mel, z * self.recipe.sigma)[0][:, None]


def main() -> None:
    train("waveglow", AllVoicesRecipe, AllVoicesWaveglow)

"""Trains a HiFi-GAN generator: `python -m hifigan.train --corpus DIR --out DIR`.

The losses and the discriminators are training/vocoder.py's. `--mels` fine-tunes on predicted mels.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from common.cli import run_command

    run_command("hifigan.train")

import argparse

import torch
from torch import Tensor

from common.training.corpus.batches import Segments
from common.training.loop import adamw, autocast, run_training
from common.training.vocoder import VocoderRecipe, VocoderTrainer, load_segments, vocoder_parser
from common.weights.voices import ModelSource
from hifigan.model import HifiganGenerator

RECIPE = VocoderRecipe


class HifiganTrainer(VocoderTrainer):
    def __init__(self, args: argparse.Namespace, segments: Segments, start: ModelSource | None = None):
        model = HifiganGenerator(args.built[0], weight_norm=start is None)
        if start:  # its weights are folded
            model.load_state_dict({name: torch.from_numpy(value) for name, value in start.state.items()})
            model.add_weight_norm()
        super().__init__(args, segments, model.to(segments.device))
        self.networks = {"generator": self.model, "discriminators": self.discriminators}
        self.optimisers = {
            f"{name}_optimiser": adamw(network, self.recipe.learning_rate, (0.8, 0.99), 0.01)
            for name, network in (("discriminator", self.discriminators), ("generator", self.model))
        }

    def generate(self, model: HifiganGenerator, mel: Tensor) -> Tensor:
        """The last convolution is in float32."""
        with autocast(self.device):
            features = model.body(mel)
        return model.head(features.float())

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Mel loss of the averaged generator on the held-out mel and audio."""
        mel, audio = self.held_out
        return {"validation_mel": self.mel_loss(self.shipped_model()(mel), audio).item()}


def make_trainer(args: argparse.Namespace, start: ModelSource | None = None) -> HifiganTrainer:
    return HifiganTrainer(args, load_segments(args), start)


def main() -> None:
    args = vocoder_parser("hifigan", VocoderRecipe).parse_args()
    run_training(args, make_trainer(args), log_every=500)

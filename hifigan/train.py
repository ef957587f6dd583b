"""Trains a HiFi-GAN generator: `python -m hifigan.train --corpus DIR --out DIR`.

The losses and the discriminators are training/vocoder.py's. `--mels` fine-tunes on predicted mels.
"""

import argparse

import torch
from torch import Tensor

from common.cli.run import run
from common.training.corpus.batches import Segments
from common.training.loop import adamw, autocast, run_training
from common.training.vocoder import VocoderRecipe, VocoderTrainer, load_segments, vocoder_parser
from hifigan.model import HifiganGenerator


class HifiganTrainer(VocoderTrainer):
    def __init__(self, args: argparse.Namespace, segments: Segments):
        super().__init__(args, segments, HifiganGenerator(args.built[0]).to(segments.device))
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


def main() -> None:
    args = vocoder_parser("hifigan", VocoderRecipe).parse_args()
    run_training(args, HifiganTrainer(args, load_segments(args)), log_every=500)


if __name__ == "__main__":
    run(main)

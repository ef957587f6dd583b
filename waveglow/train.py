"""Trains WaveGlow: `python -m melforge.waveglow.train --corpus DIR -o DIR`, in two runs.

The first maximises the likelihood of the audio, as the paper does (arXiv:1811.00002, equation 3). Audio of a
network small enough for a CPU stays noisy that way. So the second (`--hparam
hparams/waveglow/train_adversarial.yaml --init RUN/last.pt`) trains the direction from noise to audio like
HiFi-GAN's generator, against discriminators and on mel losses (common/training/vocoder.py). It does not
change the invertible convolutions. Each step runs as one CUDA graph. `--mels` trains on predicted mels of
acoustic models too.

With `source` in its noise (waveglow/source.py) the network learns the pitch beside, on a corpus with sources
(recipes.hazel.prepare --sources).
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.waveglow.train")

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from melforge.common.cli.training import parse_recipe, vocoder_parser
from melforge.common.training.corpus.batches import Segments
from melforge.common.training.corpus.sources import SourcedSegments
from melforge.common.training.loop import TrainingPlan, adamw, fitting, load_checkpoint, run_training, start
from melforge.common.training.pitch import pitch_loss, pitch_weight
from melforge.common.training.vocoder import VocoderRecipe, VocoderTrainer
from melforge.waveglow.config import WaveglowConfig
from melforge.waveglow.model import Waveglow
from melforge.waveglow.noise import harmonics, noise_shape
from melforge.waveglow.source import SourcedWaveglow, make_network


@dataclass(frozen=True)
class WaveglowRecipe(VocoderRecipe):
    adversarial: bool  # noise to audio against discriminators, instead of audio to noise by likelihood
    sigma: float  # standard deviation of the noise
    clip_norm: float


def negative_log_likelihood(model: Waveglow, mel: Tensor, audio: Tensor, sigma: float) -> Tensor:
    """Of audio (B, S) given mel (B, n_mels, T), per value and without the constant."""
    z, log_scales, log_dets = model(mel, audio)
    gained = sum(log_scale.sum() for log_scale in log_scales) + log_dets.sum()
    return (z.square().sum() / (2 * sigma**2) - gained) / z.numel()


def mix_precision(model: Waveglow, device: torch.device) -> None:
    """Runs the coupling nets in bfloat16 on a GPU, but not their last layers: the flows stay exact."""
    if device.type != "cuda":
        return
    for net in cast(Any, model.WN):
        exact = partial(lambda last, x: last(x.float()), net.end.forward)
        net.end.forward = torch.autocast("cuda", enabled=False)(exact)
        net.forward = torch.autocast("cuda", torch.bfloat16, cache_enabled=False)(net.forward)


class WaveglowTrainer(VocoderTrainer[Waveglow, WaveglowRecipe]):
    """Inverses are no part of checkpoints; nor are the discriminators in the first run."""

    def __init__(self, plan: TrainingPlan[WaveglowConfig, WaveglowRecipe], segments: Segments):
        config, _, recipe = plan
        self.config = config
        model = make_network(config).to(segments.device)
        mix_precision(model, segments.device)
        model.convinv.requires_grad_(not recipe.adversarial)
        super().__init__(model, plan, segments, recipe.clip_norm)
        betas = (0.8, 0.99) if recipe.adversarial else (0.9, 0.999)
        self.networks = {"model": model}
        self.optimisers = {"0": adamw(model, recipe.learning_rate, betas, 0.0)}
        if recipe.adversarial:
            self.networks["discriminators"] = self.discriminators
            self.optimisers["1"] = adamw(self.discriminators, recipe.learning_rate, betas, 0.01)
        self._store_inverses()

    def _store_inverses(self) -> None:
        if self.recipe.adversarial:
            for conv in cast(Any, self.model.convinv):
                conv.store_inverse()

    def model_state(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.model.state_dict().items() if "inverse" not in name}

    def state_dict(self) -> dict:
        state = super().state_dict()
        optimisers = [state.pop(name) for name in self.optimisers]
        return state | {"model": self.model_state(), "optimisers": optimisers}

    def load_networks(self, state: dict) -> None:
        super().load_networks({"discriminators": self.discriminators.state_dict()} | state)
        self._store_inverses()

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state | dict(zip(self.optimisers, state["optimisers"], strict=True)))

    def generate(self, model: Waveglow, mel: Tensor) -> Tensor:
        """mel (B, n_mels, T) and new noise -> audio (B, 1, T * hop)."""
        z = torch.randn(noise_shape(self.config, mel.size(0), mel.size(2)), device=mel.device)
        if isinstance(model, SourcedWaveglow):
            with torch.no_grad():
                z = z + harmonics(model.find_pitch(mel)[0], self.config)
        return model.generate(mel, z * self.recipe.sigma)[0][:, None]

    def step(self, key: object, mel: Tensor, audio: Tensor, **known: Tensor) -> dict[str, Tensor]:
        """One update: mel (B, n_mels, T), audio (B, 1, T * hop), and what is known of its source."""
        if self.recipe.adversarial:
            losses = self.losses(self.judged(self.generate(self.model, mel)), self.judged(audio))
            total = losses.pop("generator")
        else:
            total = negative_log_likelihood(self.model, mel, audio[:, 0], self.recipe.sigma)
            losses = {"nll": total}
        if isinstance(self.model, SourcedWaveglow):
            weight = pitch_weight(audio, known["harmonic"], known["voiced"])
            losses["pitch"] = pitch_loss(self.model.pitch, mel, known["source"][:, 1], weight)
            total = total + losses["pitch"]
        return self.learn(losses, total)

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """The averaged network's likelihood on held-out audio, and the mel loss of its output."""
        mel, audio = self.held_out
        model = self.averaged_model()
        nll = negative_log_likelihood(model, mel, audio[:, 0], self.recipe.sigma)
        made = self.generate(model.remove_weight_norm(), mel)
        return {
            "validation_nll": nll.item(),
            "validation_mel": self.mel_loss(made, audio[:, :, : made.size(2)]).item(),
        }

    def save_weights(self, path: Path, info: dict) -> None:
        super().save_weights(path, {"sigma": self.recipe.sigma, **info})


def main() -> None:
    parser = vocoder_parser("waveglow", WaveglowRecipe)
    what = "checkpoint of a vocoder's run whose discriminators judge from the start"
    parser.add_argument("--judges", type=Path, help=what)
    args, settings, plan = parse_recipe(parser)
    make = partial(SourcedSegments, edges=0) if plan.config.source else Segments
    trainer = WaveglowTrainer(plan, make(args.corpus, plan.contract, args.mels, start(settings)))
    if args.judges:
        state = load_checkpoint(args.judges, trainer.device)["trainer"]
        with fitting(args.judges):
            trainer.discriminators.load_state_dict(state["discriminators"])
    run_training(settings, trainer)

"""Trains WaveGlow: `python -m waveglow.train --corpus DIR --out DIR`, in two runs.

The first maximises the likelihood of the audio, as the paper does (arXiv:1811.00002, equation 3). Audio of a
network small enough for a CPU stays noisy that way. So the second (`--hparam
hparams/waveglow/train_adversarial.yaml --init RUN/last.pt`) trains the direction from noise to audio like
HiFi-GAN's generator, against discriminators and on mel losses (common/training/adversarial.py). It does not
change the invertible convolutions. Each step runs as one CUDA graph. `--mels` trains on predicted mels of
acoustic models too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from common.audio.contract import MelContract
from common.training.adversarial import Adversary, AdversaryRecipe, backward_both
from common.training.corpus.segments import Segments
from common.training.loop import (
    Ema,
    Schedule,
    adamw,
    load_checkpoint,
    recipe_parser,
    run_training,
    save_weights,
)
from waveglow.config import WaveglowConfig
from waveglow.model import Waveglow
from waveglow.noise import noise_shape


@dataclass(frozen=True)
class WaveglowRecipe:
    """Training settings; hparams/waveglow/train.yaml has their values."""

    adversarial: bool  # noise to audio against discriminators, instead of audio to noise by likelihood
    sigma: float  # standard deviation of the noise
    batch_size: int
    segment_frames: int
    learning_rate: float
    final_learning_rate: float
    warm_up_steps: int
    ema_decay: float
    clip_norm: float
    predicted_share: float  # share of a batch with predicted mels as input, with --mels


def negative_log_likelihood(model: Waveglow, mel: Tensor, audio: Tensor, sigma: float) -> Tensor:
    """Of audio (B, S) given mel (B, n_mels, T), per value and without the constant."""
    z, log_scales, log_dets = model(mel, audio)
    gained = sum(log_scale.sum() for log_scale in log_scales) + log_dets.sum()
    return (z.square().sum() / (2 * sigma**2) - gained) / z.numel()


def mix_precision(model: Waveglow, device: torch.device) -> None:
    """Runs the coupling nets in bfloat16 on a GPU, but not their last layers: the flows stay exact."""
    if device.type != "cuda":
        return
    for net in model.WN:
        net.end.forward = torch.autocast("cuda", enabled=False)(partial(_in_float32, net.end.forward))
        net.forward = torch.autocast("cuda", torch.bfloat16, cache_enabled=False)(net.forward)


def _in_float32(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return layer(x.float())


class Trainer:
    """Networks, optimisers and one step; state lives on one device."""

    def __init__(
        self,
        config: WaveglowConfig,
        contract: MelContract,
        recipe: WaveglowRecipe,
        adversary: AdversaryRecipe,
        device: torch.device,
        held_out: tuple[Tensor, Tensor],
    ):
        self.config, self.contract, self.recipe, self.device = config, contract, recipe, device
        self.held_out = held_out  # mel (1, n_mels, T), audio (1, 1, T * hop)
        self.model = Waveglow(config).to(device)
        mix_precision(self.model, device)
        self.adversary = Adversary(adversary, contract, device)
        self.discriminators = self.adversary.discriminators
        if recipe.adversarial:
            self.model.convinv.requires_grad_(False)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        betas = (0.8, 0.99) if recipe.adversarial else (0.9, 0.999)
        self.optimisers = [adamw([self.model], recipe.learning_rate, betas, 0.0)]
        if recipe.adversarial:
            self.optimisers.append(adamw([self.discriminators], recipe.learning_rate, betas, 0.01))
        self.ema = Ema(self.model, recipe.ema_decay)
        self._store_inverses()

    def _store_inverses(self) -> None:
        if self.recipe.adversarial:
            for conv in self.model.convinv:
                conv.store_inverse()

    def state_dict(self) -> dict:
        model = {name: value for name, value in self.model.state_dict().items() if "inverse" not in name}
        judges = {"discriminators": self.discriminators.state_dict()} if self.recipe.adversarial else {}
        return {
            "model": model,
            **judges,
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "ema": self.ema.state_dict(),
        }

    def load_networks(self, state: dict) -> None:
        self.model.load_state_dict(state["model"])
        self._store_inverses()
        if "discriminators" in state:  # the first run has none
            self.discriminators.load_state_dict(state["discriminators"])
        self.ema.load_state_dict(state["ema"])

    def load_state_dict(self, state: dict) -> None:
        self.load_networks(state)
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)

    def generate(self, model: Waveglow, mel: Tensor) -> Tensor:
        """mel (B, n_mels, T) and new noise -> audio (B, 1, T * hop)."""
        z = torch.randn(noise_shape(self.config, mel.size(0), mel.size(2)), device=mel.device)
        return model.generate(mel, z * self.recipe.sigma)[0][:, None]

    def step(self, _key: object, mel: Tensor, audio: Tensor) -> dict[str, Tensor]:
        """One update: mel (B, n_mels, T), audio (B, 1, T * hop)."""
        if self.recipe.adversarial:
            losses = self.adversary.losses(self.generate(self.model, mel), audio)
            backward_both(losses, self.discriminators, self.parameters)
            shown = losses.shown()
        else:
            for parameter in self.parameters:
                parameter.grad = None
            loss = negative_log_likelihood(self.model, mel, audio[:, 0], self.recipe.sigma)
            loss.backward()
            shown = {"nll": loss.detach()}
        torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip_norm)
        for optimiser in self.optimisers:
            optimiser.step()
        self.ema.update()
        return shown

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """The averaged network's likelihood on held-out audio, and the mel loss of its output."""
        mel, audio = self.held_out
        model = Waveglow(self.config).to(self.device)
        model.load_state_dict(self.ema.state_dict())
        nll = negative_log_likelihood(model, mel, audio[:, 0], self.recipe.sigma)
        made = self.generate(model.remove_weight_norm(), mel)
        return {
            "validation_nll": nll.item(),
            "validation_mel": self.adversary.mel_loss(made, audio[:, :, : made.size(2)]).item(),
        }

    def save_weights(self, path: Path, info: dict) -> None:
        model = Waveglow(self.config).to(self.device)
        model.load_state_dict(self.ema.state_dict())
        info = {"mel": asdict(self.contract), "sigma": self.recipe.sigma, **info}
        save_weights(path, model.remove_weight_norm(), self.config, info)


def main() -> None:
    parser = recipe_parser(
        "waveglow",
        "Trains WaveGlow on a corpus.",
        WaveglowConfig,
        MelContract,
        WaveglowRecipe,
        AdversaryRecipe,
    )
    parser.add_argument("--mels", type=Path, nargs="*", default=[], help="predicted mels to train on too")
    parser.add_argument(
        "--judges", type=Path, help="checkpoint of a vocoder's run whose discriminators judge from the start"
    )
    args = parser.parse_args()
    device = torch.device(args.device)
    config, contract, recipe, adversary = args.built
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    segments = Segments(args.corpus, contract, args.mels, device)
    trainer = Trainer(config, contract, recipe, adversary, device, segments.held_out())
    if args.judges:
        judges = load_checkpoint(args.judges, device)["trainer"]["discriminators"]
        trainer.discriminators.load_state_dict(judges)
    schedule = Schedule(
        recipe.learning_rate, recipe.final_learning_rate, recipe.warm_up_steps, args.steps, args.minutes
    )
    batches = segments.batches(recipe.batch_size, recipe.segment_frames, recipe.predicted_share, args.seed)
    run_training(args, trainer, schedule, batches, log_every=500)


if __name__ == "__main__":
    from common.cli.run import run

    run(main)

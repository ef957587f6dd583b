"""Trains Tacotron 2: `python -m melforge.tacotron2.train --corpus DIR -o DIR`.

The corpus's forced alignment supervises the attention (a cross entropy besides the mel losses), so that it
converges within minutes. All decoder steps of a batch are in one CUDA graph. With every log line
`alignment.png` shows the attention on a held-out utterance, and some utterances are synthesised free-running.
With `--mels` the targets are another model's mels of the corpus (FastPitch's: its intonation too).
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.tacotron2.train")

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from melforge.common.arrays import length_mask
from melforge.common.cli.training import mels_option, parse_recipe, recipe_parser
from melforge.common.training.acoustic import (
    AcousticRecipe,
    AcousticTrainer,
    Losses,
    load_corpus,
    masked_mean,
)
from melforge.common.training.corpus.batches import LengthGroup, Utterances
from melforge.common.training.log import save_alignment_picture
from melforge.common.training.loop import TrainingPlan, run_training
from melforge.tacotron2.config import Tacotron2Config
from melforge.tacotron2.model import PRENET_LAYERS, Tacotron2, Tacotron2Prediction

SILENCE = -11.5  # log mel behind an utterance's end, the decoder's input while it learns to stop
STEPS_AFTER_END = 4  # with the gate's target at stop
GATE_WEIGHT = 5.0  # of the few steps with target stop, against the many others
SPOKEN_UTTERANCES = 16  # held-out ones, synthesised free-running with every log line
WEIGHT_FLOOR = 1e-6  # lower bound of an attention weight in the logarithm


@dataclass(frozen=True)
class Tacotron2Recipe(AcousticRecipe):
    gate_loss_weight: float
    alignment_loss_weight: float


def batch(
    config: Tacotron2Config, corpus: Utterances, members: Tensor, symbols: int, mel: Tensor
) -> dict[str, Tensor]:
    """Utterance numbers (B,), with mels (B, n_mels, T) -> the arguments of `Tacotron2.forward`."""
    steps = mel.size(2) // config.n_frames_per_step
    noise = torch.rand(PRENET_LAYERS, steps, len(members), config.prenet_dim, device=corpus.device)
    return {
        "symbols": corpus.ids[members, :symbols],
        "lengths": corpus.lengths[members],
        "mel": mel,
        "mel_lengths": corpus.frames[members],
        "prenet_noise": noise,
    }


def teach(model: Tacotron2, corpus: Utterances, members: Tensor) -> Tacotron2Prediction:
    symbols, frames = corpus.longest(members)
    step = model.config.n_frames_per_step
    mel = corpus.padded_mel(members, -(-frames // step) * step, SILENCE)
    return model(**batch(model.config, corpus, members, symbols, mel))


def spoken_symbols(durations: Tensor, frames: int, step: int) -> Tensor:
    """Durations in frames (B, N) -> the symbol at each step's middle, behind the end the last (B, steps)."""
    ends = durations.cumsum(1)
    middles = torch.arange(step // 2, frames, step, device=durations.device)
    symbol = torch.searchsorted(ends, middles.expand(len(ends), -1).contiguous(), right=True)
    return torch.minimum(symbol, (durations > 0).long().cumsum(1).argmax(1)[:, None])


class Tacotron2Trainer(AcousticTrainer[Tacotron2, Tacotron2Recipe]):
    """`plot`: where the attention is drawn with every log line (.png)."""

    betas = (0.9, 0.999)
    padding = SILENCE

    def __init__(self, plan: TrainingPlan[Tacotron2Config, Tacotron2Recipe], corpus: Utterances, plot: Path):
        self.config, self.plot = plan.config, plot
        config = plan.config
        model = Tacotron2(config).to(corpus.device)
        # Starts at the mean frame, so that the first updates need not learn this level.
        mean = corpus.mean_frame().repeat(config.n_frames_per_step)
        model.decoder.linear_projection.linear_layer.bias.data.copy_(mean)
        super().__init__(model, plan, corpus)

    def losses(self, model: Tacotron2, group: LengthGroup, members: Tensor, mel: Tensor) -> Losses:
        given = batch(self.config, self.corpus, members, group.symbols, mel)
        out = model(**given)
        frames = self.corpus.inside(members, group.frames)[:, None]
        before, after = (
            masked_mean(difference.abs() + difference.square(), frames)
            for difference in (out.mel_before_postnet - given["mel"], out.mel - given["mel"])
        )
        steps, count = -(-given["mel_lengths"] // self.config.n_frames_per_step), out.gate.size(1)
        ended, counted = ~length_mask(steps - 1, count), length_mask(steps + STEPS_AFTER_END, count)
        weight = torch.full_like(out.gate[:1, :1], GATE_WEIGHT)
        gate = F.binary_cross_entropy_with_logits(
            out.gate, ended.float(), pos_weight=weight, reduction="none"
        )
        durations = self.corpus.durations[members, : group.symbols]
        spoken = spoken_symbols(durations, group.frames, self.config.n_frames_per_step)
        weights = out.alignment.gather(2, spoken[:, :, None])[:, :, 0]
        alignment = -masked_mean(weights.clamp(min=WEIGHT_FLOOR).log(), length_mask(steps, count))
        return {"mel": before + after, "gate": masked_mean(gate, counted), "alignment": alignment}, out

    def inspect(self, model: Tacotron2, members: Tensor, prediction: Tacotron2Prediction) -> dict[str, float]:
        """Free-running: the share of items that stopped and the mean relative difference in length."""
        members = members[:SPOKEN_UTTERANCES]
        lengths, frames = self.corpus.lengths[members], self.corpus.frames[members]
        steps = int(frames[0]) // self.config.n_frames_per_step
        save_alignment_picture(self.plot, prediction.alignment[0, :steps, : int(lengths[0])])
        limit = 2 * int(frames.max()) // self.config.n_frames_per_step
        noise = torch.rand(limit, PRENET_LAYERS, len(members), self.config.prenet_dim, device=self.device)
        spoken = model.infer(
            self.corpus.ids[members, : int(lengths.max())], lengths, prenet_noise=noise, max_steps=limit
        )
        off = (spoken.mel_lengths - frames).abs() / frames
        return {"stopped": spoken.stopped.float().mean().item(), "length_off": off.mean().item()}


def main() -> None:
    parser = recipe_parser("tacotron2", Tacotron2Recipe)
    mels_option(parser)
    args, settings, plan = parse_recipe(parser)
    corpus = load_corpus(settings, args.corpus, plan.contract, args.mels)
    run_training(settings, Tacotron2Trainer(plan, corpus, settings.out / "alignment.png"))

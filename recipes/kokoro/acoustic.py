"""Trains one FastPitch for all speakers: `python -m recipes.kokoro.acoustic --corpus DIR -o RUN`.

Each speaker's pitch has a mean and a deviation of its own, so that a shift, or a question's rise, is as much
for a man as for a woman. The weights' `info` has them, in Hz, in the order of `speakers`.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.kokoro.acoustic")

from pathlib import Path

import torch
from torch import Tensor

from melforge.common.cli.training import parse_recipe, recipe_parser
from melforge.common.training.acoustic import load_corpus
from melforge.common.training.corpus.batches import Utterances
from melforge.common.training.loop import TrainingPlan, run_training
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import ModelSource
from melforge.fastpitch.config import FastPitchConfig
from melforge.fastpitch.train import FastPitchRecipe, FastPitchTrainer

HPARAM = Path(__file__).with_name("acoustic.yaml")


def measure_by_speaker(corpus: Utterances) -> tuple[Tensor, Tensor]:
    """Pitch in deviations from the mean of its speaker; all speakers' means and deviations in Hz."""
    voiced = corpus.pitch != 0
    pitch = torch.where(voiced, corpus.pitch * corpus.pitch_std + corpus.pitch_mean, 0.0)
    means, deviations = torch.zeros(2, len(corpus.speakers), device=corpus.device)
    for number in range(len(corpus.speakers)):
        own = pitch[corpus.speaker == number]
        means[number], deviations[number] = own[own > 0].mean(), own[own > 0].std()
    mean, deviation = means[corpus.speaker][:, None], deviations[corpus.speaker][:, None]
    corpus.pitch = torch.where(voiced, (pitch - mean) / deviation, 0.0)
    return means, deviations


class SpeakersTrainer(FastPitchTrainer):
    """`begun` are the weights of such a run, whose sizes and speakers this one goes on with."""

    def __init__(
        self,
        plan: TrainingPlan[FastPitchConfig, FastPitchRecipe],
        corpus: Utterances,
        begun: ModelSource | None = None,
    ):
        super().__init__(plan, corpus, begun)
        means, deviations = measure_by_speaker(corpus)
        self.info = {
            "speakers": list(corpus.speakers),
            "pitch_means": [round(value, 2) for value in means.tolist()],
            "pitch_deviations": [round(value, 2) for value in deviations.tolist()],
        }


def main() -> None:
    parser = recipe_parser("fastpitch", FastPitchRecipe)
    parser.add_argument("--start", type=Path, help="weights.safetensors of a run that this one goes on from")
    args, settings, plan = parse_recipe(parser)
    begun = read_checkpoint(args.start, "fastpitch") if args.start else None
    corpus = load_corpus(settings, args.corpus, plan.contract)
    run_training(settings, SpeakersTrainer(plan, corpus, begun), log_every=1000)

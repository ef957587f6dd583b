"""Trains FastPitch: `python -m melforge.fastpitch.train --corpus DIR -o DIR`.

Durations come from the corpus's forced alignment, so that no alignment has to be learnt. A vocoder is then
fine-tuned on the mels that `melforge.fastpitch.predict_mels` writes. `melforge voice train` starts from the
weights of a voice.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.fastpitch.train")

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from melforge.common.arrays import length_mask
from melforge.common.audio.sharpness import sharpen_layer
from melforge.common.cli.options import add_options
from melforge.common.cli.training import durations_option, parse_recipe, recipe_parser
from melforge.common.text.frontends import get_frontend
from melforge.common.text.symbols import nearest_american
from melforge.common.training import ranks
from melforge.common.training.acoustic import (
    AcousticRecipe,
    AcousticTrainer,
    Losses,
    load_corpus,
    masked_mean,
)
from melforge.common.training.corpus.batches import LengthGroup, Utterances
from melforge.common.training.corpus.dataset import FRONTEND, save_array
from melforge.common.training.corpus.predict import compare_boundaries
from melforge.common.training.fine_tune import find_start
from melforge.common.training.loop import RunSettings, TrainingPlan, autocast, run_training
from melforge.common.weights.voices import ModelSource
from melforge.fastpitch.align import durations_of, learn, realign
from melforge.fastpitch.config import DEFAULT_PITCH, FastPitchConfig
from melforge.fastpitch.model import FastPitch, Prediction, Synthesis, make_repeat_index

SAMPLES = 4  # held-out sentences that are spoken during a run


@dataclass(frozen=True)
class FastPitchRecipe(AcousticRecipe):
    duration_loss_weight: float
    pitch_loss_weight: float
    energy_loss_weight: float
    speaker_rate_factor: float  # of the learning rate, for the embeddings of speakers
    sharpness: float  # of the mels of the weights for inference, see `common.audio.sharpness`


RECIPE = FastPitchRecipe


def batch(corpus: Utterances, members: Tensor, symbols: int, mel: Tensor) -> dict[str, Tensor]:
    """Utterance numbers (B,), with mels (B, n_mels, T) -> the arguments of `FastPitch.forward`."""
    durations = corpus.durations[members, :symbols]
    pitch = corpus.pitch[members, :symbols].gather(1, make_repeat_index(durations, mel.size(2)))
    return {
        "symbols": corpus.ids[members, :symbols],
        "lengths": corpus.lengths[members],
        "mel": mel,
        "mel_lengths": corpus.frames[members],
        "pitch": pitch[:, None],  # beyond its end no symbol has frames
        "energy": mel.norm(dim=1),
        "durations": durations,
        "speaker": corpus.speaker[members],
    }


def teach(model: FastPitch, corpus: Utterances, members: Tensor) -> Prediction:
    symbols, frames = corpus.longest(members)
    return model(**batch(corpus, members, symbols, corpus.padded_mel(members, frames)))


def predict_freely(model: FastPitch, corpus: Utterances, members: Tensor) -> Synthesis:
    """Only the durations are the corpus's."""
    symbols, _ = corpus.longest(members)
    durations = corpus.durations[members, :symbols]
    symbols_of, lengths = corpus.ids[members, :symbols], corpus.lengths[members]
    return model.infer(symbols_of, lengths, corpus.speaker[members], durations=durations)


def continued(
    start: ModelSource, speakers: Sequence[str], means: Sequence[float], symbols: Sequence[str] = ()
) -> tuple[FastPitchConfig, dict[str, Tensor]]:
    """Sizes and weights for a run that goes on from these weights with a corpus of these speakers, whose
    pitches have these means in Hz; one speaker needs no name.

    A speaker that the start has begins as there, another as the one of the start's whose mean pitch is
    nearest, or as the mean of all where the start's have no means of their own. One speaker's embedding is
    added to those of the symbols. Of the corpus's `symbols` those that the start lacks, British vowels,
    begin as the nearest American ones; others than these are left out.
    """
    state = {name: torch.tensor(value) for name, value in start.state.items()}
    config, known, their_means = start.config, start.speakers, start.settings.pitch_means
    if symbols:
        lacking = symbols[config.n_symbols :]
        nearest = [symbols.index(f"@{nearest_american(symbol[1:])}") for symbol in lacking]
        table = state["encoder.word_emb.weight"]
        state["encoder.word_emb.weight"] = torch.cat([table[: len(symbols)], table[nearest]])
        config = replace(config, n_symbols=len(symbols))
    rows = state.pop("speaker_emb.weight", torch.zeros(1, config.symbols_embedding_dim))

    def row(name: str, mean: float) -> Tensor:
        if name in known:
            return rows[known.index(name)]
        if their_means:
            return rows[int(np.abs(np.log(their_means) - np.log(mean)).argmin())]
        return rows.mean(0)

    begun = torch.stack([row(*one) for one in zip(speakers or [""], means, strict=True)])
    if len(begun) > 1:
        state["speaker_emb.weight"] = begun
    elif known:
        spoken = torch.arange(config.n_symbols) != config.padding_idx
        state["encoder.word_emb.weight"][spoken] += config.speaker_emb_weight * begun
    return replace(config, n_speakers=len(begun)), state


class FastPitchTrainer(AcousticTrainer[FastPitch, FastPitchRecipe]):
    leave_out = ("attention.",)
    sharpness = 0.0  # of the weights for inference: until the first step those that the run began with

    def __init__(
        self,
        plan: TrainingPlan[FastPitchConfig, FastPitchRecipe],
        corpus: Utterances,
        begun: ModelSource | None = None,
    ):
        names, symbols = corpus.speakers, get_frontend(corpus.frontend).symbols
        if begun:
            config, state = continued(begun, names, corpus.pitch_units[0].tolist(), symbols)
            told = begun.settings
            if not told.pitch_means:  # all of the network's speakers share its units
                own = (told.pitch_mean, told.pitch_std) if told.pitch_std else DEFAULT_PITCH
                corpus.measure_pitch_by(*([value] for value in own))
        else:
            count = max(plan.config.n_symbols, len(symbols))
            config = replace(plan.config, n_speakers=max(1, len(names)), n_symbols=count)
        model = FastPitch(config).to(corpus.device)
        if begun:
            model.load_state_dict(state)
        if len(names) > 1:
            means, deviations = corpus.pitch_units.double().round(decimals=2).tolist()
            self.info = {"speakers": names, "pitch_means": means, "pitch_deviations": deviations}
        if corpus.frontend != FRONTEND:
            self.info = {**self.info, "frontend": {"name": corpus.frontend}}
        model.attention.requires_grad_(False)  # durations are given: the aligner is not trained
        model.pitch_mean.fill_(corpus.pitch_units[0].mean())
        model.pitch_std.fill_(corpus.pitch_units[1].mean())
        self.config = config
        super().__init__(model, plan, corpus)

    def load_networks(self, state: dict) -> None:
        own = self.pitch_units()
        super().load_networks(state)
        if (units := self.pitch_units()) != own and self.config.n_speakers == 1:
            self.corpus.measure_pitch_by(*([value] for value in units))

    def pitch_units(self) -> tuple[float, float]:
        """Mean and deviation in Hz in which the network of one speaker knows pitch."""
        return self.model.pitch_mean.item(), self.model.pitch_std.item()

    def rate_factors(self, model: FastPitch, recipe: FastPitchRecipe) -> dict[str, float]:
        return {} if model.speaker_emb is None else {"speaker_emb.weight": recipe.speaker_rate_factor}

    def losses(self, model: FastPitch, group: LengthGroup, members: Tensor, mel: Tensor) -> Losses:
        given = batch(self.corpus, members, group.symbols, mel)
        with autocast(self.device):
            out = model(**given)
        symbols = given["symbols"] != self.config.padding_idx

        def squared(predicted: Tensor, target: Tensor) -> Tensor:
            return masked_mean((predicted.float() - target.float()).square(), symbols)

        losses = {
            "mel": masked_mean((out.mel.float() - given["mel"]).abs(), out.mel_mask[:, None]),
            "duration": squared(out.log_duration, torch.log1p(given["durations"].float())),
            "pitch": squared(out.pitch[:, 0], out.pitch_target[:, 0]),
        }
        if self.config.energy_conditioning:
            losses["energy"] = squared(out.energy, out.energy_target)
        return losses, out

    def inspect(self, model: FastPitch, members: Tensor, prediction: Prediction) -> dict[str, float]:
        """Mean errors of a symbol's duration in ms and, where it is voiced, of its pitch in Hz."""
        hop_ms = self.contract.hop_length / self.contract.sampling_rate * 1000
        durations, pitch = prediction.duration_target, prediction.pitch_target[:, 0]
        inside = length_mask(self.corpus.lengths[members], durations.size(1))
        late = (prediction.log_duration.float().expm1() - durations).abs() * hop_ms
        deviation = self.corpus.pitch_units[1, self.corpus.speaker[members], None]
        off = (prediction.pitch[:, 0].float() - pitch).abs() * deviation
        return {
            "duration_ms": masked_mean(late, inside).item(),
            "pitch_hz": masked_mean(off, inside & (pitch != 0)).item(),
        }

    def step(self, key: LengthGroup, members: Tensor, mel: Tensor) -> dict[str, Tensor]:
        self.sharpness = self.recipe.sharpness
        return super().step(key, members, mel)

    def shipped_model(self) -> FastPitch:
        model = self.averaged_model()
        last = model.proj
        last.weight.data, last.bias.data = sharpen_layer(last.weight.data, last.bias.data, self.sharpness)
        return model

    @torch.no_grad()
    def samples(self) -> Iterator[tuple[str, np.ndarray, None]]:
        """Of up to SAMPLES held-out sentences, each by the speaker whose it is."""
        model, corpus = self.shipped_model(), self.corpus
        by_speaker = {int(corpus.speaker[one]): one for one in reversed(corpus.validation().members)}
        chosen = dict.fromkeys([*by_speaker.values(), *corpus.validation().members])
        for one in list(chosen)[:SAMPLES]:
            members = torch.tensor([one], device=self.device)
            symbols, _ = corpus.longest(members)
            mel = model.infer(corpus.ids[members, :symbols], speaker=corpus.speaker[members]).mel
            yield corpus.names[one], mel[0].float().cpu().numpy(), None


def make_trainer(
    plan: TrainingPlan[FastPitchConfig, FastPitchRecipe],
    corpus: Path,
    settings: RunSettings,
    begun: ModelSource | None = None,
    align: str = "corpus",
    durations: Path | None = None,
) -> FastPitchTrainer:
    """The trainer of a run that starts. `durations` are taken instead of the corpus's own; with `align`
    "learned" they are learnt first.
    """
    trainer = FastPitchTrainer(plan, load_corpus(settings, corpus, plan.contract), begun)
    if align == "learned":
        durations = settings.out / "durations.npy"
        if ranks.is_first() and not durations.is_file():  # a resumed run has them
            learn(trainer.model, trainer.corpus, seed=settings.seed)
            found = durations_of(trainer.model, trainer.corpus)
            print(compare_boundaries(found, trainer.corpus))
            settings.out.mkdir(parents=True, exist_ok=True)
            save_array(durations, np.concatenate(found))
        ranks.wait_for_all()
    if durations:
        realign(trainer.corpus, durations)
    return trainer


def main() -> None:
    parser = recipe_parser("fastpitch", FastPitchRecipe)
    durations_option(parser)
    add_options(parser, "align")
    parser.add_argument("--from", dest="start", help="voice or weights.safetensors that this run begins with")
    args, settings, plan = parse_recipe(parser)
    begun = find_start(args.start, "fastpitch") if args.start else None
    trainer = make_trainer(plan, args.corpus, settings, begun, args.align, args.durations)
    run_training(settings, trainer, log_every=1000)

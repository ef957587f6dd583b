"""Trains a HiFi-GAN generator: `python -m melforge.hifigan.train --corpus DIR -o DIR`.

The losses and the discriminators are training/vocoder.py's. `--mels` fine-tunes on predicted mels.

A generator with a source is trained in two runs on a corpus with sources (recipes.hazel.prepare --sources).
The first (`--hparam hparams/hifigan/train_source.yaml`) regresses the teacher's harmonic part, and its audio
by mel losses; the second (`--hparam hparams/hifigan/train_source_adversarial.yaml --init RUN/last.pt`) has
discriminators too.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.hifigan.train")

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from melforge.common.audio.pitch import source_of
from melforge.common.cli.training import parse_recipe, vocoder_parser
from melforge.common.errors import InputError, install_command
from melforge.common.training import ranks
from melforge.common.training.corpus.batches import Segments
from melforge.common.training.corpus.pitch import can_measure_pitch, corpus_pitch
from melforge.common.training.corpus.sources import SourcedSegments
from melforge.common.training.loop import RunSettings, TrainingPlan, adamw, autocast, run_training, start
from melforge.common.training.pitch import LESSON_BATCH, SEMITONES, pitch_loss, pitch_weight, teach_pitch
from melforge.common.training.vocoder import VocoderRecipe, VocoderTrainer
from melforge.common.weights.voices import ModelSource
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.model import HifiganGenerator
from melforge.hifigan.source_filter import SourceFilterGenerator, make_generator


@dataclass(frozen=True)
class HifiganRecipe(VocoderRecipe):
    """The rest is for generators with a source, on a corpus with sources."""

    adversarial: bool = True
    edge_segments: int = 0  # of a batch that begin with an utterance, and as many that end with one
    phase_loss_weight: float = 0.0
    part_loss_weight: float = 0.0  # of the mel losses of the harmonic part and of the rest
    pitch_loss_weight: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= 2 * self.edge_segments <= self.batch_size:
            raise InputError(
                f"edge_segments={self.edge_segments}: a batch of {self.batch_size} has room for 0 to "
                f"{self.batch_size // 2} at either end"
            )


RECIPE = HifiganRecipe
LESSONS = {"cuda": 2000, "cpu": 60}  # of the pitch network: some 15 seconds
PHASE_WINDOWS = 512, 1024, 2048
AnyGenerator = HifiganGenerator | SourceFilterGenerator


class HifiganTrainer(VocoderTrainer[AnyGenerator, HifiganRecipe]):
    """`begun` are the weights of a voice that the run goes on from, if any."""

    def __init__(
        self,
        plan: TrainingPlan[HifiganConfig, HifiganRecipe],
        segments: Segments,
        begun: ModelSource | None = None,
    ):
        model = make_generator(plan.config, weight_norm=begun is None)
        if begun:  # its weights are folded
            model.load_state_dict({name: torch.from_numpy(value) for name, value in begun.state.items()})
            model.add_weight_norm()
            if isinstance(model, SourceFilterGenerator):
                model.pitch.requires_grad_(False)  # a source has no gradient: it has lessons of its own
        super().__init__(model.to(segments.device), plan, segments)
        self.networks = {"generator": self.model, "discriminators": self.discriminators}
        self.optimisers = {
            f"{name}_optimiser": adamw(network, self.recipe.learning_rate, (0.8, 0.99), 0.01)
            for name, network in (("discriminator", self.discriminators), ("generator", self.model))
        }

    def generate(self, model: AnyGenerator, mel: Tensor) -> Tensor:
        """The last convolution is in float32. A source is that of the pitch that the network finds."""
        if isinstance(model, HifiganGenerator):
            with autocast(self.device):
                features = model.body(mel)
            return model.head(features.float())
        with torch.no_grad():
            source = with_noise(source_of(model.find_pitch(mel)[0], self.contract.hop_length), model)
        with autocast(self.device):
            features = model.body(mel, source)
        return model.head(features.float(), source)[0][:, None]

    def teach_pitch(self, lessons: Iterable[Mapping[str, Tensor]], steps: int) -> None:
        """Lessons of the pitch network alone, see `common.training.pitch`; the average takes them."""
        assert isinstance(self.model, SourceFilterGenerator)
        network = self.model.pitch
        learns = next(network.parameters()).requires_grad
        network.requires_grad_(True)
        teach_pitch(network, lessons, steps)
        network.requires_grad_(learns)
        for name, average in self.ema.averages.items():
            if name.startswith("pitch."):
                average.copy_(self.ema.parameters[name])

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Mel loss of the averaged generator on the held-out mel and audio."""
        mel, audio = self.held_out
        return {"validation_mel": self.mel_loss(self.generate(self.shipped_model(), mel), audio).item()}


class SourceFilterTrainer(HifiganTrainer):
    """A generator with a source, from the teacher's pulses; the pitch is learned beside."""

    @property
    def source_filter(self) -> SourceFilterGenerator:
        assert isinstance(self.model, SourceFilterGenerator)
        return self.model

    def generate_parts(self, mel: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        """Audio and its harmonic part, (B, 1, S)."""
        model = self.source_filter
        source = with_noise(source, model)
        with autocast(self.device):
            features = model.body(mel, source)
        audio, harmonic = model.head(features.float(), source, apart=True)
        return audio[:, None], harmonic[:, None]

    def step(
        self, key: object, mel: Tensor, audio: Tensor, source: Tensor, voiced: Tensor, harmonic: Tensor
    ) -> dict[str, Tensor]:
        """One update: source (B, 2, T), voiced (B, T), the others as everywhere."""
        recipe = self.recipe
        made, tone = map(self.judged, self.generate_parts(mel, source))
        true, true_tone = self.judged(audio), self.judged(harmonic)
        losses = self.losses(made, true) if recipe.adversarial else {"mel": self.mel_loss(made, true)}
        generator = losses.pop("generator", recipe.mel_loss_weight * losses["mel"])
        losses["phase"] = phase_loss(tone, true_tone)
        parts = self.mel_loss(tone, true_tone) + self.mel_loss(made - tone, true - true_tone)
        weight = pitch_weight(audio, harmonic, voiced)
        losses["pitch"] = pitch_loss(self.source_filter.pitch, mel, source[:, 1], weight)
        generator = generator + recipe.phase_loss_weight * losses["phase"] + recipe.part_loss_weight * parts
        generator = generator + recipe.pitch_loss_weight * losses["pitch"]
        return self.learn(losses, generator)

    def judged(self, audio: Tensor) -> Tensor:
        """Of the segments at an utterance's ends these ends, of all others the middle."""
        size, count = self.recipe.judged_frames * self.contract.hop_length, self.recipe.edge_segments
        begun, ended, others = audio[:count], audio[count : 2 * count], audio[2 * count :]
        return torch.cat((begun[:, :, :size], ended[:, :, -size:], super().judged(others)))


def with_noise(source: Tensor, model: SourceFilterGenerator) -> Tensor:
    """Phase and pitch (B, 2, T) with new noise beside them (B, 2 + noise_channels, T)."""
    count = model.config.noise_channels
    noise = torch.randn(source.shape[0], count, source.shape[2], device=source.device)
    return torch.cat((source, noise), dim=1)


def phase_loss(made: Tensor, true: Tensor) -> Tensor:
    """Mean absolute difference of complex spectra (B, 1, S), their magnitudes raised to the power of 0.3.

    So weak harmonics count too, as in the enhancement of speech (Wilson and others 2018, arXiv:1811.08521).
    """
    total = made.new_zeros(())
    for size in PHASE_WINDOWS:
        window = torch.hann_window(size, device=made.device)
        both = torch.cat((made, true))[:, 0]
        spectra = torch.stft(
            both, size, size // 4, window=window / window.sum().sqrt(), center=False, return_complex=True
        )
        power = spectra.real.square() + spectra.imag.square() + 1e-7
        mine, theirs = (torch.view_as_real(spectra) * power.pow(-0.35)[..., None]).chunk(2)
        total = total + (mine - theirs).abs().mean()
    return total / len(PHASE_WINDOWS)


def make_trainer(
    plan: TrainingPlan[HifiganConfig, HifiganRecipe],
    corpus: Path,
    settings: RunSettings,
    begun: ModelSource | None = None,
    mels: Sequence[Path] = (),
) -> HifiganTrainer:
    """The trainer of a run that starts, on the corpus's mels and these predicted ones."""
    config, contract, recipe = plan
    own = (field.name for field in fields(HifiganRecipe) if field.default is not MISSING)
    given = [name for name in own if getattr(recipe, name) != getattr(HifiganRecipe, name)]
    if given and not config.source:
        raise InputError(f"{', '.join(given)}: for a generator with a source alone, and this one has none")
    device = start(settings)
    if config.source and begun is None:
        segments = SourcedSegments(corpus, contract, mels, device, recipe.edge_segments)
        return SourceFilterTrainer(plan, segments)
    segments = Segments(corpus, contract, mels, device)
    trainer = HifiganTrainer(plan, segments, begun)
    if not config.source or settings.resume or not ranks.is_first():  # whose networks are those of all
        return trainer
    if not can_measure_pitch():
        print(f"the pitch network is not taught: pyworld is not installed ({install_command('train')})")
    else:
        teach_recorded_pitch(trainer, torch.from_numpy(corpus_pitch(corpus)).to(device), settings.seed)
    return trainer


def teach_recorded_pitch(trainer: HifiganTrainer, hertz: Tensor, seed: int) -> None:
    """Teaches the pitch network that of recordings, in Hz of each of their frames (T,), 0 where unvoiced."""
    segments, model, frames = trainer.segments, trainer.model, trainer.recipe.segment_frames
    assert isinstance(model, SourceFilterGenerator)
    pitch, voiced = hertz / trainer.contract.sampling_rate, hertz > 0
    held_out = slice(-segments.validation_frames, None)

    def lessons() -> Iterator[dict[str, Tensor]]:
        random = torch.Generator().manual_seed(seed)
        limit = segments.frames - segments.validation_frames - frames
        while True:
            starts = segments.draw_starts(LESSON_BATCH, frames, limit, random)
            mel, _ = segments.cut(starts, frames, torch.zeros_like(starts))
            at = (starts[:, None] + torch.arange(frames)).to(hertz.device)
            yield {"mel": mel, "pitch": pitch[at], "weight": voiced[at].float()}

    @torch.no_grad()
    def semitones_off() -> float:
        found = model.find_pitch(trainer.held_out[0])[0][0]
        return (SEMITONES * (found / pitch[held_out]).log()).abs()[voiced[held_out]].median().item()

    before, known = semitones_off(), copy.deepcopy(model.pitch.state_dict())
    trainer.teach_pitch(lessons(), LESSONS[hertz.device.type])
    taught = semitones_off()
    print(f"pitch of held-out frames, semitones off in the median: {before:.2f}, taught {taught:.2f}")
    if taught > before:  # a network that knows many voices may lose by a few lessons
        model.pitch.load_state_dict(known)
        trainer.teach_pitch((), 0)
        print("the pitch network stays as it was")


def main() -> None:
    args, settings, plan = parse_recipe(vocoder_parser("hifigan", HifiganRecipe))
    run_training(settings, make_trainer(plan, args.corpus, settings, mels=args.mels))

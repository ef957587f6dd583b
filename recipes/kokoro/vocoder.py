"""Trains one HiFi-GAN for all voices: `python -m recipes.kokoro.vocoder --corpus DIR --from VOICE -o RUN`.

It begins with the generator of a voice. Kokoro says the pitch and the phase of its source: the pitch network
is taught with it alone at first, then beside the generator, whose pulses are Kokoro's. No audio of the
harmonic part exists, as the first teacher's corpus has it (`melforge.hifigan.train`): spectra are compared of
all of the sound.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.kokoro.vocoder")

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from melforge.common.audio.contract import MelContract
from melforge.common.cli.options import positive
from melforge.common.cli.training import parse_recipe, vocoder_parser
from melforge.common.training.corpus.batches import VALIDATION_FRAMES, corpus_mel, open_mels, validation_count
from melforge.common.training.corpus.dataset import RATE, CorpusAudio, load_labels
from melforge.common.training.corpus.sources import SourcedSegments
from melforge.common.training.fine_tune import find_start
from melforge.common.training.loop import TrainingPlan, adamw, autocast, run_training, start
from melforge.common.training.pitch import LESSON_BATCH, SEMITONES, pitch_loss
from melforge.common.weights.voices import ModelSource
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.source_filter import SourceFilterGenerator
from melforge.hifigan.train import HifiganRecipe, SourceFilterTrainer, phase_loss, with_noise

HPARAM = Path(__file__).with_name("vocoder.yaml")
FAR = 2.0  # semitones: a frame that is further off is heard


class PitchedSegments(SourcedSegments):
    """Segments of several corpora that `recipes.kokoro.corpus` wrote, the one that validates last.

    Batches have `source`, phase in cycles and pitch in cycles a sample (B, 2, T), and `weight`, how much a
    frame's pitch counts (B, T). Predicted mels are of the last corpus: the others have their own in their
    place.
    """

    def __init__(
        self,
        corpora: Sequence[Path],
        contract: MelContract,
        mels: Sequence[Path],
        device: torch.device,
        edges: int,
    ):
        labels = [load_labels(corpus) for corpus in corpora]
        pairs = zip(corpora, labels, strict=True)
        sounds = [CorpusAudio(*pair, contract.hop_length).read_all() for pair in pairs]
        sources = [dict(np.load(corpus / "sources.npz")) for corpus in corpora]
        self.device, self.edges, self.hop = device, edges, contract.hop_length
        self.audio = torch.from_numpy(np.concatenate(sounds)).to(device)
        self.frames = len(self.audio) // self.hop
        self.mel = corpus_mel(self.audio, contract)
        others = self.frames - len(sources[-1]["phase"])
        predicted = [open_mels(path, self.frames - others).to(device) for path in mels]
        self.predicted = [torch.cat((self.mel[:, :others], mel), dim=1) for mel in predicted]
        self.validation_frames = validation_count(VALIDATION_FRAMES, self.frames)
        frames = np.concatenate([one.frames for one in labels])
        self.ends = torch.from_numpy(frames.cumsum())
        self.firsts = self.ends - torch.from_numpy(frames)

        def whole(name: str) -> Tensor:
            return torch.from_numpy(np.concatenate([one[name] for one in sources])).float().to(device)

        self.phase, self.pitch, self.weight = whole("phase"), whole("contour") / RATE, whole("weight")

    def beside(self, starts: Tensor, frames: int) -> dict[str, Tensor]:
        at = starts[:, None] + torch.arange(frames, device=starts.device)
        source = torch.stack((self.phase[at], self.pitch[at]), dim=1)
        return {"source": source, "weight": self.weight[at]}

    def held_out_pitch(self) -> tuple[Tensor, Tensor]:
        """Pitch in cycles a sample and weight of the frames that validate (T,)."""
        return self.pitch[-self.validation_frames :], self.weight[-self.validation_frames :]


class AllVoicesTrainer(SourceFilterTrainer):
    """Both sides' updates, and the pitch network's, in one step; audio is made of Kokoro's own pulses."""

    segments: PitchedSegments
    model: SourceFilterGenerator

    def __init__(
        self,
        plan: TrainingPlan[HifiganConfig, HifiganRecipe],
        segments: PitchedSegments,
        begun: ModelSource | None = None,
    ):
        super().__init__(plan, segments, begun)
        self.model.pitch.requires_grad_(True)  # that of a voice is frozen
        self.parameters = list(self.model.parameters())
        generator = adamw(self.model, self.recipe.learning_rate, (0.8, 0.99), 0.01)
        self.optimisers = self.optimisers | {"generator_optimiser": generator}

    def step(
        self, key: object, mel: Tensor, audio: Tensor, source: Tensor, weight: Tensor
    ) -> dict[str, Tensor]:
        """mel (B, n_mels, T), audio (B, 1, S), source (B, 2, T), weight (B, T)."""
        recipe = self.recipe
        made, true = self.judged(self.made_of(mel, source)), self.judged(audio)
        losses = self.losses(made, true)
        losses["phase"] = phase_loss(made, true)
        losses["pitch"] = pitch_loss(self.model.pitch, mel, clipped(source[:, 1], self.model), weight)
        generator = losses.pop("generator") + recipe.phase_loss_weight * losses["phase"]
        return self.learn(losses, generator + recipe.pitch_loss_weight * losses["pitch"])

    def made_of(self, mel: Tensor, source: Tensor) -> Tensor:
        """Audio (B, 1, S) of these phases and pitches (B, 2, T)."""
        source = with_noise(source, self.model)
        with autocast(self.device):
            features = self.model.body(mel, source)
        return self.model.head(features.float(), source)[0][:, None]

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Mel loss with the pitch that the network finds, and how well it finds it."""
        return super().validate() | self.pitch_errors()

    @torch.no_grad()
    def pitch_errors(self) -> dict[str, float]:
        """Of held-out frames that are surely voiced: semitones off in the median, and the share far off."""
        pitch, weight = self.segments.held_out_pitch()
        model = self.averaged_model()
        assert isinstance(model, SourceFilterGenerator)
        found = model.find_pitch(self.held_out[0])[0][0]
        off = (SEMITONES * (found / pitch).log()).abs()[weight > 0.5]
        return {"semitones": off.median().item(), "far_off": (off > FAR).float().mean().item()}

    def lessons(self, seed: int) -> Iterator[dict[str, Tensor]]:
        """Of the pitch network alone."""
        sizes = LESSON_BATCH, self.recipe.segment_frames, self.recipe.predicted_share
        for key, drawn in self.segments.batches(*sizes, seed):
            given = self.inputs(key, drawn)
            yield {"mel": given["mel"], "pitch": given["source"][:, 1], "weight": given["weight"]}


def clipped(pitch: Tensor, model: SourceFilterGenerator) -> Tensor:
    """Pitch in cycles a sample within what the network can say."""
    return pitch.clamp(1 / model.config.longest_period, 1 / model.config.shortest_period)


def begin_with(start: str, config: HifiganConfig) -> ModelSource:
    """A voice's weights for these sizes; of a pitch network of another range a new one's in their place."""
    source = find_start(start, "hifigan")
    if config == source.config:
        return source
    new = SourceFilterGenerator(config, weight_norm=False).pitch.state_dict()
    state = {name: value for name, value in source.state.items() if not name.startswith("pitch.")}
    state |= {f"pitch.{name}": value.numpy() for name, value in new.items()}
    return replace(source, config=config, given_state=state)


def main() -> None:
    parser = vocoder_parser("hifigan", HifiganRecipe)
    option = parser.add_argument
    option("--more", type=Path, nargs="*", default=[], help="corpora without predicted mels")
    option("--from", dest="start", help="voice or weights.safetensors that the generator begins with")
    option("--pitch-steps", type=positive, help="lessons of the pitch network alone, at first")
    args, settings, plan = parse_recipe(parser)
    corpora, device = [*args.more, args.corpus], start(settings)
    segments = PitchedSegments(corpora, plan.contract, args.mels, device, plan.recipe.edge_segments)
    begun = begin_with(args.start, plan.config) if args.start else None
    trainer = AllVoicesTrainer(plan, segments, begun)
    if args.pitch_steps:
        trainer.teach_pitch(trainer.lessons(settings.seed), args.pitch_steps)
        found = trainer.pitch_errors()
        print(f"pitch alone, {args.pitch_steps} steps: {found}", flush=True)
    run_training(settings, trainer)

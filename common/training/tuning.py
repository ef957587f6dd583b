"""A fine-tuning run: its start is measured, the best weights are kept, and it ends without further gain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from melforge.common.audio.sound_files import write_audio
from melforge.common.synthesis.vocoder import Vocoder
from melforge.common.training import ranks
from melforge.common.training.acoustic import AcousticTrainer
from melforge.common.training.log import MEL_RANGE, save_mel_picture
from melforge.common.training.loop import LAST, Run, RunSettings, save_checkpoint, stopped_by_signals
from melforge.common.training.vocoder import VocoderTrainer

LOOKS = 20  # at the held-out data, evenly over the run
PATIENCE = 6  # looks without a gain
KEPT = ("first", "early", "best", "looks", "without_gain")  # in a checkpoint
FIRST_MINUTE = 60.0  # seconds after which the early numbers are told


@dataclass(frozen=True)
class TuningSettings(RunSettings):
    sample_minutes: float = 2.0  # between samples


class Tuning(Run):
    """`vocoder` speaks an acoustic model's samples.

    `facts` stand beside the weights, for the model card, and with them the held-out numbers at the start and
    of the best weights.
    """

    def __init__(
        self, settings: TuningSettings, trainer: AcousticTrainer | VocoderTrainer, facts: Mapping[str, Any]
    ):
        self.facts = facts
        self.vocoder: Vocoder | None = None
        self.first: dict[str, float] = {}  # held-out numbers before the first step
        self.early: dict[str, float] = {}  # those after a minute
        self.best: dict[str, float] = {}
        self.looks = self.without_gain = 0
        super().__init__(settings, trainer)
        self.trainer: AcousticTrainer | VocoderTrainer = trainer
        self.sample_seconds, self.sampled = settings.sample_minutes * 60, self.schedule.seconds
        self.board = summary_writer(self.folder) if ranks.is_first() else None

    def run(self, progress: Callable[[float], object] = lambda share: None) -> None:
        first = ranks.is_first()
        if first and not self.first:
            self.first = self.best = self.trainer.validate()
            print(f"at the start  {numbers(self.first)}", flush=True)
            self.save_weights()
            self.save()
            self.write_samples()
        with stopped_by_signals(self.stop):
            for losses in self.steps():
                if not first:
                    continue
                seconds = self.schedule.seconds
                progress(self.schedule.progress())
                looks = min(LOOKS, int(self.schedule.progress() * LOOKS))
                if looks > self.looks or (seconds >= FIRST_MINUTE and not self.early):
                    self.looks = looks
                    self.look({name: loss.item() for name, loss in losses.items()})
                if seconds - self.sampled >= self.sample_seconds:
                    self.sampled = seconds
                    self.write_samples()
        self.trainer.forget_graphs()
        if not first:
            return
        self.write_samples()
        if self.log.path.exists():
            self.log.plot()
        if self.board:
            self.board.close()
        print(f"held-out numbers from the start to the best: {compared(self.first, self.best)}")

    def look(self, losses: Mapping[str, float]) -> None:
        """At the held-out data: logs, keeps the best weights, and stops where nothing is gained any more."""
        step, seconds = self.schedule.step, self.schedule.seconds
        held_out = self.trainer.validate()
        score = self.trainer.score(held_out)
        values = {**losses, **held_out, "score": score, "rate": self.rate}
        self.log.write(step, values, self.estimate())
        if self.board:
            for name, value in {**losses, **held_out}.items():
                self.board.add_scalar(name, value, step)
        if seconds >= FIRST_MINUTE and not self.early:
            self.early = held_out
            print(f"after the first minute: {compared(self.first, held_out)}", flush=True)
        if score < self.trainer.score(self.best):
            self.best, self.without_gain = held_out, 0
            self.save_weights()
        else:
            self.without_gain += 1
            if self.without_gain >= PATIENCE:
                print(f"no gain in {PATIENCE} looks at the held-out data: the run ends here")
                self.stop()

    def estimate(self) -> str:
        """How far the run is, and how long the rest takes."""
        seconds, progress = self.schedule.seconds, self.schedule.progress()
        left = seconds / progress - seconds if progress else 0.0
        return f"{seconds / 60:.1f} min, {max(0.0, left) / 60:.1f} min left"

    def write_samples(self) -> None:
        """Sounds and pictures of mels into the folder `samples`, by step and sentence."""
        folder = self.folder / "samples"
        folder.mkdir(exist_ok=True)
        rate = self.trainer.contract.sampling_rate
        for name, mel, audio in self.trainer.samples():
            path = folder / f"{self.schedule.step:06d}-{name}"
            save_mel_picture(path.with_name(f"{path.name}.png"), mel)
            if self.board:
                low, high = MEL_RANGE
                picture = np.clip((mel[::-1] - low) / (high - low), 0, 1)  # the lowest band at the bottom
                self.board.add_image(name, picture, self.schedule.step, dataformats="HW")
            if audio is None and self.vocoder:
                (audio,) = self.vocoder.vocode_each([mel])
            if audio is not None:
                write_audio(path.with_name(f"{path.name}.wav"), np.asarray(audio), rate)
                if self.board:
                    self.board.add_audio(name, audio, self.schedule.step, rate)
        if self.board:
            self.board.flush()

    def save(self) -> None:
        """The weights are those of the best look, which are saved already."""
        save_checkpoint(self.folder / LAST, **self.state_dict())

    def save_weights(self, **info: object) -> None:
        scores = {"start": self.first, "early": self.early, "best": self.best}
        super().save_weights(**self.facts, scores=scores, **info)

    def state_dict(self) -> dict:
        kept = {name: getattr(self, name) for name in KEPT}
        return super().state_dict() | {"tuning": kept}

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        for name, value in state["tuning"].items():
            setattr(self, name, value)
        self.looks = min(self.looks, int(self.schedule.progress() * LOOKS))  # of a run that is made longer


def summary_writer(folder: Path) -> Any:
    """TensorBoard's, where it is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(folder)


def numbers(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())


def compared(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {before[name]:.3g} -> {after[name]:.3g}" for name in before)

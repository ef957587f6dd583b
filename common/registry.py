"""The models: names -> packages, imported when they are used.

What is true of a model by itself stands here or in its package. Beside this table common/ names models only
where NVIDIA's files do, in suites of measurements and in examples of commands.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from melforge.common.errors import InputError, unknown


@dataclass(frozen=True)
class ModelSpec:
    """A model, whose package has its name, and what its classes' names begin with: `<classes>Config` are its
    sizes, `<classes>Settings` what a voice may set for it, `<classes>Acoustic`, `<classes>Vocoder` or
    `<classes>Recogniser` runs it.
    """

    name: str
    kind: str  # "acoustic", "vocoder" or "recogniser"; a new kind needs no change here
    classes: str
    marks: tuple[str, ...]  # names that only this model's published weights hold, one in each layout
    controls: frozenset[str] = frozenset()  # the `Controls` that change its output
    training_only: tuple[str, ...] = ()  # prefixes of the names of weights that inference does not need
    decoders: Mapping[str, str] = field(default_factory=dict)  # what `--decoder` chooses from, in a few words

    def module(self, name: str) -> ModuleType:
        """One of the model package's modules, such as `checkpoint`."""
        return importlib.import_module(f"melforge.{self.name}.{name}")

    @property
    def config_class(self) -> type:
        return self._class("config", "Config")

    @property
    def settings_class(self) -> type:
        return self._class("config", "Settings")

    @property
    def driver_class(self) -> type:
        return self._class("infer", self.kind.title())

    def _class(self, file: str, ending: str) -> type:
        """An InputError, for the author of the model, where its package has no such class."""
        module, name = self.module(file), f"{self.classes}{ending}"
        own = {key: value for key, value in vars(module).items() if isinstance(value, type)}
        if name not in own:
            own = [key for key, value in own.items() if value.__module__ == module.__name__]
            what = unknown(f"class in {self.name}/{file}.py", name, own)
            raise InputError(f"common/registry.py: classes {self.classes!r} of {self.name}: {what}")
        return own[name]


PITCH = ("pitch_shift", "pitch_semitones", "pitch_amplify", "pitch_flatten", "pitch_invert")
SPECS = (
    ModelSpec(
        "fastpitch",
        "acoustic",
        "FastPitch",
        ("encoder.word_emb.weight",),
        frozenset({"pace", *PITCH, "speaker"}),
        ("attention.",),
    ),
    ModelSpec(
        "fastspeech",
        "acoustic",
        "FastSpeech",
        ("mel_linear.weight",),
        frozenset({"pace"}),
        decoders={"dynamic": "two stages of any length", "fixed": "one for buckets", "kernels": "as dynamic"},
    ),
    ModelSpec(
        "tacotron2",
        "acoustic",
        "Tacotron2",
        ("decoder.attention_rnn.weight_ih",),
        frozenset({"dropout", "gate_threshold", "sharpness", "step_limit", "seed"}),
        decoders={"loop": "all steps in one graph", "steps": "one step a call"},
    ),
    ModelSpec("hifigan", "vocoder", "Hifigan", ("conv_pre.bias",), frozenset({"denoising_strength", "seed"})),
    ModelSpec(
        "waveglow",
        "vocoder",
        "Waveglow",
        ("convinv.0.conv.weight",),
        frozenset({"denoising_strength", "seed", "sigma"}),
    ),
    ModelSpec(
        "jasper", "recogniser", "Jasper", ("decoder.layers.0.bias", "jasper_decoder.decoder_layers.0.bias")
    ),
)
MODELS = {model.name: model for model in SPECS}
# How messages name each kind.
KIND_WORDS = {"acoustic": "acoustic model", "vocoder": "vocoder", "recogniser": "recogniser"}


def names(*kinds: str) -> list[str]:
    """The models of these kinds, or all."""
    return [model.name for model in MODELS.values() if not kinds or model.kind in kinds]


def get_model(name: str, kind: str | None = None) -> ModelSpec:
    """The model of that name, of that kind where one is asked for."""
    model = MODELS.get(name)
    if model is None or kind not in (None, model.kind):
        raise InputError(
            unknown(KIND_WORDS[kind] if kind else "model", name, names(*([kind] if kind else [])))
        )
    return model


def load_attribute(path: str) -> Any:
    """Imports "module:attribute"."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)

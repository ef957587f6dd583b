"""Model names -> packages, imported when they are used. The only place where common/ names a model."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from common.errors import InputError, unknown


@dataclass(frozen=True)
class ModelSpec:
    """Where a model's parts are; the strings are "module:attribute"."""

    name: str
    kind: str  # "acoustic" or "vocoder"; a new kind needs no change here
    config: str  # the dataclass of its sizes
    driver: str  # the class that runs its stages
    plan: str  # its `StagePlan`
    voice_settings: str  # the dataclass of what a voice may set for it
    mark: str  # a name that only this model's published weights hold
    controls: frozenset[str] = frozenset()  # the `Controls` that change its output
    training_only: tuple[str, ...] = ()  # prefixes of the names of weights that inference does not need

    @property
    def config_class(self) -> type:
        return load_attribute(self.config)

    @property
    def driver_class(self) -> type:
        return load_attribute(self.driver)

    def module(self, name: str) -> ModuleType:
        """One of the model package's modules, such as `checkpoint`."""
        return importlib.import_module(f"{self.name}.{name}")


MODELS = {
    model.name: model
    for model in (
        ModelSpec(
            "fastpitch",
            "acoustic",
            config="fastpitch.config:FastPitchConfig",
            driver="fastpitch.infer:FastPitchAcoustic",
            plan="fastpitch.stages:PLAN",
            voice_settings="fastpitch.config:FastPitchSettings",
            mark="encoder.word_emb.weight",
            controls=frozenset(
                {"pace", "pitch_shift", "pitch_amplify", "pitch_flatten", "pitch_invert", "speaker"}
            ),
            training_only=("attention.",),
        ),
        ModelSpec(
            "fastspeech",
            "acoustic",
            config="fastspeech.config:FastSpeechConfig",
            driver="fastspeech.infer:FastSpeechAcoustic",
            plan="fastspeech.stages:PLAN",
            voice_settings="fastspeech.config:FastSpeechSettings",
            mark="mel_linear.weight",
            controls=frozenset({"pace"}),
        ),
        ModelSpec(
            "tacotron2",
            "acoustic",
            config="tacotron2.config:Tacotron2Config",
            driver="tacotron2.infer:Tacotron2Acoustic",
            plan="tacotron2.stages:PLAN",
            voice_settings="tacotron2.config:Tacotron2Settings",
            mark="decoder.attention_rnn.weight_ih",
            controls=frozenset({"dropout", "gate_threshold", "sharpness", "step_limit", "seed"}),
        ),
        ModelSpec(
            "hifigan",
            "vocoder",
            config="hifigan.config:HifiganConfig",
            driver="hifigan.infer:HifiganVocoder",
            plan="hifigan.stages:PLAN",
            voice_settings="hifigan.config:HifiganSettings",
            mark="conv_pre.bias",
            controls=frozenset({"denoising_strength"}),
        ),
        ModelSpec(
            "waveglow",
            "vocoder",
            config="waveglow.config:WaveglowConfig",
            driver="waveglow.infer:WaveglowVocoder",
            plan="waveglow.stages:PLAN",
            voice_settings="waveglow.config:WaveglowSettings",
            mark="convinv.0.conv.weight",
            controls=frozenset({"denoising_strength", "seed", "sigma"}),
        ),
    )
}


def names(kind: str | None = None) -> list[str]:
    return [model.name for model in MODELS.values() if kind in (None, model.kind)]


def get_model(name: str, kind: str | None = None) -> ModelSpec:
    """The model of that name, of that kind where one is asked for."""
    model = MODELS.get(name)
    if model is None or kind not in (None, model.kind):
        what = {None: "model", "acoustic": "acoustic model"}.get(kind, kind)
        raise InputError(unknown(str(what), name, names(kind)))
    return model


def decoder_forms(*models: str) -> dict[str, tuple[str, ...]]:
    """What `--decoder` chooses from for these acoustic models: forms, and the stages of each."""
    found: dict[str, tuple[str, ...]] = {}
    for model in map(get_model, models):
        forms = load_attribute(model.plan).forms
        if model.kind == "acoustic" and len(forms) > 1:
            found |= forms
    return found


def load_attribute(path: str) -> Any:
    """Imports "module:attribute"."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)

"""Model names -> packages, imported when they are used. The only place where common/ names a model."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from common.errors import InputError, unknown


@dataclass(frozen=True)
class Model:
    """Where a model's parts are; the strings are "module:attribute"."""

    name: str
    kind: str  # "acoustic" or "vocoder"
    config: str  # the dataclass of its sizes
    driver: str  # the class that drives its stages
    voice_settings: str  # the dataclass of what a voice may set for it
    mark: str  # a name that only this model's published weights hold
    training_only: tuple[str, ...] = ()  # beginnings of the names of weights that speaking does not need

    @property
    def config_class(self) -> type:
        return load_attribute(self.config)

    @property
    def driver_class(self) -> type:
        return load_attribute(self.driver)

    def module(self, room: str) -> Any:
        """One of the model package's rooms, such as `stages` or `checkpoint`."""
        return importlib.import_module(f"{self.name}.{room}")


MODELS = {
    model.name: model
    for model in (
        Model(
            "fastpitch",
            "acoustic",
            "fastpitch.config:FastPitchConfig",
            "fastpitch.infer:FastPitchAcoustic",
            voice_settings="fastpitch.config:FastPitchSettings",
            mark="encoder.word_emb.weight",
            training_only=("attention.",),
        ),
        Model(
            "fastspeech",
            "acoustic",
            "fastspeech.config:FastSpeechConfig",
            "fastspeech.infer:FastSpeechAcoustic",
            voice_settings="fastspeech.config:FastSpeechSettings",
            mark="mel_linear.weight",
        ),
        Model(
            "tacotron2",
            "acoustic",
            "tacotron2.config:Tacotron2Config",
            "tacotron2.infer:Tacotron2Acoustic",
            voice_settings="tacotron2.config:Tacotron2Settings",
            mark="decoder.attention_rnn.weight_ih",
        ),
        Model(
            "hifigan",
            "vocoder",
            "hifigan.config:HifiganConfig",
            "hifigan.infer:HifiganVocoder",
            voice_settings="hifigan.config:HifiganSettings",
            mark="conv_pre.bias",
        ),
        Model(
            "waveglow",
            "vocoder",
            "waveglow.config:WaveglowConfig",
            "waveglow.infer:WaveglowVocoder",
            voice_settings="waveglow.config:WaveglowSettings",
            mark="convinv.0.conv.weight",
        ),
    )
}


def names(kind: str | None = None) -> list[str]:
    return [model.name for model in MODELS.values() if kind in (None, model.kind)]


def get_model(name: str, kind: str | None = None) -> Model:
    """The model of that name, of that kind where one is asked for."""
    model = MODELS.get(name)
    if model is None or kind not in (None, model.kind):
        what = {"acoustic": "acoustic model", "vocoder": "vocoder"}.get(kind, "model")
        raise InputError(unknown(what, name, names(kind)))
    return model


def decoder_forms(*models: str) -> dict[str, tuple[str, ...]]:
    """What `--decoder` chooses from for these acoustic models: forms, and the stages of each."""
    found: dict[str, tuple[str, ...]] = {}
    for name in models:
        if get_model(name).kind == "acoustic":
            found |= getattr(get_model(name).module("stages"), "VARIANTS", {})
    return found


def load_attribute(path: str) -> Any:
    """Imports "module:attribute"."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)

"""Text frontends: written text in, the symbol ids of an acoustic model out.

`get_frontend` builds one by name. A model was trained on the symbols of one frontend, and a voice names it.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from common.errors import InputError, unknown


@dataclass(frozen=True, eq=False)
class Utterance:
    """What one call of an acoustic model speaks: a sentence, or a part of a long one."""

    text: str  # as written
    normalised: str  # as spoken, in words; phonemes in braces where the frontend makes them
    symbols: tuple[str, ...]
    ids: np.ndarray  # int64 [T_text]
    pause: float  # seconds of silence that follow


@dataclass(frozen=True)
class Unspoken:
    """A character or symbol that the frontend had no way to speak."""

    symbol: str
    position: int  # index into the text the frontend was called with
    text: str  # the sentence it stands in


@dataclass(frozen=True)
class Analysis:
    """Everything a frontend made of a text, and everything that it could not speak."""

    utterances: tuple[Utterance, ...]
    unspoken: tuple[Unspoken, ...] = ()


class Frontend(Protocol):
    """Turns text into utterances. `symbols` is the symbol set in id order."""

    name: str
    symbols: tuple[str, ...]

    def __call__(self, text: str) -> Analysis: ...


# A frontend's module is imported when it is asked for: a voice pays for its own one only.
_FRONTENDS = {
    "english": "common.text.english:EnglishFrontend",
    "tacotron2": "common.text.published:Tacotron2Frontend",
    "fastpitch": "common.text.published:FastPitchFrontend",
    "fastspeech": "common.text.published:FastSpeechFrontend",
}


def frontend_names() -> tuple[str, ...]:
    return tuple(_FRONTENDS)


def frontend_class(name: str) -> type:
    """The class of a text frontend; an InputError where there is none of that name."""
    if name not in _FRONTENDS:
        raise InputError(unknown("text frontend", name, _FRONTENDS))
    module, _, attribute = _FRONTENDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def get_frontend(name: str, **options: Any) -> Frontend:
    """The frontend of that name; options are its constructor's keywords."""
    return frontend_class(name)(**options)

"""The frontends by name. A model was trained on the symbols of one of them, and a voice names it."""

from __future__ import annotations

import importlib
from typing import Any

from melforge.common.errors import InputError, unknown
from melforge.common.text import Frontend

# A frontend's module is imported when it is asked for: a voice pays for its own one only.
FRONTENDS = {
    "english": "melforge.common.text.english.frontend:EnglishFrontend",
    "english-gb": "melforge.common.text.english.frontend:BritishFrontend",
    "tacotron2": "melforge.common.text.published.frontends:Tacotron2Frontend",
    "fastpitch": "melforge.common.text.published.frontends:FastPitchFrontend",
    "fastspeech": "melforge.common.text.published.frontends:FastSpeechFrontend",
}


def frontend_class(name: str) -> type:
    """The class of a text frontend; an InputError where there is none of that name."""
    if name not in FRONTENDS:
        raise InputError(unknown("text frontend", name, FRONTENDS))
    module, _, attribute = FRONTENDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def get_frontend(name: str, **options: Any) -> Frontend:
    """The frontend of that name; options are its constructor's keywords."""
    return frontend_class(name)(**options)

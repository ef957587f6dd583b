"""Text to speech with Tacotron 2, FastSpeech, FastPitch, WaveGlow and HiFi-GAN.

from melforge import TextToSpeech
audio = TextToSpeech.load().speak("Hello.")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.runner import TextToSpeech
    from common.speech import Audio, Controls

__version__ = "0.2.0"
__all__ = ["Audio", "Controls", "TextToSpeech", "__version__"]


def __getattr__(name: str) -> object:
    """Imports what is asked for: `import melforge` alone takes no time."""
    if name not in __all__:
        raise AttributeError(f"module 'melforge' has no attribute {name!r}")
    module = "common.runner" if name == "TextToSpeech" else "common.speech"
    return getattr(importlib.import_module(module), name)

"""Text to speech with Tacotron 2, FastSpeech, FastPitch, WaveGlow and HiFi-GAN.

audio = melforge.TextToSpeech.load().speak("Hello.")
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from melforge.common.errors import InputError
    from melforge.common.runner import Audio, Controls, TextToSpeech

__version__ = "0.3.0"
__all__ = ["Audio", "Controls", "InputError", "TextToSpeech", "__version__"]

# From 1.29 on ONNX Runtime tells its makers which models it loads, unless this is set before its import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# In a checkout `melforge.common` is the folder `common` beside this one, as setup.py maps it. So it is found
# where nothing is installed too, and never in another checkout.
if (_root := Path(__file__).resolve().parents[1]).joinpath("setup.py").exists():
    __path__.append(str(_root))


def __getattr__(name: str) -> object:
    """Imports what is asked for: `import melforge` alone takes no time."""
    if name not in __all__:
        raise AttributeError(f"module 'melforge' has no attribute {name!r}")
    from melforge.common import runner

    return getattr(runner, name)


def __dir__() -> list[str]:
    return __all__

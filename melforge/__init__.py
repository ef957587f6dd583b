"""Text to speech with Tacotron 2, FastSpeech, FastPitch, WaveGlow and HiFi-GAN.

audio = melforge.TextToSpeech.load().speak("Hello.")
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.runner import Audio, Controls, TextToSpeech

__version__ = "0.2.0"
__all__ = ["Audio", "Controls", "TextToSpeech", "__version__"]


def __getattr__(name: str) -> object:
    """Imports what is asked for: `import melforge` alone takes no time."""
    if name not in __all__:
        raise AttributeError(f"module 'melforge' has no attribute {name!r}")
    from common import runner

    return getattr(runner, name)

"""What Triton's models of ours take and give: configs, code and clients are made of these declarations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FRONTEND, ACOUSTIC, VOCODER = "frontend", "acoustic", "vocoder"
WHOLE, STREAM = "text_to_speech", "text_to_speech_stream"
TEXT_TYPE = "object"  # numpy's, of an array of bytes


@dataclass(frozen=True)
class Tensor:
    """A tensor's name, dtype (numpy's name) and dimensions of one item; -1 is any length."""

    name: str
    dtype: str
    dims: tuple[int, ...] = (-1,)


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


# An item is a text; its utterances follow each other in one tensor, whose lengths stand in the next. Where it
# shares a request with longer ones, zeros stand behind its last utterance, and behind the last length -1.
TEXT = Tensor("text", TEXT_TYPE, (1,))
SYMBOLS = Tensor("symbols", "int64")
LENGTHS = Tensor("lengths", "int64")  # symbols of each utterance
UNSPOKEN = Tensor("unspoken", TEXT_TYPE, (1,))  # JSON: symbols that could not be spoken, and where they stand
PAUSES = Tensor("pauses", "float64")  # seconds behind each utterance
MEL_LENGTHS = Tensor("mel_lengths", "int64")  # frames of each utterance
AUDIO = Tensor("audio", "float32")
AUDIO_LENGTH = Tensor("audio_length", "int64", (1,))  # samples of an item


def signatures(n_mels: int = -1) -> Mapping[str, Signature]:
    """Of every model, by its name."""
    mel = Tensor("mel", "float32", (n_mels, -1))
    return {
        FRONTEND: Signature((TEXT,), (SYMBOLS, LENGTHS, PAUSES, UNSPOKEN)),
        ACOUSTIC: Signature((SYMBOLS, LENGTHS), (mel, MEL_LENGTHS)),
        VOCODER: Signature((mel, MEL_LENGTHS, PAUSES), (AUDIO, AUDIO_LENGTH)),
        WHOLE: Signature((TEXT,), (AUDIO, AUDIO_LENGTH, MEL_LENGTHS, UNSPOKEN)),
        STREAM: Signature((TEXT,), (AUDIO, UNSPOKEN)),
    }

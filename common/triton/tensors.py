"""What Triton's models of ours take and give: configs, code and clients are made of these declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

FRONTEND, ACOUSTIC, VOCODER = "frontend", "acoustic", "vocoder"
WHOLE, STREAM = "text_to_speech", "text_to_speech_stream"
# The recogniser's, with NVIDIA's names: its own is jasper-onnx, and the ensemble around that one
# jasper-onnx-ensemble.
FEATURES, DECODER = "features", "decoder"
RUN_BY = {"onnx": "onnx", "torch": "pyt", "trt": "trt", "cuda": "cuda"}  # our backends and the names' words
JASPER_CLIENT = {**RUN_BY, "torch": "ts-trace", "trt": "tensorrt"}  # those that NVIDIA's jasper-client.py has
QUEUE_SIZE = "queue_size"  # a parameter: requests at a time, beside those that wait in Triton's queues
TEXT_TYPE = "object"  # numpy's, of an array of bytes


@dataclass(frozen=True)
class Tensor:
    """A tensor's name, dtype (numpy's name) and dimensions of one item; -1 is any length."""

    name: str
    dtype: str
    dims: tuple[int, ...] = (-1,)
    optional: bool = False  # as an input


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
# Frames of its silence that speech keeps at each pause; -1: all.
KEPT = Tensor("kept", "int64", optional=True)
MEL = Tensor("mel", "float32", (-1, -1))  # bands, frames
MEL_LENGTHS = Tensor("mel_lengths", "int64")  # frames of each utterance
AUDIO = Tensor("audio", "float32")
AUDIO_LENGTH = Tensor("audio_length", "int64", (1,))  # samples of an item


def signatures(n_mels: int = -1) -> Mapping[str, Signature]:
    """Of every model, by its name."""
    mel = replace(MEL, dims=(n_mels, -1))
    return {
        FRONTEND: Signature((TEXT,), (SYMBOLS, LENGTHS, PAUSES, KEPT, UNSPOKEN)),
        ACOUSTIC: Signature((SYMBOLS, LENGTHS, KEPT), (mel, MEL_LENGTHS)),
        VOCODER: Signature((mel, MEL_LENGTHS, PAUSES), (AUDIO, AUDIO_LENGTH)),
        WHOLE: Signature((TEXT,), (AUDIO, AUDIO_LENGTH, MEL_LENGTHS, UNSPOKEN)),
        STREAM: Signature((TEXT,), (AUDIO, UNSPOKEN)),
    }


# An item is a recording; zeros stand behind what is shorter than others of its request.
AUDIO_SIGNAL = Tensor("AUDIO_SIGNAL", "float32")
NUM_SAMPLES = Tensor("NUM_SAMPLES", "int32", (1,))
AUDIO_FEATURES = Tensor("AUDIO_FEATURES", "float32", (-1, -1))  # bands, frames
NUM_FEATURES = Tensor("NUM_TIME_STEPS", "int32", (1,))  # frames of the features
CHARACTER_PROBABILITIES = Tensor("CHARACTER_PROBABILITIES", "float32", (-1, -1))  # rows, characters
NUM_OUTPUTS = Tensor("NUM_OUTPUTS", "int32", (1,))  # rows of probabilities
TRANSCRIPT = Tensor("TRANSCRIPT", "int32")  # the best label of each row; blanks behind the last one
TRANSCRIPT_TEXT = Tensor("TRANSCRIPT_TEXT", TEXT_TYPE, (1,))


def recogniser_name(model: str, backend: str, jasper_client: bool = False) -> str:
    """The model that runs a recogniser on one of our backends: "jasper-pyt"."""
    return f"{model}-{(JASPER_CLIENT if jasper_client else RUN_BY)[backend]}"


def ensemble_name(network: str) -> str:
    return f"{network}-ensemble"


def recogniser_signatures(
    model: str, backends: Sequence[str], n_mels: int = -1, outputs: int = -1, jasper_client: bool = False
) -> Mapping[str, Signature]:
    """Of every model around a recogniser, by its name; as NVIDIA's own client wants them, if asked.

    That one takes an ensemble with one output only, and its published models take the signal as float16
    (DeepLearningExamples, PyTorch/SpeechRecognition/Jasper/triton).
    """
    signal = replace(AUDIO_SIGNAL, dtype="float16") if jasper_client else AUDIO_SIGNAL
    heard = (TRANSCRIPT,) if jasper_client else (TRANSCRIPT, TRANSCRIPT_TEXT)
    features = replace(AUDIO_FEATURES, dims=(n_mels, -1))
    probabilities = replace(CHARACTER_PROBABILITIES, dims=(-1, outputs))
    found = {
        FEATURES: Signature((signal, NUM_SAMPLES), (features, NUM_FEATURES)),
        DECODER: Signature((probabilities, NUM_OUTPUTS), (TRANSCRIPT, TRANSCRIPT_TEXT)),
    }
    for backend in backends:
        name = recogniser_name(model, backend, jasper_client)
        found[name] = Signature((features, NUM_FEATURES), (probabilities, NUM_OUTPUTS))
        found[ensemble_name(name)] = Signature((signal, NUM_SAMPLES), heard)
    return found

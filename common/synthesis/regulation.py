"""A length regulator between an encoder and a decoder, as functions of their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from melforge.common.arrays import Array, repeat_index, to_device
from melforge.common.engines import Run

INDEX = "repeat_index", "mel_lengths"  # the decoder's inputs that are made of `repeats`


@dataclass(frozen=True)
class Regulation:
    """What is computed between an encoder and a decoder, as part of their runs."""

    regulating: Callable[[Run], Run]  # the encoder's run -> one that gives `repeats` and `lengths` too
    expanding: Callable[[Run], Run]  # the decoder's run -> one that takes `repeats` and `frames`


class TwoEngines:
    """An encoder and a decoder with what is computed between them, one after the other.

    `encode` and `decode` run them on a device. `shared` names what the decoder takes of the regulated
    encoder's outputs.
    """

    def __init__(self, device: str, encode: Run, decode: Run, regulation: Regulation, shared: Sequence[str]):
        self._device, self._shared = device, shared
        self._encode, self._decode = regulation.regulating(encode), regulation.expanding(decode)

    def encode(self, symbols: np.ndarray, lengths: np.ndarray, **settings: np.ndarray) -> dict[str, Array]:
        """What the regulated encoder gives, of padded texts."""
        inputs = {"symbols": symbols, "lengths": lengths, **settings}
        return self._encode({name: to_device(value, self._device) for name, value in inputs.items()})

    def decode(self, encoded: Mapping[str, Array], mel_lengths: np.ndarray) -> dict[str, Array]:
        """The decoder's outputs, of mels of these lengths."""
        given = {name: encoded[name] for name in self._shared}
        return self._decode({**given, "frames": np.arange(mel_lengths.max())})


def expanding_by_index(decode: Run, names: Sequence[str]) -> Run:
    """The decoder's run with what precedes it: each frame's symbol. `names` are its other inputs."""

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        index, mel_lengths = repeat_index(inputs["repeats"], len(inputs["frames"]))
        given = {name: inputs[name] for name in names}
        return decode({**given, "repeat_index": index, "mel_lengths": mel_lengths})

    return run

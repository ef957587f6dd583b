"""A length regulator between an encoder and a decoder, as functions of their runs: for CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from melforge.common.arrays import Array, repeat_index
from melforge.common.engines import Run


@dataclass(frozen=True)
class Regulation:
    """What is computed between an encoder and a decoder, as part of their runs."""

    regulating: Callable[[Run], Run]  # the encoder's run -> one that gives `repeats` and `lengths` too
    expanding: Callable[[Run], Run]  # the decoder's run -> one that takes `repeats` and `frames`


def expanding_by_index(decode: Run, names: Sequence[str]) -> Run:
    """The decoder's run with what precedes it: each frame's symbol. `names` are its other inputs."""

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        index, mel_lengths = repeat_index(inputs["repeats"], len(inputs["frames"]))
        given = {name: inputs[name] for name in names}
        return decode({**given, "repeat_index": index, "mel_lengths": mel_lengths})

    return run

"""A recogniser's three stages as one CUDA graph: audio on the host to labels on the host in one launch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from melforge.common.cuda_streams import new_stream
from melforge.common.engines import Engine, Recent, Run, as_capturable
from melforge.common.engines.cuda_graphs import MOST_SHAPES, Captured


@dataclass
class Staged:
    """A graph's memory on the host, which the GPU reads and writes by itself."""

    audio: Tensor  # float32 [B, S]
    lengths: Tensor  # int64 [B], samples
    outputs: Tensor  # int64 [B], rows of log-probabilities
    results: dict[str, Tensor] = field(default_factory=dict)  # log_probs, labels and scores, once there

    @property
    def inputs(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in INPUTS}

    def keep(self, made: Mapping[str, Tensor]) -> None:
        """Copies results to the host, behind what the current stream does."""
        for name, value in made.items():
            if name not in self.results:
                self.results[name] = torch.empty(value.shape, dtype=value.dtype).pin_memory()
            self.results[name].copy_(value, non_blocking=True)


INPUTS = ("audio", "lengths", "outputs")


class RecogniserGraph:
    """A graph for each batch size and padded length, which fetches its inputs from the host's memory and puts
    its results there.

    The encoder masks padding: what stands behind an item changes nothing.
    """

    def __init__(self, features: Engine, encoder: Engine, decoder: Engine):
        device = encoder.device
        self._staged: Recent[tuple[int, int], Staged] = Recent(MOST_SHAPES)

        def make(inputs: Mapping[str, Tensor]) -> Run:
            extract, encode, decode = (
                as_capturable(one).capturable() for one in (features, encoder, decoder)
            )
            staged = self.stage(*inputs["audio"].shape)

            def run(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
                there = {name: value.to(device, non_blocking=True) for name, value in given.items()}
                made = extract({"audio": there["audio"], "lengths": there["lengths"]})
                masked = {"features": made["features"], "lengths": made["frames"]}
                log_probs = encode(masked)["log_probs"]
                best = decode({"log_probs": log_probs, "lengths": there["outputs"]})
                staged.keep({"log_probs": log_probs, **best})
                return best

            return run

        self._captured = Captured(encoder.stage.full_name, make, new_stream(device), INPUTS)

    def stage(self, batch: int, samples: int) -> Staged:
        """Where a batch's inputs are written and its results are read.

        What was written there before has been read when that call's results are there.
        """

        def make() -> Staged:
            lengths, outputs = (torch.zeros(batch, dtype=torch.int64).pin_memory() for _ in range(2))
            return Staged(torch.zeros(batch, samples).pin_memory(), lengths, outputs)

        return self._staged.get_or_make((batch, samples), make)

    def __call__(self, staged: Staged) -> dict[str, np.ndarray] | None:
        """log_probs, labels and scores, which the next call overwrites. None where there is no graph."""
        if self._captured(staged.inputs, own=True) is None:
            return None
        self._captured.wait()
        return {name: value.numpy() for name, value in staged.results.items()}

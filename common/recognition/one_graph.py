"""A recogniser's three stages as one CUDA graph: audio on the host to labels on the GPU in one launch."""

from collections.abc import Mapping

import torch
from torch import Tensor

from common.engines import Engine, Recent, Run
from common.engines.cuda_graphs import MOST_SHAPES, Captured

Staged = dict[str, Tensor]


class OneGraph:
    """A graph for each batch size and padded length, which fetches its inputs from the host's memory.

    The encoder masks padding: what stands behind an item changes nothing.
    """

    def __init__(self, features: Engine, encoder: Engine, decoder: Engine):
        device = encoder.device
        self._staged: Recent[tuple[int, int], Staged] = Recent(MOST_SHAPES)

        def make(inputs: Mapping[str, Tensor]) -> Run:
            extract, encode, decode = (one.capturable() for one in (features, encoder, decoder))

            def run(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
                there = {name: value.to(device, non_blocking=True) for name, value in given.items()}
                made = extract({"audio": there["audio"], "lengths": there["lengths"]})
                masked = {"features": made["features"], "lengths": made["frames"]}
                log_probs = encode(masked)["log_probs"]
                best = decode({"log_probs": log_probs, "lengths": there["outputs"]})
                return {"log_probs": log_probs, **best}

            return run

        names = ("audio", "lengths", "outputs")
        self._captured = Captured(encoder.stage.full_name, make, torch.cuda.Stream(device), names)

    def stage(self, batch: int, samples: int) -> Staged:
        """Where a batch's inputs are written, on the host: audio float32 [B, S], lengths and outputs int64
        [B], which counts rows of log-probabilities.

        What was written there before has been read when the outputs of that call have reached the host.
        """

        def make() -> Staged:
            counts = {name: torch.zeros(batch, dtype=torch.int64).pin_memory() for name in COUNTS}
            return {"audio": torch.zeros(batch, samples).pin_memory(), **counts}

        return self._staged.get_or_make((batch, samples), make)

    def __call__(self, staged: Staged) -> dict[str, Tensor] | None:
        """log_probs, labels and scores, which the next call overwrites. None where there is no graph."""
        return self._captured(staged, own=True)


COUNTS = ("lengths", "outputs")

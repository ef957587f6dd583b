"""A vocoder's stages for whole mels as one CUDA graph, with what is computed between them."""

from collections.abc import Callable

import torch

from melforge.common.arrays import Array
from melforge.common.cuda_streams import new_stream
from melforge.common.engines import MEL_STEP, Arrays, Engine, Run
from melforge.common.engines.cuda_graphs import Captured


class WholeMelGraph:
    """`make` gives a run that takes `mel` [B, n_mels, T_mel] and `rows` int64 [2, B], lengths and keys of
    noise, or with them the `noise` [B, T_mel * C], and gives `audio` [B, T_mel * hop]. Nothing behind an
    item's length may change it.
    """

    def __init__(self, generator: Engine, make: Callable[[], Run]):
        self.generator = generator
        stream = new_stream(generator.device)

        def without_gradients(inputs: Arrays) -> Run:
            return torch.inference_mode()(make())

        self._captured = Captured(generator.stage.full_name, without_gradients, stream, directly=True)
        self.in_use = self._captured.in_use

    @staticmethod
    def padded(frames: int) -> int:
        """The frames that a mel should be filled up to: few graphs do for all lengths."""
        return -(-frames // MEL_STEP) * MEL_STEP

    def audio(self, inputs: Arrays) -> dict[str, Array] | None:
        """Of mels with such lengths; None where these have no graph. The next call overwrites it, but for
        what is told the GPU before `in_use`.
        """
        return self._captured(inputs, own=True)

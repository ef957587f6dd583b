"""A vocoder's stages for whole mels as one CUDA graph, with what is computed between them."""

from collections.abc import Callable

import torch

from common.arrays import Array, pad_to
from common.engines import MEL_STEP, Arrays, Engine, Run
from common.engines.cuda_graphs import Captured


class OneGraph:
    """`make` gives a run that takes `mel` [B, n_mels, T_mel], `lengths` [B] and `noise` [B, T_mel * C], and
    gives `audio` [B, T_mel * hop]. Nothing behind an item's length may change it.
    """

    def __init__(self, generator: Engine, make: Callable[[], Run]):
        self.generator = generator
        stream = torch.cuda.Stream(generator.device)
        self._captured = Captured(generator.stage.full_name, lambda inputs: make(), stream)

    def audio(self, inputs: Arrays, draw: Callable[[int], Array]) -> dict[str, Array] | None:
        """Of `mel` and `lengths`; `draw` gives the noise of so many frames. None where there is no graph for
        these lengths.
        """
        mel = inputs["mel"]
        frames = mel.shape[2]
        padded = -(-frames // MEL_STEP) * MEL_STEP
        given = {**inputs, "mel": pad_to(mel, (*mel.shape[:2], padded)), "noise": draw(padded)}
        with torch.inference_mode():
            outputs = self._captured(given)
        if outputs is None:
            return None
        audio = outputs["audio"]
        return {"audio": audio[:, : audio.shape[1] // padded * frames]}

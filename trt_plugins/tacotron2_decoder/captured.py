"""The stage `decoder_loop` on PyTorch's kernels, where ours do not run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from melforge.common.arrays import pad_to
from melforge.common.cuda_streams import new_stream
from melforge.common.engines import TEXT_STEP, check_inputs
from melforge.common.engines.cuda_graphs import Captured
from melforge.common.engines.torch_engine import TorchEngine
from melforge.common.stages.choose import KERNELS
from melforge.tacotron2.model import DecoderState, Tacotron2
from melforge.trt_plugins.noise import DrawsOnGpu

INPUTS = "memory", "processed_memory", "lengths", "prenet_noise", "prenet_dropout", *DecoderState._fields
OUTPUTS = "frames", "gates", "alignment", *DecoderState._fields


class CapturedDecoderLoop(DrawsOnGpu, TorchEngine):
    """In single precision. The steps between two looks at the gates are one CUDA graph, for texts padded to
    few lengths: a step masks what is behind a text's end.
    """

    backend = KERNELS
    precision = "fp32"
    prefers_batches = True

    @cached_property
    def _captured(self) -> Captured:
        return Captured(self.stage.full_name, lambda inputs: self._run, new_stream(self.device))

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        check_inputs(self.stage, inputs)
        batch, text, _ = inputs["memory"].shape
        padded = min(-(-text // TEXT_STEP) * TEXT_STEP, self.stage.dynamic_dims["text"].max)
        for name in ("memory", "processed_memory"):
            inputs[name] = pad_to(inputs[name], (batch, padded, inputs[name].shape[2]))
        assert isinstance(self.network, Tacotron2)
        with torch.inference_mode():
            made = self.network.decode_loop(**inputs, run_steps=self._run_steps)
        outputs = dict(zip((tensor.name for tensor in self.stage.outputs), made, strict=True))
        return {**outputs, "alignment": outputs["alignment"][:, :, :text].contiguous()}

    def _run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        assert isinstance(self.network, Tacotron2)
        return dict(zip(OUTPUTS, self.network.decode_steps(*inputs.values()), strict=True))

    def _run_steps(self, *given: Tensor) -> tuple[Tensor, ...]:
        inputs = dict(zip(INPUTS, given, strict=True))
        outputs = self._captured(inputs)
        if outputs is None:  # no graph; a warning gave the reason
            outputs = self._run(inputs)
        return tuple(outputs.values())

"""What stands in for a CUDA graph without a GPU: it runs the function that would be captured."""

from types import ModuleType

import pytest
import torch

from melforge.common.engines.torch_engine import TorchEngine
from melforge.common.synthesis.stage_engines import StageEngines


class Launched:
    """Keeps what it made for each set of shapes, which `keys` has in the order of the calls."""

    def __init__(self, name, make, stream, shared=(), directly=False):
        self.make, self.runs, self.keys, self.waits = make, {}, [], 0

    def __call__(self, inputs, own=False):
        assert all(tensor.is_contiguous() for tensor in inputs.values())  # as kernels read them
        key = tuple(tuple(tensor.shape) for tensor in inputs.values())
        self.keys.append(key)
        if key not in self.runs:
            self.runs[key] = self.make(inputs)
        return self.runs[key](inputs)

    def in_use(self) -> None:
        pass

    def wait(self) -> None:
        self.waits += 1


def capturable(engine, bucket=None):
    def run(inputs):
        outputs = engine(**{name: tensor.numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(array) for name, array in outputs.items()}

    return run


def capture_on_cpu(patch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """Has PyTorch's engines captured by this module without a GPU."""
    patch.setattr(module, "Captured", Launched)
    patch.setattr(module, "new_stream", lambda device: None)
    patch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    patch.setattr(TorchEngine, "can_be_captured", True)
    patch.setattr(TorchEngine, "capturable", capturable, raising=False)
    patch.setattr(StageEngines, "captures", property(lambda self: True))

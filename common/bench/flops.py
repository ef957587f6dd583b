"""How much a stage computes: operations counted from its network's layers, at the sizes of a call."""

import functools
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from melforge.common.bench.timer import TOGETHER
from melforge.common.engines.layer_outputs import method_of
from melforge.common.engines.torch_engine import new_network
from melforge.common.stages import Stage, stages_of

# Where all steps of a decoder are one stage, what it computes is that of its step.
STEP_OF = {"decoder_loop": "decoder_iter"}


@functools.lru_cache(maxsize=512)
def count_flops(
    model: str, config: Any, name: str, sizes: tuple[tuple[str, int], ...]
) -> dict[str, float] | None:
    """`flops` of products and convolutions, and `weights` and `values` (inputs and outputs) that are read or
    written once, in numbers; nothing where that cannot be counted. Only shapes are computed, on no device.
    """
    given = dict(sizes)
    steps = given.pop(TOGETHER, 1) * (given.pop("steps") if name in STEP_OF else 1)
    name = STEP_OF.get(name, name)
    stage = next(stage for stage in stages_of(model, config) if stage.name == name)
    try:
        counted = _count(stage, config, given)
    except Exception:  # what depends on values has no shapes without them
        return None
    return {key: value * steps for key, value in counted.items()}


def _count(stage: Stage, config: Any, sizes: dict[str, int]) -> dict[str, float]:
    with torch.device("meta"):
        network = new_network(stage, config)
        network.to("meta").eval().requires_grad_(False)  # buffers made from numpy too
        inputs = {}
        for tensor in stage.inputs:
            shape = [dim if isinstance(dim, int) else sizes[dim.name] for dim in tensor.dims]
            inputs[tensor.name] = torch.zeros(shape, dtype=getattr(torch, tensor.dtype))
        used = WeightsRead(network)
        with torch.no_grad(), FlopCounterMode(display=False) as counter, used:
            outputs = method_of(network, replace(stage, layers=()))(**inputs)
    values = sum(tensor.numel() for tensor in (*inputs.values(), *outputs))
    return {"flops": counter.get_total_flops(), "weights": sum(used.seen.values()), "values": values}


class WeightsRead(TorchDispatchMode):
    """Notes which of a network's weights its operations read, with their size."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self._sizes = {id(tensor): tensor.numel() for tensor in (*network.parameters(), *network.buffers())}
        self.seen: dict[int, int] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        leaves = {id(leaf) for leaf in torch.utils._pytree.tree_leaves((args, kwargs))}
        self.seen |= {leaf: self._sizes[leaf] for leaf in leaves & self._sizes.keys()}
        return function(*args, **(kwargs or {}))

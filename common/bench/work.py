"""How much a stage computes: operations counted from its network's layers, at the sizes of a call."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from common.registry import get_model, load_attribute
from common.stages import Stage

# Where all steps of a decoder are one stage, what it computes is that of its step.
STEP_OF = {"decoder_loop": "decoder_iter"}
TOGETHER = "runs together"  # among a call's sizes: so many runs of the stage are one call


@functools.lru_cache(maxsize=512)
def work_of(
    model: str, config: Any, name: str, sizes: tuple[tuple[str, int], ...]
) -> dict[str, float] | None:
    """`flops` of products and convolutions, and `weights` and `values` (inputs and outputs) that are read or
    written once, in numbers; nothing where that cannot be told. Only shapes are computed, on no device.
    """
    given = dict(sizes)
    steps = given.pop(TOGETHER, 1) * (given.pop("steps") if name in STEP_OF else 1)
    name = STEP_OF.get(name, name)
    stage = next(s for s in get_model(model).module("stages").stages(config) if s.name == name)
    try:
        counted = _count(stage, config, given)
    except Exception:  # what depends on values has no shapes without them
        return None
    return {key: value * steps for key, value in counted.items()}


def _count(stage: Stage, config: Any, sizes: Mapping[str, int]) -> dict[str, float]:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from common.engines.layer_outputs import method_of

    with torch.device("meta"):
        network = load_attribute(stage.network)(config)
        if hasattr(network, "remove_weight_norm"):
            network.remove_weight_norm()
        network.to("meta").eval().requires_grad_(False)  # buffers made from numpy too
        inputs = {
            tensor.name: torch.zeros(
                [dim if isinstance(dim, int) else sizes[dim.name] for dim in tensor.dims],
                dtype=getattr(torch, tensor.dtype),
            )
            for tensor in stage.inputs
        }
        used = _used(torch, network)
        with torch.no_grad(), FlopCounterMode(display=False) as counter, used:
            outputs = method_of(network, replace(stage, layers=()))(**inputs)
    values = sum(tensor.numel() for tensor in (*inputs.values(), *outputs))
    return {"flops": counter.get_total_flops(), "weights": used.numbers, "values": values}


def _used(torch: Any, network: Any) -> Any:
    """Notes which of a network's weights its operations read."""
    from torch.utils._python_dispatch import TorchDispatchMode

    weights = {id(weight): weight.numel() for weight in (*network.parameters(), *network.buffers())}

    class Used(TorchDispatchMode):
        seen: set[int]

        def __init__(self) -> None:
            super().__init__()
            self.seen = set()

        @property
        def numbers(self) -> int:
            return sum(weights[one] for one in self.seen)

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            leaves = torch.utils._pytree.tree_leaves((args, kwargs))
            self.seen.update(id(leaf) for leaf in leaves if id(leaf) in weights)
            return function(*args, **(kwargs or {}))

    return Used()

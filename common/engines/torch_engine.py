"""A stage run by PyTorch: a method of the network with the source's weights."""

import os
from typing import Any

import numpy as np
import torch
from torch.nn import init
from torch.overrides import TorchFunctionMode

from melforge.common.arrays import Array
from melforge.common.engines import Engine, check_inputs
from melforge.common.engines.layer_outputs import method_of
from melforge.common.errors import InputError
from melforge.common.registry import get_model, load_attribute
from melforge.common.stages import Stage
from melforge.common.weights.graph_notes import read_graph_note, require_config
from melforge.common.weights.voices import ModelSource

DRAWING = {init.uniform_, init.normal_, init.kaiming_uniform_, torch.Tensor.uniform_, torch.Tensor.normal_}
META = "meta"  # PyTorch's device of tensors without memory: what is launched is listed there, not run


def new_network(stage: Stage, config: object) -> torch.nn.Module:
    """The stage's network with random weights, folded as stored ones are: without weight norm."""
    network = load_attribute(stage.network)
    options = {"weight_norm": False} if hasattr(network, "remove_weight_norm") else {}
    return network(config, **options)


class Undrawn(TorchFunctionMode):
    """No random weights are drawn within: for a network that is given its own."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return func(*args, **kwargs) if func not in DRAWING else args[0] if args else kwargs["tensor"]


def build_network(stage: Stage, source: ModelSource, device: str = "cpu") -> torch.nn.Module:
    """The stage's network in eval mode with the source's weights in float32; on META without any."""
    if source.given_state is None:  # else the config and the graphs are of what is given, and may be made yet
        for graph in source.graphs.values():  # a size that contradicts them may be one that no memory holds
            if graph.with_suffix(".json").is_file():
                require_config(read_graph_note(graph), graph, source)
    if device == META:
        with torch.device(device):
            return new_network(stage, source.config).to(device).eval().requires_grad_(False)
    network = _with_weights(stage, source)  # on "meta" where the caller says so
    return network if device == "cpu" else network.to(device)


def _with_weights(stage: Stage, source: ModelSource) -> torch.nn.Module:
    with Undrawn():
        network = new_network(stage, source.config)
    if not network.state_dict():  # it computes something fixed, such as the denoiser
        return network.eval()
    state = {name: torch.from_numpy(value).contiguous() for name, value in source.state.items()}
    try:  # assigned, the weights stay the source's own memory: there is no second copy of them on a CPU
        missing, unexpected = network.load_state_dict(state, strict=False, assign=True)
    except RuntimeError:  # tensors of other shapes; PyTorch lists them all
        wanted = network.state_dict()
        shapes = {n: (x.shape, wanted[n].shape) for n, x in state.items() if n in wanted and x.numel() > 1}
        first, *more = (name for name, (given, needed) in shapes.items() if given != needed)
        raise InputError(
            f"{source.weights} does not fit {source.model}'s config: {first} is "
            f"{list(shapes[first][0])} there, but {list(shapes[first][1])} by the config"
            + (f", and {len(more)} more" if more else "")
        ) from None
    missing = [name for name in missing if not name.startswith(get_model(source.model).training_only)]
    if missing or unexpected:
        raise InputError(
            f"{source.weights} does not fit {source.model}'s config: "
            f"{len(missing)} weights missing {missing[:3]}, {len(unexpected)} unexpected {unexpected[:3]}"
        )
    return network.eval().requires_grad_(False)


class TorchEngine(Engine):
    """Runs one method of a network. numpy in and out on the CPU, CUDA tensors in and out on a GPU."""

    backend = "torch"

    def __init__(self, stage: Stage, source: ModelSource, device: str = "cpu", threads: int | None = None):
        if device not in ("cpu", META) and not torch.cuda.is_available():
            raise InputError(f"device {device!r}: PyTorch sees no GPU here; use the device cpu")
        self.stage, self.device = stage, device
        self._threads = 1 if stage.small_steps else threads or os.cpu_count() or 1
        key = (stage.network, device)
        network = source.networks.get(key)
        if network is None:
            network = source.networks[key] = build_network(stage, source, device)
        self.network: torch.nn.Module = network
        self._method = method_of(network, stage)
        self.memory_owner = network
        self.memory_bytes = sum(tensor.nbytes for tensor in (*network.parameters(), *network.buffers()))

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        check_inputs(self.stage, inputs)
        on_cpu = self.device == "cpu"
        with torch.inference_mode():
            if on_cpu:
                if torch.get_num_threads() != self._threads:  # a setting of the whole process
                    torch.set_num_threads(self._threads)
                inputs = {name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in inputs.items()}
            outputs = self._method(**inputs)
        names = [tensor.name for tensor in self.stage.outputs]
        if not isinstance(outputs, tuple) or len(outputs) != len(names):
            stage = self.stage
            what = f"{stage.network}.{stage.method} must return a tuple of {', '.join(names)}"
            raise TypeError(f"{stage.full_name}: {what}, in this order")
        return {name: x.numpy() if on_cpu else x for name, x in zip(names, outputs, strict=True)}

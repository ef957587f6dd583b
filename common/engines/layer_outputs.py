"""The outputs of a network's layers as further outputs of a stage, and what stands for them in kernels.

A layer is named by the path of its module. "path:method" is another method of it than `forward`, "path<" what
goes into it, and "name#2" its second call.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from melforge.common.errors import close_matches
from melforge.common.stages import Stage, TensorSpec

# How many calls of a layer in a loop somebody hears, and what was shown to them.
_hearing: ContextVar[tuple[int, dict[str, Tensor]]] = ContextVar("_hearing", default=(0, {}))


@contextlib.contextmanager
def shown(calls: int) -> Iterator[dict[str, Tensor]]:
    """What engines on kernels `show` inside, by the names of layers; so many `calls` in a loop.

    They show it where they launch kernels, and not where a CUDA graph replays these: at a shape's first call.
    """
    made: dict[str, Tensor] = {}
    token = _hearing.set((calls, made))
    try:
        yield made
    finally:
        _hearing.reset(token)


def calls_to_show() -> int:
    """How many calls of a layer somebody hears; 0: nobody is there."""
    return _hearing.get()[0]


def show(name: str, view: Callable[[], Tensor]) -> None:
    """Gives a layer's output, or what goes into it, to who listens. It may be longer than the network's on
    any axis, by padding.
    """
    calls, made = _hearing.get()
    if calls:
        tensor = view()
        if not (tensor.is_cuda and torch.cuda.is_current_stream_capturing()):
            made[name] = tensor.float().clone()


@contextlib.contextmanager
def showing(network: nn.Module) -> Iterator[None]:
    """Shows the output of each module that runs inside."""
    if not calls_to_show():
        yield
        return
    made: dict[str, Tensor] = {}
    with listening(network, layer_names(network), made):
        yield
    for name, tensor in made.items():
        show(name, lambda tensor=tensor: tensor)


def method_of(
    network: nn.Module, stage: Stage, given: Mapping[str, Tensor] | None = None
) -> Callable[..., tuple[Tensor, ...]]:
    """The network's method that computes a stage; behind its outputs come those of the stage's layers.

    With `given` outputs of layers, each layer is computed from those of the layers before it.
    """
    method = getattr(network, stage.method)
    if not stage.layers:
        return method

    def run(**inputs: Tensor) -> tuple[Tensor, ...]:
        made: dict[str, Tensor] = {}
        names = {name.partition("#")[0] for name in stage.layers}
        with listening(network, names, made, given):
            outputs = method(**inputs)
        # Copies, since a layer's output may be an output of the stage as well.
        return (*outputs, *(made[name].clone() for name in stage.layers))

    return run


@contextlib.contextmanager
def listening(
    network: nn.Module,
    names: Iterable[str],
    made: dict[str, Tensor],
    given: Mapping[str, Tensor] | None = None,
) -> Iterator[None]:
    """Collects these layers' outputs in `made`, in the order in which they end; a second call is "name#2".

    What follows a layer is computed from its output in `given`, where that has one of the same shape.
    """

    def keep(name: str, output: object) -> object:
        first = output[0] if isinstance(output, tuple | list) else output
        if not (isinstance(first, Tensor) and first.is_floating_point()):
            return output
        calls = 1
        while (key := name if calls == 1 else f"{name}#{calls}") in made:
            calls += 1
        made[key] = first
        instead: Tensor = given.get(key, first) if given else first
        if instead is first or instead.shape != first.shape:
            return output
        instead = instead.clone()  # it may be changed in place
        return (instead, *output[1:]) if isinstance(output, tuple | list) else instead

    def watched(method: Callable, name: str) -> Callable:
        def call(*args: object, **options: object) -> object:
            return keep(name, method(*args, **options))

        return call

    with contextlib.ExitStack() as stack:
        for name in names:
            path, _, method = name.removesuffix("<").partition(":")
            module = network.get_submodule(path)
            if name.endswith("<"):
                handle = module.register_forward_pre_hook(lambda *call, name=name: keep(name, call[1]))
                stack.callback(handle.remove)
            elif method:
                module.__dict__[method] = watched(getattr(module, method), name)
                stack.callback(module.__dict__.pop, method)
            else:
                handle = module.register_forward_hook(lambda *call, name=name: keep(name, call[2]))
                stack.callback(handle.remove)
        yield


def layer_names(network: nn.Module) -> list[str]:
    """The paths of all modules in the network."""
    return [name for name, _ in network.named_modules() if name]


def match(network: nn.Module, patterns: Sequence[str]) -> dict[str, list[str]]:
    """The layers that each pattern matches: modules, or calls of their methods ("convs.*:undo").

    A star matches dots too, so that "encoder.*" is everything in the encoder.
    """
    names = layer_names(network)
    found: dict[str, list[str]] = {}
    for pattern in patterns:
        path, _, method = pattern.partition(":")
        if method:
            hits = [name for name in ("", *names) if fnmatchcase(name, path)]
            hits = [name for name in hits if hasattr(network.get_submodule(name), method)]
            found[pattern] = [f"{name}:{method}" for name in hits]
        else:
            found[pattern] = [name for name in names if fnmatchcase(name, path)]
    return found


def nearest_layers(network: nn.Module, pattern: str) -> list[str]:
    """Names of layers near a pattern that matches none."""
    names = layer_names(network)
    near = close_matches(pattern.replace("*", "").strip("."), names, 0.5, most=3)
    return near or [name for name in names if "." not in name]


def with_layers(
    stage: Stage, network: nn.Module, patterns: Sequence[str], inputs: Mapping[str, Tensor]
) -> Stage:
    """The stage with the outputs of the layers that match, in the order in which they end."""
    if stage.graph:  # its network is exported as other stages
        return stage
    names = dict.fromkeys(name for hits in match(network, patterns).values() for name in hits)
    return with_outputs_of(stage, network, names, inputs)


def with_outputs_of(
    stage: Stage, network: nn.Module, names: Iterable[str], inputs: Mapping[str, Tensor]
) -> Stage:
    """The stage with the outputs of these layers, in the order in which they end.

    Of layers with the same output tensor, such as a block and its last layer, the first to end is taken: the
    innermost, which has the weights.
    """
    made: dict[str, Tensor] = {}
    with torch.inference_mode(), listening(network, names, made):
        getattr(network, stage.method)(**inputs)
    first: dict[tuple, str] = {}
    for name, tensor in made.items():
        first.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), name)
    layers = tuple(first.values())
    outputs = (*stage.outputs, *(TensorSpec(name, "float32", ()) for name in layers))
    return replace(stage, outputs=outputs, layers=layers)

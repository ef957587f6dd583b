"""Reading published `.pt` files safely: no code in them is run, and a file that does not fit is refused."""

import re
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import date, datetime, timedelta
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from melforge.common.errors import InputError, counted
from melforge.common.files import what_it_is
from melforge.common.weights.voices import not_floating

# The wrappers' (torch.compile's also within a name); `module.1.` is in files of 2019.
PREFIX = re.compile(r"^(?:(?:module|_orig_mod)\.)+(\d+\.)?|(?<=\.)_orig_mod\.")
LAYERS = re.compile(r"n_(layers?|convolutions)$")  # sizes that names of weights tell, however many there are
NAMES_SHOWN = 4
MOST_UNPACKED = 20  # times a file's size
# What may stand beside the weights: opening it runs nothing. By their names in files of any Python and numpy.
MAKERS: list[Any] = [value.__reduce__()[0] for value in (np.float32(0), np.zeros(0))]
FACTORIES = [f"builtins.{kind}" for kind in ("int", "float", "str", "list", "dict")]
PLAIN_DATA: list[Any] = [
    *((make, f"numpy.{core}.multiarray.{make.__name__}") for core in ("core", "_core") for make in MAKERS),
    *(np.dtype, np.ndarray, *{type(np.dtype(code)) for code in np.typecodes["All"]}),
    *((PurePath, f"pathlib{room}.{kind}Path") for room in ("", "._local") for kind in ("Posix", "Windows")),
    *(Namespace, datetime, date, timedelta, frozenset, slice),
    # A defaultdict as a plain one: what it makes new values with is not called.
    *((lambda *factory: {}, name) for name in ("collections.defaultdict", *FACTORIES)),
]

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a model's checkpoint.py reads from a file: sizes, checked float32 weights, and further facts."""

    config: Any
    state: Mapping[str, torch.Tensor]
    info: Mapping[str, Any] = field(default_factory=dict)

    def numpy_state(self) -> dict[str, np.ndarray]:
        return {name: value.numpy() for name, value in self.state.items()}


def read_pt(path: str | Path) -> dict:
    """Load a checkpoint on the CPU without running code in it; an InputError says why a file is refused."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder: give the checkpoint file in it")
    if not path.exists():
        raise FileNotFoundError(f"checkpoint {path} not found")
    size = sum(entry.file_size for entry in _zip_entries(path))
    if size > MOST_UNPACKED * path.stat().st_size:  # PyTorch does not compress
        raise InputError(f"checkpoint {path} would take {size:.0e} bytes once unpacked, and is refused")
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(PLAIN_DATA):
            warnings.simplefilter("ignore")  # PyTorch's thoughts on old files are not for our users
            content = _plain(torch.load(path, map_location="cpu", weights_only=True))
    except OSError as error:
        raise InputError(f"checkpoint {path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # a damaged file can fail anywhere inside the unpickler
        raise InputError(_refusal(path, str(error))) from None
    if not isinstance(content, dict):
        raise InputError(
            f"checkpoint {path} holds a {type(content).__name__}, not a dictionary: "
            "give a file that holds a state dict or a training checkpoint"
        )
    return content


def _plain(value: Any) -> Any:
    """A file's content with Python's own numbers and dictionaries in place of numpy's and argparse's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _zip_entries(path: Path) -> list[zipfile.ZipInfo]:
    """What a zip archive holds; nothing for a file that is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError):
        return []


def _refusal(path: Path, reason: str) -> str:
    if refused_global := re.search(r"(?:GLOBAL:?|class) ([A-Za-z_][\w.]*\w)", reason):
        return (
            f"checkpoint {path} holds {refused_global[1]}, no plain data that is known: it could run code.\n"
            "If you trust where it came from, save its state dict alone with torch.save and give that file."
        )
    if "TorchScript" in reason:
        return (
            f"checkpoint {path} is a TorchScript program, which holds code, and is refused.\n"
            "Give the training checkpoint that it was made from."
        )
    if what := what_it_is(path):
        return f"checkpoint {path} is {what}"
    if names := [entry.filename for entry in _zip_entries(path)]:
        if not any(name.endswith("data.pkl") for name in names):
            return _some(f"checkpoint {path} is a zip archive, to be unpacked first", names)
        reason = reason.partition("WeightsUnpickler error: ")[2] or reason
        return f"checkpoint {path} cannot be read: {' '.join(reason.split())[:200]}"
    return (
        f"checkpoint {path} is not a complete PyTorch file ({path.stat().st_size} bytes).\n"
        "Download or copy it again and compare its size with the original."
    )


def find_state(
    content: Mapping[str, Any],
    path: str | Path,
    what: str,
    *keys: str,
    average: str | None = None,
    advice: str = "",
) -> dict[str, torch.Tensor]:
    """The weights in a file's content, in float32 and without prefixes.

    A single integer, a counter, stays one. They are the content itself, or stand under one of `keys`, or
    under `average` where that is given.
    """
    if all(isinstance(value, torch.Tensor) for value in content.values()):
        content = {keys[0]: content}
    if average is not None:
        if keys[0] in content and not content.get(average):
            raise InputError(f"checkpoint {path} holds no averaged weights ({average}): load it without EMA")
        keys = (average,)
    state = next((content[key] for key in keys if isinstance(content.get(key), Mapping)), None)
    if state is None:
        found = ", ".join(map(str, content))[:80]
        raise InputError(f"checkpoint {path} is no {what}: it has no {keys[0]!r} but {found}{advice}")
    foreign = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if foreign or not state:
        what = f"{foreign[0]!r} is a {type(state[foreign[0]]).__name__}" if foreign else "it is empty"
        raise InputError(f"checkpoint {path} holds no state dict ({what}, not a tensor)")
    for name, value in state.items():
        if not isinstance(name, str):
            raise InputError(f"checkpoint {path}: a tensor is called {name!r:.40}, which is no name")
        if value.is_meta or value.layout is not torch.strided or value.is_nested:
            kind = "nested" if value.is_nested else value.layout
            how = "was saved without its values (meta)" if value.is_meta else f"is {kind}, not dense"
            raise InputError(f"checkpoint {path}: the tensor {name} {how.replace('torch.', '')}")
        if value.dim() and not value.is_floating_point():
            kind = str(value.dtype).removeprefix("torch.")
            raise InputError(not_floating(f"checkpoint {path}", str(name), kind))
    # A tensor may repeat what it holds along an axis, and so be of any size in a small file.
    held = {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes() for value in state.values()}
    if (count := sum(value.numel() for value in state.values())) > sum(held.values()):
        largest = max(state, key=lambda name: state[name].numel())
        sizes = f"{count} numbers, more than its {sum(held.values())} bytes hold"
        raise InputError(
            f"checkpoint {path} says that it has {sizes}: {largest} {list(state[largest].shape)}"
        )
    return {
        PREFIX.sub("", name): value.detach().float() if value.is_floating_point() else value
        for name, value in state.items()
    }


def find_config(
    config_class: type[Config], content: Mapping[str, Any], inferred: Mapping[str, Any], path: str | Path
) -> Config:
    """The file's own config; what it leaves out is taken from `inferred`. Foreign keys are ignored."""
    stated = content.get("config") or {}
    if not isinstance(stated, Mapping):
        kind = type(stated).__name__
        raise InputError(f"checkpoint {path}: its config is a {kind}, not a dictionary of sizes")
    values = dict(inferred)
    for size in fields(config_class):
        if (value := stated.get(size.name)) is None:
            continue
        wanted = type(size.default)
        if not isinstance(value, (int, float) if wanted is float else wanted):
            says = f"config says {size.name}: {value!r}, which is no {wanted.__name__}"
            raise InputError(f"checkpoint {path}: {says}")
        if LAYERS.search(size.name) and value != inferred.get(size.name, value):
            says = f"config says {size.name}: {value}, but its weights have {inferred[size.name]}"
            raise InputError(f"checkpoint {path}: {says}")
        values[size.name] = value
    with _refusing_sizes(path):
        return config_class(**values)


def expected_shapes(make_network: Callable[[], torch.nn.Module], path: str | Path) -> dict[str, torch.Size]:
    """What the network's weights are called and how large they are, found without allocating them."""
    with _refusing_sizes(path), torch.device("meta"):
        return {name: value.shape for name, value in make_network().state_dict().items()}


@contextmanager
def _refusing_sizes(path: str | Path):
    try:
        yield
    except (RuntimeError, ValueError, TypeError, AssertionError, ArithmeticError) as error:
        why = str(error).partition("\n")[0]
        raise InputError(f"checkpoint {path}: no network has the sizes in its config ({why})") from None


def read_axes(state: Mapping[str, torch.Tensor], tensor: str, **names_and_axes: int) -> dict[str, int]:
    """Sizes by name, each from an axis of the tensor; without those that it does not have."""
    shape = state[tensor].shape if tensor in state else ()
    return {name: shape[axis] for name, axis in names_and_axes.items() if axis < len(shape)}


def count_layers(state: Mapping[str, torch.Tensor], prefix: str, name: str) -> dict[str, int]:
    """The number of layers whose names go on after `prefix`, as a size; nothing where there are none."""
    layers = {tensor.removeprefix(prefix).split(".")[0] for tensor in state if tensor.startswith(prefix)}
    return {name: len(layers)} if layers else {}


def one_dimensional(name: str, value: torch.Tensor) -> torch.Tensor:
    """Kernels trained as two-dimensional (channels-last) convolutions carry a last axis of size 1."""
    if name.endswith("bias"):
        return value.flatten() if value.numel() == value.shape[0] else value
    if value.dim() == 4 and value.shape[3] == 1:
        return value.squeeze(3)
    return value.unsqueeze(2) if value.dim() == 2 else value


def fold_weight_norm(state: Mapping[str, torch.Tensor], path: str | Path) -> dict[str, torch.Tensor]:
    """weight_g and weight_v, by PyTorch's old or new names -> weight; all kernels one-dimensional.

    The norm is over all axes but the first.
    """
    for number, part in enumerate(("weight_g", "weight_v")):
        new = f"parametrizations.weight.original{number}"
        state = {name.replace(new, part): value for name, value in state.items()}
    state = {name: one_dimensional(name, value) for name, value in state.items()}
    folded = {}
    for name, value in state.items():
        stem, _, part = name.rpartition(".")
        if part == "weight_g" and f"{stem}.weight_v" in state:
            continue
        if part == "weight_v" and f"{stem}.weight_g" in state:
            length, axes = state[f"{stem}.weight_g"], tuple(range(1, value.dim()))
            if length.numel() != value.shape[0]:
                shapes = f"weight_g {tuple(length.shape)} does not fit weight_v {tuple(value.shape)}"
                raise InputError(f"checkpoint {path}: {stem}.{shapes}")
            norm = torch.linalg.vector_norm(value, dim=axes, keepdim=True)
            name, value = f"{stem}.weight", value * (length.reshape(norm.shape) / norm)
        folded[name] = value
    return folded


def check_finite(state: Mapping[str, torch.Tensor], path: str | Path) -> None:
    """An InputError naming the first tensor that holds NaN, infinity, or numbers with infinite squares."""
    for name, value in state.items():
        # A sum of squares is finite only where all values are, and is found faster than asking each.
        if not value.is_floating_point() or torch.isfinite(torch.dot(flat := value.flatten(), flat)):
            continue
        bad = int((~torch.isfinite(value)).sum())
        what = f"{bad} NaN or infinite values of {value.numel()}" if bad else f"{value.abs().max():.0e}"
        raise InputError(
            f"checkpoint {path}: {name} holds {what}; "
            "the weights are damaged or the training had diverged: use an earlier checkpoint"
        )


def check_keys(
    expected_shapes: Mapping[str, Sequence[int]],
    state: Mapping[str, torch.Tensor],
    path: str | Path,
    optional_prefixes: Iterable[str] = (),
) -> None:
    """An InputError that lists missing and unexpected names, or else shapes that differ.

    Names that begin with one of `optional_prefixes` may be missing or too many; where they are in both,
    their shapes must agree as well.
    """
    optional = tuple(optional_prefixes)
    found = {
        "missing": [n for n in expected_shapes if n not in state and not n.startswith(optional)],
        "unexpected": [n for n in state if n not in expected_shapes and not n.startswith(optional)],
    }
    if parts := [_some(f"{len(n)} {what}", n) for what, n in found.items() if n]:
        raise InputError(
            f"checkpoint {path} does not fit: {'; '.join(parts)}.\n"
            "It belongs to another model, or to other sizes than its config says."
        )
    shapes = [(n, tuple(state[n].shape), tuple(s)) for n, s in expected_shapes.items() if n in state]
    if wrong := [f"{name} {has} instead of {needs}" for name, has, needs in shapes if has != needs]:
        tensors = f"{counted(len(wrong), 'tensor')} {'has' if len(wrong) == 1 else 'have'}"
        raise InputError(f"checkpoint {path}: " + _some(f"{tensors} other sizes", wrong))


def _some(title: str, names: Sequence[str]) -> str:
    return f"{title}: {', '.join(names[:NAMES_SHOWN])}{', ...' if len(names) > NAMES_SHOWN else ''}"

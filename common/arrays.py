"""The few array operations between stages, for numpy arrays (CPU) and torch tensors (GPU) alike.

Torch is never imported here before there is a tensor. A statement does it: unlike a function's call,
torch.compile can follow it, and it takes no time where the module is there.
"""

from __future__ import annotations  # np.random, which speaking does not need, stays unloaded

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

# np.ndarray or torch.Tensor. A plain alias: naming torch's type would import torch.
Array = Any
# What waits for several arrays, where a GPU is still at work on them, and gives them as numpy's.
ReadEach = Callable[[], list[np.ndarray]]
# Bytes that go to a GPU from memory that it reads by itself, so that nobody waits for them.
MOST_PINNED = 1 << 16


def is_numpy(array: Array) -> bool:
    return isinstance(array, np.ndarray)


def dtype_name(array: Array) -> str:
    """The dtype under its numpy name: "int64", "float32"."""
    return _name_of(array.dtype)


@cache  # numpy puts a name together each time
def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def to_numpy(array: Array) -> np.ndarray:
    return array if is_numpy(array) else array.detach().cpu().numpy()


def read_later(array: Array) -> Callable[[], np.ndarray]:
    """What waits for the array and gives it as numpy's; its GPU goes on with what it is told until then."""
    if is_numpy(array) or not array.is_cuda:
        return lambda: to_numpy(array)
    import torch

    from melforge.common.cuda_streams import current_stream

    # Else it is copied within the GPU first, which takes longer.
    whole = None if array.is_contiguous() else with_rest(array)
    whole = array if whole is None else whole
    copy = torch.empty(whole.shape, dtype=whole.dtype, pin_memory=True)
    copy.copy_(whole, non_blocking=True)
    copied = current_stream(array.get_device()).record_event()

    def read() -> np.ndarray:
        copied.synchronize()
        return copy.numpy()[..., : array.shape[-1]]

    return read


def with_rest(array: Array, steps: int | None = None) -> Array | None:
    """A torch tensor [N, T], the beginnings of longer rows, with what its memory has behind them.

    None where it is no such tensor, or its rows have not so many `steps` (None: any number).
    """
    if is_numpy(array) or array.ndim != 2:
        return None
    count, (row, step) = len(array), array.stride()
    last = array.storage_offset() + count * row
    if step != 1 or row < array.shape[1] or row != (steps or row):
        return None
    if last * array.element_size() > array.untyped_storage().nbytes():
        return None
    return array.as_strided((count, row), (row, 1))


def read_together(arrays: Sequence[Array]) -> ReadEach:
    """As `read_later` for several arrays of one type and device, in one copy from a GPU."""
    if len(arrays) < 2 or is_numpy(arrays[0]) or not arrays[0].is_cuda:
        reads = [read_later(array) for array in arrays]
        return lambda: [read() for read in reads]
    joined = read_later(concatenate([array.reshape(-1) for array in arrays]))
    ends = np.cumsum([array.numel() for array in arrays])

    def read() -> list[np.ndarray]:
        flat = np.split(joined(), ends[:-1])
        return [part.reshape(array.shape) for part, array in zip(flat, arrays, strict=True)]

    return read


def to_device(array: Array, device: str) -> Array:
    """An array as an engine on that device takes it: numpy's on the CPU, torch's on a GPU."""
    if device == "cpu":
        return to_numpy(array)
    import torch

    if is_numpy(array) and array.nbytes <= MOST_PINNED and str(device).startswith("cuda"):
        return within_reach(array, device).to(device, non_blocking=True)
    return torch.as_tensor(array, device=device)


def within_reach(array: np.ndarray, device: str) -> Array:
    """An array of the host as a device reads it by itself: a GPU torch's, in pinned memory."""
    if not str(device).startswith("cuda"):
        return array
    import torch

    return torch.from_numpy(array).pin_memory()


def as_int64(array: Array) -> Array:
    return array.astype(np.int64) if is_numpy(array) else array.long()


def as_float32(array: Array) -> Array:
    return array.astype(np.float32) if is_numpy(array) else array.float()


def round_half_up(array: Array) -> Array:
    """Whole numbers int64 of numbers that are not negative."""
    return as_int64(array + 0.5)


def round_half_even(array: Array) -> Array:
    """Whole numbers int64."""
    return as_int64(array.round())


def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    """Arrays of one kind and shape -> one array with a new axis."""
    if is_numpy(arrays[0]):
        return np.stack(arrays, axis)
    import torch

    return torch.stack(list(arrays), axis)


def contiguous(array: Array) -> Array:
    """The array in the order of its axes in memory; itself where it is so already."""
    return np.ascontiguousarray(array) if is_numpy(array) else array.contiguous()


def concatenate(arrays: Sequence[Array], axis: int = 0) -> Array:
    """Arrays of one kind, one behind the other."""
    if len(arrays) == 1:
        return arrays[0]
    if is_numpy(arrays[0]):
        return np.concatenate(arrays, axis)
    import torch

    return torch.cat(list(arrays), axis)


def pad_batch(rows: Sequence[np.ndarray], value: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different lengths -> (padded int64 [B, T], lengths int64 [B])."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    padded = np.full((len(rows), int(lengths.max())), value, dtype=np.int64)
    for row, target in zip(rows, padded, strict=True):
        target[: len(row)] = row
    return padded, lengths


def random_lengths(batch: int, longest: int, rng: np.random.Generator, shortest: int = 1) -> np.ndarray:
    """Lengths int64 [B] for examples: the first item is as long as the batch, others may be shorter."""
    lengths = rng.integers(max(shortest, (longest + 1) // 2), longest + 1, batch)
    lengths[0] = longest
    return lengths


def pad_to(array: Array, shape: Sequence[int]) -> Array:
    """The array with zeros behind it along every axis up to this shape; itself where it has it already."""
    if tuple(array.shape) == tuple(shape):
        return array
    if is_numpy(array):
        padded = np.zeros(shape, array.dtype)
        padded[tuple(slice(size) for size in array.shape)] = array
        return padded
    import torch

    behind = [(0, new - size) for new, size in zip(shape, array.shape, strict=True)]
    return torch.nn.functional.pad(array, [size for pair in reversed(behind) for size in pair])


def pad_rows(rows: Sequence[Array], count: int, steps: int) -> Array:
    """Arrays [..., T] of one kind -> one array [count, ..., steps]: zeros behind each and as further rows.

    A single one that needs no zeros is not copied.
    """
    if count == 1 and rows[0].shape[-1] == steps:
        return rows[0][None]
    shape = (count, *rows[0].shape[:-1], steps)
    padded = np.zeros(shape, rows[0].dtype) if is_numpy(rows[0]) else rows[0].new_zeros(shape)
    for target, row in zip(padded, rows, strict=False):
        target[..., : row.shape[-1]] = row
    return padded


def length_mask(lengths: Array, steps: int) -> Array:
    """Mask bool [B, steps], true at the first `lengths` [B] steps. Networks are exported with it."""
    if is_numpy(lengths):
        return np.arange(steps) < lengths[:, None]
    import torch

    return torch.arange(steps, device=lengths.device) < lengths[:, None]


def repeat_index(repeats: Array, steps: int | None = None) -> tuple[Array, Array]:
    """How often each step is repeated, int64 [B, T] -> (index int64 [B, T_out], lengths int64 [B]).

    Row b of the index holds every step t `repeats[b, t]` times in a row; behind an item's end it holds 0.
    T_out is `steps`, which are enough for all, or without it the longest item's length, for which a GPU is
    waited for.
    """
    ends = repeats.cumsum(1)
    lengths = ends[:, -1]
    steps = int(lengths.max()) if steps is None else steps
    if is_numpy(repeats):
        index = np.zeros((len(repeats), steps), dtype=np.int64)
        for row, count, length in zip(index, repeats, lengths, strict=True):
            row[:length] = np.repeat(np.arange(len(count)), count)
        return index, lengths
    import torch

    frames = torch.arange(steps, device=repeats.device).expand(len(repeats), steps).contiguous()
    index = torch.searchsorted(ends, frames, right=True)
    return index * (frames < lengths[:, None]), lengths

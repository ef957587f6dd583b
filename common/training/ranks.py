"""Several processes that train one network, a GPU each: `torchrun --nproc_per_node 2 -m MODEL.train ...`, or
`melforge voice train --device cuda:all ...` (`side_by_side`).

Each process (rank) computes the gradients of batches of its own, and they are averaged before every update
(data parallelism), so that all ranks keep the same weights. Running statistics, as batch norm's, are each
rank's own. Rank 0 alone validates and writes. In one process all of this does nothing.

What lies on the host is sent by Gloo, gradients on GPUs by NCCL, within captured steps too. NCCL asks that
all ranks capture and replay the same graphs at the same time: hence the keys of `own_batches`. This is tested
on a CPU and has not been run on GPUs. On two, Jasper was trained with gradients summed between two graphs.
"""

import atexit
import importlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from melforge.common.errors import InputError

# For rank 0, which aligns, validates and saves. torchrun ends those who wait for a lost one.
LONGEST_WAIT = timedelta(days=1)
# What torchrun tells each process beside WORLD_SIZE.
ADDRESS = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")

Inputs = TypeVar("Inputs")


class RankLost(InputError):
    """Another rank failed, and has said why."""


def asked() -> int:
    """How many processes were begun, by torchrun."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def count() -> int:
    """How many processes train together (the world size)."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if count() > 1 else 0


def is_first() -> bool:
    """Whether this process is the one that validates, prints and writes."""
    return rank() == 0


def join(device: torch.device) -> torch.device:
    """Meets the other processes that torchrun began, if any; this one's own device of that type."""
    if asked() == 1:
        return device
    if missing := [name for name in ADDRESS if name not in os.environ]:
        raise InputError(
            f"WORLD_SIZE is {asked()} but {missing[0]} is not set: begin the processes by torchrun, "
            "or unset WORLD_SIZE"
        )
    if not dist.is_available() or (device.type == "cuda" and not dist.is_nccl_available()):
        raise InputError("this PyTorch cannot train on several GPUs, it has no NCCL: begin one process")
    # Functions there have the group as a default. Imported later, by an optimiser, they would keep it alive.
    importlib.import_module("torch.distributed.nn.functional")
    if device.type == "cpu":
        backend = "gloo"
        atexit.register(_end)  # after an error too: Gloo's threads abort a process that exits without this
    else:
        local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if device.index is not None:
            raise InputError(
                f"--device {device}: give cuda, each of {asked()} processes takes a GPU of its own"
            )
        if local >= gpus:
            raise InputError(f"no GPU is left for process {local + 1}: give torchrun --nproc_per_node {gpus}")
        device, backend = torch.device("cuda", local), "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(device)
    if not dist.is_initialized():  # by an earlier training of this process
        dist.init_process_group(backend, timeout=LONGEST_WAIT)
    return device


def leave() -> None:
    """Once all ranks have come here. NCCL waits for the end of graphs that it is in: they must be gone."""
    if count() > 1:
        wait_for_all()
        _end()


def _end() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def wait_for_all() -> None:
    if count() > 1:
        _together(dist.all_reduce, torch.zeros(1))


def of_first(value: float) -> float:
    """Rank 0's value, on all."""
    if count() == 1:
        return value
    told = torch.tensor([value], dtype=torch.float64)
    _together(dist.broadcast, told, src=0)
    return told.item()


def take_from_first(networks: Iterable[torch.nn.Module]) -> None:
    """Rank 0's parameters and buffers, on all."""
    if count() > 1:
        for network in networks:
            for tensor in (*network.parameters(), *network.buffers()):
                _together(dist.broadcast, tensor.detach(), src=0)


def draw_apart(seed: int, step: int) -> None:
    """Other dropout and augmentation on each rank, from this step on; rank 0 draws as it would alone."""
    if not is_first():
        torch.manual_seed(int(np.random.SeedSequence((seed, rank(), step)).generate_state(1)[0]))


def own_batches(batches: Iterator[tuple[object, Inputs]]) -> Iterator[tuple[object, Inputs]]:
    """This rank's share of batches, with their keys, that all ranks draw alike.

    At each step all ranks have the same key, so that they run the same CUDA graph and none waits for a longer
    batch. Each batch is one rank's.
    """
    return batches if count() == 1 else _dealt(batches)


def _dealt(batches: Iterator[tuple[object, Inputs]]) -> Iterator[tuple[object, Inputs]]:
    waiting: dict[object, list[Inputs]] = defaultdict(list)
    for key, inputs in batches:
        waiting[key].append(inputs)
        if len(waiting[key]) == count():
            yield key, waiting.pop(key)[rank()]


def average_gradients(optimisers: Iterable[torch.optim.Optimizer]) -> None:
    """The mean over all ranks, on all; a parameter that has no gradient on some counts as zeros there."""
    if count() == 1:
        return
    gradients = []
    for parameter in (p for o in optimisers for group in o.param_groups for p in group["params"]):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    _together(dist.all_reduce, flat)
    flat /= count()
    parts = flat.split([gradient.numel() for gradient in gradients])
    means = [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]
    cast(Any, torch)._foreach_copy_(gradients, means)


def _together(operation: Callable, tensor: Tensor, **how: int) -> None:
    try:
        operation(tensor, **how)
    except RuntimeError as error:
        if tensor.is_cuda:  # which may tell of earlier work
            raise
        raise RankLost(f"rank {rank()}: another rank failed; see its error") from error

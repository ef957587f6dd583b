"""Where workers speak: devices and memory of each, and what is refused. GPUs differ in the device's name."""

import os

import pytest

from melforge.common.errors import InputError
from melforge.common.synthesis.places import WorkerPlace, describe, places_of, workers_per_gpu

GIB = 1 << 30


def test_each_cpu_of_a_list_is_a_place():
    places = places_of("cpu, cpu,cpu", None)
    assert places == (WorkerPlace("cpu"),) * 3 and describe(places) == "3 workers on cpu"
    before = dict(os.environ)
    assert places[0].claim() == "cpu" and os.environ == before


@pytest.mark.parametrize(
    ("memory", "cores", "gpus", "count"),
    [
        (141, 16, 1, 8),  # an H200
        (141, 64, 1, 16),
        (80, 64, 4, 8),
        (80, 16, 2, 4),
        (24, 32, 1, 5),
        (16, 8, 1, 3),
        (8, 8, 1, 1),
        (4, 1, 1, 1),
        (80, 4, 8, 1),
    ],
)
def test_workers_have_memory_and_cores(memory, cores, gpus, count):
    assert workers_per_gpu(memory * GIB, cores, gpus) == count


def test_what_was_chosen_is_one_line():
    places = [WorkerPlace(f"cuda:{number}", 0.225, 18 * 10**9) for number in (0, 2)] * 4
    words = "8 workers, 4 each on cuda:0, cuda:2; PyTorch takes at most 18.0 GB a worker"
    assert describe(places) == words


@pytest.mark.parametrize(
    ("device", "per_gpu", "words"),
    [
        ("cpu,gpu", None, "unknown device 'cpu,gpu': use cpu, cuda, cuda:N, cuda:all"),
        ("cpu,cuda:0", None, "either the CPU or GPUs"),
        ("cpu", 2, "either the CPU or GPUs, which --workers-per-gpu is for"),
        ("cuda:all,cuda:64", None, "each can be named once"),
        ("cuda:64,cuda:64", 2, "each can be named once"),
    ],
)
def test_what_is_no_place_is_refused(device, per_gpu, words):
    with pytest.raises(InputError, match=words):
        places_of(device, per_gpu)


@pytest.mark.gpu
def test_a_share_is_of_one_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", "0"))
    places = places_of("cuda:all", 2)
    assert places[0].share == 0.45 and places[0].memory > GIB and places[0].claim() == "cuda"
    import torch

    torch.cuda.set_per_process_memory_fraction(1.0)

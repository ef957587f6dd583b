"""The machine: how busy a GPU is, as its driver says, and the memory that is held."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from melforge.common.bench import machine


class Nvml:
    """NVIDIA's management library, of one GPU."""

    def __init__(self, uuid: str, shares: list[int]):
        self.uuid, self.shares, self.asked = uuid.encode(), shares, 0

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle) -> int:
        handle._obj.value = 7
        return 0 if uuid == self.uuid else 6

    def nvmlSystemGetDriverVersion(self, version, length: int) -> int:
        assert length == len(version)
        version.value = b"580.65.06"
        return 0

    def nvmlDeviceGetMaxClockInfo(self, handle, kind: int, clock) -> int:
        assert handle.value == 7
        clock._obj.value = {1: 1980, 2: 2619}[kind]
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle, found) -> int:
        assert handle.value == 7
        self.asked += 1
        found._obj.gpu = self.shares[min(self.asked, len(self.shares)) - 1]
        return 0


@pytest.fixture
def gpu(monkeypatch):
    properties = SimpleNamespace(uuid="1-2", total_memory=139 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(machine, "BUSY_PERIOD", 0.001)

    def use(library):
        monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
        return library

    return use


def test_the_drivers_shares_are_averaged(gpu):
    nvml = gpu(Nvml("GPU-1-2", [20, 60]))
    read = machine.utilisation("cuda")
    assert [read(), read(), read()] == [0.2, 0.6, 0.6]
    with machine.busy_share("cuda") as busy:
        while nvml.asked < 10:
            pass
    assert busy() == pytest.approx(0.6)


def test_nothing_is_said_where_the_driver_says_nothing(gpu):
    gpu(Nvml("GPU-other", [20]))
    for device in ("cuda", "cpu"):
        with machine.busy_share(device) as busy:
            pass
        assert busy() is None


def test_the_gpu_is_described_as_its_driver_does(gpu):
    gpu(Nvml("GPU-1-2", [20]))
    known = {"uuid": "GPU-1-2", "gpu memory": "142336 MiB"}
    clocks = {"largest SM clock": "1980 MHz", "largest memory clock": "2619 MHz"}
    assert machine.gpu_details("cuda") == {**known, "driver": "580.65.06", **clocks}
    gpu(Nvml("GPU-other", [20]))
    assert machine.gpu_details("cuda") == known


HOLDING = """
from melforge.common.bench.machine import held_bytes
before, block = held_bytes("cpu"), bytearray(64_000_000)
block[::4096] = b"1" * len(block[::4096])
print(held_bytes("cpu") - before)
"""


def test_the_memory_of_a_process_counts_on_a_cpu():
    """Of a new one: the most that it ever held counts, and tests before this one held more."""
    done = subprocess.run([sys.executable, "-c", HOLDING], check=True, capture_output=True, text=True)
    assert int(done.stdout) > 50_000_000

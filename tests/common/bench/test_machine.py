"""The machine: a GPU as its driver describes it, and the memory that a process took."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from melforge.common.bench import machine


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """Gives the program that asks the driver this answer."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1-2"))

    def use(answer: str) -> None:
        program = tmp_path / "smi"
        program.write_text(f"#!/bin/sh\necho $1 $2 >> {tmp_path}/asked\nprintf '{answer}'\n")
        program.chmod(0o755)
        monkeypatch.setattr(machine, "SMI", str(program))

    return use


def test_the_gpu_is_described_as_its_driver_does(driver, tmp_path):
    driver("580.65.06, 143771 MiB, 1980 MHz, 3201 MHz\\n")
    assert machine.gpu_details("cuda") == {
        "uuid": "GPU-1-2",
        "driver": "580.65.06",
        "gpu memory": "143771 MiB",
        "largest SM clock": "1980 MHz",
        "largest memory clock": "3201 MHz",
    }
    assert (
        (tmp_path / "asked").read_text().startswith("--id=GPU-1-2 --query-gpu=driver_version,memory.total,")
    )


def test_only_the_uuid_is_known_where_the_driver_says_nothing(driver, monkeypatch):
    monkeypatch.setattr(machine, "SMI", "/no/such/program")
    assert machine.gpu_details("cuda") == {"uuid": "GPU-1-2"}


HOLDING = """
from melforge.common.bench.machine import peak_bytes
before, block = peak_bytes("cpu", ()), bytearray(64_000_000)
block[::4096] = b"1" * len(block[::4096])
print(peak_bytes("cpu", ()) - before)
"""


def test_the_memory_of_a_process_counts_on_a_cpu():
    """Of a new one: the most that it ever held counts, and tests before this one held more."""
    done = subprocess.run([sys.executable, "-c", HOLDING], check=True, capture_output=True, text=True)
    assert int(done.stdout) > 50_000_000

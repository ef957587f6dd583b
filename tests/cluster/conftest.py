"""Melforge in the environment of $MELFORGE_RAY_PYTHON, which has the extra ray."""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0  # seconds that a test waits for what must come


@pytest.fixture(scope="session")
def environment() -> Iterator[dict[str, str]]:
    """With a folder for Ray's sessions, whose path must be short: it has sockets."""
    folder = tempfile.mkdtemp(prefix="mr", dir="/tmp")
    yield {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_TMPDIR": folder}
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def no_other_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No other process of the tests has one meanwhile: the address `auto` finds any on this machine."""
    with (tmp_path_factory.getbasetemp().parent / "cluster.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def melforge(*words: object) -> list[str]:
    """A command in that environment."""
    return [os.environ["MELFORGE_RAY_PYTHON"], "-m", "melforge", *map(str, words)]


def kill(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def ray_processes(environment: dict[str, str], name: str) -> list[int]:
    """Those of this session's clusters whose title begins so."""
    own = f"RAY_TMPDIR={environment['RAY_TMPDIR']}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words, variables = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
        except OSError:  # it has ended
            continue
        if words.startswith(name.encode()) and own in variables:
            found.append(int(path.name))
    return found

"""NVIDIA's tritonserver on a repository of the tiny voice, in the environment of $MELFORGE_TRITON_PYTHON."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from melforge.common.cli.triton import main as write

ROOT = Path(__file__).parents[2]
PATIENCE = 200.0  # seconds that a test waits for what must come, on a machine that is busy with other things
QUEUE_SIZE = 16


@dataclass
class Running:
    """A server, and the repository that it runs."""

    process: subprocess.Popen
    http: str
    grpc: str
    metrics: str
    repository: Path
    log: Path

    def post(self, path: str) -> None:
        request = urllib.request.Request(f"{self.http}{path}", b"{}", method="POST")
        with urllib.request.urlopen(request, timeout=PATIENCE):
            pass

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.http}/v2/health/ready", timeout=5):
                return True
        except OSError:
            return False

    def process_of(self, *words: str) -> int:
        """The only process with these words in its command."""
        found = [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if (command := read_bytes(path)) and all(word.encode() in command for word in words)
        ]
        assert len(found) == 1
        return found[0]

    def stub(self, model: str) -> int:
        """The process of a model's only instance."""
        return self.process_of(str(self.repository / model), "_stub")

    def server(self) -> int:
        return self.process_of(f"--model-repository={self.repository}", "/bin/tritonserver\0")

    def kill(self, process: int) -> None:
        """Ends a process of the server, and waits until another server speaks, or hears, in its place."""
        killed = self.server()
        os.kill(process, signal.SIGKILL)
        end = time.monotonic() + PATIENCE
        while Path(f"/proc/{killed}").exists() or self.probe().returncode:
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text(
                errors="replace"
            )
            time.sleep(0.1)

    def probe(self) -> subprocess.CompletedProcess:
        command = [sys.executable, str(self.repository / "probe.py"), self.http, "60"]
        return subprocess.run(command, capture_output=True, text=True)


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""


def own_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="session")
def repository(tiny_voice, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("triton") / "models"
    words = f"--voice {tiny_voice} --device cpu --threads 1 --queue-delay 25000 --warm-up".split()
    words += ["--queue-size", str(QUEUE_SIZE)]
    assert write([str(folder), *words]) == 0
    return folder


@pytest.fixture(scope="session")
def server(repository, tmp_path_factory) -> Iterator[Running]:
    with tritonserver(repository, tmp_path_factory.mktemp("tritonserver")) as one:
        yield one


@contextmanager
def tritonserver(repository: Path, workspace: Path) -> Iterator[Running]:
    """The server on a repository, once it says that it is ready."""
    http, grpc, metrics = free_ports(3)
    names = {"http": http, "grpc": grpc, "metrics": metrics}
    words = [f"--{name}-port={port}" for name, port in names.items()]
    words += [f"--{name}-address=127.0.0.1" for name in names]
    # Streams that tests have left would hold its end up for half a minute.
    words += ["--model-control-mode=explicit", "--load-model=*", "--exit-timeout-secs=3"]
    script = ROOT / "examples" / "triton" / "server.py"
    command = [os.environ["MELFORGE_TRITON_PYTHON"], str(script), str(repository), *words]
    log = workspace / "log"
    with log.open("wb") as output:
        # Where numpy has a second thread, as with users, no signal must go there.
        environment = {**own_environment(), "TMPDIR": str(workspace), "OPENBLAS_NUM_THREADS": "2"}
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    running = Running(process, *(f"http://127.0.0.1:{port}" for port in names.values()), repository, log)
    try:
        end = time.monotonic() + PATIENCE
        while not running.ready():
            assert process.poll() is None and time.monotonic() < end, log.read_text(errors="replace")
            time.sleep(0.2)
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

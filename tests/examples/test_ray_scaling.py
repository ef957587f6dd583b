"""examples/ray/scaling.py: whose CPU time it counts, and its rows."""

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.serve
FILE = Path(__file__).parents[2] / "examples" / "ray" / "scaling.py"
BUSY = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"


@pytest.fixture(scope="module")
def scaling():
    spec = importlib.util.spec_from_file_location("scaling", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_processes_below_one_count_and_others_do_not(scaling):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", BUSY], **pipes) as child:
        child.stdout.readline()
        below = scaling.cpu_seconds(os.getpid())
        assert sum(below.values()) >= 0.15 and sum(scaling.cpu_seconds(child.pid).values()) >= 0.15
        assert sum(scaling.cpu_seconds(child.pid).values()) < sum(below.values())
        child.communicate(b"\n")


def test_a_row_has_the_cpu_time_of_a_second_of_audio(scaling):
    spent = Counter({"ray::Worker": 3.4, "raylet": 0.2, "python": 0.1})
    assert scaling.row("2 workers", 100.0, 4.0, spent, "ray::Worker") == ("2 workers", "25.0", "34.0", "3.0")

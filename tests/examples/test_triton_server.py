"""examples/triton/server.py where the wheel with tritonserver is not installed. tests/triton starts it."""

import subprocess
import sys
from pathlib import Path

SERVER = Path(__file__).parents[2] / "examples" / "triton" / "server.py"


def test_the_missing_wheel_is_named():
    run = subprocess.run([sys.executable, "-S", SERVER, "models"], capture_output=True, text=True)
    assert run.returncode == 2 and run.stdout == ""
    assert run.stderr.startswith("error: pytriton is missing") and "[tritonserver]" in run.stderr

"""Starts the tritonserver of the wheel nvidia-pytriton, for a machine without Docker or GPU.

    python3 -m venv .tritonserver && .tritonserver/bin/pip install -e '.[tritonserver]'
    .tritonserver/bin/python examples/triton/server.py models --http-port=8000

What follows the repository are options of tritonserver's. The wheel has the Python backend only. The server
starts again when the process of a model dies.
"""

import importlib.util
import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import NoReturn


def fail(sentence: str) -> NoReturn:
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)


def fail_without(package: str | None) -> NoReturn:
    fail(f"{package} is missing: the environment of pip install -e '.[tritonserver]' has it")


# Not imported: a thread that numpy begins would take signals that watch.py waits for, and end this process.
WHEEL = importlib.util.find_spec("pytriton") or fail_without("pytriton")
try:
    from melforge.common.triton import watch
except ImportError as error:
    fail_without(error.name)


def main(repository: str, *options: str) -> None:
    package = Path(str(WHEEL.origin)).parent
    server = package / "tritonserver"
    backends = Path(tempfile.mkdtemp(prefix="tritonserver-"))
    (backends / "python").mkdir()
    # The backend wants beside it the process that runs models, built for this version of Python.
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.is_file():
        fail(f"nvidia-pytriton has nothing for Python {version}")
    for path in (*(server / "backends" / "python").iterdir(), stub):
        (backends / "python" / path.name).symlink_to(path)
    # That process takes the first libpython and the first python3 that it finds. The library is alone in
    # its folder: a system's has others too, such as a cuDNN that is not PyTorch's. The backend's library
    # looks for the wheel's others from where it lies, which through a link is not their place.
    libpython = Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")
    (backends / "lib").mkdir()
    if libpython.is_file():
        (backends / "lib" / libpython.name).symlink_to(libpython)
    libraries = (str(backends / "lib"), str(package.parent / "nvidia_pytriton.libs"))
    os.environ["LD_LIBRARY_PATH"] = ":".join((*libraries, os.environ.get("LD_LIBRARY_PATH", "")))
    os.environ["PATH"] = f"{sys.prefix}/bin:{os.environ['PATH']}"
    program = str(server / "bin" / "tritonserver")
    places = (f"--model-repository={repository}", f"--backend-directory={backends}")
    sys.exit(watch.main(program, *places, *options, again=True))


if __name__ == "__main__":
    main(*(sys.argv[1:] or sys.exit(__doc__)))

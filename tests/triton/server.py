"""Starts the tritonserver of the wheel nvidia-pytriton: python server.py REPOSITORY WORKSPACE ARGUMENTS.

Runs in an environment of its own, whose numpy is below 2 (docs/triton.md).
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytriton


def main(repository: str, workspace: str, *arguments: str) -> None:
    package = Path(pytriton.__file__).parent
    tree = Path(workspace) / "tritonserver"
    shutil.copytree(package / "tritonserver", tree, ignore=shutil.ignore_patterns("python_backend_stubs"))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = package / "tritonserver" / "python_backend_stubs" / version / "triton_python_backend_stub"
    shutil.copy(stub, tree / "backends" / "python")
    # The stub takes the first libpython and the first python3 that it finds: they must be this interpreter's.
    libraries = (sysconfig.get_config_var("LIBDIR"), str(package.parent / "nvidia_pytriton.libs"))
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join((*libraries, os.environ.get("LD_LIBRARY_PATH", ""))),
        "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
    }
    program = tree / "bin" / "tritonserver"
    places = (f"--model-repository={repository}", f"--backend-directory={tree / 'backends'}")
    os.execve(program, [str(program), *places, *arguments], environment)


if __name__ == "__main__":
    main(*sys.argv[1:])

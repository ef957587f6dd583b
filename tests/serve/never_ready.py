"""`melforge`, in processes that load their models but cannot answer, as with a broken package."""

import runpy

from melforge.common.serve import server


async def make_ready(app):
    raise ModuleNotFoundError("No module named '_cffi_backend'")


if __name__ == "__main__":
    runpy.run_module("melforge", run_name="__main__")
else:  # a process that this one has started
    server.make_ready = make_ready

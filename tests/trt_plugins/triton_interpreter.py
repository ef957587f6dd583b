"""Triton's interpreter, which runs kernels without a GPU: it is chosen when Triton is imported."""

import io
import runpy
import sys
from contextlib import redirect_stdout

from triton.runtime import interpreter

_patch_tensor = interpreter._patch_lang_tensor


def _patch(tensor, scope) -> None:
    """Bounds of loops that are tensors of one number, which numpy 2.4 no longer takes for numbers."""
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def run(name: str, *arguments: str) -> str:
    """What interpreted_<name>.py prints, given these arguments."""
    interpreter._patch_lang_tensor = _patch
    # Half of the time goes into looking whether whole numbers are too large, which these sizes never are.
    object.__setattr__(interpreter.interpreter_builder.options, "sanitize_overflow", False)
    sys.argv = [name, *arguments]
    with redirect_stdout(io.StringIO()) as printed:
        runpy.run_module(f"tests.trt_plugins.interpreted_{name}", run_name="__main__")
    return printed.getvalue()

"""Triton's interpreter, which runs kernels without a GPU: it is chosen when Triton is imported."""

import io
import runpy
import sys
from contextlib import redirect_stdout

import numpy as np
from triton.runtime import interpreter

_patch_tensor = interpreter._patch_lang_tensor


def _patch(tensor, scope) -> None:
    """Bounds of loops that are tensors of one number, which numpy 2.4 no longer takes for numbers."""
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def _dot(builder, a, b, d, *how):
    """In float64: by float32 BLAS gives a column other last bits where it stands elsewhere in a tile, on some
    CPUs; no GPU does.
    """
    product = np.matmul(a.data, b.data, dtype=np.float64).astype(d.data.dtype)
    return interpreter.TensorHandle(product + d.data, d.dtype.scalar)


def run(name: str, *arguments: str) -> str:
    """What interpreted_<name>.py prints, given these arguments."""
    interpreter._patch_lang_tensor = _patch
    interpreter.InterpreterBuilder.create_dot = _dot
    # Half of the time goes into looking whether whole numbers are too large, which these sizes never are.
    object.__setattr__(interpreter.interpreter_builder.options, "sanitize_overflow", False)
    sys.argv = [name, *arguments]
    with redirect_stdout(io.StringIO()) as printed:
        runpy.run_module(f"tests.trt_plugins.interpreted_{name}", run_name="__main__")
    return printed.getvalue()

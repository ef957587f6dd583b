"""Triton's interpreter, for what runs kernels without a GPU in a process of its own."""

from triton.runtime import interpreter

_patch_tensor = interpreter._patch_lang_tensor


def _patch(tensor, scope) -> None:
    """Bounds of loops that are tensors of one number, which numpy 2.4 no longer takes for numbers."""
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def take_tensors_as_bounds() -> None:
    """Of loops in kernels that run from now on."""
    interpreter._patch_lang_tensor = _patch

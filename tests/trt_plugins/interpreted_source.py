"""Runs the kernels of HiFi-GAN's source in Triton's interpreter and prints their largest error."""

import sys

import torch
import triton.language as tl  # noqa: F401 (which a kernel must see)
from triton.runtime import interpreter

from hifigan.infer import join_source
from trt_plugins.hifigan import source_filter

patch_tensor = interpreter._patch_lang_tensor


def _patch(tensor, scope) -> None:
    """Bounds of loops that are tensors of one number, which numpy 2.4 no longer takes for numbers."""
    patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def join_error() -> float:
    """In cycles, around a whole one; infinite where pitch or noise are not what was given."""
    torch.manual_seed(0)
    largest = 0.0
    for batch, frames, channels in ((1, 1, 32), (2, 300, 3), (3, 1000, 0), (1, 4096, 32)):
        pitch, noise = 0.004 + 0.01 * torch.rand(batch, frames), torch.randn(batch, frames * channels)
        wanted, found = (join(pitch, noise, 256) for join in (join_source, source_filter.join_source))
        if found.shape != wanted.shape or not torch.equal(found[:, 1:], wanted[:, 1:]):
            return float("inf")
        assert (found[:, 0] >= 0).all() and (found[:, 0] <= 1).all()
        apart = (found[:, 0] - wanted[:, 0]).abs()
        largest = max(largest, float(torch.minimum(apart, 1 - apart).max()))
    return largest


interpreter._patch_lang_tensor = _patch
print({"join": join_error}[sys.argv[1]]())

"""How kernels get at the tensors that `describe` in graphs.py describes."""

import triton
import triton.language as tl


@triton.jit
def in_tiles(source):
    """A tensor descriptor, by which blocks of a tensor are read and written."""
    if isinstance(source, tl.tensor_descriptor):
        return source
    else:
        return tl.make_tensor_descriptor(source.base, source.shape, source.strides, source.block)

"""The kernel behind `trt_plugins/noise.py`, in Triton."""

import triton
import triton.language as tl

from melforge.common.noise import NUMBERS_PER_BLOCK as _PER_BLOCK
from melforge.common.noise import NUMBERS_PER_WORD as _PER_WORD

PER_BLOCK, PER_WORD = tl.constexpr(_PER_BLOCK), tl.constexpr(_PER_WORD)


@triton.jit
def _store(word, table, out, place, count):
    """The values of a word's four numbers, at `place` and behind it; those outside are left out."""
    for number in tl.static_range(PER_WORD):
        index = ((word >> (16 * number)) & 0xFFFF).to(tl.int32)
        at = place + number
        tl.store(out + at, tl.load(table + index), mask=(at >= 0) & (at < count))


@triton.jit(do_not_specialize=["first", "count"], do_not_specialize_on_alignment=["keys"])
def draw_kernel(keys, table, out, first, count, BLOCK: tl.constexpr):
    """keys int64 (B,), table float32 (65536,) -> out (B, count): each key's numbers from `first` on.

    A program computes BLOCK blocks, of 16 numbers each; the first block of all has number `first`.
    """
    item = tl.program_id(1).to(tl.int64)
    first = first.to(tl.int64)
    block = first // PER_BLOCK + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    zeros = tl.zeros([BLOCK], tl.uint64)
    key = zeros + tl.load(keys + item).to(tl.uint64, bitcast=True)
    counter = (block + 1).to(tl.uint64)
    word0, word1, word2, word3 = tl.philox_impl(counter, zeros, zeros, zeros, key, zeros, 10)
    place, row = block * PER_BLOCK - first, out + item * count
    _store(word0, table, row, place, count)
    _store(word1, table, row, place + PER_WORD, count)
    _store(word2, table, row, place + 2 * PER_WORD, count)
    _store(word3, table, row, place + 3 * PER_WORD, count)

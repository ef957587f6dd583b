"""The convolutions of Jasper's encoder, in Triton, for GPUs with a tensor memory accelerator (sm_90 on).

Activations are time-major, (B, T, C). Tensor descriptors read zeros before an item's first step and behind
its last one, so a convolution's windows are never copied: a tap reads the same tile some rows further on.
"""

import triton
import triton.language as tl

from trt_plugins.jasper.tiling import CHUNK as _CHUNK

CHUNK = tl.constexpr(_CHUNK)


@triton.jit(
    do_not_specialize=["steps", "chunks", "shift", "dilation", "further", "items", "size", "tiles", "highest"]
)
def conv_kernel(
    source, weights, earlier, earlier_weights, bias, lengths, out, steps, chunks, channels, shift, dilation,
    further, items, size, tiles, columns, width, highest,
    PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    """A convolution and the product of its block's residuals, which adds `further` chunks to its depth.

    `steps` are `chunks` of `channels` for each tap. A program computes BM rows of one item by BN columns,
    over its share of the depth. With PARTS `out` (splits, B * T, columns) has the partial sums in float32;
    else the rows, `width` apart, as float16 from 0 to `highest`, zeros behind an item's end.
    """
    tile = tl.program_id(0)
    item = tile // tiles
    row = tile % tiles * BM
    start = tl.program_id(1) * BN
    split = tl.program_id(2)
    splits = tl.num_programs(2)
    first = split * (steps + further) // splits
    end = (split + 1) * (steps + further) // splits
    total = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(first, tl.minimum(end, steps), num_stages=STAGES):
        tap = step // chunks
        channel = step % chunks * CHUNK
        a = source.load([item, row + tap * dilation - shift, channel]).reshape(BM, CHUNK)
        # Behind the last channel are the next tap's weights, but zeros of the source.
        b = weights.load([start, tap * channels + channel])
        total = tl.dot(a, b.T, total)
    for step in tl.range(tl.maximum(first - steps, 0), end - steps, num_stages=STAGES):
        a = earlier.load([item, row, step * CHUNK]).reshape(BM, CHUNK)
        b = earlier_weights.load([start, step * CHUNK])
        total = tl.dot(a, b.T, total)
    place = row + tl.arange(0, BM)
    column = start + tl.arange(0, BN)
    there = (place < size)[:, None] & (column < columns)[None, :]
    rows = tl.cast(item * size + place, tl.int64)[:, None]
    if PARTS:
        rows += tl.cast(split, tl.int64) * items * size
        tl.store(out + rows * columns + column[None, :], total, mask=there)
    else:
        total += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
        limit = tl.where(place < tl.load(lengths + item), highest, 0.0)
        total = tl.minimum(tl.maximum(total, 0.0), limit[:, None])
        tl.store(out + rows * width + column[None, :], total.to(tl.float16), mask=there)


@triton.jit(do_not_specialize=["items", "size", "highest"])
def sum_kernel(
    parts, bias, lengths, out, items, size, columns, width, highest,
    SPLITS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """The rows of a convolution from its partial sums, always added in the same order."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    there = (row < items * size)[:, None] & (column < columns)[None, :]
    rows = tl.cast(row, tl.int64)[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for split in tl.static_range(SPLITS):
        before = tl.cast(split, tl.int64) * items * size
        total += tl.load(parts + (rows + before) * columns + column[None, :], mask=there, other=0.0)
    total += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    length = tl.load(lengths + row // size, mask=row < items * size, other=0)
    limit = tl.where(row % size < length, highest, 0.0)
    total = tl.minimum(tl.maximum(total, 0.0), limit[:, None])
    tl.store(out + rows * width + column[None, :], total.to(tl.float16), mask=there)

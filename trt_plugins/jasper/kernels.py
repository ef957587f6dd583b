"""The convolutions of Jasper's encoder, in Triton.

Activations are time-major, (B, T, C). Tensor descriptors read zeros before an item's first step and behind
its last one, so a convolution's windows are never copied: a tap reads the same tile some rows further on.
"""

import triton
import triton.language as tl

from melforge.trt_plugins.jasper.tiling import CHUNK as _CHUNK
from melforge.trt_plugins.tiles import in_tiles

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
    source, weights = in_tiles(source), in_tiles(weights)
    earlier, earlier_weights = in_tiles(earlier), in_tiles(earlier_weights)
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


@triton.jit(do_not_specialize=["samples", "frames"])
def power_kernel(
    audio, lengths, cosines, sines, out, samples, frames, bins,
    HOP: tl.constexpr, LEFT: tl.constexpr, WINDOW: tl.constexpr, EMPHASIS: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """audio (B, samples) float32, mirrored at the items' `lengths` -> `out` (B, frames, bins): power spectra.

    `cosines` and `sines` (WINDOW, bins) are a window's Fourier transform. A program computes BM frames by BN
    bins.
    """
    frame = tl.program_id(0) * BM + tl.arange(0, BM)
    bin = tl.program_id(1) * BN + tl.arange(0, BN)
    item = tl.program_id(2)
    last = tl.load(lengths + item).to(tl.int32) - 1
    source = audio + tl.cast(item, tl.int64) * samples
    real = tl.zeros((BM, BN), tl.float32)
    imaginary = tl.zeros((BM, BN), tl.float32)
    for start in range(0, WINDOW, BK):
        point = start + tl.arange(0, BK)
        place = tl.abs(frame[:, None] * HOP + point[None, :] - LEFT)
        place = tl.maximum(tl.minimum(place, 2 * last - place), 0)
        known = (frame < frames)[:, None] & (point < WINDOW)[None, :]
        before = tl.load(source + place - 1, mask=known & (place > 0), other=0.0)
        value = tl.load(source + place, mask=known, other=0.0) - EMPHASIS * before
        table = point[:, None] * bins + bin[None, :]
        there = (point < WINDOW)[:, None] & (bin < bins)[None, :]
        cosine = tl.load(cosines + table, mask=there, other=0.0)
        sine = tl.load(sines + table, mask=there, other=0.0)
        real = tl.dot(value, cosine, real, input_precision="tf32x3")
        imaginary = tl.dot(value, sine, imaginary, input_precision="tf32x3")
    at = (tl.cast(item, tl.int64) * frames + frame)[:, None] * bins + bin[None, :]
    wanted = (frame < frames)[:, None] & (bin < bins)[None, :]
    tl.store(out + at, real * real + imaginary * imaginary, mask=wanted)


@triton.jit(do_not_specialize=["frames"])
def mel_kernel(
    power, basis, out, frames, bins, mels,
    FLOOR: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """power (B, frames, bins) and basis (bins, mels) -> log mels (B, mels, frames)."""
    frame = tl.program_id(0) * BM + tl.arange(0, BM)
    mel = tl.program_id(1) * BN + tl.arange(0, BN)
    item = tl.cast(tl.program_id(2), tl.int64)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, bins, BK):
        bin = start + tl.arange(0, BK)
        known = (frame < frames)[:, None] & (bin < bins)[None, :]
        value = tl.load(power + (item * frames + frame)[:, None] * bins + bin[None, :], mask=known, other=0.0)
        there = (bin < bins)[:, None] & (mel < mels)[None, :]
        weight = tl.load(basis + bin[:, None] * mels + mel[None, :], mask=there, other=0.0)
        total = tl.dot(value, weight, total, input_precision="tf32x3")
    wanted = (frame < frames)[:, None] & (mel < mels)[None, :]
    at = (item * mels + mel)[None, :] * frames + frame[:, None]
    tl.store(out + at, tl.log(total + FLOOR), mask=wanted)


@triton.jit(do_not_specialize=["size", "mels"])
def normalise_kernel(
    mel, lengths, out, counts, size, mels, HOP: tl.constexpr, FLOOR: tl.constexpr, BLOCK: tl.constexpr
):
    """mel (B, mels, size) of `lengths` samples -> mean 0 and deviation 1 of each band, zeros behind the
    frames, which `counts` (B,) int64 is given.

    A program computes one band of an item.
    """
    band = tl.program_id(0)
    item = tl.program_id(1)
    row = (tl.cast(item, tl.int64) * mels + band) * size
    count = ((tl.load(lengths + item) + HOP - 1) // HOP).to(tl.int32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        step = start + tl.arange(0, BLOCK)
        total += tl.load(mel + row + step, mask=step < tl.minimum(count, size), other=0.0)
    mean = tl.sum(total) / count
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        step = start + tl.arange(0, BLOCK)
        inside = step < tl.minimum(count, size)
        centred = tl.where(inside, tl.load(mel + row + step, mask=inside, other=0.0) - mean, 0.0)
        squares += centred * centred
    deviation = tl.sqrt(tl.sum(squares) / tl.maximum(count - 1, 1)) + FLOOR
    for start in range(0, size, BLOCK):
        step = start + tl.arange(0, BLOCK)
        inside = step < tl.minimum(count, size)
        centred = tl.where(inside, tl.load(mel + row + step, mask=inside, other=0.0) - mean, 0.0)
        tl.store(out + row + step, centred / deviation, mask=step < size)
    if band == 0:
        tl.store(counts + item, count.to(tl.int64))

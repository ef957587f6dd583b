"""The kernels of HiFi-GAN's generator, in Triton.

Memory is time-major: a margin of zeros, the first item's steps, a margin, the next item's steps, ..., a
margin; a row has all channels of a step. Activations are stored after leaky ReLU, as the next convolution
needs them; the residual is recovered by inverting leaky ReLU.
"""

import triton
import triton.language as tl

from melforge.hifigan.model import LEAKY_SLOPE
from melforge.trt_plugins.hifigan.fold import CHUNK as _CHUNK
from melforge.trt_plugins.hifigan.fold import ENDS as _ENDS
from melforge.trt_plugins.tiles import in_tiles

CHUNK = tl.constexpr(_CHUNK)
ENDS = tl.constexpr(_ENDS)
UNDO = tl.constexpr(1 / LEAKY_SLOPE)


@triton.jit(do_not_specialize=["frames", "stride"])
def window_kernel(
    mel, out, lengths, frames, stride,
    MELS: tl.constexpr, MARGIN: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """mel (B, MELS, frames) float32 -> the first convolution's inputs at each frame: tap * MELS + mel.

    `out` (rows, WIDTH) float16. Mels behind an item's length count as zeros.
    """
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    item = tl.program_id(1)
    columns = tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    frame = place[:, None] + columns[None, :] // MELS - ENDS // 2
    length = tl.load(lengths + item).to(tl.int32)
    there = (frame >= 0) & (frame < length) & (columns[None, :] < ENDS * MELS)
    value = tl.load(mel + (item * MELS + columns[None, :] % MELS) * frames + frame, mask=there, other=0.0)
    at = out + (MARGIN + item * stride + place[:, None]) * WIDTH + columns[None, :]
    tl.store(at, value.to(tl.float16), mask=place[:, None] < frames)


@triton.jit(do_not_specialize=["source_rows", "kept_rows", "out_rows", "tiles", "margin", "stride", "items"])
def conv_kernel(
    source, weights, kept, out, bias, lengths, dilation, source_rows, kept_rows, out_rows, tiles, margin,
    stride, items,
    RATE: tl.constexpr, STARTS: tl.constexpr, CENTERS: tl.constexpr, DILATIONS: tl.constexpr,
    CHUNKS: tl.constexpr, CHUNK: tl.constexpr, GROUP: tl.constexpr, SPREAD: tl.constexpr,
    PHASES: tl.constexpr, PADDING: tl.constexpr, COLUMNS: tl.constexpr, RESIDUAL: tl.constexpr,
    SUM: tl.constexpr, SLOPE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    """A convolution of every residual block, or the blocks' last convolutions with their mean, or an
    upsampling.

    The blocks of `source` and `kept` (the residual) are `source_rows` and `kept_rows` apart; 0: all blocks
    read the same. A program computes BM rows of GROUP steps by BN of COLUMNS. With SPREAD > 1 these are steps
    of one residue modulo SPREAD, and `out` is an address, not a descriptor. With PHASES > 1 a row of `out`
    has PHASES steps, shifted by PADDING. RATE is the source's steps per frame; rows, `margin` and `stride`
    count steps.
    """
    source, weights = in_tiles(source), in_tiles(weights)
    if SPREAD == 1:
        out = in_tiles(out)
    UNIT: tl.constexpr = GROUP * SPREAD
    SPLITS: tl.constexpr = COLUMNS // BN
    BLOCKS: tl.constexpr = len(CENTERS)
    program = tl.program_id(0)
    split = program % SPLITS
    tile = program // SPLITS
    residue = tile % SPREAD
    tile = tile // SPREAD
    block = tile // tiles
    row = margin // UNIT + tile % tiles * BM
    columns = split * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32) + tl.load(bias + block * COLUMNS + columns)[None, :]
    if RESIDUAL:
        kept = in_tiles(kept)
        for other in tl.static_range(BLOCKS if SUM else 1):
            value = kept.load([(block + other) * (kept_rows // UNIT) + row, split * BN]).to(tl.float32)
            total += tl.minimum(value, value * UNDO)
    rows = row + tl.arange(0, BM)
    place = rows * GROUP - margin
    if SPREAD == 1:  # loaded early: nothing waits for it yet
        if PHASES == 1:
            there = _in_an_item(place, lengths, stride, items, RATE)[:, None]
        else:
            item = place // stride
            length = tl.load(lengths + item, mask=item < items, other=0).to(tl.int32) * (RATE * PHASES)
    first = 0
    end = STARTS[BLOCKS]
    if not SUM:
        for other in tl.static_range(BLOCKS):
            first = tl.where(block == other, STARTS[other], first)
            end = tl.where(block == other, STARTS[other + 1], end)
    for step in tl.range(first * CHUNKS, end * CHUNKS, num_stages=STAGES):
        tap = step // CHUNKS
        shift = (tap - CENTERS[0]) * DILATIONS[0]
        source_block = 0
        for other in tl.static_range(1, BLOCKS):
            reached = tap >= STARTS[other]
            shift = tl.where(reached, (tap - STARTS[other] - CENTERS[other]) * DILATIONS[other], shift)
            source_block = tl.where(reached, other, source_block)
        shift *= dilation
        within = shift & (GROUP - 1)  # position in the row, for negative shifts too
        at = source_block * (source_rows // UNIT) + row + (shift - within) // GROUP
        column = (within * SPREAD + residue) * (CHUNKS * CHUNK) + step % CHUNKS * CHUNK
        a = source.load([at, column])
        b = weights.load([step * COLUMNS + split * BN, 0])
        total = tl.dot(a, b.T, total)
    if SUM:
        total *= 1 / BLOCKS
    total = tl.maximum(total, total * SLOPE)
    if SPREAD > 1:
        WIDE: tl.constexpr = COLUMNS // GROUP
        out += tl.cast(block, tl.int64) * out_rows * WIDE
        for step in tl.static_range(GROUP):
            steps = (rows * GROUP + step) * SPREAD + residue
            there = _in_an_item(steps - margin, lengths, stride, items, RATE)
            wanted = there[:, None] & (columns // WIDE == step)[None, :]
            at = steps[:, None] * WIDE + (columns % WIDE)[None, :]
            tl.store(out + at, total.to(tl.float16), mask=wanted)
    else:
        if PHASES > 1:
            made = (place % stride * PHASES)[:, None] + (columns // (COLUMNS // PHASES) - PADDING)[None, :]
            there = (made >= 0) & (made < length[:, None])
        total = tl.where(there, total, 0.0)
        # `out` starts -PADDING % PHASES steps late (engine.py), so that whole rows are subtracted here.
        earlier: tl.constexpr = (PADDING + PHASES - 1) // PHASES
        out.store([block * (out_rows // UNIT) + row - earlier, split * BN], total.to(tl.float16))


@triton.jit
def _in_an_item(place, lengths, stride, items, RATE: tl.constexpr):
    """Padding mask: whether steps, counted from the first item's first step, are within an item's length."""
    item = place // stride
    known = (place >= 0) & (item < items)
    length = tl.load(lengths + item, mask=known, other=0).to(tl.int32) * RATE
    return known & (place % stride < length)


@triton.jit(do_not_specialize=["samples", "margin", "stride"])
def last_kernel(
    source, weights, bias, audio, samples, margin, stride,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The last convolution and tanh, in float32: `source` (rows, CHANNELS) -> audio (B, samples)."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    item = tl.program_id(1)
    channels = tl.arange(0, CHANNELS)
    there = place < samples
    total = tl.zeros((BLOCK, CHANNELS), tl.float32)
    for tap in tl.static_range(ENDS):
        row = margin + item * stride + place + tap - ENDS // 2
        x = tl.load(source + row[:, None] * CHANNELS + channels[None, :], mask=there[:, None], other=0.0)
        total += x.to(tl.float32) * tl.load(weights + tap * CHANNELS + channels)[None, :]
    value = tl.sum(total, axis=1) + tl.load(bias)
    value = 2 * tl.sigmoid(2 * value) - 1  # tanh
    tl.store(audio + item * samples + place, value, mask=there)

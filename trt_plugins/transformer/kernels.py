"""The kernels of feed-forward transformers, in Triton.

Memory is time-major: a margin of zeros, the first item's steps, a margin, the next item's steps, ..., a
margin; a row has all channels of a step. `x32` holds the activations in float32 for residual sums, `x16` the
same in float16 for products. `mask` (rows,) is 1 at an item's steps, and `inside` (rows,) at steps that
convolutions see. A program computes BM rows; BLOCK is the number of channels rounded up to a power of two.
"""

import triton
import triton.language as tl

from melforge.trt_plugins.tiles import in_tiles

LOG2_E = tl.constexpr(1.4426950408889634)
EPSILON = tl.constexpr(1e-5)  # of torch's LayerNorm


@triton.jit
def _longest(lengths, items, ITEMS: tl.constexpr):
    """The length of the batch's longest item; steps behind it are masked."""
    item = tl.arange(0, ITEMS)
    return tl.max(tl.load(lengths + item, mask=item < items, other=0)).to(tl.int32)


@triton.jit
def _vector(source, channel, channels):
    """One value per channel. Callers load it before the data that they wait for."""
    return tl.load(source + channel, mask=channel < channels, other=0.0)


@triton.jit
def _normalise(value, gain, shift, channel, channels):
    """LayerNorm over `channels` of the columns."""
    there = (channel < channels)[None, :]
    value = tl.where(there, value, 0.0)
    mean = tl.sum(value, axis=1) / channels
    centred = tl.where(there, value - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / channels
    return centred * tl.rsqrt(variance + EPSILON)[:, None] * gain[None, :] + shift[None, :]


@triton.jit
def _keep(value, row, channel, x32, x16, WIDTH: tl.constexpr, wanted):
    """Stores rows in float32 and in float16."""
    at = row[:, None] * WIDTH + channel[None, :]
    there = wanted[:, None] & (channel < WIDTH)[None, :]
    tl.store(x32 + at, value, mask=there)
    tl.store(x16 + at, value.to(tl.float16), mask=there)


@triton.jit(do_not_specialize=["size", "stride", "margin", "items"])
def symbols_kernel(
    symbols, lengths, speaker, embedding, speakers, positions, x32, x16, mask, inside, size, stride, margin,
    items, channels,
    SPEAKERS: tl.constexpr, PADDING: tl.constexpr, MASK_PADDING: tl.constexpr, ITEMS: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, BM: tl.constexpr
):  # fmt: skip
    """symbols (B, size) -> their embeddings, plus those of the position and of the speakers, by `speaker`
    (B, SPEAKERS), each one's share.

    The symbol PADDING (None: no such symbol) is masked at any position.
    """
    step = tl.program_id(0) * BM + tl.arange(0, BM)
    item = tl.program_id(1)
    channel = tl.arange(0, BLOCK)
    symbol = tl.load(symbols + item * size + step, mask=step < size, other=0)
    there = step < tl.load(lengths + item)
    if PADDING is not None:
        there = there & (symbol != PADDING)
    there = there & (step < size)
    known = (channel < channels)[None, :]
    value = tl.load(embedding + symbol[:, None] * channels + channel[None, :], mask=known, other=0.0)
    if speakers is not None:
        for number in range(SPEAKERS):
            own = tl.load(speakers + number * channels + channel, mask=channel < channels, other=0.0)
            value += tl.load(speaker + item * SPEAKERS + number) * own[None, :]
    at = positions + step[:, None] * channels + channel[None, :]
    value += tl.load(at, mask=there[:, None] & known, other=0.0)
    row = margin + item * stride + step
    _keep(value, row, channel, x32, x16, WIDTH, step < size)
    tl.store(mask + row, there.to(tl.float32), mask=step < size)
    visible = there if MASK_PADDING else step < _longest(lengths, items, ITEMS)
    tl.store(inside + row, visible.to(tl.float32), mask=step < size)


@triton.jit(do_not_specialize=["size", "stride", "margin", "items"])
def values_kernel(
    encoded, lengths, value, weight, bias, x32, x16, mask, inside, size, stride, margin, items, channels,
    TAPS: tl.constexpr, MASK_PADDING: tl.constexpr, ITEMS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, BM: tl.constexpr
):  # fmt: skip
    """encoded (B, size, channels) plus the embedding of value (B, size), a scalar per symbol.

    Rows of `encoded` that are all zeros are padding. `x16` does not include what is added to padding.
    """
    step = tl.program_id(0) * BM + tl.arange(0, BM)
    item = tl.program_id(1)
    channel = tl.arange(0, BLOCK)
    known = (channel < channels)[None, :]
    length = tl.load(lengths + item).to(tl.int32)
    longest = _longest(lengths, items, ITEMS)
    base = encoded + item * size * channels + channel[None, :]
    own = tl.load(base + step[:, None] * channels, mask=(step < size)[:, None] & known, other=0.0)
    there = (step < length) & (tl.max(tl.abs(own), axis=1) > 0)
    total = own + tl.load(bias + channel, mask=channel < channels, other=0.0)[None, :]
    for tap in tl.static_range(TAPS):
        at = step + tap - TAPS // 2
        visible = (at >= 0) & (at < longest)
        if MASK_PADDING:
            other = tl.load(base + at[:, None] * channels, mask=visible[:, None] & known, other=0.0)
            visible = visible & (at < length) & (tl.max(tl.abs(other), axis=1) > 0)
        number = tl.load(value + item * size + at, mask=visible, other=0.0)
        each = tl.load(weight + tap * channels + channel, mask=channel < channels, other=0.0)
        total += number[:, None] * each[None, :]
    row = margin + item * stride + step
    at = row[:, None] * WIDTH + channel[None, :]
    wanted = (step < size)[:, None] & (channel < WIDTH)[None, :]
    tl.store(x32 + at, total, mask=wanted)
    tl.store(x16 + at, tl.where(there[:, None], total, 0.0).to(tl.float16), mask=wanted)
    tl.store(mask + row, there.to(tl.float32), mask=step < size)
    visible = there if MASK_PADDING else step < longest
    tl.store(inside + row, visible.to(tl.float32), mask=step < size)


@triton.jit(do_not_specialize=["item_size", "text", "size", "stride", "margin", "items"])
def frames_kernel(
    source, index, mel_lengths, value, weight, bias, positions, x32, x16, mask, inside, item_size, text, size,
    stride, margin, items, channels,
    SOURCE_WIDTH: tl.constexpr, TAPS: tl.constexpr, MASK_PADDING: tl.constexpr, ITEMS: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, BM: tl.constexpr
):  # fmt: skip
    """Each frame's row of `source`, which index (B, size) names, with its position.

    Items are `item_size` elements apart in `source`. With TAPS the embedding of value (B, text) is added.
    """
    step = tl.program_id(0) * BM + tl.arange(0, BM)
    item = tl.program_id(1)
    channel = tl.arange(0, BLOCK)
    there = (step < tl.load(mel_lengths + item)) & (step < size)
    known = there[:, None] & (channel < channels)[None, :]
    symbol = tl.load(index + item * size + step, mask=there, other=0).to(tl.int32)
    at = source + item * item_size + symbol[:, None] * SOURCE_WIDTH + channel[None, :]
    total = tl.load(at, mask=known, other=0.0)
    if TAPS > 0:
        total += tl.load(bias + channel, mask=channel < channels, other=0.0)[None, :]
        for tap in tl.static_range(TAPS):
            near = symbol + tap - TAPS // 2
            number = tl.load(value + item * text + near, mask=there & (near >= 0) & (near < text), other=0.0)
            each = tl.load(weight + tap * channels + channel, mask=channel < channels, other=0.0)
            total += number[:, None] * each[None, :]
    total += tl.load(positions + step[:, None] * channels + channel[None, :], mask=known, other=0.0)
    total = tl.where(known, total, 0.0)
    row = margin + item * stride + step
    _keep(total, row, channel, x32, x16, WIDTH, step < size)
    tl.store(mask + row, there.to(tl.float32), mask=step < size)
    visible = there if MASK_PADDING else step < _longest(mel_lengths, items, ITEMS)
    tl.store(inside + row, visible.to(tl.float32), mask=step < size)


@triton.jit(do_not_specialize=["group_rows", "out_rows", "margin", "stride", "items", "size"])
def product_kernel(
    source, weights, bias, mask, out, group_rows, out_rows, margin, stride, items, size,
    TAPS: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr,
    SPLITS: tl.constexpr, PARTS: tl.constexpr, RELU: tl.constexpr, CHANNELS: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    """A convolution along the rows; with one tap a linear layer.

    Each GROUP of columns reads its input `group_rows` further on; 0: all read the same. `out` is a descriptor
    of float16; or with PARTS the SPLITS partial sums, float32 without bias, `out_rows` rows each; or with
    CHANNELS float32 (B, CHANNELS, size).
    """
    source, weights = in_tiles(source), in_tiles(weights)
    if not PARTS and CHANNELS == 0:
        out = in_tiles(out)
    row = margin + tl.program_id(0) * BM
    start = tl.program_id(1) * BN
    split = tl.program_id(2)
    steps: tl.constexpr = TAPS * CHUNKS
    each: tl.constexpr = (steps + SPLITS - 1) // SPLITS
    rows = row + tl.arange(0, BM)
    columns = start + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    if not PARTS:
        total += tl.load(bias + columns)[None, :]
    if mask is not None:
        valid = tl.load(mask + rows)
    first_row = row - TAPS // 2 + start // GROUP * group_rows
    first = split * each
    for step in tl.range(first, tl.minimum(first + each, steps), num_stages=STAGES):
        a = source.load([first_row + step // CHUNKS, step % CHUNKS * CHUNK])
        b = weights.load([step * COLUMNS + start, 0])
        total = tl.dot(a, b.T, total)
    if PARTS:
        at = (tl.cast(split, tl.int64) * out_rows + rows)[:, None] * COLUMNS + columns[None, :]
        tl.store(out + at, total)
    else:
        if RELU:
            total = tl.maximum(total, 0.0)
        if mask is not None:
            total *= valid[:, None]
        if CHANNELS > 0:
            place = rows - margin
            item, step = place // stride, place % stride
            at = out + (item * CHANNELS * size + step)[:, None] + columns[None, :] * size
            there = ((item < items) & (step < size))[:, None] & (columns < CHANNELS)[None, :]
            tl.store(at, total, mask=there)
        else:
            out.store([row, start], total.to(tl.float16))


@triton.jit(do_not_specialize=["part_rows", "margin", "stride", "items"])
def attention_kernel(
    qkv, lengths, weights, bias, gain, shift, mask, x32, x16, parts, part_rows, margin, stride, items,
    channels,
    MASKED: tl.constexpr, HEADS: tl.constexpr, HEAD: tl.constexpr, QKV_WIDTH: tl.constexpr,
    ITEMS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    """Self-attention of one head, and its output projection.

    A row of `qkv` has all heads' queries, then their keys, then their values; queries are scaled for a
    softmax to base 2. With a single head the result is added to `x32` and normalised; with several heads each
    gives a partial sum of `part_rows` rows, which norm_kernel adds.
    """
    step = tl.program_id(0) * BM + tl.arange(0, BM)
    item = tl.program_id(1)
    head = tl.program_id(2)
    size = stride - margin
    start = margin + item * stride
    longest = _longest(lengths, items, ITEMS)
    column = head * HEAD + tl.arange(0, HEAD)
    channel = tl.arange(0, BLOCK)
    mine = (step < size)[:, None]
    row = start + step
    total = tl.zeros((BM, BLOCK), tl.float32)
    if HEADS == 1:
        kept = mine & (channel < WIDTH)[None, :]
        total += tl.load(x32 + row[:, None] * WIDTH + channel[None, :], mask=kept, other=0.0)
        total += _vector(bias, channel, channels)[None, :]
        weight_of = _vector(gain, channel, channels)
        bias_of = _vector(shift, channel, channels)
        valid = tl.load(mask + row, mask=step < size, other=0.0) > 0
    q = tl.load(qkv + row[:, None] * QKV_WIDTH + column[None, :], mask=mine, other=0.0)
    highest = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    seen = tl.zeros((BM, HEAD), tl.float32)
    for first in tl.range(0, longest, BN, num_stages=STAGES):
        other = first + tl.arange(0, BN)
        there = other < longest
        at = qkv + (start + other)[:, None] * QKV_WIDTH + column[None, :]
        k = tl.load(at + HEADS * HEAD, mask=there[:, None], other=0.0)
        v = tl.load(at + 2 * HEADS * HEAD, mask=there[:, None], other=0.0)
        known = tl.load(mask + start + other, mask=there, other=0.0)
        score = tl.dot(q, k.T) + tl.where(known > 0, 0.0, MASKED * LOG2_E)[None, :]
        score = tl.where(there[None, :], score, -float("inf"))
        higher = tl.maximum(highest, tl.max(score, axis=1))
        share = tl.exp2(score - higher[:, None])
        faded = tl.exp2(highest - higher)
        weight = weight * faded + tl.sum(share, axis=1)
        seen = tl.dot(share.to(tl.float16), v, seen * faded[:, None])
        highest = higher
    seen = seen / weight[:, None]
    w = tl.load(weights + column[:, None] * BLOCK + channel[None, :])
    total = tl.dot(seen.to(tl.float16), w, total)
    if HEADS == 1:
        total = _normalise(total, weight_of, bias_of, channel, channels)
        total = tl.where(valid[:, None], total, 0.0)
        _keep(total, row, channel, x32, x16, WIDTH, step < size)
    else:
        at = (tl.cast(head, tl.int64) * part_rows + row)[:, None] * COLUMNS + channel[None, :]
        tl.store(parts + at, total, mask=mine & (channel < COLUMNS)[None, :])


@triton.jit(do_not_specialize=["part_rows", "margin"])
def norm_kernel(
    parts, bias, gain, shift, mask, x32, x16, part_rows, margin, channels,
    SPLITS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BM: tl.constexpr
):  # fmt: skip
    """Adds a product's partial sums and bias to `x32`, then layer norm."""
    row = margin + tl.program_id(0) * BM + tl.arange(0, BM)
    channel = tl.arange(0, BLOCK)
    kept = (channel < WIDTH)[None, :] & (row >= 0)[:, None]
    total = tl.load(x32 + row[:, None] * WIDTH + channel[None, :], mask=kept, other=0.0)
    total += _vector(bias, channel, channels)[None, :]
    weight_of = _vector(gain, channel, channels)
    bias_of = _vector(shift, channel, channels)
    valid = tl.load(mask + row) > 0
    total += _sum(parts, part_rows, row, channel, channel < channels, SPLITS, COLUMNS)
    total = _normalise(total, weight_of, bias_of, channel, channels)
    total = tl.where(valid[:, None], total, 0.0)
    _keep(total, row, channel, x32, x16, WIDTH, row >= 0)


@triton.jit
def _sum(parts, part_rows, row, column, known, SPLITS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum of a product's partial sums."""
    at = parts + row[:, None] * COLUMNS + column[None, :]
    there = known[None, :] & (row >= 0)[:, None]
    total = tl.load(at, mask=there, other=0.0)
    for split in tl.static_range(1, SPLITS):
        total += tl.load(at + tl.cast(split, tl.int64) * part_rows * COLUMNS, mask=there, other=0.0)
    return total


@triton.jit(do_not_specialize=["part_rows", "size", "stride", "margin", "items"])
def predictor_kernel(
    parts, bias, gain, shift, inside, mask, last, last_bias, out, part_rows, size, stride, margin, items,
    channels,
    SPLITS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
    LONGEST: tl.constexpr, BM: tl.constexpr
):  # fmt: skip
    """Bias, ReLU and norm after the convolutions of one layer of several predictors.

    Each predictor has BLOCK of the COLUMNS. `out` (predictors, part_rows, BLOCK) float16 is the next layer's
    input; with LAST it holds one value per symbol, float32 (predictors, B, size). With LONGEST the first
    predictor gives log(1 + frames), which is converted to frames and clipped to LONGEST.
    """
    rows = margin + tl.program_id(0) * BM + tl.arange(0, BM)
    which = tl.program_id(1)
    channel = tl.arange(0, BLOCK)
    total = tl.load(bias + which * BLOCK + channel)[None, :]
    weight_of = _vector(gain + which * BLOCK, channel, channels)
    bias_of = _vector(shift + which * BLOCK, channel, channels)
    visible = tl.load(inside + rows)
    total += _sum(parts, part_rows, rows, which * BLOCK + channel, channel < channels, SPLITS, COLUMNS)
    total = tl.maximum(total, 0.0)
    total = _normalise(total, weight_of, bias_of, channel, channels) * visible[:, None]
    if LAST:
        place = rows - margin
        item, step = place // stride, place % stride
        each = tl.load(last + which * BLOCK + channel)
        value = tl.sum(total * each[None, :], axis=1) + tl.load(last_bias + which)
        if LONGEST > 0:
            frames = tl.minimum(tl.maximum(tl.exp(value) - 1, 0.0), LONGEST)
            value = tl.where(which == 0, frames, value)
        value *= tl.load(mask + rows)
        tl.store(out + (which * items + item) * size + step, value, mask=(item < items) & (step < size))
    else:
        at = tl.cast(which, tl.int64) * part_rows + rows
        tl.store(out + at[:, None] * BLOCK + channel[None, :], total.to(tl.float16))


@triton.jit(do_not_specialize=["size", "items"])
def durations_kernel(
    duration, pitch, lengths, settings, repeats, new_pitch, new_lengths, numbers, size, items,
    LONGEST: tl.constexpr, HALF_UP: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """duration (B, size) -> repeats int64 (B, size), one program per item.

    HALF_UP (FastPitch): `settings` (B, 3, size) are pace, factor and shift. Durations are clipped to
    LONGEST, divided by the pace and rounded half up; an item with no frames gets one per symbol. The pitch is
    multiplied by the factor, and the shift is added. `numbers` (2, B, size) holds both for the host.
    Otherwise (FastSpeech) durations are multiplied by `settings` (B, 1, size) and rounded half to even.
    """
    item = tl.program_id(0)
    symbol = tl.arange(0, BLOCK)
    known = symbol < size
    at = item * size + symbol
    length = tl.load(lengths + item)
    value = tl.load(duration + at, mask=known, other=0.0)
    if HALF_UP:
        own = settings + item * 3 * size + symbol
        pace = tl.load(own, mask=known, other=1.0)
        factor = tl.load(own + size, mask=known, other=1.0)
        shift = tl.load(own + 2 * size, mask=known, other=0.0)
        value = tl.div_rn(tl.minimum(tl.maximum(value, 0.0), LONGEST), pace) + 0.5
        count = tl.where(symbol < length, value.to(tl.int64), 0)
        if tl.sum(count) == 0:
            count = (symbol < length).to(tl.int64)
        changed = tl.load(pitch + at, mask=known, other=0.0) * factor + shift
        tl.store(new_pitch + at, changed, mask=known)
        tl.store(numbers + at, count.to(tl.float32), mask=known)
        tl.store(numbers + items * size + at, changed, mask=known)
    else:
        # Adding 1.5 * 2 ** 23 rounds to an integer, half to even.
        alpha = tl.load(settings + at, mask=known, other=1.0)
        count = (value * alpha + 12582912.0 - 12582912.0).to(tl.int64)
    tl.store(repeats + at, count, mask=known)
    tl.store(new_lengths + item, length)


@triton.jit(do_not_specialize=["text", "size"])
def index_kernel(repeats, index, mel_lengths, text, size, BLOCK: tl.constexpr, BM: tl.constexpr):
    """repeats (B, text) -> each frame's symbol, index (B, size), 0 behind an item's end; mel_lengths (B,)."""
    frame = tl.program_id(0) * BM + tl.arange(0, BM)
    item = tl.program_id(1)
    symbol = tl.arange(0, BLOCK)
    count = tl.load(repeats + item * text + symbol, mask=symbol < text, other=0).to(tl.int32)
    ends = tl.cumsum(count, axis=0)
    total = tl.sum(count, axis=0)
    before = tl.sum((ends[None, :] <= frame[:, None]).to(tl.int32), axis=1)
    before = tl.where(frame < total, before, 0)
    tl.store(index + item * size + frame, before.to(tl.int64), mask=frame < size)
    if tl.program_id(0) == 0:
        tl.store(mel_lengths + item, total.to(tl.int64))

"""Kernels of Jasper's training, in Triton.

Batch norm of sums takes two passes, and its gradients take two. Rows are a channel's N values, of any of R
`sources` of C channels: row r * C + c. A program computes BLOCK columns of a channel in all sources, one
after the other: in a tile of one source and many columns the compiler lets each thread compute all of them.
`units` * UNIT is N, so that the compiler knows how rows are aligned.

Depthwise convolutions are products of windows, read where they lie, with banded Toeplitz matrices: a row of
`blocks` for each item is the window of OUTPUTS steps.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["units"])
def statistics_kernel(
    x, totals, squares, units, UNIT: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """x (rows, N) -> (rows, SPLITS): sums of what lies above a row's first value, and of its squares."""
    row = tl.program_id(0)
    split = tl.program_id(1)
    size = units * UNIT
    source = x + tl.cast(row, tl.int64) * size
    shift = tl.load(source).to(tl.float32)
    share = tl.cdiv(tl.cdiv(size, BLOCK), SPLITS) * BLOCK
    total = tl.zeros((BLOCK,), tl.float32)
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(split * share, tl.minimum((split + 1) * share, size), BLOCK):
        column = start + tl.arange(0, BLOCK)
        there = column < size
        value = tl.load(source + column, mask=there, other=0.0).to(tl.float32)
        value = tl.where(there, value - shift, 0.0)
        total += value
        square += value * value
    tl.store(totals + row * SPLITS + split, tl.sum(total, 0))
    tl.store(squares + row * SPLITS + split, tl.sum(square, 0))


@triton.jit(do_not_specialize=["channels", "units", "sources"])
def normalise_kernel(
    x, totals, squares, weight, bias, inside, out, means, deviations, variances, channels, units, sources,
    epsilon, UNIT: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """out (C, N): relu(the sum of the sources, each normalised) * inside (N,).

    `means`, `deviations` (inverse) and `variances` (unbiased) are (R, C), float32.
    """
    channel = tl.program_id(0)
    size = units * UNIT
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < size
    split = tl.arange(0, SPLITS)
    y = tl.zeros((BLOCK,), tl.float32)
    for source in range(sources):
        row = source * channels + channel
        begin = tl.cast(row, tl.int64) * size
        above = tl.sum(tl.load(totals + row * SPLITS + split), 0) / size
        square = tl.sum(tl.load(squares + row * SPLITS + split), 0) / size
        mean = tl.load(x + begin).to(tl.float32) + above
        variance = tl.maximum(square - above * above, 0.0)
        deviation = tl.rsqrt(variance + epsilon)
        if tl.program_id(1) == 0:
            tl.store(means + row, mean)
            tl.store(deviations + row, deviation)
            tl.store(variances + row, variance * (size / (size - 1.0)))
        scale = tl.load(weight + row) * deviation
        offset = tl.load(bias + row) - mean * scale
        y += tl.load(x + begin + column, mask=there, other=0.0).to(tl.float32) * scale + offset
    y = tl.maximum(y, 0.0) * tl.load(inside + column, mask=there, other=0.0).to(tl.float32)
    at = tl.cast(channel, tl.int64) * size + column
    tl.store(out + at, y.to(out.dtype.element_ty), mask=there)


@triton.jit
def before_relu(y, given, inside, channel, column, size):
    """Of columns of a channel: the gradient of the sum y (BLOCK,) before ReLU and `inside`."""
    there = column < size
    at = tl.cast(channel, tl.int64) * size + column
    gradient = tl.load(given + at, mask=there, other=0.0).to(tl.float32)
    gradient *= tl.load(inside + column, mask=there, other=0.0).to(tl.float32)
    return tl.where(y > 0.0, gradient, 0.0)


@triton.jit(do_not_specialize=["channels", "units", "sources"])
def sums_kernel(
    x, given, weight, bias, inside, means, deviations, weight_sums, bias_sums, channels, units, sources,
    UNIT: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr, SOURCES: tl.constexpr
):  # fmt: skip
    """Sums (C, SPLITS) of gradients `given` (C, N), and of them times normalised x (R * C, SPLITS)."""
    channel = tl.program_id(0)
    split = tl.program_id(1)
    size = units * UNIT
    source = tl.arange(0, SOURCES)
    known = source < sources
    row = source * channels + channel
    begin = tl.cast(row, tl.int64) * size
    mean = tl.load(means + row, mask=known, other=0.0)
    deviation = tl.load(deviations + row, mask=known, other=0.0)
    scale = tl.load(weight + row, mask=known, other=0.0)
    offset = tl.load(bias + row, mask=known, other=0.0)
    share = tl.cdiv(tl.cdiv(size, BLOCK), SPLITS) * BLOCK
    of_weight = tl.zeros((SOURCES, BLOCK), tl.float32)
    of_bias = tl.zeros((BLOCK,), tl.float32)
    for start in range(split * share, tl.minimum((split + 1) * share, size), BLOCK):
        column = start + tl.arange(0, BLOCK)
        wanted = known[:, None] & (column < size)[None, :]
        value = tl.load(x + begin[:, None] + column[None, :], mask=wanted, other=0.0).to(tl.float32)
        value = (value - mean[:, None]) * deviation[:, None]
        y = tl.sum(value * scale[:, None] + offset[:, None], 0)
        gradient = before_relu(y, given, inside, channel, column, size)
        of_weight += gradient[None, :] * value
        of_bias += gradient
    tl.store(weight_sums + row * SPLITS + split, tl.sum(of_weight, 1), mask=known)
    tl.store(bias_sums + channel * SPLITS + split, tl.sum(of_bias, 0))


@triton.jit(do_not_specialize=["channels", "units", "sources"])
def gradients_kernel(
    x, given, weight, bias, inside, means, deviations, weight_sums, bias_sums, of_x, of_weight, of_bias,
    channels, units, sources, UNIT: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """From the sums of `sums_kernel` the gradients of x (R, C, N), and of weight and bias (R, C)."""
    channel = tl.program_id(0)
    size = units * UNIT
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < size
    split = tl.arange(0, SPLITS)
    y = tl.zeros((BLOCK,), tl.float32)
    for source in range(sources):
        row = source * channels + channel
        value = tl.load(x + tl.cast(row, tl.int64) * size + column, mask=there, other=0.0).to(tl.float32)
        value = (value - tl.load(means + row)) * tl.load(deviations + row)
        y += value * tl.load(weight + row) + tl.load(bias + row)
    gradient = before_relu(y, given, inside, channel, column, size)
    bias_sum = tl.sum(tl.load(bias_sums + channel * SPLITS + split), 0)
    for source in range(sources):
        row = source * channels + channel
        begin = tl.cast(row, tl.int64) * size
        weight_sum = tl.sum(tl.load(weight_sums + row * SPLITS + split), 0)
        if tl.program_id(1) == 0:
            tl.store(of_weight + row, weight_sum)
            tl.store(of_bias + row, bias_sum)
        deviation = tl.load(deviations + row)
        value = tl.load(x + begin + column, mask=there, other=0.0).to(tl.float32)
        value = (value - tl.load(means + row)) * deviation
        found = (gradient - bias_sum / size - value * (weight_sum / size)) * (
            tl.load(weight + row) * deviation
        )
        tl.store(of_x + begin + column, found.to(of_x.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["samples"])
def read_kernel(audio, starts, lengths, speeds, counts, out, samples, BLOCK: tl.constexpr):
    """Recordings of audio int16, from `starts` (B,) and of `lengths` (B,), at `speeds` (B,), of which
    `counts` (B,) samples are wanted: out (B, samples), zeros behind them. Interpolation is cubic.
    """
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    item = tl.program_id(1)
    source = audio + tl.load(starts + item)
    last = tl.load(lengths + item).to(tl.int32) - 1
    inside = index < tl.load(counts + item)
    place = index.to(tl.float32) * tl.load(speeds + item)
    whole = tl.floor(place)
    t = place - whole
    middle = whole.to(tl.int32)
    a = tl.load(source + tl.minimum(tl.maximum(middle - 1, 0), last), mask=inside, other=0)
    b = tl.load(source + tl.minimum(middle, last), mask=inside, other=0)
    c = tl.load(source + tl.minimum(middle + 1, last), mask=inside, other=0)
    d = tl.load(source + tl.minimum(middle + 2, last), mask=inside, other=0)
    a, b = a.to(tl.float32) / 32768, b.to(tl.float32) / 32768
    c, d = c.to(tl.float32) / 32768, d.to(tl.float32) / 32768
    value = b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
    at = tl.cast(item, tl.int64) * samples + index
    tl.store(out + at, value, mask=index < samples)


@triton.jit(do_not_specialize=["items", "steps", "blocks", "taps"])
def depthwise_kernel(
    x, weights, lengths, out, items, steps, blocks, taps, DILATION: tl.constexpr, BACKWARD: tl.constexpr,
    OUTPUTS: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """x (C, B, T), weights (C, taps) -> out (C, B, T), zeros behind the `lengths` (B,). With BACKWARD the
    gradient of the convolution's input from that of its output, which counts up to the lengths.
    """
    before = taps // 2 * DILATION
    channel = tl.program_id(1)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    item = row // blocks
    known = item < items
    length = tl.minimum(tl.load(lengths + item, mask=known, other=0).to(tl.int32), steps)
    first = row % blocks * OUTPUTS
    begin = (tl.cast(channel, tl.int64) * items + item) * steps
    output = tl.arange(0, OUTPUTS)
    total = tl.zeros((BM, OUTPUTS), tl.float32)
    for start in tl.range(0, OUTPUTS + 2 * before, BK, num_stages=1):
        step = start + tl.arange(0, BK)
        place = first[:, None] + step[None, :] - before
        there = (place >= 0) & (place < length[:, None])
        value = tl.load(x + begin[:, None] + place, mask=there, other=0.0)
        distance = step[:, None] - output[None, :]
        tap = distance // DILATION
        found = (distance >= 0) & (distance % DILATION == 0) & (tap < taps)
        if BACKWARD:
            tap = taps - 1 - tap
        band = tl.load(weights + channel * taps + tap, mask=found, other=0.0)
        total = tl.dot(value, band.to(value.dtype), total, input_precision="ieee")
    place = first[:, None] + output[None, :]
    if not BACKWARD:
        total = tl.where(place < length[:, None], total, 0.0)
    wanted = known[:, None] & (place < steps)
    tl.store(out + begin[:, None] + place, total.to(out.dtype.element_ty), mask=wanted)


@triton.jit(do_not_specialize=["items", "steps", "blocks", "span", "before"])
def shares_kernel(
    x, given, lengths, shares, items, steps, blocks, span, before, SPLITS: tl.constexpr,
    OUTPUTS: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """What each input of a window, of x (C, B, T), gives to each of its outputs, by their gradients `given`
    (C, B, T) up to the `lengths` (B,): shares (C, SPLITS, span, OUTPUTS), summed over a part of the windows.
    """
    channel = tl.program_id(0)
    split = tl.program_id(1)
    step = tl.program_id(2) * BK + tl.arange(0, BK)
    output = tl.arange(0, OUTPUTS)
    total = tl.zeros((BK, OUTPUTS), tl.float32)
    rows = items * blocks
    share = tl.cdiv(tl.cdiv(rows, BM), SPLITS) * BM
    for start in tl.range(split * share, tl.minimum((split + 1) * share, rows), BM, num_stages=1):
        row = start + tl.arange(0, BM)
        item = row // blocks
        length = tl.minimum(tl.load(lengths + item, mask=item < items, other=0).to(tl.int32), steps)
        first = row % blocks * OUTPUTS
        begin = (tl.cast(channel, tl.int64) * items + item) * steps
        place = first[:, None] + step[None, :] - before
        there = (place >= 0) & (place < length[:, None])
        value = tl.load(x + begin[:, None] + place, mask=there, other=0.0)
        place = first[:, None] + output[None, :]
        gradient = tl.load(given + begin[:, None] + place, mask=place < length[:, None], other=0.0)
        total = tl.dot(tl.trans(value), gradient, total, input_precision="ieee")
    at = (tl.cast(channel, tl.int64) * SPLITS + split) * span + step
    tl.store(shares + at[:, None] * OUTPUTS + output[None, :], total, mask=(step < span)[:, None])

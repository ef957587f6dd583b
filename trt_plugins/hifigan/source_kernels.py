"""The kernels of HiFi-GAN's generator with a harmonic source, in Triton.

All is float32. In maps, windows and spectra a row has all frames of a bin or sample. What a kernel gives for
a frame has the same bits in any batch and at any padded length: tiles are fixed, and each sum is added in one
order. trt_plugins/pitch/kernels.py has the convolutions.
"""

import triton
import triton.language as tl

from melforge.hifigan.source_filter import HIGHEST as _HIGHEST
from melforge.hifigan.source_filter import LARGEST_LOG_MAGNITUDE, LOWEST, STEEP

HIGHEST = tl.constexpr(_HIGHEST)
LARGEST = tl.constexpr(LARGEST_LOG_MAGNITUDE)
LEAST_RATE = tl.constexpr(LOWEST)
LEAST_SINE = tl.constexpr(STEEP)
PI = tl.constexpr(3.141592653589793)


@triton.jit
def _steps(pitch, frame, frames, HOP: tl.constexpr):
    """The cycles to each frame's centre from that of the one before, float64; 0 for the first."""
    known = (frame > 0) & (frame < frames)
    here = tl.load(pitch + frame, mask=known, other=0.0).to(tl.float64)
    before = tl.load(pitch + frame - 1, mask=known, other=0.0).to(tl.float64)
    return 0.5 * HOP * (here + before)


@triton.jit(do_not_specialize=["frames"])
def join_kernel(
    pitch, noise, out, frames,
    HOP: tl.constexpr, CHANNELS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """pitch (B, frames), noise (B, frames * CHANNELS) -> `out` (B, 2 + CHANNELS, frames), float32.

    First the phase at each frame, less whole cycles, then the pitch, then each frame's noise. A program
    computes BLOCK frames, and adds up those before. COLUMNS are CHANNELS, filled up to a power of two.
    """
    block = tl.program_id(0)
    item = tl.program_id(1)
    pitch += item * frames
    out += tl.cast(item, tl.int64) * (2 + CHANNELS) * frames
    place = tl.arange(0, BLOCK)
    earlier = tl.zeros([BLOCK], tl.float64)
    for before in range(0, block):
        earlier += _steps(pitch, before * BLOCK + place, frames, HOP)
    frame = block * BLOCK + place
    phase = tl.sum(earlier, 0) + tl.cumsum(_steps(pitch, frame, frames, HOP), 0)
    there = frame < frames
    tl.store(out + frame, (phase - tl.floor(phase)).to(tl.float32), mask=there)
    tl.store(out + frames + frame, tl.load(pitch + frame, mask=there), mask=there)
    if CHANNELS > 0:
        channel = tl.arange(0, COLUMNS)[None, :]
        wanted = there[:, None] & (channel < CHANNELS)
        drawn = (tl.cast(item, tl.int64) * frames + frame)[:, None] * CHANNELS + channel
        value = tl.load(noise + drawn, mask=wanted)
        tl.store(out + (2 + channel) * frames + frame[:, None], value, mask=wanted)


@triton.jit(do_not_specialize=["count"])
def product_kernel(
    table, data, out, columns, count,
    ROWS: tl.constexpr, DEPTH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Tables (count, ROWS, DEPTH) times data (B * count, DEPTH, columns) -> (B * count, ROWS, columns).

    All is exact float32. A program computes BM rows by BN columns.
    """
    column = (tl.program_id(0) * BN + tl.arange(0, BN))[None, :]
    row = tl.program_id(1) * BM + tl.arange(0, BM)[:, None]
    batch = tl.cast(tl.program_id(2), tl.int64)
    table += batch % count * ROWS * DEPTH
    data += batch * DEPTH * columns
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, (DEPTH + BK - 1) // BK):
        depth = step * BK + tl.arange(0, BK)
        across, down = depth[None, :], depth[:, None]
        a = tl.load(table + row * DEPTH + across, mask=(row < ROWS) & (across < DEPTH), other=0.0)
        b = tl.load(data + down * columns + column, mask=(down < DEPTH) & (column < columns), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    at = out + (batch * ROWS + row) * columns + column
    tl.store(at, total, mask=(row < ROWS) & (column < columns))


@triton.jit
def pulse_kernel(
    source, lengths, out, frames, stride,
    HOP: tl.constexpr, BEFORE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
    SAMPLES: tl.constexpr
):  # fmt: skip
    """Phase and pitch at the frames' centres, `stride` apart -> windows of pulses (B, COLUMNS, ROWS, frames).

    Sample COLUMNS * p + q of a window is in row p of q; it is BEFORE samples before its frame's first. The
    pulses are those of `melforge.hifigan.source_filter.pulses`, in its order; zeros outside an item.
    """
    window = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inner = tl.program_id(1) * SAMPLES + tl.arange(0, SAMPLES)[:, None]
    item = tl.cast(tl.program_id(2), tl.int64)
    length = tl.load(lengths + item).to(tl.int32)
    sample = window * HOP + inner - BEFORE
    inside = (sample >= 0) & (sample < length * HOP)
    late = sample - HOP // 2  # from the first centre on; before it the pitch is that of the first
    frame = tl.where(late > 0, late, 0) // HOP
    last = (frame + 1 >= frames) | (frame + 1 >= length)
    phases = source + item * stride + frame
    phase = tl.load(phases, mask=inside, other=0.0)
    rate = tl.load(phases + frames, mask=inside, other=0.0) * HOP
    change = tl.load(phases + 1, mask=inside & ~last, other=0.0) - phase
    following = tl.load(phases + frames + 1, mask=inside & ~last, other=0.0) * HOP
    following = tl.where(last, rate, following)
    evenly = 0.5 * (rate + following)
    missing = tl.where(last, 0.0, change - evenly)
    advance = evenly + (missing - tl.floor(missing + 0.5))
    place = (late - frame * HOP).to(tl.float32) * (1 / HOP)
    square = 3 * advance - 2 * rate - following
    cube = rate + following - 2 * advance
    cycles = phase + place * (rate + place * (square + place * cube))
    cycles = tl.where(late < 0, phase + rate * place, cycles)
    rates = tl.where(late < 0, rate, rate + place * (following - rate))
    cycles -= tl.floor(cycles)
    one = tl.full(rates.shape, 1.0, tl.float32)
    count = tl.floor(tl.div_rn(one, tl.maximum(rates, LEAST_RATE * HOP)) * (HIGHEST * HOP)) + 0.5
    turned = count * cycles
    high = tl.sin(2 * PI * (turned - tl.floor(turned + 0.5)))
    low = tl.sin(PI * cycles)
    steep = tl.abs(low) < LEAST_SINE
    value = tl.where(steep, count, high / (2 * tl.where(steep, 1.0, low))) - 0.5
    row = (item * COLUMNS + inner % COLUMNS) * ROWS + inner // COLUMNS
    tl.store(out + row * frames + window, tl.where(inside, value, 0.0), mask=window < frames)


@triton.jit
def filter_kernel(
    maps, spectra, bins, turns, counts, lengths, out, frames, kept,
    BINS: tl.constexpr, SIZE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """maps (B, 4 * BINS, frames), spectra (B, 2, kept, frames) -> `out` like these: what is transformed back.

    The maps are log magnitude and phase of the filter, and those of the free spectrum. `bins` (kept,) says of
    which of the BINS a row is, `turns` what a phase is scaled by, and `counts` what its row counts for.
    """
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    frame = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    item = tl.cast(tl.program_id(2), tl.int64)
    known = row < kept
    column = tl.load(bins + row, mask=known, other=0).to(tl.int32)[:, None]
    turn = tl.load(turns + row, mask=known, other=0.0)[:, None]
    count = tl.load(counts + row, mask=known, other=0.0)[:, None]
    there = known[:, None] & (frame < frames)
    count = tl.where(frame < tl.load(lengths + item), count, 0.0)
    at = maps + (item * 4 * BINS + column) * frames + frame
    gain = tl.exp(tl.minimum(tl.load(at, mask=there, other=0.0), LARGEST)) * (4 / SIZE)
    theta = turn * (2 * tl.sigmoid(2 * tl.load(at + BINS * frames, mask=there, other=0.0)) - 1)
    size = tl.exp(tl.minimum(tl.load(at + 2 * BINS * frames, mask=there, other=0.0), LARGEST))
    phi = turn * tl.sin(tl.load(at + 3 * BINS * frames, mask=there, other=0.0))
    across, along = gain * tl.cos(theta), gain * tl.sin(theta)
    place = (item * 2 * kept + row[:, None]) * frames + frame
    real = tl.load(spectra + place, mask=there, other=0.0)
    imaginary = tl.load(spectra + place + kept * frames, mask=there, other=0.0)
    tl.store(out + place, (real * across - imaginary * along + size * tl.cos(phi)) * count, mask=there)
    made = (real * along + imaginary * across + size * tl.sin(phi)) * count
    tl.store(out + place + kept * frames, made, mask=there)


@triton.jit
def overlap_kernel(
    windows, lengths, out, frames, weight,
    HOP: tl.constexpr, BEFORE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr
):  # fmt: skip
    """Windows (B, COLUMNS, ROWS, frames), as pulse_kernel has them -> audio (B, frames * HOP): their sum.

    It is divided by the `weight` of a sample's windows. Zeros behind an item's end.
    """
    hop = tl.program_id(0) * BM + tl.arange(0, BM)[None, :]  # of those that windows begin in
    place = tl.program_id(1) * BN + tl.arange(0, BN)[:, None]
    item = tl.cast(tl.program_id(2), tl.int64)
    total = tl.zeros((BN, BM), tl.float32)
    for part in tl.static_range(ROWS * COLUMNS // HOP):
        window, inner = hop - part, part * HOP + place
        row = (item * COLUMNS + inner % COLUMNS) * ROWS + inner // COLUMNS
        total += tl.load(windows + row * frames + window, mask=(window >= 0) & (window < frames), other=0.0)
    sample = hop * HOP + place - BEFORE
    inside = sample < tl.load(lengths + item) * HOP
    there = (sample >= 0) & (sample < frames * HOP)
    tl.store(out + item * frames * HOP + sample, tl.where(inside, total / weight, 0.0), mask=there)

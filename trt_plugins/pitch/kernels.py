"""Convolutions of mels and the pitch of a source, in Triton.

Activations are time-major and float32: a row has all channels of a frame. What a kernel gives for a frame has
the same bits in any batch and at any padded length: tiles are fixed, and each sum is added in one order.
"""

import triton
import triton.language as tl

from melforge.common.audio.pitch_network import LEAKY_SLOPE, SCALE, SILENCE

LEAKY = tl.constexpr(LEAKY_SLOPE)
SILENT, SCALING = tl.constexpr(SILENCE), tl.constexpr(SCALE)


@triton.jit
def input_kernel(
    mel, source, lengths, out, frames,
    MELS: tl.constexpr, NOISE: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """mel (B, MELS, frames), source (B, 2 + NOISE, frames) -> `out` (B, frames, MELS + NOISE).

    Mels as the first convolution takes them, then noise; zeros behind an item's end.
    """
    frame = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    item = tl.cast(tl.program_id(1), tl.int64)
    channel = tl.arange(0, COLUMNS)[None, :]
    there = (frame < frames)[:, None]
    inside = (frame < tl.load(lengths + item))[:, None]
    heard = mel + (item * MELS + channel) * frames + frame[:, None]
    value = (tl.load(heard, mask=inside & (channel < MELS), other=0.0) - SILENT) * SCALING
    if NOISE > 0:
        drawn = source + (item * (2 + NOISE) + 2 + channel - MELS) * frames + frame[:, None]
        is_noise = (channel >= MELS) & (channel < MELS + NOISE)
        value = tl.where(channel < MELS, value, tl.load(drawn, mask=inside & is_noise, other=0.0))
    at = out + (item * frames + frame[:, None]) * (MELS + NOISE) + channel
    tl.store(at, tl.where(inside, value, 0.0), mask=there & (channel < MELS + NOISE))


@triton.jit(do_not_specialize=["frames", "dilation"])
def conv_kernel(
    x, weight, bias, lengths, out, frames, dilation,
    DEPTH: tl.constexpr, WIDTH: tl.constexpr, TAPS: tl.constexpr, LEAKS: tl.constexpr,
    RESIDUAL: tl.constexpr, TURNED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """x (B, frames, DEPTH), `weight` (TAPS, DEPTH, WIDTH) -> `out` (B, frames, WIDTH).

    A convolution of x, of its leaky ReLU with LEAKS, added to x with RESIDUAL; zeros behind an item's end.
    With TURNED `out` is (B, WIDTH, frames). Products are of the weight's type, float16 or exact float32, sums
    float32. A program computes BM frames by BN columns.
    """
    place = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    item = tl.cast(tl.program_id(2), tl.int64)
    length = tl.load(lengths + item).to(tl.int32)
    x += item * frames * DEPTH
    chunks: tl.constexpr = (DEPTH + BK - 1) // BK
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, TAPS * chunks):
        tap = step // chunks
        channel = step % chunks * BK + tl.arange(0, BK)
        frame = place + (tap - TAPS // 2) * dilation
        known = (frame >= 0) & (frame < length)
        heard = known[:, None] & (channel < DEPTH)[None, :]
        a = tl.load(x + frame[:, None] * DEPTH + channel[None, :], mask=heard, other=0.0)
        if LEAKS:
            a = tl.where(a > 0, a, a * LEAKY)
        wanted = (channel < DEPTH)[:, None] & (column < WIDTH)[None, :]
        b = tl.load(
            weight + (tap * DEPTH + channel[:, None]) * WIDTH + column[None, :], mask=wanted, other=0.0
        )
        total = tl.dot(a.to(b.dtype), b, total, input_precision="ieee")
    total += tl.load(bias + column, mask=column < WIDTH, other=0.0)[None, :]
    there = (place < frames)[:, None] & (column < WIDTH)[None, :]
    if RESIDUAL:
        total += tl.load(x + place[:, None] * DEPTH + column[None, :], mask=there, other=0.0)
    total = tl.where((place < length)[:, None], total, 0.0)
    if TURNED:
        at = out + (item * WIDTH + column[None, :]) * frames + place[:, None]
    else:
        at = out + (item * frames + place[:, None]) * WIDTH + column[None, :]
    tl.store(at, total, mask=there)


@triton.jit(do_not_specialize=["frames"])
def pitch_kernel(
    x, weight, bias, places, out, frames, middle,
    DEPTH: tl.constexpr, BINS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """x (B, frames, DEPTH), `weight` (DEPTH, BINS) float32 -> cycles a sample (B, frames).

    The last convolution, of one tap on the leaky ReLU of x, the softmax of its bins, and the exponential of
    the mean of their `places`, times `middle`. A program computes BM frames; BN are BINS, filled up.
    """
    frame = tl.program_id(0) * BM + tl.arange(0, BM)
    item = tl.cast(tl.program_id(1), tl.int64)
    there = frame < frames
    column = tl.arange(0, BN)
    known = column < BINS
    x += item * frames * DEPTH
    logits = tl.zeros((BM, BN), tl.float32)
    for step in range(0, (DEPTH + BK - 1) // BK):
        channel = step * BK + tl.arange(0, BK)
        inside = channel < DEPTH
        at = x + frame[:, None] * DEPTH + channel[None, :]
        a = tl.load(at, mask=there[:, None] & inside[None, :], other=0.0)
        a = tl.where(a > 0, a, a * LEAKY)
        at = weight + channel[:, None] * BINS + column[None, :]
        b = tl.load(at, mask=inside[:, None] & known[None, :], other=0.0)
        logits = tl.dot(a, b, logits, input_precision="ieee")
    logits += tl.load(bias + column, mask=known, other=0.0)[None, :]
    logits = tl.where(known[None, :], logits, float("-inf"))
    shares = tl.exp(logits - tl.max(logits, 1)[:, None])
    shares = shares / tl.sum(shares, 1)[:, None]
    mean = tl.sum(shares * tl.load(places + column, mask=known, other=0.0)[None, :], 1)
    tl.store(out + item * frames + frame, tl.exp(mean) * middle, mask=there)

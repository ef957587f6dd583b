"""The kernels of HiFi-GAN's generator with a harmonic source, in Triton."""

import triton
import triton.language as tl


@triton.jit
def _steps(pitch, frame, frames, HOP: tl.constexpr):
    """The cycles from each frame's centre to its own from the one before, float64; 0 for the first."""
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

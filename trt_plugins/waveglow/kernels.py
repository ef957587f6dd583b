"""The kernels of WaveGlow's generator, in Triton.

Memory is ordered by phase (a step's position within its frame), then by item and frame. So all rows of a tile
have one phase and share its conditioning matrix, and a dilated convolution's taps read whole tiles too: the
same frames of another phase, or other frames. A phase's rows are: a margin of zeros, the first item's frames,
a margin, the next item's frames, ..., then rows up to a whole tile, and a margin.
"""

import triton
import triton.language as tl

from melforge.trt_plugins.tiles import in_tiles
from melforge.trt_plugins.waveglow.fold import CHUNK as _CHUNK

CHUNK = tl.constexpr(_CHUNK)


@triton.jit
def _gated(value, gate):
    """tanh(value) * sigmoid(gate).

    Not by `tanh.approx`: its errors are alike in all channels, and trained flows add them up.
    """
    down = tl.exp(-2 * tl.maximum(value, -20.0))
    return (1 - down) / ((1 + down) * (1 + tl.exp(-gate)))


@triton.jit(do_not_specialize=["frames", "stride", "rows"])
def window_kernel(
    mel, out, frames, stride,
    MELS: tl.constexpr, DELAYS: tl.constexpr, MARGIN: tl.constexpr,
    rows,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """mel (B, MELS, frames) float32 -> each frame's window: column k is mel k % MELS of delay k // MELS.

    `out` (blocks, rows, WIDTH) float16 holds the columns in blocks of WIDTH.
    """
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    item = tl.program_id(1)
    columns = tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    earlier = place[:, None] - columns[None, :] // MELS
    there = (earlier >= 0) & (place[:, None] < frames) & (columns[None, :] < DELAYS * MELS)
    value = tl.load(mel + (item * MELS + columns[None, :] % MELS) * frames + earlier, mask=there, other=0.0)
    row = MARGIN + item * stride + place[:, None]
    at = out + (columns[None, :] // WIDTH * rows + row) * WIDTH + columns[None, :] % WIDTH
    tl.store(at, value.to(tl.float16), mask=place[:, None] < frames)


@triton.jit(do_not_specialize=["layer", "flow", "dilation", "tiles", "rows"])
def gate_kernel(
    left, right, narrow, first, bias, acts, layer, flow, dilation, tiles, rows,
    PHASES: tl.constexpr, WINDOW: tl.constexpr, CHUNKS: tl.constexpr, TAPS: tl.constexpr,
    MARGIN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, FIRST: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    """A layer's gated activation: tanh * sigmoid of the sum of its conditioning and its dilated convolution.

    `left` holds the window of mels and x, `right` all layers' weights in chunks of 64 columns. A program
    computes BM rows of one phase by BN / 2 channels of `acts`. A coupling net's FIRST layer has `narrow`, the
    input of `start`, in place of x, and the weights `first`.
    """
    left, right, narrow = in_tiles(left), in_tiles(right), in_tiles(narrow)
    first, acts = in_tiles(first), in_tiles(acts)
    CHANNELS: tl.constexpr = CHUNKS * CHUNK
    SPLITS: tl.constexpr = 2 * CHANNELS // BN
    BLOCKS: tl.constexpr = (WINDOW + CHUNKS - 1) // CHUNKS  # of `left` before x
    program = tl.program_id(0)
    split = program % SPLITS
    tile = program // SPLITS
    phase = tile // tiles
    row = MARGIN + tile % tiles * BM
    weights = (layer * (PHASES * WINDOW + TAPS * CHUNKS)) * (2 * CHANNELS) + split * BN
    total = tl.zeros((BM, BN), tl.float32)
    if FIRST:
        for step in tl.range(0, WINDOW, num_stages=STAGES):
            a = left.load([row + step // CHUNKS * rows, step % CHUNKS * CHUNK])
            b = right.load([weights + (phase * WINDOW + step) * (2 * CHANNELS), 0])
            total = tl.dot(a, b.T, total)
        for tap in tl.range(0, TAPS, num_stages=STAGES):
            shifted = phase + (tap - TAPS // 2) * dilation + MARGIN * PHASES
            a = narrow.load([row + shifted % PHASES * rows + shifted // PHASES - MARGIN, 0])
            b = first.load([(flow * TAPS + tap) * (2 * CHANNELS) + split * BN, 0])
            total = tl.dot(a, b.T, total)
    else:
        for step in tl.range(0, WINDOW + TAPS * CHUNKS, num_stages=STAGES):
            within = step - WINDOW
            shifted = phase + (within // CHUNKS - TAPS // 2) * dilation + MARGIN * PHASES
            at_x = (BLOCKS + shifted % PHASES) * rows + shifted // PHASES - MARGIN
            of_mel = step < WINDOW
            a_row = row + tl.where(of_mel, step // CHUNKS * rows, at_x)
            a_column = tl.where(of_mel, step % CHUNKS, within % CHUNKS) * CHUNK
            chunk = tl.where(of_mel, phase * WINDOW + step, PHASES * WINDOW + within)
            a = left.load([a_row, a_column])
            b = right.load([weights + chunk * (2 * CHANNELS), 0])
            total = tl.dot(a, b.T, total)
    offsets = tl.load(bias + layer * (2 * CHANNELS) + split * BN + tl.arange(0, BN))
    total += offsets[None, :]
    value, gate = tl.split(tl.reshape(total, (BM, BN // 2, 2)))
    acts.store([phase * rows + row, split * (BN // 2)], _gated(value, gate).to(tl.float16))


@triton.jit(do_not_specialize=["layer", "flow", "tiles", "rows", "stride", "items"])
def residual_kernel(
    acts, weights, end_weights, narrow, start, x, bias, ends, lengths, layer, flow, tiles, rows, stride,
    items,
    PHASES: tl.constexpr, WINDOW: tl.constexpr, CHUNKS: tl.constexpr, MARGIN: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    """A layer's two products of its acts: added to x in place, and to the output of `end` in float32."""
    acts, weights, end_weights = in_tiles(acts), in_tiles(weights), in_tiles(end_weights)
    narrow, start, x = in_tiles(narrow), in_tiles(start), in_tiles(x)
    CHANNELS: tl.constexpr = CHUNKS * CHUNK
    SPLITS: tl.constexpr = 1 if LAST else CHANNELS // BN
    BLOCKS: tl.constexpr = (WINDOW + CHUNKS - 1) // CHUNKS
    program = tl.program_id(0)
    split = program % SPLITS
    tile = program // SPLITS
    phase = tile // tiles
    row = MARGIN + tile % tiles * BM
    at = phase * rows + row
    end_total = tl.zeros((BM, 16), tl.float32)
    if LAST:
        for step in tl.range(0, CHUNKS, num_stages=STAGES):
            a = acts.load([at, step * CHUNK])
            c = end_weights.load([layer * 16, step * CHUNK])
            end_total = tl.dot(a, c.T, end_total)
    else:
        total = tl.zeros((BM, BN), tl.float32)
        for step in tl.range(0, CHUNKS, num_stages=STAGES):
            a = acts.load([at, step * CHUNK])
            b = weights.load([layer * CHANNELS + split * BN, step * CHUNK])
            c = end_weights.load([layer * 16, step * CHUNK])
            total = tl.dot(a, b.T, total)
            end_total = tl.dot(a, c.T, end_total)
        if FIRST:  # x is the output of `start`
            few = narrow.load([at, 0])
            total = tl.dot(few, start.load([flow * CHANNELS + split * BN, 0]).T, total)
        else:
            total += x.load([BLOCKS * rows + at, split * BN]).to(tl.float32)
        offsets = tl.load(bias + layer * CHANNELS + split * BN + tl.arange(0, BN))
        place = row - MARGIN + tl.arange(0, BM)
        item = place // stride
        length = tl.load(lengths + item, mask=item < items, other=0)
        total += offsets[None, :]
        total = tl.where((place % stride < length)[:, None], total, 0.0)
        x.store([BLOCKS * rows + at, split * BN], total.to(tl.float16))
    if split == 0:
        end_at = ends + (at + tl.arange(0, BM))[:, None] * 16 + tl.arange(0, 16)[None, :]
        if not FIRST:
            end_total += tl.load(end_at)
        tl.store(end_at, end_total)


@triton.jit(do_not_specialize=["flow", "rows", "frames", "stride", "items"])
def flow_kernel(
    state, new_state, ends, end_bias, inverse, narrow, z, audio, lengths, flow, rows, frames, stride, items,
    PHASES: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, HALF: tl.constexpr,
    NEXT_HALF: tl.constexpr, EARLY: tl.constexpr, USED: tl.constexpr, FIRST: tl.constexpr,
    FINAL: tl.constexpr, MARGIN: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Between two coupling nets, in float32: inverts a flow and prepares the next coupling net's input.

    `state` (P * rows, 16) has SIZE channels, HALF of them unchanged by the flow. EARLY channels of z, from
    USED on, are put before the inverse convolution's outputs. FIRST reads the state from z, and FINAL writes
    audio. `narrow` is the input of `start`: NEXT_HALF channels, then a 1 for its bias.
    """
    phase = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    item = place // stride
    frame = place % stride
    there = (item < items) & (frame < frames)
    at = (phase * rows + MARGIN + place) * 16
    channels = tl.arange(0, 16)
    steps = frames * PHASES
    at_z = z + item * GROUP * steps + frame * PHASES + phase
    new = tl.zeros((BLOCK, 16), tl.float32)
    if FIRST:
        for channel in tl.static_range(SIZE):
            value = tl.load(at_z + channel * steps, mask=there, other=0.0)
            new += tl.where(channels[None, :] == channel, value[:, None], 0.0)
    else:
        for channel in tl.static_range(SIZE):
            value = tl.load(state + at + channel, mask=there, other=0.0)
            if channel >= HALF:
                shift = tl.load(ends + at + channel - HALF, mask=there, other=0.0)
                shift += tl.load(end_bias + flow * 16 + channel - HALF)
                log_scale = tl.load(ends + at + channel, mask=there, other=0.0)
                log_scale += tl.load(end_bias + flow * 16 + channel)
                value = (value - shift) * tl.exp(-log_scale)
            new += value[:, None] * tl.load(inverse + (flow * 16 + channel) * 16 + channels)[None, :]
        for channel in tl.static_range(EARLY):
            value = tl.load(at_z + (USED + channel) * steps, mask=there, other=0.0)
            new += tl.where(channels[None, :] == channel, value[:, None], 0.0)
    if FINAL:
        sample = ((item * frames + frame) * PHASES + phase) * GROUP
        wanted = there[:, None] & (channels < GROUP)[None, :]
        tl.store(audio + sample[:, None] + channels[None, :], new, mask=wanted)
    else:
        tl.store(new_state + at[:, None] + channels[None, :], new, mask=there[:, None])
        length = tl.load(lengths + item, mask=there, other=0)
        few = tl.where(channels[None, :] == NEXT_HALF, 1.0, new)
        few = tl.where((channels <= NEXT_HALF)[None, :] & (frame < length)[:, None], few, 0.0)
        tl.store(narrow + at[:, None] + channels[None, :], few.to(tl.float16), mask=there[:, None])

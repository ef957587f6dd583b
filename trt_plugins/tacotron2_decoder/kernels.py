"""Triton kernels of one step of Tacotron 2's decoder, for any number of multiprocessors.

Weights are float16 and read anew in each step; vectors, sums and states are float32. Shape letters: B items,
N symbols, C channels of the memory, A of the attention, P of the prenet, F values of a frame, H units.
"""

import triton
import triton.language as tl

MASKED_SCORE = tl.constexpr(-6e4)  # as tacotron2/model.py has it


@triton.jit
def _row_sums(
    sums, weights, rows, inside, width, start, x, item, items, SIZE: tl.constexpr, ITEMS: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """sums (R, ITEMS) += weights[rows, start : start + SIZE] times the vectors x (B, SIZE) from `item` on."""
    column = tl.arange(0, ITEMS)
    for first in range(0, SIZE, BK):
        k = first + tl.arange(0, BK)
        places = weights + rows[:, None] * width + start + k[None, :]
        part = tl.load(places, mask=inside[:, None] & (k < SIZE)[None, :], other=0.0).to(tl.float32)
        for i in tl.static_range(ITEMS):
            given = tl.load(x + (item + i) * SIZE + k, mask=(k < SIZE) & (item + i < items), other=0.0)
            sum_of_item = tl.sum(part * given[None, :], 1)
            sums += tl.where(column[None, :] == i, sum_of_item[:, None], 0.0)
    return sums


@triton.jit
def prenet_kernel(
    frame, frame_stride, noise, dropout, first, second, out, items, size, channels, ROWS: tl.constexpr,
    BP: tl.constexpr, BF: tl.constexpr,
):  # fmt: skip
    """frame (B, F) and noise (2, B, P) -> out (B, P): both layers, whose weights are (P, F) and (P, P)."""
    item, channel = tl.program_id(1), tl.arange(0, BP)
    there, drop = channel < channels, tl.load(dropout)
    sums = tl.zeros([BP], tl.float32)
    for start in range(0, size, BF):
        k = start + tl.arange(0, BF)
        mask = there[:, None] & (k < size)[None, :]
        part = tl.load(first + channel[:, None] * size + k[None, :], mask=mask, other=0.0).to(tl.float32)
        given = tl.load(frame + item * frame_stride + k, mask=k < size, other=0.0)
        sums += tl.sum(part * given[None, :], 1)
    kept = tl.load(noise + item * channels + channel, mask=there, other=0.0) >= drop
    hidden = tl.where(kept, tl.maximum(sums, 0.0), 0.0) / (1.0 - drop)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < channels
    places = second + row[:, None] * channels + channel[None, :]
    part = tl.load(places, mask=inside[:, None] & there[None, :], other=0.0).to(tl.float32)
    shown = tl.maximum(tl.sum(part * hidden[None, :], 1), 0.0)
    kept = tl.load(noise + (items + item) * channels + row, mask=inside, other=0.0) >= drop
    tl.store(out + item * channels + row, tl.where(kept, shown, 0.0) / (1.0 - drop), mask=inside)


@triton.jit
def lstm_kernel(
    first, second, hidden, cell, weights, bias, new_hidden, new_cell, items, UNITS: tl.constexpr,
    FIRST: tl.constexpr, SECOND: tl.constexpr, HIDDEN: tl.constexpr, ITEMS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The next hidden (B, H) and cell of the inputs (B, FIRST) and (B, SECOND), weights (4 H, all three)."""
    item, row = tl.program_id(1) * ITEMS, tl.arange(0, 4 * UNITS)
    unit_of_row = tl.program_id(0) * UNITS + row % UNITS
    inside, rows = unit_of_row < HIDDEN, row // UNITS * HIDDEN + unit_of_row
    width: tl.constexpr = FIRST + SECOND + HIDDEN
    sums = tl.zeros([4 * UNITS, ITEMS], tl.float32)
    sums = _row_sums(sums, weights, rows, inside, width, 0, first, item, items, FIRST, ITEMS, BK)
    sums = _row_sums(sums, weights, rows, inside, width, FIRST, second, item, items, SECOND, ITEMS, BK)
    sums = _row_sums(
        sums, weights, rows, inside, width, FIRST + SECOND, hidden, item, items, HIDDEN, ITEMS, BK
    )
    sums += tl.load(bias + rows, mask=inside, other=0.0)[:, None]
    gates, which = tl.reshape(sums, [4, UNITS, ITEMS]), tl.arange(0, 4)[:, None, None]
    given = tl.sigmoid(tl.sum(tl.where(which == 0, gates, 0.0), 0))
    kept = tl.sigmoid(tl.sum(tl.where(which == 1, gates, 0.0), 0))
    new = 2.0 * tl.sigmoid(2.0 * tl.sum(tl.where(which == 2, gates, 0.0), 0)) - 1.0
    shown = tl.sigmoid(tl.sum(tl.where(which == 3, gates, 0.0), 0))
    unit, column = tl.program_id(0) * UNITS + tl.arange(0, UNITS), item + tl.arange(0, ITEMS)
    places = column[None, :] * HIDDEN + unit[:, None]
    mask = (unit < HIDDEN)[:, None] & (column < items)[None, :]
    value = kept * tl.load(cell + places, mask=mask, other=0.0) + given * new
    tl.store(new_cell + places, value, mask=mask)
    tl.store(new_hidden + places, shown * (2.0 * tl.sigmoid(2.0 * value) - 1.0), mask=mask)


@triton.jit
def rows_kernel(
    first, second, weights, bias, out, items, count, ROWS: tl.constexpr, FIRST: tl.constexpr,
    SECOND: tl.constexpr, ITEMS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out (B, count) = weights (count, FIRST + SECOND) times the inputs side by side, plus the bias."""
    item, rows = tl.program_id(1) * ITEMS, tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside, width = rows < count, FIRST + SECOND
    sums = tl.zeros([ROWS, ITEMS], tl.float32)
    sums = _row_sums(sums, weights, rows, inside, width, 0, first, item, items, FIRST, ITEMS, BK)
    if SECOND:
        sums = _row_sums(sums, weights, rows, inside, width, FIRST, second, item, items, SECOND, ITEMS, BK)
        sums += tl.load(bias + rows, mask=inside, other=0.0)[:, None]
    column = item + tl.arange(0, ITEMS)
    mask = inside[:, None] & (column < items)[None, :]
    tl.store(out + column[None, :] * count + rows[:, None], sums, mask=mask)


@triton.jit
def energy_kernel(
    weights, cumulative, query, processed, location, scores, lengths, out, text, channels,
    TAPS: tl.constexpr, BN: tl.constexpr, BA: tl.constexpr,
):  # fmt: skip
    """Energies (B, N) of the attention weights so far (B, N), the query (B, A), the processed memory
    (B, N, A) and location weights (2, TAPS, A).
    """
    item, n, a = tl.program_id(1), tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BA)
    inside, there = n < text, a < channels
    places = processed + (item * text + n)[:, None] * channels + a[None, :]
    known = tl.load(places, mask=inside[:, None] & there[None, :], other=0.0)
    known += tl.load(query + item * channels + a, mask=there, other=0.0)[None, :]
    for tap in range(TAPS):
        place = n + tap - TAPS // 2
        seen = (place >= 0) & (place < text)
        last = tl.load(weights + item * text + place, mask=seen, other=0.0)
        so_far = tl.load(cumulative + item * text + place, mask=seen, other=0.0)
        known += last[:, None] * tl.load(location + tap * channels + a, mask=there, other=0.0)[None, :]
        of_sum = tl.load(location + (TAPS + tap) * channels + a, mask=there, other=0.0)
        known += so_far[:, None] * of_sum[None, :]
    score = tl.load(scores + a, mask=there, other=0.0)
    energy = tl.sum((2.0 * tl.sigmoid(2.0 * known) - 1.0) * score[None, :], 1)
    energy = tl.where(n < tl.load(lengths + item), energy, MASKED_SCORE)
    tl.store(out + item * text + n, energy, mask=inside)


@triton.jit
def context_kernel(
    energies, cumulative, memory, new_weights, new_cumulative, context, text, channels, BT: tl.constexpr,
    BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Energies (B, N) -> the next weights, their sum over all steps, and the memory's mean (B, C) by them."""
    item, n = tl.program_id(1), tl.arange(0, BT)
    energy = tl.load(energies + item * text + n, mask=n < text, other=float("-inf"))
    highest = tl.max(energy, 0)
    total = tl.sum(tl.exp(energy - highest), 0)
    if tl.program_id(0) == 0:
        weight = tl.exp(energy - highest) / total
        tl.store(new_weights + item * text + n, weight, mask=n < text)
        weight += tl.load(cumulative + item * text + n, mask=n < text, other=0.0)
        tl.store(new_cumulative + item * text + n, weight, mask=n < text)
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    sums = tl.zeros([BC], tl.float32)
    for first in range(0, text, BN):
        step = first + tl.arange(0, BN)
        known = tl.load(energies + item * text + step, mask=step < text, other=float("-inf"))
        mask = (step < text)[:, None] & (channel < channels)[None, :]
        places = memory + (item * text + step)[:, None] * channels + channel[None, :]
        part = tl.load(places, mask=mask, other=0.0)
        sums += tl.sum((tl.exp(known - highest) / total)[:, None] * part, 0)
    tl.store(context + item * channels + channel, sums, mask=channel < channels)

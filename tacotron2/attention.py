"""Checks an utterance's alignment for skipped, repeated or endless speech, and describes the problem.

Attention errors of an autoregressive decoder show in the alignment. The thresholds tolerate what correct
speech does: pauses of a second, silent letters without attention, short returns to earlier symbols.
"""

from __future__ import annotations

import numpy as np

# The summed attention weight from which a symbol counts as read; blur from a neighbouring symbol is enough.
READ = 0.1
# Consecutive unread symbols that are tolerated. Fast speech and silent letters leave two or three unread, as
# do punctuation and spaces at the end. More than this is a word.
LONGEST_SKIP = 5
# The end is reached once the attention was at one of this many last symbols.
END_SYMBOLS = 2
# Seconds of the median filter over the attention's path, since single steps are noisy.
SMOOTHING = 0.1
# Symbols by which the path may return, and seconds that it may stay there: returns in a pause or after the
# end are shorter, repeated words longer.
LONGEST_RETURN = 5
RETURN_SECONDS = 0.25
# Seconds that the path may stay on a symbol and its neighbour. Pauses at full stops take about one.
LONGEST_STAY = 2.5


def attention_problem(alignment: np.ndarray, stopped: bool, step_seconds: float) -> str:
    """alignment (S, N), one item's steps without padding -> a description of the problem, or "".

    `stopped`: the gate fired before the step limit. The first problem found is described, in this order: no
    end, a repetition, a stay, a skip, an early end.
    """
    steps, symbols = alignment.shape
    if not stopped:
        # The last symbol alone would be too strict: it is often a full stop without attention.
        reached = alignment.argmax(axis=1).max() >= symbols - END_SYMBOLS
        what = "the speech went on behind the text's end" if reached else "the end is cut off"
        return f"the step limit of {steps} was reached: {what}"
    path = median_path(alignment, round(SMOOTHING / step_seconds))
    back, start, target = longest_return(path, max(1, round(RETURN_SECONDS / step_seconds)))
    if back > LONGEST_RETURN:
        return f"the attention went back from symbol {start + 1} to symbol {target + 1}: words are repeated"
    stay, target = longest_stay(path)
    if stay * step_seconds > LONGEST_STAY:
        return (
            f"the attention stayed on symbol {target + 1} of {symbols} for {stay * step_seconds:.1f} seconds"
        )
    skipped, first = longest_skip(alignment)
    if skipped <= LONGEST_SKIP:
        return ""
    if first + skipped == symbols:
        return f"the speech stopped before the end: the last {skipped} of {symbols} symbols were not read"
    place = f"{skipped} of {symbols} symbols, from symbol {first + 1} on"
    return f"the attention skipped {place}: words are missing"


def median_path(alignment: np.ndarray, window: int) -> np.ndarray:
    """The symbol with the most attention at each step, int64 (S,), median-filtered over `window` steps."""
    half = window // 2
    path = np.pad(alignment.argmax(axis=1), half, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(path, 2 * half + 1)
    return np.median(windows, axis=1).astype(np.int64)


def longest_return(path: np.ndarray, duration: int) -> tuple[int, int, int]:
    """The longest return that lasts `duration` steps: symbols, from which one, to which one."""
    if len(path) < duration:
        return 0, 0, 0
    furthest = np.maximum.accumulate(path)
    held = np.lib.stride_tricks.sliding_window_view(furthest - path, duration).min(axis=1)
    step = int(held.argmax())
    return int(held[step]), int(furthest[step]), int(path[step])


def longest_stay(path: np.ndarray) -> tuple[int, int]:
    """The most consecutive steps on two neighbouring symbols, and the more frequent one of these."""
    best, target, start = 0, 0, 0
    for end in range(1, len(path) + 1):
        while np.ptp(path[start:end]) > 1:
            start += 1
        if end - start > best:
            best, target = end - start, int(np.median(path[start:end]))
    return best, target


def longest_skip(alignment: np.ndarray) -> tuple[int, int]:
    """The most consecutive unread symbols, and the first of them."""
    best, first, run = 0, 0, 0
    for symbol, weight in enumerate(alignment.sum(axis=0)):
        run = 0 if weight >= READ else run + 1
        if run > best:
            best, first = run, symbol - run + 1
    return best, first

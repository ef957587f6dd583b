"""Whether an utterance's attention read its text from beginning to end: what went wrong, in a sentence.

A decoder that loses its place skips words, repeats them, or never finds the end. Each shows in the alignment.
The thresholds leave sound speech alone: it pauses for a second, passes over silent letters, glances back.
"""

from __future__ import annotations

import numpy as np

# Steps' worth of attention that a symbol must get to count as read: what a blurred neighbour gives is enough.
READ = 0.1
# Symbols in a row that nobody read. Fast speech and silent letters pass over two or three; closing signs and
# spaces stay unread at the end. More than this is a word.
LONGEST_SKIP = 5
# Whoever has looked at one of so many last symbols has reached the text's end.
END_SYMBOLS = 2
# Seconds; the attention is judged by its median over so long, since single steps are noise.
SMOOTHING = 0.1
# Symbols by which it may fall back behind where it was, and seconds that it may then stay there: a glance
# back in a pause or behind the end is shorter, a repeated word longer.
LONGEST_RETURN = 5
RETURN_SECONDS = 0.25
# Seconds on a symbol and its neighbour. Pauses at full stops take about one.
LONGEST_STAY = 2.5


def attention_problem(alignment: np.ndarray, stopped: bool, step_seconds: float) -> str:
    """alignment (S, N), one item's steps without padding -> what went wrong, "" where nothing did.

    `stopped` says that the gate fired, not that the step limit ended the speech. The sentence names the first
    of what it finds in this order: no end, a repetition, a stay, a skip, an early end.
    """
    steps, symbols = alignment.shape
    if not stopped:
        # The last symbol alone would be too strict: it is often a full stop that nobody looks at.
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
    """The symbol that each step looks at, int64 (S,): the median over a window of so many steps."""
    half = window // 2
    path = np.pad(alignment.argmax(axis=1), half, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(path, 2 * half + 1)
    return np.median(windows, axis=1).astype(np.int64)


def longest_return(path: np.ndarray, duration: int) -> tuple[int, int, int]:
    """The most symbols by which the path is behind where it was for `duration` steps; from where to where."""
    if len(path) < duration:
        return 0, 0, 0
    furthest = np.maximum.accumulate(path)
    held = np.lib.stride_tricks.sliding_window_view(furthest - path, duration).min(axis=1)
    step = int(held.argmax())
    return int(held[step]), int(furthest[step]), int(path[step])


def longest_stay(path: np.ndarray) -> tuple[int, int]:
    """The most steps that the path spends on one symbol and its neighbour, and the one it looks at more."""
    best, target, start = 0, 0, 0
    for end in range(1, len(path) + 1):
        while np.ptp(path[start:end]) > 1:
            start += 1
        if end - start > best:
            best, target = end - start, int(np.median(path[start:end]))
    return best, target


def longest_skip(alignment: np.ndarray) -> tuple[int, int]:
    """The most symbols in a row that no step read, and the first of them."""
    best, first, run = 0, 0, 0
    for symbol, weight in enumerate(alignment.sum(axis=0)):
        run = 0 if weight >= READ else run + 1
        if run > best:
            best, first = run, symbol - run + 1
    return best, first

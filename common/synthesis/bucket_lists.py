"""Lists of buckets that waste the least padding on the lengths of given texts."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from melforge.common.config.deployment import Bucket
from melforge.common.speech import Controls
from melforge.common.synthesis.acoustic import AcousticModel
from melforge.common.text import Utterance

# Lengths that a bucket may have, at most so many of each kind: the search takes their product squared.
TEXT_LEVELS, MEL_LEVELS = 64, 128


@dataclass(frozen=True)
class Proposal:
    """Buckets in ascending order, and what they compute for the lengths they were made for."""

    buckets: tuple[Bucket, ...]
    steps: int  # symbols and frames, padding included
    padding: int

    @property
    def waste(self) -> float:
        return self.padding / self.steps


def predict_lengths(
    acoustic: AcousticModel, utterances: Iterable[Utterance], controls: Controls, batch_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Symbols and mel frames of each utterance, int64. Only an autoregressive model speaks."""
    ids = sorted((utterance.ids for utterance in utterances), key=len)
    frames: list[int] = []
    with tqdm(total=len(ids), unit="utterance", leave=False, disable=None) as bar:
        for start in range(0, len(ids), batch_size):
            batch = ids[start : start + batch_size]
            lengths = acoustic.predict_lengths(batch, controls)
            if lengths is None:
                lengths = acoustic.synthesise(batch, controls).mel_lengths
            frames += lengths.tolist()
            bar.update(len(batch))
    return np.array([len(row) for row in ids]), np.array(frames)


def propose(symbols: np.ndarray, frames: np.ndarray, count: int) -> Proposal:
    """At most `count` buckets, ascending in both lengths, that compute the fewest steps for these utterances.

    An utterance goes to the first bucket that covers it. What a bucket and all before it cover depends on
    its own two lengths alone, so the best list that ends with it follows from the best ones that are one
    shorter.
    """
    texts, mels = _levels(symbols, TEXT_LEVELS), _levels(frames, MEL_LEVELS)
    covered = np.zeros((len(texts), len(mels)), np.int64)  # utterances that fit into texts[i] and mels[j]
    np.add.at(covered, (np.searchsorted(texts, symbols), np.searchsorted(mels, frames)), 1)
    covered = covered.cumsum(0).cumsum(1)
    size = np.add.outer(texts, mels)
    cost = (covered * size).astype(np.float64)  # of the best list of one bucket that ends with (i, j)
    found, former = [cost[-1, -1]], []
    for _ in range(1, count):
        cost, before = _with_one_more(cost, covered, size)
        found.append(cost[-1, -1])
        former.append(before)
    used = int(np.argmin(found))  # of equals the shorter list
    end, buckets = (len(texts) - 1, len(mels) - 1), []
    for before in reversed(former[:used]):
        buckets.append(end)
        end = tuple(before[end])
    buckets.append(end)
    steps = int(found[used])
    return Proposal(
        tuple(Bucket(int(texts[i]), int(mels[j])) for i, j in reversed(buckets)),
        steps,
        steps - int(symbols.sum() + frames.sum()),
    )


def _with_one_more(cost: np.ndarray, covered: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The costs of the best lists with one bucket more, and the place of the last bucket but one."""
    more = np.full(cost.shape, np.inf)
    before = np.zeros((*cost.shape, 2), np.int64)
    for i in range(1, cost.shape[0]):
        for j in range(1, cost.shape[1]):
            total = cost[:i, :j] - covered[:i, :j] * size[i, j]
            place = np.unravel_index(total.argmin(), total.shape)
            more[i, j] = total[place] + covered[i, j] * size[i, j]
            before[i, j] = place
    return more, before


def _levels(lengths: np.ndarray, count: int) -> np.ndarray:
    """The lengths that occur, ascending; where they are many, rounded up so that at most `count` are left."""
    longest = int(lengths.max())
    step = -(-longest // count) if len(np.unique(lengths)) > count else 1
    return np.unique(np.minimum(-(-lengths // step) * step, longest))

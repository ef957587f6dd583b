"""Proposed bucket lists waste the least of all, and say how much."""

import itertools

import numpy as np
import pytest

from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.synthesis.bucket_lists import MEL_LEVELS, TEXT_LEVELS, propose


def steps_of(buckets, symbols, frames) -> int:
    """What the first bucket that covers each utterance computes."""
    return sum(
        next(b.text + b.mel for b in buckets if b.text >= text and b.mel >= mel)
        for text, mel in zip(symbols, frames, strict=True)
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_no_list_of_so_many_buckets_wastes_less(seed, count):
    rng = np.random.default_rng(seed)
    symbols = rng.integers(1, 12, 7)
    frames = symbols * 5 + rng.integers(0, 25, 7)
    pairs = [Bucket(t, m) for t, m in itertools.product(set(symbols.tolist()), set(frames.tolist()))]
    last = Bucket(int(symbols.max()), int(frames.max()))
    best = min(
        steps_of([*chosen, last], symbols, frames)
        for size in range(count)
        for chosen in itertools.combinations(sorted(pairs), size)
        if all(a.text < b.text and a.mel < b.mel for a, b in itertools.pairwise([*chosen, last]))
    )
    proposal = propose(symbols, frames, count)
    assert len(proposal.buckets) <= count and proposal.buckets[-1] == last
    assert proposal.steps == best == steps_of(proposal.buckets, symbols, frames)
    assert proposal.padding == best - symbols.sum() - frames.sum()
    assert 0 <= proposal.waste < 1


def test_the_lists_are_what_a_deployment_takes():
    rng = np.random.default_rng(0)
    symbols = rng.integers(3, 200, 900)
    frames = symbols * 6 + rng.integers(0, 300, 900)
    wastes = []
    for count in (1, 2, 4, 8):
        proposal = propose(symbols, frames, count)
        how = Deployment(
            trt_multi_engine=True,
            trt_max_input_seq_len_list=tuple(b.text for b in proposal.buckets),
            trt_max_output_seq_len_list=tuple(b.mel for b in proposal.buckets),
        )
        assert how.buckets("acoustic") == proposal.buckets
        assert proposal.buckets[-1] == Bucket(symbols.max(), frames.max())
        assert proposal.steps == steps_of(proposal.buckets, symbols, frames)
        wastes.append(proposal.waste)
    assert wastes == sorted(wastes, reverse=True) and wastes[-1] < 0.2 < wastes[0]


def test_many_lengths_are_rounded_up():
    symbols, frames = np.arange(1, 512), np.arange(1, 512) * 7
    proposal = propose(symbols, frames, 6)
    steps = (-(-511 // TEXT_LEVELS), -(-511 * 7 // MEL_LEVELS))
    for bucket in proposal.buckets[:-1]:
        assert bucket.text % steps[0] == 0 and bucket.mel % steps[1] == 0
    assert proposal.buckets[-1] == Bucket(511, 511 * 7)


def test_texts_of_one_length_need_one_bucket():
    proposal = propose(np.full(3, 9), np.full(3, 40), 4)
    assert proposal.buckets == (Bucket(9, 40),) and proposal.waste == 0

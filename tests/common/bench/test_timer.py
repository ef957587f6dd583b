"""The timer: how many calls it makes, and what it says of them."""

import time

import pytest

from melforge.common.bench.timer import elapsed, summary, timed


def test_as_many_calls_as_the_time_allows_but_the_least():
    calls = []
    assert len(timed(lambda: calls.append(1), 5, warm_up=2)) == 5 and len(calls) == 7
    slow = timed(lambda: time.sleep(0.02), 50, longest=0.01, least=3)
    assert len(slow) == 3 and min(slow) >= 0.02
    assert timed(lambda: time.sleep(0.02), 1, longest=0.0) and not timed(time.time, 4, longest=0.0, least=0)


def test_percentiles_lie_between_the_runs():
    found = summary([0.001 * n for n in range(1, 102)])
    assert found["p50"] == pytest.approx(0.051) and found["p99"] == pytest.approx(0.1)
    assert found["mean"] == pytest.approx(0.051) and found["std"] > 0.02


def test_marks_of_two_devices_have_no_distance():
    distance = elapsed(0.5, object())
    assert elapsed(0.5, 2.0) == 1.5 and distance != distance

"""Texts admitted as they come: rounds, order, errors."""

import itertools
import threading

import pytest

from melforge.common.synthesis.admission import Admission


def test_a_list_comes_in_full_rounds():
    rounds = list(Admission(["a", "b", "c"], 2).rounds())
    assert rounds == [[(0, "a"), (1, "b")], [(2, "c")]]
    assert list(Admission([], 2).rounds()) == []


def test_the_first_of_a_slow_generator_does_not_wait_for_the_second():
    gate = threading.Event()

    def slow():
        yield "first"
        assert gate.wait(60)
        yield "second"

    rounds = Admission(slow(), 8).rounds()
    assert next(rounds) == [(0, "first")]
    gate.set()
    assert list(itertools.chain.from_iterable(rounds)) == [(1, "second")]


def test_an_endless_generator_is_read_only_so_far_ahead():
    read = itertools.count()
    rounds = Admission((next(read) for _ in itertools.count()), 3).rounds()
    taken = [next(rounds) for _ in range(5)]
    assert all(1 <= len(one) <= 3 for one in taken)
    assert [number for one in taken for number, _ in one] == list(range(sum(map(len, taken))))
    rounds.close()
    assert next(read) <= sum(map(len, taken)) + 5


def test_an_error_comes_behind_what_came_before_it():
    def broken():
        yield "fine"
        raise KeyError("broken")

    taken = []
    with pytest.raises(KeyError, match="broken"):
        for admitted in Admission(broken(), 4).rounds():
            taken += admitted
    assert taken == [(0, "fine")]

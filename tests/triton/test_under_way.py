"""The first model of an ensemble waits for room behind it, unless nothing is at work there."""

import os
import subprocess
import sys
import threading

import pytest

from melforge.common.triton import under_way
from melforge.common.triton.under_way import UnderWay
from tests.triton.conftest import PATIENCE, own_environment


@pytest.fixture
def both(tmp_path, monkeypatch):
    """The first model's count of an ensemble, and a later one's."""
    monkeypatch.setattr(under_way, "SHARED", tmp_path)
    monkeypatch.setattr(under_way, "GPUS", tmp_path / "none")
    return UnderWay("text_to_speech", 4), UnderWay("text_to_speech", 4)


def entering(first, requests):
    thread = threading.Thread(target=first.enter, args=(requests,), daemon=True)
    thread.start()
    return thread


def test_requests_wait_until_others_are_answered(both):
    first, last = both
    with last.at_work():
        first.enter(0)
        first.enter(3)
        waiting = entering(first, 2)
        waiting.join(4 * under_way.IDLE)
        assert waiting.is_alive()
        last.leave(1)
        waiting.join(PATIENCE)
        assert not waiting.is_alive()


def test_more_than_there_is_room_for_go_alone(both):
    first, last = both
    with last.at_work():
        first.enter(9)
        waiting = entering(first, 1)
        last.leave(9)
        waiting.join(PATIENCE)
        assert not waiting.is_alive()


def test_what_was_lost_on_the_way_counts_until_nothing_is_at_work(both):
    first, last = both
    first.enter(4)
    first.enter(4)  # as where only the first model was asked, or the requests were cancelled
    last.leave(9)
    first.enter(4)


def test_a_model_whose_process_has_died_is_not_at_work(both, tmp_path):
    first, _ = both
    first.enter(4)
    (work,) = tmp_path.glob("*-work")
    code = f"import fcntl; file = open({str(work)!r}); fcntl.flock(file, 1); print(flush=True); input()"
    command = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=own_environment(), **pipes) as process:
        process.stdout.readline()
        waiting = entering(first, 1)
        waiting.join(4 * under_way.IDLE)
        assert waiting.is_alive()
        process.kill()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_what_servers_of_the_past_have_left_is_removed(both, tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    gone = tmp_path / f"melforge-{child.pid}-text_to_speech"
    gone.touch()
    UnderWay("recogniser", 4)
    assert not gone.exists() and len(list(tmp_path.glob(f"melforge-{os.getppid()}-*"))) == 4

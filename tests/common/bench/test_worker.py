"""Workloads in child processes: one that hangs or crashes leaves the others."""

import os
import time

import pytest

from melforge.common.bench.peer import load_peer, require_peer
from melforge.common.bench.run import run_workloads
from melforge.common.bench.worker import run_job
from melforge.common.bench.workload import Loading, Subject, Workload

PEERS = """
import os, time
import numpy as np
def good(ids): return [np.zeros(256, np.float32) for _ in ids]
def hangs(ids): time.sleep(60)
def crashes(ids): os._exit(7)
def raises(ids): raise RuntimeError("out of\\nsorts")
def few(ids): return []
"""


@pytest.fixture
def peer(tmp_path, monkeypatch, tiny_voice):
    (tmp_path / "my_peers.py").write_text(PEERS)
    monkeypatch.syspath_prepend(tmp_path)
    subject, loading = Subject("fastpitch", "hifigan"), Loading(voice=str(tiny_voice))
    how = {"symbols": (4,), "runs": 2, "batches": (1, 2), "loading": loading}
    return lambda name: Workload(subject, "", "", peer=f"my_peers:{name}", **how)


def longest_wait(begun: float) -> float:
    """Some times what a process has taken since then: the machine may become busier."""
    return max(8.0, 4 * (time.monotonic() - begun))


@pytest.mark.slow
def test_a_failure_leaves_the_others(peer):
    names = ("raises", "crashes", "hangs", "few", "good")
    shown, begun = [], time.monotonic()
    rows = run_workloads([peer(names[0])], 100.0, None, shown.append)
    limit = longest_wait(begun)
    rows += run_workloads([peer(name) for name in names[1:]], limit, None, shown.append)
    assert rows == shown and [row["batch"] for row in rows] == [1, 2] * len(names)
    why = {row["backend"].partition(":")[2]: row.get("failed") for row in rows}
    assert why == {
        "raises": "RuntimeError: out of sorts",
        "crashes": "its process ended with status 7",
        "hangs": f"no answer within {limit:.0f} s",
        "few": "the peer gave audio of 0 items for 2",
        "good": None,
    }
    assert rows[-1]["samples_per_s"] > 0 and rows[-1]["frames"] == 1


def gives(job):
    yield {"is": job}
    if job == "b":
        os._exit(3)
    if job == "h":
        time.sleep(60)


@pytest.mark.slow
def test_a_child_that_ends_or_hangs_says_so_behind_its_rows():
    assert list(run_job(gives, "a", limit=100.0)) == [{"is": "a"}]
    begun, ended = time.monotonic(), {"ended": "its process ended with status 3"}
    assert list(run_job(gives, "b", limit=100.0)) == [{"is": "b"}, ended]
    limit = longest_wait(begun)
    hung = {"ended": f"no answer within {limit:.0f} s"}
    assert list(run_job(gives, "h", limit=limit)) == [{"is": "h"}, hung]


def test_no_row_begins_after_the_time_is_over(peer):
    rows = run_workloads([peer("good")], 30.0, 1e-6, lambda row: None)
    assert [row["failed"] for row in rows] == ["left out: the time for all rows was over"] * 2


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("my_peers", "--peer must be module:function, such as my_baseline:speak, not 'my_peers'"),
        ("no_peers:best", "there is no module no_peers; it must be importable, as with PYTHONPATH"),
    ],
)
def test_a_peer_that_is_not_there_is_refused(peer, path, message):
    require_peer("my_peers:good")
    with pytest.raises(ValueError, match=message):
        require_peer(path)
    with pytest.raises(ValueError, match="module my_peers has no function 'best'"):
        load_peer("my_peers:best")

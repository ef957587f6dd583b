"""Workloads in child processes: one that hangs or crashes leaves the others."""

import pytest

from melforge.common.bench.models import require_peer
from melforge.common.bench.run import groups, run_workloads
from melforge.common.bench.worker import run_jobs
from melforge.common.bench.workload import Target, Workload

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
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    target, how = Target("fastpitch", "hifigan"), {"voice": str(tiny_voice), "symbols": (4,), "runs": 2}
    return lambda name: Workload(target, "", "", peer=f"my_peers:{name}", batches=(1, 2), **how)


@pytest.mark.slow
def test_a_failure_leaves_the_others(peer):
    names = ("raises", "crashes", "hangs", "few", "good")
    shown = []
    rows = run_workloads([peer(name) for name in names], 8.0, None, shown.append)
    assert rows == shown and [row["batch"] for row in rows] == [1, 2] * len(names)
    why = {row["backend"].partition(":")[2]: row.get("failed") for row in rows}
    assert why == {
        "raises": "RuntimeError: out of sorts",
        "crashes": "its process ended with status 7",
        "hangs": "no answer within 8 s",
        "few": "the peer gave audio of 0 items for 2",
        "good": None,
    }
    assert rows[-1]["samples_per_s"] > 0 and rows[-1]["frames"] == 1


TASK = """
import os, pathlib, time
def task(job):
    yield {"is": job}
    if job == "b":
        os._exit(3)
    if job == "h":
        time.sleep(60)

def at_once(job):
    pathlib.Path("ran").open("a").write(job)
    if job != "a":
        os._exit(0)
    yield {"is": job}
"""


@pytest.mark.slow
def test_a_child_that_ends_is_followed_by_another(tmp_path, monkeypatch):
    """A job that gave nothing, and was not the first of its child, runs once more."""
    (tmp_path / "my_task.py").write_text(TASK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    ended = {"ended": "its process ended with status 3"}
    assert list(run_jobs("my_task:task", "abc", 60.0)) == [
        (0, {"is": "a"}),
        (1, {"is": "b"}),
        (1, ended),
        (2, {"is": "c"}),
    ]
    silent = {"ended": "its process ended with status 0"}
    assert list(run_jobs("my_task:at_once", "aba", 60.0)) == [(0, {"is": "a"}), (1, silent), (2, {"is": "a"})]
    assert (tmp_path / "ran").read_text() == "abba"
    hung = {"ended": "no answer within 8 s"}
    assert list(run_jobs("my_task:task", "ah", 8.0)) == [(0, {"is": "a"}), (1, {"is": "h"}), (1, hung)]


def test_no_row_begins_after_the_time_is_over(peer):
    rows = run_workloads([peer("good")], 30.0, 1e-6, lambda row: None)
    assert [row["failed"] for row in rows] == ["left out: the time for all rows was over"] * 2


def test_workloads_on_a_gpu_share_a_process():
    target = Target("fastpitch", "hifigan")
    workloads = [Workload(target, device=device) for device in ("cpu", "cpu", "cuda", "cuda", "cpu")]
    assert [len(group) for group in groups(workloads)] == [1, 1, 2, 1]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("my_peers", "--peer must be module:function, such as my_baseline:speak, not 'my_peers'"),
        ("my_peers:best", "module my_peers has no function 'best'"),
        ("no_peers:best", "No module named 'no_peers'; it must be importable, as with PYTHONPATH"),
    ],
)
def test_a_peer_that_is_not_there_is_refused(peer, path, message):
    require_peer("my_peers:good")
    with pytest.raises(ValueError, match=message):
        require_peer(path)

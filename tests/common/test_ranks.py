"""Training in two processes, which torchrun begins as a user's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.cli import voice_train
from melforge.common.errors import InputError
from melforge.common.training import ranks
from melforge.common.training.corpus.recordings import save_recordings
from melforge.common.training.loop import load_checkpoint

ROOT = Path(__file__).resolve().parents[2]
RATE, RECORDINGS = 16_000, 80
SIZES = {
    **{"filters": [8, 8, 8], "kernel_sizes": [11, 9, 1], "repeats": [1, 1, 1], "strides": [2, 1, 1]},
    **{"dilations": [1, 1, 1], "dropouts": [0.1, 0.1, 0.1], "residual": [False, True, False]},
    **{"residual_dense": [False, True, False], "separable": [True, True, False]},
    **{"seconds_per_batch": 6, "bucket_seconds": [1.5, 3.0], "warm_up_steps": 1},
}
SETTINGS = [word for name, value in SIZES.items() for word in ("--set", f"{name}={json.dumps(value)}")]


def torchrun(*words: object, check: bool = True) -> subprocess.CompletedProcess:
    """`tests/common/two_ranks.py` in two processes."""
    begin = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [*begin, str(Path(__file__).with_name("two_ranks.py")), *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert not check or result.returncode == 0, result.stderr
    return result


def found_by_both(folder: Path) -> tuple[dict, dict]:
    first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1))
    return first, second


def both_train_alike(folder: Path, device: str) -> tuple[dict, dict]:
    torchrun("toy", folder, device)
    first, second = found_by_both(folder)
    assert max(first["off"], second["off"]) < 1e-6  # halves' mean gradient, from the whole batch's
    assert first["begun"] == second["begun"] != first["ended"]
    assert first["ended"] == second["ended"]
    assert first["told"] == second["told"] == 3.0
    assert first["keys"] == second["keys"] and set(first["keys"]) == {"short", "long"}
    assert not set(first["firsts"]) & set(second["firsts"])
    assert first["drawn"] != second["drawn"]
    return first, second


@pytest.mark.slow
def test_two_ranks_train_alike_each_on_batches_of_its_own(tmp_path):
    first, second = both_train_alike(tmp_path, "cpu")
    # Gloo's must have ended: they aborted a quarter of the processes at their exit.
    assert not [name for name in (*first["threads"], *second["threads"]) if "gloo" in name]


@pytest.mark.gpu
@pytest.mark.two_gpus
def test_captured_steps_average_gradients_of_two_gpus(tmp_path):
    first, second = both_train_alike(tmp_path, "cuda")
    assert first["graphs"] == second["graphs"] == 2


@pytest.fixture
def corpus(tmp_path) -> Path:
    """Recordings of noise, all of one text."""
    rng = np.random.default_rng(0)
    cuts = np.cumsum([0, *(rng.uniform(0.8, 2.8, RECORDINGS) * RATE).astype(int)])
    noise = (3000 * rng.standard_normal(cuts[-1])).astype(np.int16)
    save_recordings(tmp_path / "corpus", noise, cuts, ["ab cd"] * RECORDINGS, RATE)
    return tmp_path / "corpus"


@pytest.mark.slow
def test_a_run_of_two_ranks_ends_alike_and_goes_on_with_batches_not_seen(corpus, tmp_path):
    out = tmp_path / "run"
    words = "jasper", tmp_path, "--corpus", corpus, "--out", out, "--device", "cpu", *SETTINGS
    printed = torchrun(*words, "--steps", 3).stdout
    assert printed.count("step 1 ") == 1
    begun = found_by_both(tmp_path)
    trained = load_checkpoint(out / "last.pt", torch.device("cpu"))["schedule"]["seconds"]
    torchrun(*words, "--resume", out / "last.pt", "--minutes", trained / 60 + 0.1)
    ended = found_by_both(tmp_path)
    for first, second in (begun, ended):
        assert first["weights"] == second["weights"] and len(first["seen"]) == len(second["seen"])
        assert first["drawn"] != second["drawn"]
    assert begun[0]["weights"] != ended[0]["weights"]
    steps = load_checkpoint(out / "last.pt", torch.device("cpu"))["schedule"]["step"]
    assert steps == 3 + len(ended[0]["seen"]) > 3
    seen = [member for run in (*begun, *ended) for batch in run["seen"][:3] for member in batch]
    assert len(seen) == len(set(seen)) > 12  # all of the first pass
    assert sorted(path.name for path in out.iterdir() if path.suffix != ".png") == [
        "last.pt",
        "losses.csv",
        "weights.safetensors",
    ]
    assert (out / "losses.csv").read_text().count("step,") == 1


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_others(corpus, tmp_path):
    out = tmp_path / "run"
    words = "jasper", tmp_path, "--corpus", corpus, "--out", out, "--device", "cpu", *SETTINGS
    result = torchrun(*words, "--steps", 1000, "--fail", check=False)
    assert result.returncode == 1
    assert result.stderr.count("error: recording.wav: gone") == 1
    assert "exitcode  : 2" in result.stderr.partition("Root Cause")[2]


@pytest.fixture
def begun_by_torchrun(monkeypatch):
    told = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)


def test_processes_that_find_no_others_are_refused(begun_by_torchrun, monkeypatch):
    monkeypatch.delenv("LOCAL_RANK")
    with pytest.raises(
        InputError, match=r"WORLD_SIZE is 2 but LOCAL_RANK is not set: begin the processes by"
    ):
        ranks.join(torch.device("cpu"))


def test_more_processes_than_gpus_are_refused(begun_by_torchrun, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InputError, match=r"no GPU is left for process 2: give torchrun --nproc_per_node 1"):
        ranks.join(torch.device("cuda"))
    with pytest.raises(InputError, match=r"--device cuda:0: give cuda, each of 2 processes takes a GPU"):
        ranks.join(torch.device("cuda:0"))


def test_gpus_without_nccl_are_refused(begun_by_torchrun, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    with pytest.raises(InputError, match=r"it has no NCCL: begin one process"):
        ranks.join(torch.device("cuda"))


def test_a_voice_is_trained_by_one_process(begun_by_torchrun, tmp_path):
    with pytest.raises(InputError, match=r"melforge voice train is one process: begin it without torchrun"):
        voice_train.main([str(tmp_path), "-o", str(tmp_path / "run")])


def test_one_process_is_alone():
    batches = iter([("key", 1)])
    assert ranks.own_batches(batches) is batches
    assert ranks.join(torch.device("cpu")) == torch.device("cpu") and not torch.distributed.is_initialized()
    assert ranks.is_first() and ranks.count() == 1 and ranks.of_first(0.5) == 0.5

"""The checks of a GPU: their rows, their page, and what is said where there is no GPU."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from melforge.common.bench.table import cells_of
from melforge.common.verify.gpu import checks, pairs
from melforge.common.verify.gpu.checks import document

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "scripts/check_gpu.py", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)


@pytest.mark.no_gpu
def test_without_a_gpu_it_says_so(tmp_path):
    found = run("--out", str(tmp_path / "x"))
    assert found.returncode == 2 and "PyTorch sees none here" in found.stderr
    assert not (tmp_path / "x").exists()


def test_an_unknown_step_and_an_empty_folder_are_named(tmp_path):
    found = run("--steps", "verify,paris")
    assert found.returncode == 2 and "'paris'" in found.stderr and "pairs" in found.stderr
    found = run("--document", str(tmp_path / "page.md"), "--out", str(tmp_path))
    assert found.returncode == 2 and "has no results" in found.stderr
    assert not (tmp_path / "page.md").exists()


def test_jobs_cover_all_pairs_and_precisions():
    assert len(pairs.pair_jobs(["fp16"], backend="trt")) == 6
    assert len(pairs.pair_jobs([pairs.PYTORCH, "fp16"], folder="x")) == 12
    assert len(checks.verify_jobs(["tacotron2"], ["voice", "published"], ["fp32"], "p", "g")) == 2


def test_a_child_that_fails_leaves_a_row_and_the_others_go_on():
    """Both jobs need a GPU or TensorRT, which say why they are not there; the third names no model."""
    rows = checks.run_checks(
        "verify",
        [{"origin": "voice", "model": model, "precision": "fp32"} for model in ("hifigan", "no_such_model")],
        limit=120,
    )
    assert [row["model"] for row in rows] == ["hifigan", "no_such_model"]
    assert "no_such_model" in rows[1]["failed"]


def test_verification_compares_every_layer_and_draws(tmp_path):
    about = {"origin": "voice", "model": "hifigan", "precision": "fp32"}
    row = checks.check_model("voice", "hifigan", "fp32", str(tmp_path), backend="onnx", device="cpu")
    assert row["report"]["ok"]
    assert cells_of(checks.VERIFY_COLUMNS, about | row)[-1] == "ok"
    assert (tmp_path / "verify-voice-hifigan-fp32.png").stat().st_size > 1000


def test_symbols_last_with_random_weights(tmp_path):
    from melforge.common.bench.random_weights import random_source

    source = checks.lasting(random_source("fastspeech", tmp_path))
    biases = [x for name, x in source.state.items() if "duration_predictor" in name and x.shape == (1,)]
    assert [float(x[0]) for x in biases] == [pytest.approx(math.log(6))]
    assert source.frontend.name == "fastspeech"


def test_rows_about_the_same_are_replaced_and_stand_on_the_page(tmp_path):
    row = {"origin": "voice", "model": "hifigan", "precision": "fp16", "failed": "no answer within 90 s"}
    checks.write_rows(tmp_path / "verify.json", [row, {**row, "precision": "fp32"}])
    checks.write_rows(tmp_path / "verify.json", [{**row, "failed": "status 1"}])
    rows = json.loads((tmp_path / "verify.json").read_text())
    assert [one["failed"] for one in rows] == ["status 1", "no answer within 90 s"]
    page = document(tmp_path)
    assert "| hifigan | voice | fp16 | failed: status 1 |" in page

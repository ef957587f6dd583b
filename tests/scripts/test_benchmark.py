"""scripts/benchmark.py: a row for each way to run, with its stages and its memory."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from melforge.common.cli.benchmark import main
from tests.tables import read_tables

ROOT = Path(__file__).parent.parent.parent


def benchmark(voice: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "scripts" / "benchmark.py"), "--runs", "1", *arguments]
    environment = os.environ | {"MELFORGE_VOICES": str(voice.parent), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_results_of_a_pair(tiny_voice):
    result = benchmark(
        tiny_voice, "--acoustic", "fastpitch", "--vocoder", "all", "--backend", "onnx", "--json"
    )
    assert result.returncode == 0, result.stderr
    results = json.loads(result.stdout)
    (row,) = results["rows"]
    assert (row["name"], row["backend"], row["batch"]) == ("fastpitch -> hifigan", "onnx", 1)
    stages = {stage["stage"]: stage for stage in row["stages"]}
    assert {"fastpitch.encoder", "fastpitch.decoder", "hifigan.generator"} <= set(stages)
    assert stages["fastpitch.encoder"]["calls"] == 1
    spent = sum(stage["seconds"] for stage in row["stages"])
    assert 0 < spent <= row["engines_s"] and row["times_real_time"] > 0
    (flow,), (cold,) = results["streams"], results["cold"]
    assert flow["first_audio_s"] > 0 and cold["seconds"] > cold["parts"]["load_acoustic"] > 0
    assert 20e6 < cold["peak_bytes"] < 4e9 and 20e6 < row["memory_bytes"] < 4e9


@pytest.mark.slow
def test_new_texts_beside_a_fixed_length(tiny_voice, tmp_path):
    (tmp_path / "texts.txt").write_text("The first of them.\nA second one.\nThe third.\n")
    words = ("--texts", str(tmp_path / "texts.txt"), "--symbols", "8", "--backend", "onnx", "--json")
    result = benchmark(tiny_voice, *words)
    assert result.returncode == 0, result.stderr
    results = json.loads(result.stdout)
    calls = [(row["symbols"], row.get("call"), row["runs"]) for row in results["rows"]]
    assert calls == [(8, None, 1), (None, "speak", 2), (None, "stream", 2)]
    assert not results["cold"] and not results["streams"]
    assert "new texts of texts.txt, the voice: onnx fp32 batch 1 speak: " in result.stderr


@pytest.mark.slow
def test_fixed_lengths_a_peer_and_files(tiny_voice, tmp_path):
    words = ("--acoustic", "fastpitch", "--symbols", "4,8", "--backend", "onnx", "--json")
    more = ("--batches", "1,2", "--peer", "examples.benchmark_peer:speak", "-o", str(tmp_path))
    first, second = benchmark(tiny_voice, *words, *more), benchmark(tiny_voice, *words)
    assert first.returncode == 0, first.stderr
    results, again = (json.loads(result.stdout) for result in (first, second))
    rows = results["rows"]
    assert [row["frames"] for row in rows] == [20, 20, 40, 40] * 2
    assert [row["backend"] for row in rows] == ["onnx"] * 4 + ["examples.benchmark_peer:speak"] * 4
    # The same again, but for times and memory.
    same = ("name", "backend", "batch", "symbols", "frames", "audio_s", "runs")
    alone = [row for row in rows if row["batch"] == 1 and row["backend"] == "onnx"]
    for row, other in zip(alone, again["rows"], strict=True):
        assert [row[key] for key in same] == [other[key] for key in same]
        stages = [[(s["stage"], s["sizes"], s["calls"]) for s in one["stages"]] for one in (row, other)]
        assert stages[0] == stages[1]
    assert results["command"].startswith("python scripts/benchmark.py --runs 1")
    assert {"commit", "cpu", "cores"} <= results["machine"].keys()
    assert {"results.json", "results.md"} <= {file.name for file in tmp_path.iterdir()}


@pytest.mark.parametrize(("words", "message"), read_tables(Path(__file__).parent / "cases.txt")["benchmark"])
def test_what_cannot_be_measured_is_refused_in_a_sentence(tiny_voice, monkeypatch, words, message):
    monkeypatch.setenv("MELFORGE_VOICES", str(tiny_voice.parent))
    monkeypatch.setattr("sys.argv", ["benchmark.py", *words.split()])
    with pytest.raises(ValueError, match=re.escape(message)):
        main()


def test_results_that_cannot_be_written_are_not_measured(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        main(["--out", str(tmp_path / "file" / "results")])

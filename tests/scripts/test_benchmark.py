"""scripts/benchmark.py: a row for each pair and backend, with its stages and its memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def benchmark(voice: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "scripts" / "benchmark.py"), "--runs", "1", *arguments]
    environment = os.environ | {"MELFORGE_VOICES": str(voice.parent), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_figures_of_a_pair(tiny_voice):
    result = benchmark(
        tiny_voice, "--acoustic", "fastpitch", "--vocoder", "all", "--backend", "onnx", "--json"
    )
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    (row,) = figures["rows"]
    assert (row["name"], row["backend"], row["batch"]) == ("fastpitch -> hifigan", "onnx", 1)
    stages = {stage["stage"]: stage for stage in row["stages"]}
    assert {"fastpitch.encoder", "fastpitch.decoder", "hifigan.generator"} <= set(stages)
    assert stages["fastpitch.encoder"]["calls"] == 1
    spent = sum(stage["seconds"] for stage in row["stages"])
    assert 0 < spent <= row["device_s"] and row["rtf"] > 0
    (flow,), (cold,) = figures["streams"], figures["cold"]
    assert flow["first_audio_s"] > 0 and cold["seconds"] > cold["parts"]["load acoustic"] > 0
    assert 20e6 < cold["peak_bytes"] < 4e9 and 20e6 < row["memory_bytes"] < 4e9


def test_unknown_models_are_named(tiny_voice):
    result = benchmark(tiny_voice, "--acoustic", "fastpitch,tacotron")
    assert result.returncode == 2
    assert "unknown acoustic model 'tacotron': did you mean 'tacotron2'?" in result.stderr

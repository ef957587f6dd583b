"""The commands around voices: exporting, checking, making one, measuring."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx

ROOT = Path(__file__).parent.parent.parent


def run(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)


def test_export_check_prints_every_comparison(tiny_voice):
    before = {path: path.stat().st_mtime_ns for path in tiny_voice.rglob("*")}
    result = run("scripts/export.py", "--voice", tiny_voice, "--check")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    for stage in ("fastpitch.encoder", "fastpitch.decoder", "hifigan.generator"):
        assert sum(line.startswith(stage) and line.endswith("ok") for line in lines) == 7
    assert {path: path.stat().st_mtime_ns for path in tiny_voice.rglob("*")} == before


def test_export_check_fails_on_a_wrong_graph(voice_copy):
    graph = voice_copy / "hifigan" / "generator.onnx"
    model = onnx.load(graph, load_external_data=False)
    next(node for node in model.graph.node if node.op_type == "LeakyRelu").attribute[0].f = 0.3
    graph.write_bytes(model.SerializeToString())
    result = run("-m", "hifigan.export_onnx", "--voice", voice_copy, "--check")
    assert result.returncode == 1 and "FAILS" in result.stdout and "fastpitch" not in result.stdout


def test_make_voice_refuses_weights_without_a_config(tmp_path):
    (tmp_path / "weights.safetensors").write_bytes(b"nothing")
    result = run("scripts/make_voice.py", tmp_path / "new", "--checkpoint", tmp_path / "weights.safetensors")
    assert result.returncode == 2 and "no whole safetensors file" in result.stderr
    assert not (tmp_path / "new").exists()


def test_benchmark_reports_every_figure(tiny_voice):
    result = run("scripts/benchmark.py", "--voice", tiny_voice, "--backend", "onnx", "--runs", "2", "--json")
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["speed"]["onnx"]["rtf"] > 0
    assert figures["stream"]["onnx"]["first_audio_s"] > 0
    assert figures["cold"]["peak_bytes"] > 1e7
    assert sum(figures["cold"]["parts"].values()) > 0

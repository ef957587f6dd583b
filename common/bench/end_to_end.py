"""Speaking as users do: the stream of a paragraph, and a process of scripts/infer.py from its start."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common.bench.machine import RSS_UNIT
from common.bench.models import SENTENCES
from common.bench.workload import Workload
from common.errors import InputError
from common.runner import TextToSpeech

INFER = Path(__file__).resolve().parents[2] / "scripts" / "infer.py"
PARAGRAPH = " ".join(SENTENCES[1:])


def stream(tts: TextToSpeech, runs: int) -> dict[str, float]:
    """Time to first audio of a paragraph, and how far ahead of a player the rest stays."""
    firsts, margins, seconds = [], [], 0.0
    for _ in range(runs):
        begun = time.perf_counter()
        playing_until, seconds, margin = 0.0, 0.0, float("inf")
        for number, chunk in enumerate(tts.stream(PARAGRAPH)):
            arrived = time.perf_counter() - begun
            if number == 0:
                firsts.append(arrived)
                playing_until = arrived
            margin = min(margin, playing_until - arrived) if number else margin
            playing_until += len(chunk) / tts.sampling_rate
            seconds += len(chunk) / tts.sampling_rate
        margins.append(margin)
    return {
        "first_audio_s": statistics.median(firsts),
        "slowest_first_audio_s": max(firsts),
        "smallest_margin_s": min(margins),
        "audio_s": seconds,
    }


def cold_process(workload: Workload, runs: int, warm_up: bool = False) -> dict[str, Any]:
    """A new process of scripts/infer.py from start to its wav file."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(INFER), "--text", SENTENCES[0], "-o", f"{folder}/x.wav", "--json"]
        if warm_up:
            _time_process([*command, *workload.arguments, "--warm-up"])
        for _ in range(max(3, runs // 2)):
            results.append(_time_process([*command, *workload.arguments]))
    seconds, peak, report = sorted(results, key=lambda result: result[0])[len(results) // 2]
    timings = report["phrases"][0]["timings"]
    parts = {f"load {name}": value for name, value in report["load"].items()}
    parts |= {name: timings[f"{name}_s"] for name in ("text", "acoustic", "vocoder", "join", "write")}
    return {
        "seconds": seconds,
        "parts": {"Python, imports, exit": seconds - sum(parts.values()), **parts},
        "peak_bytes": peak,
    }


def _time_process(command: list[str]) -> tuple[float, int, dict[str, Any]]:
    """Seconds, peak memory in bytes, and the JSON that it printed."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        # Not process.wait(): only this tells the memory of this one process.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        out.seek(0)
        errors.seek(0)
        if process.returncode:
            raise InputError(f"scripts/infer.py failed: {errors.read().decode().strip()}")
        return seconds, usage.ru_maxrss * RSS_UNIT, json.load(out)

"""Measures speaking on this machine: speed, a cold process, memory, and the first sound of a stream."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

from common.runner import TextToSpeech

SENTENCE = (
    "The examination and testimony of the experts enabled the commission to conclude "
    "that five shots may have been fired."
)
PARAGRAPH = (
    "In being comparatively modern, the art has neither the charm of age nor the weight of a long tradition, "
    "and for that reason it is often passed over by those who write about older crafts. "
    "The earliest book printed with movable types is a work of great beauty. "
    "It was made in the middle of the fifteenth century, and it has never been surpassed. "
    "Printers of later times took less care, and what they made was cheaper, and looked it. "
    "Only in our own day have some of them gone back to the first models, with great success."
)
INFER = Path(__file__).resolve().parent.parent / "scripts" / "infer.py"


def measure(voice: str | None, backends: list[str], threads: int | None, runs: int) -> dict[str, Any]:
    """Every figure that the report shows."""
    figures: dict[str, Any] = {"machine": describe_machine(), "speed": {}, "stream": {}}
    figures["cold"] = cold_process(voice, threads, runs)
    for backend in backends:
        tts = TextToSpeech.load(voice=voice, backend=backend, device="cpu", threads=threads)
        figures["speed"][backend] = speed(tts, runs)
        figures["stream"][backend] = stream(tts, runs)
    return figures


def describe_machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    versions = {}
    for package in ("numpy", "onnxruntime", "torch"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "date": date.today().isoformat(),
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **versions,
    }


def speed(tts: TextToSpeech, runs: int) -> dict[str, float]:
    """Text to samples in memory, warm."""
    tts.speak(SENTENCE)
    answers = [tts.speak(SENTENCE) for _ in range(runs)]
    middle = sorted(answers, key=lambda audio: audio.timings.total)[len(answers) // 2]
    return middle.timings.summary()


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


def cold_process(voice: str | None, threads: int | None, runs: int) -> dict[str, Any]:
    """A new process of scripts/infer.py from start to its wav file."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(INFER), "--text", SENTENCE, "-o", f"{folder}/x.wav", "--json"]
        command += ["--voice", voice] if voice else []
        command += ["--threads", str(threads)] if threads else []
        for _ in range(max(3, runs // 2)):
            start = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True)
            seconds = time.perf_counter() - start
            if done.returncode:
                raise ValueError(f"scripts/infer.py failed: {done.stderr.strip()}")
            results.append((seconds, json.loads(done.stdout)))
    seconds, report = sorted(results, key=lambda result: result[0])[len(results) // 2]
    timings = report["phrases"][0]["timings"]
    parts = {f"load {name}": value for name, value in report["load"].items()}
    parts |= {name: timings[f"{name}_s"] for name in ("text", "acoustic", "vocoder", "join", "write")}
    # Of all children so far; they were all this command.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "seconds": seconds,
        "parts": {"Python, imports, exit": seconds - sum(parts.values()), **parts},
        "peak_bytes": peak,
    }


def markdown(figures: dict[str, Any]) -> str:
    machine = figures["machine"]
    lines = [
        ", ".join(f"{name} {value}" for name, value in machine.items()),
        "",
        "| backend | audio | text to samples | times real time | acoustic | vocoder | first audio | margin |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for backend, figure in figures["speed"].items():
        flow = figures["stream"][backend]
        cells = (
            backend,
            f"{figure['audio_s']:.2f} s",
            milliseconds(figure["total_s"]),
            f"{figure['rtf']:.1f}",
            milliseconds(figure["acoustic_s"]),
            milliseconds(figure["vocoder_s"]),
            milliseconds(flow["first_audio_s"]),
            milliseconds(flow["smallest_margin_s"]) + (" (gap!)" if flow["smallest_margin_s"] < 0 else ""),
        )
        lines.append(f"| {' | '.join(cells)} |")
    cold = figures["cold"]
    lines += [
        "",
        "First audio and margin: `stream` of a paragraph; the margin is what a player that starts at once "
        "still has to play, at worst, when the next chunk comes.",
        "",
        f"A cold process: {cold['seconds']:.2f} s to its wav file, "
        f"peak memory {cold['peak_bytes'] / 1e6:.0f} MB.",
        "",
        "| part | time |",
        "|---|---|",
        *(f"| {name} | {milliseconds(seconds)} |" for name, seconds in cold["parts"].items()),
    ]
    return "\n".join(lines)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"

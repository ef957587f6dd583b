"""Measures speaking on this machine: speed, a cold process, memory, and the first sound of a stream."""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from common.arrays import Array
from common.deployment import Deployment
from common.engines import Engine
from common.model_settings import backend_texts, on_another, shown
from common.registry import MODELS, get_model
from common.runner import KINDS, TextToSpeech, choose_sources, parse_backends
from common.voices import load_voice

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


@dataclass(frozen=True)
class Case:
    """What one row of the report measures."""

    acoustic: str
    vocoder: str
    backend: str
    voice: str | None = None
    checkpoints: Sequence[str] = ()
    threads: int | None = None
    decoder: str | None = None
    deployments: Mapping[str, Deployment] = field(default_factory=dict)  # by model, as `load` takes them
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """The CPU, unless TensorRT is to run, which needs a GPU: then what each backend picks."""
        return "auto" if "trt" in self.backend else "cpu"

    @property
    def arguments(self) -> list[str]:
        """The same for scripts/infer.py."""
        given = {
            "--acoustic": self.acoustic,
            "--vocoder": self.vocoder,
            "--backend": self.backend,
            "--voice": self.voice,
            "--threads": self.threads and str(self.threads),
            "--device": self.device,
            # Only where there is one to choose: with the other acoustic models it is an error.
            "--decoder": self.decoder if has_decoders(self.acoustic) else None,
        }
        files = [word for file in self.checkpoints for word in ("--checkpoint", file)]
        sets = [
            word
            for model in (self.acoustic, self.vocoder)
            for key, value in (
                not_default(self.deployments.get(model)) | self.overrides.get(model, {})
            ).items()
            for word in ("--set", f"{model}.{key}={shown(value)}")
        ]
        return [word for name, value in given.items() if value for word in (name, value)] + files + sets

    def load(self, watch: Callable[[Engine], Engine] | None = None) -> TextToSpeech:
        return TextToSpeech.load(
            self.acoustic,
            self.vocoder,
            voice=self.voice,
            checkpoints=self.checkpoints,
            backend=self.backend,
            device=self.device,
            threads=self.threads,
            decoder=self.decoder if has_decoders(self.acoustic) else None,
            watch=watch,
            deployments=self.deployments,
            overrides=self.overrides,
        )


def make_cases(acoustics: Sequence[str], vocoders: Sequence[str], backend: str, **how: Any) -> list[Case]:
    """A case for each pair and each backend; of what `how` and the backends say, what is for its models."""
    cases = []
    for acoustic, vocoder, text in itertools.product(acoustics, vocoders, backend_texts(backend)):
        here = backend_of(text, acoustic, vocoder)
        backends = parse_backends(here, {"acoustic": acoustic, "vocoder": vocoder})
        deployments = {
            model: deployment if backends[get_model(model).kind] == "trt" else on_another(deployment)
            for model, deployment in how.get("deployments", {}).items()
            if model in (acoustic, vocoder)
        }
        cases.append(Case(acoustic, vocoder, here, **{**how, "deployments": deployments}))
    return cases


def backend_of(text: str, acoustic: str, vocoder: str) -> str:
    """The backends' text without the other models that it names."""
    others = MODELS.keys() - {acoustic, vocoder}
    parts = [part for part in text.split(",") if part.partition("=")[0].strip() not in others]
    return ",".join(parts) or "onnx"


def not_default(deployment: Deployment | None) -> dict[str, Any]:
    """The fields that say something."""
    values = asdict(deployment or Deployment())
    return {name: value for name, value in values.items() if value != getattr(Deployment, name)}


def has_decoders(model: str) -> bool:
    return hasattr(get_model(model).module("stages"), "VARIANTS")


def choose_models(words: str | None, kind: str, voice: str | None, checkpoints: Sequence[str]) -> list[str]:
    """ "fastpitch,tacotron2", "all" of the voice's, or None: the voice's own or the checkpoint's."""
    if words == "all":
        return load_voice(voice).models_of(kind)
    wanted = [word.strip() for word in words.split(",")] if words else [None]
    for name in wanted:
        if name is not None:
            get_model(name, kind)
    if wanted != [None]:
        return wanted
    return [choose_sources(dict.fromkeys(KINDS), voice, checkpoints)[kind].model]


def measure(
    cases: Sequence[Case], runs: int, warm_up: Callable[[TextToSpeech], None] | None = None
) -> dict[str, Any]:
    """Every figure that the report shows; `warm_up` is called with what is to be measured.

    Cold processes come behind one that warms up too, and find what it left in files.
    """
    # First of all, while this process is small: a new process counts the memory of the one it came from.
    cold = [cold_process(case, runs, warm_up is not None) for case in cases]
    rows = []
    for case, start in zip(cases, cold, strict=True):
        clock = StageClock()
        tts = case.load(clock.watch)
        if warm_up:
            warm_up(tts)
        figures = {"speed": speed(tts, runs, clock), "stages": clock.figures(runs)}
        figures |= {"stream": stream(tts, runs), "cold": start}
        rows.append({"acoustic": case.acoustic, "vocoder": case.vocoder, "backend": case.backend, **figures})
    return {"machine": describe_machine(), "rows": rows}


class StageClock:
    """Measures every call of the engines it watches."""

    def __init__(self) -> None:
        self.calls: dict[str, list[float]] = {}

    def watch(self, engine: Engine) -> Engine:
        return _Watched(engine, self.calls)

    def figures(self, runs: int) -> list[dict[str, Any]]:
        """Of one run, on average: calls of each stage, and the seconds in them."""
        return [
            {"stage": name, "calls": round(len(calls) / runs), "seconds": sum(calls) / runs}
            for name, calls in self.calls.items()
        ]


class _Watched:
    """An engine that notes how long its calls take."""

    def __init__(self, engine: Engine, calls: dict[str, list[float]]):
        self._engine = engine
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        start = time.perf_counter()
        outputs = self._engine(**inputs)
        if self._engine.device != "cpu":
            importlib.import_module("torch").cuda.synchronize(self._engine.device)
        self._calls.setdefault(self._engine.stage.full_name, []).append(time.perf_counter() - start)
        return outputs


def describe_machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    versions = {}
    for package in ("numpy", "onnxruntime", "torch", "tensorrt-rtx-cu13-bindings", "tensorrt"):
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


def speed(tts: TextToSpeech, runs: int, clock: StageClock) -> dict[str, float]:
    """Text to samples in memory, warm."""
    tts.speak(SENTENCE)
    clock.calls.clear()
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


def cold_process(case: Case, runs: int, warm_up: bool = False) -> dict[str, Any]:
    """A new process of scripts/infer.py from start to its wav file."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(INFER), "--text", SENTENCE, "-o", f"{folder}/x.wav", "--json"]
        if warm_up:
            _time_process([*command, *case.arguments, "--warm-up"])
        for _ in range(max(3, runs // 2)):
            results.append(_time_process([*command, *case.arguments]))
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
            raise ValueError(f"scripts/infer.py failed: {errors.read().decode().strip()}")
        # Kilobytes, but bytes on macOS.
        return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), json.load(out)


HEADINGS = (
    *("models", "backend", "audio", "text to samples", "times real time", "acoustic", "vocoder"),
    *("first audio", "margin", "cold process", "peak memory"),
)


def markdown(figures: dict[str, Any]) -> str:
    rows = figures["rows"]
    titles = [(f"{row['acoustic']}, {row['vocoder']}", row["backend"]) for row in rows]
    stages = [
        (*title, stage["stage"], str(stage["calls"]), milliseconds(stage["seconds"]))
        for title, row in zip(titles, rows, strict=True)
        for stage in row["stages"]
    ]
    parts = [
        (part, *(milliseconds(row["cold"]["parts"][part]) for row in rows))
        for part in rows[0]["cold"]["parts"]
    ]
    lines = [
        ", ".join(f"{name} {value}" for name, value in figures["machine"].items()),
        "",
        *_table(HEADINGS, [(*title, *_cells(row)) for title, row in zip(titles, rows, strict=True)]),
        "",
        "Text to samples: a sentence, warm. First audio and margin: `stream` of a paragraph; the margin is "
        "what a player that starts at once still has to play, at worst, when the next chunk comes. A cold "
        "process: scripts/infer.py from its start to its wav file, with its peak memory.",
        "",
        "The stages, for the sentence:",
        "",
        *_table(("models", "backend", "stage", "calls", "time"), stages),
        "",
        "A cold process:",
        "",
        *_table(("part", *(f"{models}, {backend}" for models, backend in titles)), parts),
    ]
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    figure, flow, cold = row["speed"], row["stream"], row["cold"]
    return (
        f"{figure['audio_s']:.2f} s",
        milliseconds(figure["total_s"]),
        f"{figure['rtf']:.1f}",
        milliseconds(figure["acoustic_s"]),
        milliseconds(figure["vocoder_s"]),
        milliseconds(flow["first_audio_s"]),
        milliseconds(flow["smallest_margin_s"]) + (" (gap!)" if flow["smallest_margin_s"] < 0 else ""),
        f"{cold['seconds']:.2f} s",
        f"{cold['peak_bytes'] / 1e6:.0f} MB",
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = "|" + "---|" * len(headings)
    return [f"| {' | '.join(headings)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"

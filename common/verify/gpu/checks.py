"""The checks of a GPU: verify_trt of every model, and runs of the checks in worker processes; their page."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from melforge.common.bench.random_weights import random_source
from melforge.common.bench.table import Column, Row, columns_of, counts, table_of
from melforge.common.bench.worker import run_jobs
from melforge.common.bench.workload import GRAPHS
from melforge.common.config.deployment import Deployment
from melforge.common.engines.tensorrt.engine_file import needed_stages
from melforge.common.errors import InputError
from melforge.common.export.to_onnx import with_graphs
from melforge.common.files import write_bytes
from melforge.common.registry import get_model
from melforge.common.speech import Controls
from melforge.common.stages import plan_of
from melforge.common.stages.choose import KINDS, pads_masked
from melforge.common.verify.gpu import pairs
from melforge.common.verify.report import draw
from melforge.common.verify.stages import Setup, verify
from melforge.common.weights.voices import FrontendSpec, ModelSource, load_voice

# The columns that identify a row.
KEYS = ("origin", "model", "acoustic", "vocoder", "backend", "precision", "example")

Job = dict[str, Any]  # a check's arguments; its row has those of KEYS and what was found, or why it "failed"
TEXT = "It just works."
FRAMES = 5  # that a symbol of a network with random weights lasts
RESULTS = ("mel", "refined", "audio")  # a model's last output
STEPS = 60  # of a decoder with random weights, which stops at any time


def verify_jobs(
    models: Sequence[str], origins: Sequence[str], precisions: Sequence[str], plots: str, graphs: str
) -> list[dict[str, Any]]:
    """A job for each model in each precision; the largest networks come first."""
    return [
        {"origin": origin, "model": model, "precision": precision, "plots": plots, "graphs": graphs}
        for origin in sorted(origins)
        for model in reversed(list(models))
        for precision in precisions
    ]


def check_model(
    origin: str,
    model: str,
    precision: str,
    plots: str = "",
    graphs: str | Path = GRAPHS,
    backend: str = "trt",
    device: str = "cuda",
) -> Row:
    """One model: the whole report of `verify`."""
    kind, published = get_model(model).kind, origin == "published"
    source = lasting(random_source(model, Path(graphs))) if published else load_voice().source(model)
    deployment = Deployment(batch_size=1, precision=precision)
    deployment = replace(deployment, mask_padding=pads_masked(source, deployment))
    decoder = "steps" if model == "tacotron2" else None
    stages = needed_stages(source, deployment, decoder, backend=backend)
    setup = Setup(with_graphs(source, stages), backend, device, deployment, plan_of(model).layers)
    controls = Controls(step_limit=STEPS, gate_threshold=1.0) if published and decoder else None
    others = dict(zip(KINDS, ("fastpitch", "hifigan"), strict=True))
    sources = {one: source if one == kind else load_voice().source(others[one]) for one in KINDS}
    found = verify(TEXT, sources, {kind: setup}, decoder, controls)
    if plots:
        Path(plots).mkdir(parents=True, exist_ok=True)
        write_bytes(Path(plots) / f"verify-{origin}-{model}-{precision}.png", draw(found))
    return {"report": found.report()}


def lasting(source: ModelSource) -> ModelSource:
    """The network with durations of FRAMES: random weights alone predict durations of zero."""
    spec = FrontendSpec(source.model, {}) if get_model(source.model).kind == "acoustic" else None
    state = dict(source.state)
    for name, bias in state.items():
        if "duration_predictor" in name and bias.shape == (1,):  # of its last layer: log(1 + frames)
            state[name] = np.full(1, math.log(1 + FRAMES), np.float32)
    return replace(source, given_state=state, frontend=spec)


def worst_of(row: Row) -> Row:
    """The tensor that is nearest to its tolerance."""
    return max(row["report"]["tensors"], key=lambda one: float(one["excess"]))


def output_of(row: Row) -> Row:
    tensors = reversed(row["report"]["tensors"])
    return next(one for one in tensors if one["name"] in RESULTS and not one["layer"])


def verdict_of(row: Row) -> str:
    return "ok" if row["report"]["ok"] else f"OUT: {row['report']['first_wrong'] or 'the sentence'}"


VERIFY_COLUMNS: tuple[Column, ...] = (
    *columns_of("model: model", "weights: origin", "precision: precision"),
    ("tensors", lambda row: str(len(row["report"]["tensors"]))),
    ("worst", lambda row: "{stage}: {name}".format(**worst_of(row))),
    ("of its tolerance", lambda row: f"{float(worst_of(row)['excess']):.2f}"),
    ("output error", lambda row: f"{float(output_of(row)['relative']):.1e}"),
    ("SNR dB", lambda row: f"{float(output_of(row)['snr_db']):.0f}"),
    ("mel", lambda row: f"{float(row['report']['speech']['mel']):.1e}"),
    ("audio mel", lambda row: f"{float(row['report']['speech']['audio_mel']):.1e}"),
    ("frames", lambda row: counts(row["report"]["speech"]["frames"])),
    ("verdict", verdict_of),
)


class Check(NamedTuple):
    """One step: the function of a job, and its table on the page."""

    run: Callable[..., Row]
    timed: bool  # one at a time
    columns: Sequence[Column]
    head: int  # the number of columns that identify a row


INTRODUCTION = """# TensorRT on a GPU: results of the checks

The results of `python scripts/check_gpu.py`, written by its option `--document`. Errors without a unit are
relative: root mean squares over that of the tensor. Weights: `voice` are those of the shipped voice,
`published` are random ones in networks of the published sizes. [verify.md](verify.md) describes the
comparison and the tolerances."""
TEXTS = {
    "verify": """## Layers and stages against PyTorch (verify_trt)

`--steps verify`: the layers listed in each model's `stages.py` and all outputs of its stages, with the same
inputs on both backends; then the sentence "It just works." end to end. "mel" and "audio mel" are the mean
absolute differences of the mels and of the mels of the audio (natural logarithm). "worst" is the tensor with
the largest error as a part of its tolerance.""",
    "sentences": """## Twenty sentences with every pair

`--steps sentences`: TensorRT engines for buckets of 384, 768 and 1024 frames, and PyTorch in float32.
"slowest ms" is the longest time of a sentence, after warming up. [verify.md](verify.md) has the scores.""",
    "example": """## Without PyTorch

`--steps example`: examples/speak_tensorrt.py (numpy, pycuda and TensorRT) against the runner with the same
engines. The wav file has 16 bits: its rounding error is up to 3e-05.""",
    "pairs": f"""## One sentence with every pair

`--steps pairs`: {pairs.RUNS} calls from text to samples on the host, after 3 warm-up calls. "PyTorch ms" is
PyTorch in float32, eager, in the same process. "copies" are those between host and GPU during vocoding.""",
    "mix": f"""## A mix of backends

`--steps mix`: `--backend {pairs.MIX}`, ONNX Runtime with its CUDA provider and I/O binding.""",
}
CHECKS = {
    "verify": Check(check_model, False, VERIFY_COLUMNS, 3),
    "sentences": Check(pairs.check_sentences, False, pairs.SENTENCE_COLUMNS, 3),
    "example": Check(pairs.check_example, False, pairs.EXAMPLE_COLUMNS, 2),
    "pairs": Check(pairs.check_pair, True, pairs.COLUMNS, 4),
    "mix": Check(pairs.check_pair, True, pairs.COLUMNS, 4),
}


def run_checks(step: str, jobs: Sequence[Job], limit: float, parallel: int = 1) -> list[Row]:
    """A row for each job, in order. One may take `limit` seconds; `parallel` at a time, unless timed."""
    parallel = 1 if CHECKS[step].timed else parallel

    def run(group: Sequence[Job]) -> list[Row]:
        rows: dict[int, Row] = {}
        todo = [(step, job) for job in group]
        for number, row in run_jobs("melforge.common.verify.gpu.checks:check", todo, limit, "cuda"):
            if number not in rows:
                rows[number] = group[number] | {"failed": row["ended"]} if "ended" in row else row
                print(line_of(step, rows[number]), flush=True)
        return list(rows.values())

    with ThreadPoolExecutor(parallel) as pool:
        done = list(pool.map(run, [jobs[i::parallel] for i in range(parallel)]))
    return [done[i % parallel][i // parallel] for i in range(len(jobs))]


def check(given: tuple[str, Job]) -> Iterator[Row]:
    """In a worker: a check, with PyTorch's products in float32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    step, job = given
    try:
        yield {key: job[key] for key in KEYS if key in job} | CHECKS[step].run(**job)
    except Exception as error:
        yield job | {"failed": f"{type(error).__name__}: {str(error)[:400]}"}


def line_of(step: str, row: Row) -> str:
    """A row in short, to show progress."""
    words = [step, *(value for value in row.values() if isinstance(value, str) and len(value) < 40)]
    if "failed" in row:
        return f"{' '.join(words)}: FAILED: {row['failed']}"
    numbers = (f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, float))
    return f"{' '.join(words)}: {', '.join(numbers)}"


def read_rows(path: Path) -> list[Row]:
    return json.loads(path.read_text()) if path.is_file() else []


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes the rows; they replace those with the same KEYS."""
    kept = {tuple(row.get(key) for key in KEYS): row for row in [*read_rows(path), *rows]}
    path.write_text(json.dumps(list(kept.values()), indent=1))


def document(folder: Path) -> str:
    """The page, in Markdown, of the rows in a folder. An InputError where there are none."""
    rows = {step: read_rows(folder / f"{step}.json") for step in CHECKS}
    if not any(rows.values()):
        raise InputError(f"{folder} has no results: run scripts/check_gpu.py on a machine with a GPU first")
    (about,) = read_rows(folder / "machine.json") or [{}]
    parts = [INTRODUCTION, "; ".join(f"{name} {value}" for name, value in about.items()) + "."]
    for step, made in CHECKS.items():
        if rows[step]:
            parts += [TEXTS[step], "\n".join(table_of(made.columns, rows[step], made.head))]
    tests = folder / "tests.txt"
    if tests.is_file():
        last = tests.read_text().strip().splitlines()[-1].strip("= ")
        parts += ["## Tests that need a GPU", f"`--steps tests` (`python -m pytest -m gpu tests`): {last}"]
    return "\n\n".join(parts) + "\n"

"""Measures a Triton Inference Server as its callers meet it, and by its own statistics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from melforge.common.bench import load_report
from melforge.common.bench.server_load import counted
from melforge.common.bench.table import Column, Row, columns_of, spread, table_of
from melforge.common.bench.timer import summary
from melforge.common.bench.triton_load import (
    DYNAMIC,
    STATIC,
    STREAM,
    Reply,
    TritonLoad,
    TritonTarget,
    run_load,
)
from melforge.common.triton.client import Client
from melforge.common.triton.tensors import ACOUSTIC, FRONTEND, VOCODER

COUNTED = {STATIC: "batch", DYNAMIC: "concurrency", STREAM: "streams"}
STEPS = (FRONTEND, ACOUSTIC, VOCODER)  # of the ensemble
POINTS = {"mean": "mean", "std": "std", "90 %": "p90", "95 %": "p95", "99 %": "p99"}
SPLIT = {"client and network": "client_s", "queue": "queue_s", "compute": "compute_s"}  # of a latency
COMPUTE = ("compute_input", "compute_infer", "compute_output")
EXPLAINED = """\
- Static batching: one client, so many texts in each request. Dynamic batching: so many clients with one text
  in each request, which the server puts together. Stream: so many clients of the model that answers in
  chunks. Each client sends its next request when it has the whole answer to the one before.
- Latency: from sending a request to the last byte of its answer, in ms; first audio: to its first chunk.
- Texts/s, mels/s (frames) and audio s/s: of all answers, divided by the time from the first request to the
  last answer. RTF: seconds of audio of a request divided by its latency, on average.
- On the server, by its statistics: how long a request waits in the queues of the three models, and their
  inputs, computation and outputs, on average, in ms; what is left of the latency is the client's, the
  network's, and the server's between the models. Batch: texts that are executed together, on average."""
SETTLING, LOOKS = 0.05, 20  # seconds between looks at statistics, which may follow the answers, and how many


@dataclass(frozen=True)
class Counts:
    """What a model has done so far."""

    requests: int = 0
    texts: int = 0
    executions: int = 0
    queue: float = 0.0  # seconds of all requests
    compute: float = 0.0

    def since(self, earlier: Counts) -> dict[str, float]:
        """Means of a request, and of an execution, between two moments; nothing where none was made."""
        requests, executions = self.requests - earlier.requests, self.executions - earlier.executions
        if not requests or not executions:
            return {}
        return {
            "queue_s": (self.queue - earlier.queue) / requests,
            "compute_s": (self.compute - earlier.compute) / requests,
            "batch": (self.texts - earlier.texts) / executions,
        }


def counts_of(models: Sequence[Mapping[str, Any]]) -> dict[str, Counts]:
    """Of each model, from Triton's `model_stats`; numbers may be strings (gRPC), and zeros missing."""

    def number(entry: Mapping[str, Any], name: str) -> int:
        return int(entry.get(name, 0))

    found = {}
    for model in models:
        stats: Mapping[str, Any] = model.get("inference_stats", {})
        nanoseconds = {name: number(stats.get(name, {}), "ns") for name in ("queue", *COMPUTE)}
        found[model["name"]] = Counts(
            number(stats.get("success", {}), "count"),
            number(model, "inference_count"),
            number(model, "execution_count"),
            nanoseconds["queue"] / 1e9,
            sum(nanoseconds[name] for name in COMPUTE) / 1e9,
        )
    return found


def settled(client: Client) -> dict[str, Counts]:
    """What all models have done, once that has stopped to grow."""
    counts = counts_of(client.statistics())
    for _ in range(LOOKS):
        time.sleep(SETTLING)
        before, counts = counts, counts_of(client.statistics())
        if before == counts:
            break
    return counts


def columns(kind: str) -> Sequence[Column]:
    first = spread("first audio", "first_audio", POINTS) if kind == STREAM else []
    return columns_of(
        f"{COUNTED[kind]}: number",
        "answers: answers",
        "errors: errors",
        *first,
        *spread("latency", "latency", POINTS),
        "texts/s: texts_per_s .1f",
        *(["mels/s: mels_per_s .0f"] if kind != STREAM else []),
        "audio s/s: audio_per_s .1f",
        "RTF: rtf .1f",
    )


def server_columns(kind: str) -> Sequence[Column]:
    parts = (f"{name}: {key} ms" for name, key in SPLIT.items())
    models = [
        f"{name} {what}: server.{name}.{key}"
        for name in STEPS
        for what, key in (("queue", "queue_s ms"), ("compute", "compute_s ms"), ("batch", "batch .2f"))
    ]
    return columns_of(f"{COUNTED[kind]}: number", *parts, *models)


def measure(
    target: TritonTarget,
    loads: Sequence[TritonLoad],
    warm_up: int,
    processes: int,
    client: Client,
    show: Callable[[Row], object],
) -> list[Row]:
    """A row for each load, each behind `warm_up` requests of every client; `client` asks for statistics."""
    rows = []
    for load in loads:
        if warm_up:
            run_load(target, replace(load, runs=warm_up))
        before = settled(client)
        replies = run_load(target, load, processes)
        after = settled(client)
        done = {name: after[name].since(before.get(name, Counts())) for name in target.steps if name in after}
        row = row_of(load, replies, done, target.steps)
        show(row)
        rows.append(row)
    return rows


def row_of(
    load: TritonLoad,
    replies: Sequence[Reply],
    server: Mapping[str, Mapping[str, float]],
    steps: Sequence[str] = STEPS,
) -> Row:
    """What a load's answers came to; `server` is what `Counts.since` says of each model of `steps`."""
    row = counted(load.kind, load.number, replies)
    good = [reply for reply in replies if not reply.error]
    if not good:
        return row
    elapsed = row["elapsed_s"]
    row |= {
        "latency": summary([reply.total for reply in good]),
        "texts_per_s": len(good) * load.texts / elapsed,
        "audio_per_s": row["audio_s"] / elapsed,
        "rtf": float(np.mean([reply.audio / reply.total for reply in good])),
    }
    if load.kind == STREAM:
        return row | {"first_audio": summary([reply.first_audio for reply in good])}
    row["mels_per_s"] = sum(reply.frames for reply in good) / elapsed
    if not all(server.get(name) for name in steps):
        return row
    spent = {key: sum(server[name][key] for name in steps) for key in ("queue_s", "compute_s")}
    left = row["latency"]["mean"] - sum(spent.values())
    return row | {"server": dict(server), **spent, "client_s": max(0.0, left)}


def line(row: Row) -> str:
    """A row in short, to show progress."""
    what = f"{row['load']}, {COUNTED[row['load']]} {row['number']}"
    if "failed" in row:
        return f"{what}: failed: {row['failed']}"
    latency = f"latency {row['latency']['mean'] * 1e3:.0f} ms"
    return f"{what}: {latency}, {row['texts_per_s']:.1f} texts/s, {row['errors']} errors"


def results_of(target: TritonTarget, rows: Sequence[Row], command: str) -> dict[str, Any]:
    controls = "".join(f", {name} {value}" for name, value in target.parameters.items())
    asked = f"{target.address} ({target.protocol}): {len(target.texts)} texts, {target.rate} Hz{controls}"
    return load_report.results_of(asked, rows, command)


def markdown(results: dict[str, Any]) -> str:
    return load_report.markdown(results, COUNTED, columns, EXPLAINED, server_lines)


def server_lines(
    kind: str, rows: Sequence[Row], columns: Callable[[str], Sequence[Column]] = server_columns
) -> list[str]:
    """A second table, of those loads for which the server's statistics are known."""
    known = [row for row in rows if "server" in row]
    return ["", "On the server:", "", *table_of(columns(kind), known)] if known else []


def draw(rows: Sequence[Row]) -> bytes | None:
    """A PNG: for each kind of load with several numbers its latency, by where it is spent, and throughput."""
    return load_report.draw(rows, COUNTED, {"latency": _draw_latency, "throughput": _draw_throughput})


def _draw_latency(axis: Any, rows: Sequence[Row]) -> None:
    """Bars of the mean's parts, from compute on up; where these are unknown, of first audio and the rest."""
    places = range(len(rows))
    if rows[0]["load"] == STREAM:
        firsts = [row["first_audio"]["mean"] * 1e3 for row in rows]
        parts = {"first audio": firsts}
        parts["the rest"] = [
            row["latency"]["mean"] * 1e3 - first for row, first in zip(rows, firsts, strict=True)
        ]
    elif all("server" in row for row in rows):
        parts = {name: [row[key] * 1e3 for row in rows] for name, key in reversed(SPLIT.items())}
    else:
        parts = {"mean": [row["latency"]["mean"] * 1e3 for row in rows]}
    bottom = np.zeros(len(rows))
    for name, values in parts.items():
        axis.bar(places, values, bottom=bottom, label=name)
        bottom += values
    axis.plot(places, [row["latency"]["p95"] * 1e3 for row in rows], "k_", markersize=14, label="95 %")
    _label(axis, rows, "ms")


def _draw_throughput(axis: Any, rows: Sequence[Row]) -> None:
    rates = [row["texts_per_s"] for row in rows]
    axis.plot(range(len(rows)), rates, "o-")
    axis.set_ylim(0, 1.1 * max(rates))
    _label(axis, rows, "texts a second")


def _label(axis: Any, rows: Sequence[Row], unit: str) -> None:
    axis.set_xticks(range(len(rows)), [str(row["number"]) for row in rows])
    axis.set(xlabel=COUNTED[rows[0]["load"]], ylabel=unit)

"""Measures recognisers in a Triton Inference Server: NVIDIA's tables, by length, batch, model and callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from melforge.common.bench import load_report
from melforge.common.bench.table import Column, Row, columns_of, spread
from melforge.common.bench.triton_load import DYNAMIC, STATIC, HearingTarget, TritonLoad
from melforge.common.bench.triton_server import COUNTED, POINTS, SPLIT, line, measure, server_lines
from melforge.common.triton.client import Client
from melforge.common.triton.tensors import DECODER, FEATURES

EXPLAINED = """\
- Recordings are noise. Static batching: one client, so many recordings a request. Dynamic batching: so many
  clients with one recording in each request, which the server puts together. Each client sends its next
  request when it has the whole answer to the one before.
- Latency: from sending a request to the last byte of its answer, in ms. Recordings/s: of all answers, divided
  by the time from the first request to the last answer; x real time: their seconds of audio, likewise.
- On the server, by its statistics: how long a request waits in the queues of the three models; their inputs,
  computation and outputs, on average, in ms; what is left of the latency is the client's, the network's, and
  the server's between the models. Batch: recordings that the network takes together, on average."""


def measure_all(
    target: HearingTarget,
    models: Sequence[str],
    lengths: Sequence[float],
    loads: Sequence[TritonLoad],
    warm_up: int,
    processes: int,
    client: Client,
    show: Callable[[str], object],
) -> list[Row]:
    """A row for each model, length in seconds, and load."""
    rows = []
    for model in models:
        for seconds in lengths:
            asked = replace(target, model=model, seconds=seconds, rate=client.sampling_rate(model))
            label = {"model": model.removesuffix("-ensemble"), "seconds": seconds}

            def tell(row: Row, label: Mapping[str, Any] = label) -> None:
                show(f"{label['model']}, {label['seconds']:g} s, {line(row)}")

            for row in measure(asked, loads, warm_up, processes, client, tell):
                named = {"network": row.get("server", {}).get(label["model"])}
                rows.append({**label, **row, **named})
    return rows


def columns(kind: str) -> Sequence[Column]:
    return columns_of(
        "model: model",
        "audio s: seconds g",
        f"{COUNTED[kind]}: number",
        "answers: answers",
        "errors: errors",
        *spread("latency", "latency", POINTS),
        "recordings/s: texts_per_s .1f",
        "x real time: audio_per_s .1f",
    )


def server_columns(kind: str) -> Sequence[Column]:
    return columns_of(
        "model: model",
        "audio s: seconds g",
        f"{COUNTED[kind]}: number",
        *(f"{name}: {key} ms" for name, key in SPLIT.items()),
        f"{FEATURES} compute: server.{FEATURES}.compute_s ms",
        "network compute: network.compute_s ms",
        f"{DECODER} compute: server.{DECODER}.compute_s ms",
        "batch: network.batch .2f",
    )


def results_of(target: HearingTarget, rows: Sequence[Row], command: str) -> dict[str, Any]:
    return load_report.results_of(f"{target.address} ({target.protocol})", rows, command)


def markdown(results: dict[str, Any]) -> str:
    on_server = partial(server_lines, columns=server_columns)
    return load_report.markdown(results, (STATIC, DYNAMIC), columns, EXPLAINED, on_server)


def draw(rows: Sequence[Row]) -> bytes | None:
    """A PNG: for each kind of load its latency and throughput, a line for each length of each model."""
    panels = {"latency, mean and 95 %": _draw_latency, "throughput": _draw_throughput}
    return load_report.draw(rows, (STATIC, DYNAMIC), panels)


def _series(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(f"{row['model']}, {row['seconds']:g} s", []).append(row)
    return found


def _draw_latency(axis: Any, rows: Sequence[Row]) -> None:
    for label, some in _series(rows).items():
        numbers = [row["number"] for row in some]
        (drawn,) = axis.plot(numbers, [row["latency"]["mean"] * 1e3 for row in some], "o-", label=label)
        late = [row["latency"]["p95"] * 1e3 for row in some]
        axis.plot(numbers, late, "_", color=drawn.get_color(), markersize=10)
    axis.set_yscale("log")
    _label(axis, rows, "ms")


def _draw_throughput(axis: Any, rows: Sequence[Row]) -> None:
    for label, some in _series(rows).items():
        axis.plot([row["number"] for row in some], [row["audio_per_s"] for row in some], "o-", label=label)
    axis.set_ylim(0)
    _label(axis, rows, "x real time")


def _label(axis: Any, rows: Sequence[Row], unit: str) -> None:
    numbers = sorted({row["number"] for row in rows})
    axis.set_xscale("log")
    axis.set_xticks(numbers, [str(number) for number in numbers], minor=False)
    axis.set_xticks([], minor=True)
    axis.set(xlabel=COUNTED[rows[0]["load"]], ylabel=unit)

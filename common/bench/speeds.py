"""The report of a benchmark of models: a table for each subject, of stages, streams, and cold processes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from melforge.common.bench.report import Columns, Report, ResultTable, Row, by, latency_panel, ms
from melforge.common.bench.workload import SPEAK_MANY

LABEL = 26  # letters of a plot's label in a line
COLUMNS: Columns = {
    "backend": "backend",
    "precision": "precision",
    "call": "call",
    "batch": "batch",
    "text processes": "text_processes",
    "runs": "runs",
    "letters": "letters.mean .0f",
    "50 % ms": "latency.p50 ms",
    "95 % ms": "latency.p95 ms",
    "engines ms": "engines_s ms",
    "utterances/s": "utterances_per_s .1f",
    "again": "again_per_s .1f",
    "speed-up": "speed_up .2f",
    "audio s": "audio_s .2f",
    "x real time": "times_real_time .1f",
    "first audio 50 % ms": "first_audio.p50 ms",
    "first audio 95 %": "first_audio.p95 ms",
    "load s": "load_s .1f",
    "first call s": "first_s .2f",
    "memory MB": "memory_bytes MB",
}
STAGE_COLUMNS: Columns = {
    **{name: name for name in ("backend", "precision", "batch", "stage")},
    "calls": "calls .3g",
    "ms": "seconds ms",
    "of all": "share .0%",
}
STREAM_COLUMNS: Columns = {
    "models": "name",
    "backend": "backend",
    "first audio ms": "first_audio_s ms",
    "slowest": "slowest_first_audio_s ms",
    "margin ms": "smallest_margin_s margin",
    "audio s": "audio_s .1f",
}
STREAMS = (
    "`TextToSpeech.stream` of a paragraph. Margin: the least audio left to play when a chunk arrives, if "
    "playback starts with the first chunk."
)
COLD = "`melforge speak` in a new process, from its start to the finished wav file, and its parts."


def report_of(found: dict[str, Any], command: str) -> Report:
    """Of what `run.measure` found."""
    tables, panels, stages = [], [], []
    for title, some in by(found["rows"], title_of).items():
        some = with_speed_up(some)
        notes = [f"{r['backend']}, {r['precision']}: {note}" for r in some for note in r.get("notes", ())]
        notes += [f"{r['backend']}, {r['precision']}: {r['profile']}" for r in some if "profile" in r]
        tables.append(ResultTable(title, COLUMNS, some, list(dict.fromkeys(notes))))
        if each := list(stage_rows(some)):
            stages.append(ResultTable(f"Stages: {title}", STAGE_COLUMNS, each))
        panels += latency_panel(title, ("batch size", "batch"), some, "latency", label_of, {"p50": ""})
    tables += stages
    if found["streams"]:
        tables.append(ResultTable("Streams", STREAM_COLUMNS, found["streams"], [STREAMS]))
    if cold := found["cold"]:
        parts = dict.fromkeys(part for row in cold for part in row.get("parts", ()))
        columns = {
            "models": "name",
            "backend": "backend",
            "seconds": "seconds .2f",
            "memory MB": "peak_bytes MB",
        }
        columns |= {f"{part.replace('_', ' ')} ms": f"parts.{part} ms" for part in parts}
        tables.append(ResultTable("A cold process", columns, cold, [COLD]))
    return Report(command, "", found["machine"], found, tables, panels)


def title_of(row: Row) -> str:
    what = f"{row['symbols']} symbols" if row["symbols"] else "a sentence"
    if file := row.get("texts"):
        what = f"{'throughput' if row['call'] == SPEAK_MANY else 'new texts'} of {file}"
    weights = "the voice" if row["weights"] == "voice" else "published sizes"
    return f"{row['name']}, {what}, {weights}"


def line(row: Row) -> str:
    """A row in short, to show progress."""
    if "failed" in row:
        what = f"failed: {row['failed']}"
    elif "utterances_per_s" in row:
        what = f"{row['utterances_per_s']:.1f} utterances/s"
    else:
        what = f"{ms(row['latency']['p50'])} ms, 95 %: {ms(row['latency']['p95'])} ms"
    call = f" {row['call']}" if row.get("call") else ""
    return f"{title_of(row)}: {row['backend']} {row['precision']} batch {row['batch']}{call}: {what}"


def with_speed_up(rows: Sequence[Row]) -> list[Row]:
    """By batch size, against the first of the rows that has the same one, and of texts the same call."""
    first: dict[Any, Row] = {}
    made = []
    for row in sorted(rows, key=lambda row: row["batch"]):
        base = first.setdefault((row["batch"], row.get("call")), row)
        known = "failed" not in row and "failed" not in base
        made.append(row | {"speed_up": seconds_of(base) / seconds_of(row) if known else None})
    return made


def seconds_of(row: Row) -> float:
    """What speed-ups compare: the median, or an utterance's share."""
    return 1 / row["utterances_per_s"] if "utterances_per_s" in row else row["latency"]["p50"]


def stage_rows(rows: Iterable[Row]) -> Iterable[Row]:
    """The stages of a table's rows; chunks of all lengths are together."""
    for row in rows:
        total = sum(one["seconds"] for one in row.get("stages", ()))
        for name, calls in by(row.get("stages", ()), lambda one: one["stage"]).items():
            stage: Row = {key: row[key] for key in ("backend", "precision", "batch")} | {"stage": name}
            stage |= {key: sum(one[key] for one in calls) for key in ("calls", "seconds")}
            yield stage | {"share": stage["seconds"] / total if total else None}


def label_of(row: Row) -> str:
    """In short lines: kernels of several stages make a long name."""
    return textwrap.fill(f"{row['backend']} {row['precision']}".replace(",", ", "), LABEL)

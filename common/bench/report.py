"""Measurements as Markdown and CSV."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from common.bench.measure import WARM_UPS
from common.bench.plots import draw_latency, draw_stages
from common.bench.rows import Row, grouped, merged, title_of
from common.bench.table import Column, mb, ms, table, table_of, value
from common.files import write_bytes
from common.runner import FIRST_CHUNK

EXPLAINED = (
    "Latency: from text ids on the host to audio on the host (a model alone: its mel where it is made; a "
    f"stage alone: tensors where they are), mean and percentiles of the runs after up to {1 + WARM_UPS} "
    "warm-up runs; host clock (`perf_counter`), the device waited for before and after. Device ms: from the "
    "first engine's start to the last one's end, by CUDA events (on the CPU by the host's clock), in runs of "
    "its own. Samples/s: of the whole batch. Speed-up: against the table's first row of the same batch size. "
    "Mels, audio s: of one utterance, on average. RTF: its seconds of audio for each second of latency. "
    f"First audio: ids to the first {FIRST_CHUNK} frames' samples on the host, median. Memory: on the CPU "
    "the most that the process held (resident), on a GPU the most that PyTorch had allocated, and the "
    "weights and scratch of other engines.\n\n"
    "Stages: each one's part of a run. TFLOP/s: products and convolutions counted from the layers, 2 for a "
    "multiplication and addition. GB/s: weights, inputs and outputs, each once. Of peak: of what a product "
    "of large matrices and a large copy reached in the same run."
)

# The headings of a latency's statistics, as `summary` names them.
STATISTICS = {"latency ms": "mean", "std": "std", "50 %": "p50", "90 %": "p90", "95 %": "p95", "99 %": "p99"}
WAY: tuple[Column, ...] = (
    ("backend", value("backend")),
    ("precision", value("precision")),
    ("batch", value("batch")),
)
COLUMNS: tuple[Column, ...] = (
    *WAY,
    ("runs", value("runs")),
    *(
        (name, value("latency", lambda latency, key=key: ms(latency[key])))
        for name, key in STATISTICS.items()
    ),
    ("device ms", value("device_s", ms)),
    ("samples/s", value("samples_per_s", ",.0f")),
    ("speed-up", value("speed_up", ".2f")),
    ("mels", value("frames", ".0f")),
    ("audio s", value("audio_s", ".2f")),
    ("RTF", value("rtf", ".1f")),
    ("first audio ms", value("first_audio", lambda first: ms(first["p50"]))),
    ("memory MB", value("memory_bytes", mb)),
)
STAGE_COLUMNS: tuple[Column, ...] = (
    *WAY,
    ("stage", value("stage")),
    ("calls", value("calls", ".3g")),
    ("ms", value("seconds", ms)),
    ("TFLOP/s", value("flop_rate", lambda rate: f"{rate / 1e12:.3g}")),
    ("of peak", value("flop_share", ".1%")),
    ("GB/s", value("byte_rate", lambda rate: f"{rate / 1e9:.3g}")),
    ("of peak", value("byte_share", ".1%")),
)
STREAM_COLUMNS: tuple[Column, ...] = (
    ("models", value("name")),
    ("backend", value("backend")),
    ("first audio ms", value("first_audio_s", ms)),
    ("slowest", value("slowest_first_audio_s", ms)),
    ("margin ms", value("smallest_margin_s", lambda margin: ms(margin) + " (gap!)" * (margin < 0))),
    ("audio s", value("audio_s", ".1f")),
)
COLD_COLUMNS: tuple[Column, ...] = (
    ("models", value("name")),
    ("backend", value("backend")),
    ("seconds", value("seconds", ".2f")),
    ("memory MB", value("peak_bytes", mb)),
)


def markdown(results: dict[str, Any]) -> str:
    """All tables of one run, and what their columns mean."""
    return f"{tables(results, '##')}\n{EXPLAINED}\n"


def tables(results: dict[str, Any], head: str) -> str:
    """The command, the machine and the tables, with headings that begin with `head`."""
    machine = results["machine"]
    lines = ["```bash", results["command"], "```", "", describe(machine)]
    found = grouped(results["rows"])
    for title, rows in found.items():
        lines += [
            "",
            f"{head} {title}",
            "",
            *table_of(COLUMNS, by_batch(with_speed_up(rows))),
            *notes_of(rows),
        ]
    stages = {title: list(stage_rows(rows, machine.get("peaks", {}))) for title, rows in found.items()}
    if any(stages.values()):
        lines += ["", f"{head} Stages", "", f"Peaks: {peaks_of(machine)}."]
    for title, rows in stages.items():
        if rows:
            lines += ["", f"{title}:", "", *table_of(STAGE_COLUMNS, rows)]
    if results.get("streams"):
        lines += ["", f"{head} Streams", "", *streams(results["streams"])]
    if results.get("cold"):
        lines += ["", f"{head} A cold process", "", *cold(results["cold"])]
    return "\n".join(lines) + "\n"


def notes_of(rows: Iterable[Row]) -> list[str]:
    """What engines warned of, behind the table."""
    notes = [
        f"- {row['backend']}, {row['precision']}: {note}" for row in rows for note in row.get("notes", ())
    ]
    return ["", *dict.fromkeys(notes)] if notes else []


def describe(machine: dict[str, Any]) -> str:
    known = {name: value for name, value in machine.items() if name != "peaks" and value is not None}
    return ", ".join(str(value) if name == "date" else f"{name} {value}" for name, value in known.items())


def peaks_of(machine: dict[str, Any]) -> str:
    peaks = machine.get("peaks", {})
    parts = [f"{name} {value / 1e12:.3g} TFLOP/s" for name, value in peaks.items() if name != "bytes"]
    return ", ".join([*parts, *(f"{peaks[name] / 1e9:.0f} GB/s" for name in peaks if name == "bytes")])


def line(row: Row) -> str:
    """A row in short, for those who wait."""
    head = f"{title_of(row)}: {row['backend']} {row['precision']} batch {row['batch']}"
    if "failed" in row:
        return f"{head}: failed: {row['failed']}"
    return f"{head}: {ms(row['latency']['mean'])} ms"


def by_batch(rows: Iterable[Row]) -> list[Row]:
    """What is compared stands together."""
    return sorted(rows, key=lambda row: row["batch"])


def with_speed_up(rows: Sequence[Row]) -> Iterable[Row]:
    """Against the first of the rows that has the same batch size."""
    for row in rows:
        first = next(other for other in rows if other["batch"] == row["batch"])
        known = "failed" not in row and "failed" not in first
        yield row | {"speed_up": first["latency"]["mean"] / row["latency"]["mean"] if known else None}


def stage_rows(rows: Iterable[Row], peaks: dict[str, float]) -> Iterable[Row]:
    """The stages of a table's rows, with rates and what part of the peaks they are."""
    for row in by_batch(rows):
        precision = row["precision"] if row["precision"] in peaks else "fp32"
        if precision == "fp32" and "torch" not in row["backend"] and "tf32" in peaks:
            precision = "tf32"  # on a GPU others compute float32 so
        for stage in merged(row.get("stages", ())):
            for key, peak, name in (("flops", precision, "flop"), ("bytes", "bytes", "byte")):
                rate = stage[key] / stage["seconds"] if stage.get(key) and stage["seconds"] else None
                stage[f"{name}_rate"] = rate
                stage[f"{name}_share"] = rate / peaks[peak] if rate and peak in peaks else None
            yield {key: row[key] for key in ("backend", "precision", "batch")} | stage


def streams(rows: Sequence[Row]) -> list[str]:
    return [
        "`stream` of a paragraph. Margin: what a player that starts at once still has to play, at worst, "
        "when the next chunk comes.",
        "",
        *table_of(STREAM_COLUMNS, (row for row in rows if "failed" not in row)),
    ]


def cold(rows: Sequence[Row]) -> list[str]:
    rows = [row for row in rows if "failed" not in row]
    parts = dict.fromkeys(part for row in rows for part in row["parts"])
    show = {part: value(part, lambda seconds: f"{seconds * 1e3:.0f}") for part in parts}
    return [
        "scripts/infer.py from its start to its wav file, with its peak memory.",
        "",
        *table_of(COLD_COLUMNS, rows),
        "",
        *table(
            ("part, ms", *(f"{row['name']}, {row['backend']}" for row in rows)),
            ((part, *(show[part](row["parts"]) for row in rows)) for part in parts),
        ),
    ]


def write_all(results: dict[str, Any], folder: Path) -> None:
    """results.json, .csv and .md, and the plots where matplotlib is there."""
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "results.json", (json.dumps(results, indent=1) + "\n").encode())
    write_bytes(folder / "results.csv", as_csv(results).encode())
    write_bytes(folder / "results.md", markdown(results).encode())
    for name, content in plots(results).items():
        write_bytes(folder / name, content)


def plots(results: dict[str, Any]) -> dict[str, bytes]:
    if importlib.util.find_spec("matplotlib") is None:
        return {}
    made = {"latency.png": draw_latency(results["rows"]), "stages.png": draw_stages(results["rows"])}
    return {name: content for name, content in made.items() if content}


def as_csv(results: dict[str, Any]) -> str:
    """A line for each row, with plain numbers in seconds and bytes."""
    keys = ("name", "backend", "precision", "device", "weights", "symbols", "batch", "failed", "runs")
    rest = ("device_s", "samples_per_s", "frames", "audio_s", "rtf", "memory_bytes", "load_s", "first_s")
    names = (*keys, *(f"latency_{key}_s" for key in STATISTICS.values()), *rest, "first_audio_s", "speed_up")
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for found in grouped(results["rows"]).values():
        for row in with_speed_up(found):
            latency = {f"latency_{key}_s": value for key, value in row.get("latency", {}).items()}
            first = row.get("first_audio") or {}
            writer.writerow(row | latency | {"first_audio_s": first.get("p50")})
    return text.getvalue()

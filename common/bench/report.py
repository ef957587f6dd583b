"""Figures as Markdown and CSV."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from common.files import write_bytes

Row = dict[str, Any]

HEADINGS = (
    *("backend", "precision", "batch", "runs", "latency ms", "std", "50 %", "90 %", "95 %", "99 %"),
    *("device ms", "samples/s", "speed-up", "mels", "audio s", "RTF", "first audio ms", "memory MB"),
)
STAGE_HEADINGS = (
    "backend",
    "precision",
    "batch",
    "stage",
    "calls",
    "ms",
    "TFLOP/s",
    "of peak",
    "GB/s",
    "of peak",
)
EXPLAINED = (
    "Latency: from text ids on the host to audio on the host (a model alone: its mel where it is made; a "
    "stage alone: tensors where they are), mean and percentiles of the runs after up to {warm} warm-up runs; "
    "host clock (`perf_counter`), the device waited for before and after. Device ms: from the first engine's "
    "start to the last one's end, by CUDA events (on the CPU by the host's clock), in runs of its own. "
    "Samples/s: of the whole batch. Speed-up: against the table's first row of the same batch size. Mels, "
    "audio s: of one utterance, on average. RTF: its seconds of audio for each second of latency. First "
    "audio: ids to the first {first} frames' samples on the host, median. Memory: on the CPU the most that "
    "the process held (resident), on a GPU the most that PyTorch had allocated, and the weights and scratch "
    "of other engines."
)
STAGES_EXPLAINED = (
    "Stages: each one's part of a run. TFLOP/s: products and convolutions counted from the layers, 2 for a "
    "multiplication and addition. GB/s: weights, inputs and outputs, each once. Of peak: of what a product "
    "of large matrices and a large copy reached in the same run."
)


def markdown(figures: dict[str, Any]) -> str:
    """All tables of one run, and what their columns mean."""
    return f"{tables(figures, '##')}\n{explained()}\n"


def tables(figures: dict[str, Any], head: str) -> str:
    """The command, the machine and the tables, with headings that begin with `head`."""
    machine = figures["machine"]
    lines = ["```bash", figures["command"], "```", "", describe(machine)]
    for title, found in grouped(figures["rows"]).items():
        lines += ["", f"{head} {title}", "", *table(HEADINGS, cells_of(found)), *notes_of(found)]
    stages = stage_rows(figures)
    if stages:
        lines += ["", f"{head} Stages", "", f"Peaks: {peaks_of(machine)}."]
        for title, found in stages.items():
            lines += ["", f"{title}:", "", *table(STAGE_HEADINGS, found)]
    if figures.get("streams"):
        lines += ["", f"{head} Streams", "", *streams(figures["streams"])]
    if figures.get("cold"):
        lines += ["", f"{head} A cold process", "", *cold(figures["cold"])]
    return "\n".join(lines) + "\n"


def notes_of(rows: Iterable[Row]) -> list[str]:
    """What engines warned of, behind the table."""
    notes = [
        f"- {row['backend']}, {row['precision']}: {note}" for row in rows for note in row.get("notes", ())
    ]
    return ["", *dict.fromkeys(notes)] if notes else []


def explained() -> str:
    from common.bench.clocks import WARM_UPS
    from common.runner import FIRST_CHUNK

    return f"{EXPLAINED.format(warm=1 + WARM_UPS, first=FIRST_CHUNK)}\n\n{STAGES_EXPLAINED}"


def describe(machine: dict[str, Any]) -> str:
    known = {name: value for name, value in machine.items() if name != "peaks" and value is not None}
    return ", ".join(str(value) if name == "date" else f"{name} {value}" for name, value in known.items())


def peaks_of(machine: dict[str, Any]) -> str:
    peaks = machine.get("peaks", {})
    parts = [f"{name} {value / 1e12:.3g} TFLOP/s" for name, value in peaks.items() if name != "bytes"]
    return ", ".join([*parts, *(f"{peaks[name] / 1e9:.0f} GB/s" for name in peaks if name == "bytes")])


def title_of(row: Row) -> str:
    length = f"{row['symbols']} symbols" if row["symbols"] else "a sentence"
    weights = "the voice" if row["weights"] == "voice" else "published sizes"
    return f"{row['name']}, {length}, {weights}"


def grouped(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each table, by its title; a peer stands beside what it is compared with."""
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(title_of(row), []).append(row)
    return tables


def line(row: Row) -> str:
    """A row in short, for those who wait."""
    head = f"{title_of(row)}: {row['backend']} {row['precision']} batch {row['batch']}"
    if "failed" in row:
        return f"{head}: failed: {row['failed']}"
    return f"{head}: {ms(row['latency']['mean'])} ms"


def cells_of(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """By batch size: what is compared stands together."""
    order = sorted(rows, key=lambda row: row["batch"])
    return [cells(row, rows) for row in order]


def speed_up(row: Row, rows: Sequence[Row]) -> float | None:
    """Against the first of the rows that has the same batch size."""
    first = next(other for other in rows if other["batch"] == row["batch"])
    if "failed" in row or "failed" in first:
        return None
    return first["latency"]["mean"] / row["latency"]["mean"]


def cells(row: Row, rows: Sequence[Row]) -> tuple[str, ...]:
    head = (row["backend"], row["precision"], str(row["batch"]))
    if "failed" in row:
        return (*head, f"failed: {row['failed']}".replace("|", "\\|"), *[""] * (len(HEADINGS) - 4))
    latency = row["latency"]
    return (
        *head,
        str(row["runs"]),
        *(ms(latency[key]) for key in ("mean", "std", "p50", "p90", "p95", "p99")),
        shown(row.get("device_s"), ms),
        shown(row["samples_per_s"], lambda value: f"{value:,.0f}"),
        shown(speed_up(row, rows), lambda value: f"{value:.2f}"),
        shown(row["frames"], lambda value: f"{value:.0f}"),
        shown(row["audio_s"], lambda value: f"{value:.2f}"),
        shown(row["rtf"], lambda value: f"{value:.1f}"),
        shown(row.get("first_audio"), lambda value: ms(value["p50"])),
        shown(row["memory_bytes"], lambda value: f"{value / 1e6:.0f}"),
    )


def shown(value: Any, show: Callable[[Any], str]) -> str:
    return "" if value is None else show(value)


def ms(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def stage_rows(figures: dict[str, Any]) -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    for title, rows in grouped(figures["rows"]).items():
        for row in sorted(rows, key=lambda row: row["batch"]):
            for stage in merged(row.get("stages", ())):
                found.setdefault(title, []).append(
                    stage_cells(row, stage, figures["machine"].get("peaks", {}))
                )
    return found


def merged(stages: Iterable[Row]) -> list[Row]:
    """One entry for each stage: chunks of several lengths are together."""
    found: dict[str, Row] = {}
    for stage in stages:
        one = found.setdefault(stage["stage"], {"stage": stage["stage"]})
        for key in ("calls", "seconds", "flops", "bytes"):
            value = stage.get(key)
            so_far = one.get(key, 0)
            one[key] = None if None in (value, so_far) else so_far + value
    return list(found.values())


def stage_cells(row: Row, stage: Row, peaks: dict[str, float]) -> tuple[str, ...]:
    rates = []
    precision = row["precision"] if row["precision"] in peaks else "fp32"
    if precision == "fp32" and "torch" not in row["backend"] and "tf32" in peaks:
        precision = "tf32"  # on a GPU others compute float32 so
    for key, peak, unit in (("flops", precision, 1e12), ("bytes", "bytes", 1e9)):
        rate = stage[key] / stage["seconds"] if stage.get(key) and stage["seconds"] else None
        rates.append(shown(rate, lambda value, unit=unit: f"{value / unit:.3g}"))
        share = rate / peaks[peak] if rate and peak in peaks else None
        rates.append(shown(share, lambda value: f"{value:.1%}"))
    return (
        row["backend"],
        row["precision"],
        str(row["batch"]),
        stage["stage"],
        f"{stage['calls']:.3g}",
        shown(stage["seconds"], ms),
        *rates,
    )


def streams(rows: Sequence[Row]) -> list[str]:
    headings = ("models", "backend", "first audio ms", "slowest", "margin ms", "audio s")
    cells = [
        (
            row["name"],
            row["backend"],
            ms(row["first_audio_s"]),
            ms(row["slowest_first_audio_s"]),
            ms(row["smallest_margin_s"]) + (" (gap!)" if row["smallest_margin_s"] < 0 else ""),
            f"{row['audio_s']:.1f}",
        )
        for row in rows
        if "failed" not in row
    ]
    return [
        "`stream` of a paragraph. Margin: what a player that starts at once still has to play, at worst, "
        "when the next chunk comes.",
        "",
        *table(headings, cells),
    ]


def cold(rows: Sequence[Row]) -> list[str]:
    rows = [row for row in rows if "failed" not in row]
    headings = ("models", "backend", "seconds", "memory MB")
    cells = [
        (row["name"], row["backend"], f"{row['seconds']:.2f}", f"{row['peak_bytes'] / 1e6:.0f}")
        for row in rows
    ]
    parts = list(dict.fromkeys(part for row in rows for part in row["parts"]))
    where = [
        (part, *(shown(row["parts"].get(part), lambda value: f"{value * 1e3:.0f}") for row in rows))
        for part in parts
    ]
    columns = ("part, ms", *(f"{row['name']}, {row['backend']}" for row in rows))
    return [
        "scripts/infer.py from its start to its wav file, with its peak memory.",
        "",
        *table(headings, cells),
        "",
        *table(columns, where),
    ]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = "|" + "---|" * len(headings)
    return [f"| {' | '.join(headings)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]


def write_all(figures: dict[str, Any], folder: Path) -> None:
    """results.json, .csv and .md, and the plots where matplotlib is there."""
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "results.json", (json.dumps(figures, indent=1) + "\n").encode())
    write_bytes(folder / "results.csv", as_csv(figures).encode())
    write_bytes(folder / "results.md", markdown(figures).encode())
    for name, content in plots(figures).items():
        write_bytes(folder / name, content)


def plots(figures: dict[str, Any]) -> dict[str, bytes]:
    if importlib.util.find_spec("matplotlib") is None:
        return {}
    from common.bench.plots import draw_latency, draw_stages

    made = {"latency.png": draw_latency(figures["rows"]), "stages.png": draw_stages(figures["rows"])}
    return {name: content for name, content in made.items() if content}


def as_csv(figures: dict[str, Any]) -> str:
    """A line for each row, with plain numbers in seconds and bytes."""
    keys = ("name", "backend", "precision", "device", "weights", "symbols", "batch", "failed", "runs")
    statistics = ("mean", "std", "p50", "p90", "p95", "p99")
    rest = ("device_s", "samples_per_s", "frames", "audio_s", "rtf", "memory_bytes", "load_s", "first_s")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*keys, *(f"latency_{key}_s" for key in statistics), *rest, "first_audio_s", "speed_up"))
    for found in grouped(figures["rows"]).values():
        for row in found:
            latency, first = row.get("latency", {}), row.get("first_audio") or {}
            writer.writerow(
                (
                    *(row.get(key) for key in keys),
                    *(latency.get(key) for key in statistics),
                    *(row.get(key) for key in rest),
                    first.get("p50"),
                    speed_up(row, found),
                )
            )
    return text.getvalue()

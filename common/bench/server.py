"""Measures a speech server as its callers meet it: tables, JSON and plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from melforge.common.bench import load_report
from melforge.common.bench.server_load import CLOSED, LISTENERS, OPEN, Answer, Load, Target, counted, run_load
from melforge.common.bench.table import Column, Row, columns_of, spread
from melforge.common.bench.timer import summary

AUDIBLE = 0.1  # seconds without sound that a listener notices

# NVIDIA's method for Riva: so many streams at a time, each of which has ten sentences of LJ Speech spoken so
# many times, and waits for the last chunk of one before it asks for the next.
RIVA_STREAMS, RIVA_ITERATIONS = (1, 4, 6, 8, 16, 32, 64), 20
# From the transcripts of the LJ Speech data set (public domain).
RIVA_TEXTS = (
    "Mrs. De Mohrenschildt thought that Oswald,",
    "The Secret Service believed that it was very doubtful that any President would ride regularly in a"
    " vehicle with a fixed top, even though transparent.",
    "Between the hours of eight and nine p.m. they were occupied with the children in the bedrooms "
    "located at the extreme east end of the house.",
    "The prisoner had nothing to deal with but wooden panels, and by dint of cutting and chopping he "
    "got both the lower panels out.",
    "Under these circumstances, unnatural as they are, with proper management, the bean will thrust "
    "forth its radicle and its plumule;",
    "Oswald demonstrated his thinking in connection with his return to the United States by preparing "
    "two sets of identical questions of the type which he might have thought",
    "It is not possible to state with scientific certainty that a particular small group of fibers come"
    " from a certain piece of clothing.",
    "has confidence in the dedicated Secret Service men who are ready to lay down their lives for him",
    "Since these agencies are already obliged constantly to evaluate the activities of such groups,",
    "Jeanne De Mohrenschildt said,",
)

COUNTED = {CLOSED: "streams", OPEN: "requests/s", LISTENERS: "listeners"}
POINTS = {"avg": "mean", "50 %": "p50", "90 %": "p90", "95 %": "p95", "99 %": "p99"}
EXPLAINED = f"""\
- Closed loop: each stream sends its next request when it has the last chunk of the one before. Open loop:
  requests are sent at random times, so many a second, whatever became of those before; times count from when
  they were due. Listeners: each hears an answer to its end in real time before it asks for the next.
- First audio, total: from sending the request to its first and its last chunk at the client, in ms. Between
  chunks: from each chunk to the next of the same answer.
- Dry: answers whose listener would hear nothing for more than {AUDIBLE * 1e3:.0f} ms, if playback starts with
  the first chunk; longest: the longest such time of all answers.
- RTFX: seconds of audio of all answers, divided by the time from the first request to the last chunk."""


def columns(kind: str) -> Sequence[Column]:
    times = {"first audio": "first_audio", "total": "total", "between chunks": "chunk_gap"}
    return columns_of(
        f"{COUNTED[kind]}: number g",
        "answers: answers",
        "errors: errors",
        *(line for name, key in times.items() for line in spread(name, key, POINTS)),
        "dry: dry",
        "longest ms: longest_dry_s ms",
        "answers/s: answers_per_s .1f",
        "RTFX: rtfx .1f",
    )


def measure(
    target: Target, loads: Sequence[Load], processes: int, show: Callable[[Row], object]
) -> list[Row]:
    """A row for each load, one after the other."""
    rows = []
    for load in loads:
        row = row_of(load, run_load(target, load, processes))
        show(row)
        rows.append(row)
    return rows


def row_of(load: Load, answers: Sequence[Answer]) -> Row:
    """What a load's answers came to."""
    row = counted(load.kind, load.number, answers)
    good = [answer for answer in answers if not answer.error]
    if not good:
        return row
    gaps = [gap for answer in good for gap in answer.gaps]
    dry = [answer.dry for answer in good]
    return row | {
        "first_audio": _spread([answer.first_audio for answer in good]),
        "total": _spread([answer.total for answer in good]),
        "chunk_gap": _spread(gaps) if gaps else None,
        "dry": sum(seconds > AUDIBLE for seconds in dry),
        "longest_dry_s": max(dry),
        "answers_per_s": len(good) / row["elapsed_s"],
        "rtfx": row["audio_s"] / row["elapsed_s"],
    }


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    return summary(seconds) | {"max": max(seconds)}


def line(row: Row) -> str:
    """A row in short, to show progress."""
    what = f"{row['load']}, {row['number']:g} {COUNTED[row['load']]}"
    if "failed" in row:
        return f"{what}: failed: {row['failed']}"
    first = f"first audio {row['first_audio']['p50'] * 1e3:.0f} ms"
    return f"{what}: {first}, {row['rtfx']:.1f} times real time, {row['errors']} errors, {row['dry']} dry"


def results_of(target: Target, rows: Sequence[Row], command: str) -> dict[str, Any]:
    fields = ", ".join(f"{name} {value}" for name, value in target.fields.items())
    asked = f"{target.address}: {fields}, pcm at {target.rate} Hz, {len(target.texts)} texts"
    return load_report.results_of(asked, rows, command)


def markdown(results: dict[str, Any]) -> str:
    return load_report.markdown(results, COUNTED, columns, EXPLAINED)


def draw(rows: Sequence[Row]) -> bytes | None:
    """A PNG: for each kind of load with several numbers, times of first audio and total, and the RTFX."""
    return load_report.draw(rows, COUNTED, {"latency": _draw_times, "speed": _draw_speed})


def _draw_times(axis: Any, rows: Sequence[Row]) -> None:
    numbers = [row["number"] for row in rows]
    for key, name in (("first_audio", "first audio"), ("total", "total")):
        for point, style in (("p50", "o-"), ("p95", "o--")):
            axis.plot(numbers, [row[key][point] * 1e3 for row in rows], style, label=f"{name}, {point[1:]} %")
    axis.set(xlabel=COUNTED[rows[0]["load"]], ylabel="ms", yscale="log", xticks=numbers)


def _draw_speed(axis: Any, rows: Sequence[Row]) -> None:
    numbers, speeds = [row["number"] for row in rows], [row["rtfx"] for row in rows]
    axis.plot(numbers, speeds, "o-")
    axis.set(
        xlabel=COUNTED[rows[0]["load"]], ylabel="times real time", xticks=numbers, ylim=(0, 1.1 * max(speeds))
    )

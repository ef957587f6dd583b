"""Measurements as Markdown, CSV and plots, and the page that joins those of several machines."""

import csv
import importlib.util
import io
import json
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from common.bench.run import WARM_UPS
from common.bench.table import Row, columns_of, grouped, merged, ms, table, table_of, title_of
from common.errors import InputError
from common.files import write_bytes
from common.runner import FIRST_CHUNK

WIDTH, HEIGHT = 5.0, 3.4  # of a plot's panel, in inches
LABEL = 26  # letters of a label's line

PAGE = """# Benchmarks

Speed and memory of the machines named below. The last of these commands makes this page from the results of
the others.

```bash
python scripts/benchmark.py                                         # the voice's first pair, sentences
python scripts/benchmark.py --acoustic all --vocoder all --backend onnx
python scripts/benchmark.py --part fastpitch,hifigan.generator,tacotron2.decoder --backend onnx --batches 1,2
python scripts/benchmark.py --suite cpu --out build/benchmarks/cpu
python scripts/benchmark.py --suite h200 --out build/benchmarks/h200   # needs an NVIDIA GPU
python scripts/benchmark.py --suite onnx-options                    # options of ONNX Runtime
python scripts/benchmark.py --document docs/benchmarks.md docs/benchmarks/*.json
```

`torch` runs the networks in PyTorch, eagerly; `torch-compile` uses `torch.compile`, and `torch-graph` one
CUDA graph for each stage. `trt-graph` is TensorRT with one CUDA graph for each stage. In fp16 all weights of
PyTorch's networks are float16 (`half()`); fp32 and tf32 are PyTorch without and with TF32. ONNX Runtime runs
in float32. `--symbols` fixes the lengths: random symbol ids, 5 frames for each symbol, not the durations that
FastPitch and FastSpeech predict, and 600 decoder steps of Tacotron 2. `--weights published` takes the
published network sizes with random weights; the speed does not depend on their values. Their graphs are
exported to `build/graphs` when they are needed, or before by `python scripts/check_gpu.py --export-only`; the
folder can be copied to other machines.

`--peer` adds a function of your own to the tables. It takes a batch of symbol ids and returns audio, as in
[examples/benchmark_peer.py](../examples/benchmark_peer.py).

```bash
python scripts/benchmark.py --backend onnx --symbols 128 --peer examples.benchmark_peer:speak
```

"""
EXPLAINED = f"""\
- Latency: from symbol ids on the host to audio on the host, by `perf_counter`, with the device synchronised
  before and after; statistics of the runs after at most {1 + WARM_UPS} warm-up runs. An acoustic model alone
  ends with its mel, a vocoder alone starts from a mel, and a stage alone has its tensors on the device.
- Device ms: from the start of the first engine to the end of the last one, by CUDA events (on a CPU by
  `perf_counter`), in separate runs.
- Samples/s: of the whole batch. Speed-up: over the first row of the table with the same batch size.
- Mel frames, audio s: the mean of the batch's utterances. RTF: audio s divided by latency.
- First audio: from symbol ids to the samples of the first {FIRST_CHUNK} mel frames on the host, median.
- Memory: on a CPU the peak resident memory of the process; on a GPU the peak of PyTorch's allocations and
  the weights and workspace of other runtimes' engines.
- Stages: the mean of one run. TFLOP/s: matrix products and convolutions, a multiply-add counted as 2. GB/s:
  weights, inputs and outputs, each counted once. Of peak: relative to a large matrix product and a large copy
  measured in the same run."""
STREAMS = """\
`TextToSpeech.stream` of a paragraph. Margin: the least audio left to play when a chunk arrives, if playback
starts with the first chunk."""
COLD = "`melforge speak` in a new process, from its start to the finished wav file, and its peak memory."

# The headings of a latency's statistics, as `summary` names them.
STATISTICS = {"latency ms": "mean", "std": "std", "50 %": "p50", "90 %": "p90", "95 %": "p95", "99 %": "p99"}
WAY = ("backend: backend", "precision: precision", "batch: batch")
COLUMNS = columns_of(
    *WAY,
    "runs: runs",
    *(f"{heading}: latency.{key} ms" for heading, key in STATISTICS.items()),
    "device ms: device_s ms",
    "samples/s: samples_per_s ,.0f",
    "speed-up: speed_up .2f",
    "mel frames: frames .0f",
    "audio s: audio_s .2f",
    "RTF: rtf .1f",
    "first audio ms: first_audio.p50 ms",
    "memory MB: memory_bytes MB",
)
STAGE_COLUMNS = columns_of(
    *WAY,
    "stage: stage",
    "calls: calls .3g",
    "ms: seconds ms",
    "TFLOP/s: flop_rate tera",
    "of peak: flop_share .1%",
    "GB/s: byte_rate giga",
    "of peak: byte_share .1%",
)
MODELS = ("models: name", "backend: backend")
STREAM_COLUMNS = columns_of(
    *MODELS,
    "first audio ms: first_audio_s ms",
    "slowest: slowest_first_audio_s ms",
    "margin ms: smallest_margin_s margin",
    "audio s: audio_s .1f",
)
COLD_COLUMNS = columns_of(*MODELS, "seconds: seconds .2f", "memory MB: peak_bytes MB")
# What the CSV has of a row: plain numbers in seconds and bytes.
CSV_KEYS = (
    *("name", "backend", "precision", "device", "weights", "symbols", "batch", "failed", "runs"),
    *(f"latency_{key}_s" for key in STATISTICS.values()),
    *("device_s", "samples_per_s", "frames", "audio_s", "rtf", "memory_bytes", "load_s", "first_s"),
    *("first_audio_s", "speed_up"),
)


def markdown(results: dict[str, Any]) -> str:
    """All tables of one run, and what their columns mean."""
    return f"{tables(results, '##')}\n{EXPLAINED}\n"


def tables(results: dict[str, Any], head: str) -> str:
    """The command, the machine and the tables, with headings that begin with `head`."""
    machine = results["machine"]
    peaks = machine.get("peaks", {})
    known = {name: value for name, value in machine.items() if name != "peaks" and value is not None}
    about = ", ".join(str(value) if name == "date" else f"{name} {value}" for name, value in known.items())
    lines = ["```bash", results["command"], "```", "", about]
    found = grouped(results["rows"])
    for title, rows in found.items():
        lines += ["", f"{head} {title}", "", *table_of(COLUMNS, by_batch(with_speed_up(rows)))]
        # What engines warned of.
        notes = [f"- {r['backend']}, {r['precision']}: {note}" for r in rows for note in r.get("notes", ())]
        lines += ["", *dict.fromkeys(notes)] if notes else []
    stages = {title: list(stage_rows(rows, peaks)) for title, rows in found.items()}
    if any(stages.values()):
        flops = [f"{name} {peak / 1e12:.3g} TFLOP/s" for name, peak in peaks.items() if name != "bytes"]
        copies = [f"{peaks['bytes'] / 1e9:.0f} GB/s"] if "bytes" in peaks else []
        lines += ["", f"{head} Stages", "", f"Peaks: {', '.join(flops + copies)}."]
    for title, rows in stages.items():
        lines += ["", f"{title}:", "", *table_of(STAGE_COLUMNS, rows)] if rows else []
    if results.get("streams"):
        streams = table_of(STREAM_COLUMNS, succeeded(results["streams"]))
        lines += ["", f"{head} Streams", "", STREAMS, "", *streams]
    if results.get("cold"):
        rows = succeeded(results["cold"])
        parts = dict.fromkeys(part for row in rows for part in row["parts"])
        headings = ("part, ms", *(f"{row['name']}, {row['backend']}" for row in rows))
        spent = (
            [part, *(f"{row['parts'][part] * 1e3:.0f}" if part in row["parts"] else "" for row in rows)]
            for part in parts
        )
        lines += ["", f"{head} A cold process", "", COLD, "", *table_of(COLD_COLUMNS, rows)]
        lines += ["", *table(headings, spent)]
    return "\n".join(lines) + "\n"


def succeeded(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if "failed" not in row]


def line(row: Row) -> str:
    """A row in short, to show progress."""
    what = f"failed: {row['failed']}" if "failed" in row else f"{ms(row['latency']['mean'])} ms"
    return f"{title_of(row)}: {row['backend']} {row['precision']} batch {row['batch']}: {what}"


def by_batch(rows: Iterable[Row]) -> list[Row]:
    """Rows of the same batch size together."""
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


def write_all(results: dict[str, Any], folder: Path) -> None:
    """results.json, .csv and .md, and the plots where matplotlib is there."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"json": json.dumps(results, indent=1) + "\n", "csv": as_csv(results), "md": markdown(results)}
    files = {f"results.{suffix}": text.encode() for suffix, text in texts.items()} | plots(results)
    for name, content in files.items():
        write_bytes(folder / name, content)


def plots(results: dict[str, Any]) -> dict[str, bytes]:
    if importlib.util.find_spec("matplotlib") is None:
        return {}
    rows = succeeded(results["rows"])
    made = {"latency.png": draw_latency(rows), "stages.png": draw_stages(rows)}
    return {name: content for name, content in made.items() if content}


def draw_latency(rows: Sequence[Row]) -> bytes | None:
    """A PNG with a panel for each table that has several batch sizes: mean latency, a line a backend."""
    several = {title: found for title, found in grouped(rows).items() if len({r["batch"] for r in found}) > 1}

    def draw(axis: Any, rows: Sequence[Row]) -> None:
        for label in dict.fromkeys(map(_label, rows)):
            line = by_batch(row for row in rows if _label(row) == label)
            latencies = [row["latency"]["mean"] * 1e3 for row in line]
            axis.plot([row["batch"] for row in line], latencies, "o-", label=label)
        axis.set(xlabel="batch size", ylabel="latency, ms", ylim=(0, None))
        axis.set_xticks(sorted({row["batch"] for row in rows}))

    return _draw(several, HEIGHT, draw)


def draw_stages(rows: Sequence[Row]) -> bytes | None:
    """A PNG with a panel for each table: a bar for each backend at batch 1, made of its stages' times."""
    single = grouped(row for row in rows if row.get("stages") and row["batch"] == 1)

    def draw(axis: Any, rows: Sequence[Row]) -> None:
        lefts = [0.0] * len(rows)
        stages = [{one["stage"]: one["seconds"] * 1e3 for one in merged(row["stages"])} for row in rows]
        for name in dict.fromkeys(name for row in stages for name in row):
            widths = [row.get(name, 0.0) for row in stages]
            axis.barh([_label(row) for row in rows], widths, left=lefts, label=name)
            lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
        axis.set(xlabel="ms")
        axis.invert_yaxis()
        axis.tick_params(axis="y", labelsize=8)

    return _draw(single, 1.2 + 0.3 * max(map(len, single.values()), default=0), draw)


def _label(row: Row) -> str:
    """In short lines: kernels of several stages make a long name."""
    return textwrap.fill(f"{row['backend']} {row['precision']}".strip().replace(",", ", "), LABEL)


def _draw(tables: dict[str, list[Row]], height: float, draw: Callable[..., None]) -> bytes | None:
    """A panel for each table; None without any."""
    if not tables:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(len(tables), 2)
    lines = -(-len(tables) // columns)
    size = (WIDTH * columns, height * lines)
    figure, axes = pyplot.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat[len(tables) :]:
        axis.set_visible(False)
    for axis, (title, rows) in zip(axes.flat, tables.items(), strict=False):
        draw(axis, rows)
        axis.set_title(title, fontsize=9)
        axis.legend(fontsize=7)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    pyplot.close(figure)
    return buffer.getvalue()


def as_csv(results: dict[str, Any]) -> str:
    """A line for each row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_KEYS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in (row for rows in grouped(results["rows"]).values() for row in with_speed_up(rows)):
        latency = {f"latency_{key}_s": value for key, value in row.get("latency", {}).items()}
        writer.writerow(row | latency | {"first_audio_s": (row.get("first_audio") or {}).get("p50")})
    return text.getvalue()


def write_document(path: Path, files: Sequence[Path]) -> None:
    """One page of several runs, such as those of several machines, with their plots beside it."""
    if not files:
        raise InputError("--document needs the JSON files of earlier runs (results.json of --out FOLDER)")
    found = {file.parent.name if file.stem == "results" else file.stem: read_results(file) for file in files}
    parts = [f"{PAGE}{EXPLAINED}\n"]
    folder = path.parent / path.stem
    for name, results in found.items():
        machine = results["machine"]
        heading = machine.get("gpu") or f"{machine['cpu']}, {machine['cores']} cores"
        parts.append(f"## {heading}\n\n{tables(results, '###')}")
        for plot, content in plots(results).items():
            image = f"{name}-{plot}"
            folder.mkdir(parents=True, exist_ok=True)
            write_bytes(folder / image, content)
            parts.append(f"![{image}]({folder.name}/{image})\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, "\n".join(parts).encode())


def read_results(file: Path) -> dict[str, Any]:
    try:
        results = json.loads(file.read_text())
    except ValueError:
        raise InputError(f"{file} is no JSON") from None
    if not isinstance(results, dict) or not {"command", "machine", "rows"} <= results.keys():
        raise InputError(f"{file} holds no results of scripts/benchmark.py")
    return results

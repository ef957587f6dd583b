"""Measurements as Markdown, CSV and plots, and the page that joins those of several machines."""

import csv
import io
import json
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from melforge.common.bench.picture import draw_panels
from melforge.common.bench.run import WARM_UPS
from melforge.common.bench.table import (
    Column,
    Row,
    columns_of,
    grouped,
    merged,
    ms,
    table,
    table_of,
    title_of,
)
from melforge.common.bench.texts import LONGEST_PASSES
from melforge.common.bench.workload import LONGEST_TEXT_WARM_UP, SPEAK_MANY
from melforge.common.errors import InputError
from melforge.common.files import write_bytes
from melforge.common.synthesis.chunks import FIRST_CHUNK

HEIGHT = 3.4  # of a plot's panel, in inches
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
python scripts/benchmark.py --texts examples/sentences.txt          # new texts, one after the other
python scripts/benchmark.py --texts examples/sentences.txt --batch-sizes 8,32 --text-processes 8  # throughput
python scripts/benchmark.py --backend torch --profile build/profile # kernels, copies, API calls, memory
```

`torch` runs the networks in PyTorch, eagerly; `torch-compile` uses `torch.compile`, and `torch-graph` one
CUDA graph for each stage. `trt-graph` is TensorRT with one CUDA graph for each stage. In fp16 all weights of
PyTorch's networks are float16 (`half()`); fp32 and tf32 are PyTorch without and with TF32. ONNX Runtime runs
in float32. `--symbols` fixes the lengths: random symbol ids, 5 frames for each symbol, not the durations that
FastPitch and FastSpeech predict, and 600 decoder steps of Tacotron 2. `--weights published` takes the
published network sizes with random weights; the speed does not depend on their values. Their graphs are
exported to `build/graphs` when they are needed, or before by `python scripts/check_gpu.py --export-only`; the
folder can be copied to other machines.

`--texts` measures what users meet: texts of all lengths, none of them spoken before. With
`--weights published` the published frontends read them, every symbol lasts 5 frames, and Tacotron 2 makes
5 steps a symbol. `examples/sentences.txt` has sentences of the LJ Speech transcripts. `--profile` takes one
more run under torch.profiler: tables of kernels, of copies and sets, of CUDA API calls and of operators, a
picture, a trace, and on a GPU a snapshot of PyTorch's memory.

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
  measured in the same run; a stage whose weights stay in a cache, or whose library multiplies faster, has
  more than these reach."""
TEXTS_EXPLAINED = f"""\
- New texts: each text of a file is spoken once, one after the other in the file's order, by
  `TextToSpeech.speak`, and in another process by `stream`: from the text on the host to its last sample on
  the host, the frontend's time included. Other texts of the file, at equal distances, are spoken before and
  not measured, for {LONGEST_TEXT_WARM_UP:.0f} s at most unless `--text-warm-up` says so. First audio: until
  the stream's first chunk is on the host. RTF: all audio divided by all time. Speed-up: of medians. On a GPU
  PyTorch's networks run without cuDNN's search for algorithms, which fixed lengths have: each length would
  begin it anew. Letters: the mean, the fewest and the most, blanks and marks included. Load s: until the
  models are loaded; first call s: the first text, with what is compiled for it. Both find the files that
  earlier processes compiled and kept.
- Held MB: after the last text, on a GPU what of its memory the process took since it began, without its CUDA
  context, on a CPU the process's resident memory.
- Throughput: all texts by one call of `speak_many` with that batch size, after such a warm-up in batches of
  that size. Again: the median of further calls with the same texts, for {LONGEST_PASSES:.0f} s, where the
  first call took less. GPU busy: the mean of what the driver says (NVML: the share of time in which any
  kernel ran) during the last of these calls."""
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
TEXT_COLUMNS = columns_of(
    *WAY[:2],
    "call: call",
    "texts: runs",
    "letters: letters range",
    "50 % ms: latency.p50 ms",
    "95 %: latency.p95 ms",
    "longest: latency.max ms",
    "speed-up: speed_up .2f",
    "first audio 50 % ms: first_audio.p50 ms",
    "first audio 95 %: first_audio.p95 ms",
    "audio s: audio_s .2f",
    "RTF: rtf .1f",
    "warm-up texts: warm_up_texts",
    "warm-up s: warm_up_s .1f",
    "load s: load_s .1f",
    "first call s: first_s .2f",
    "memory MB: memory_bytes MB",
    "held MB: held_bytes MB",
)
THROUGHPUT_COLUMNS = columns_of(
    *WAY,
    "text processes: text_processes",
    "texts: runs",
    "letters: letters range",
    "utterances/s: utterances_per_s .1f",
    "again: again_per_s .1f",
    "speed-up: speed_up .2f",
    "audio s: audio_s .2f",
    "audio s/s: rtf .1f",
    "GPU busy: gpu_busy .0%",
    "warm-up texts: warm_up_texts",
    "warm-up s: warm_up_s .1f",
    "first call s: first_s .2f",
    "memory MB: memory_bytes MB",
    "held MB: held_bytes MB",
)
STAGE_COLUMNS = columns_of(
    *WAY,
    "stage: stage",
    "calls: calls .3g",
    "ms: seconds ms",
    "TFLOP/s: flop_rate tera",
    "of peak: flop_share share",
    "GB/s: byte_rate giga",
    "of peak: byte_share share",
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
    *("name", "backend", "precision", "device", "weights", "symbols", "texts", "call"),
    *("batch", "failed", "runs"),
    *(f"latency_{key}_s" for key in (*STATISTICS.values(), "max")),
    *("device_s", "samples_per_s", "frames", "audio_s", "rtf", "memory_bytes", "load_s", "first_s"),
    *("first_audio_s", "first_audio_p95_s", "speed_up", "utterances_per_s", "again_per_s", "gpu_busy"),
    *("warm_up_texts", "warm_up_s", "held_bytes", "text_processes"),
)


def markdown(results: dict[str, Any]) -> str:
    """All tables of one run, and what their columns mean."""
    rows = results["rows"]
    explained = [EXPLAINED] if any(not row.get("texts") for row in rows) else []
    explained += [TEXTS_EXPLAINED] if any(row.get("texts") for row in rows) else []
    return "\n".join([tables(results, "##"), *explained, ""])


def tables(results: dict[str, Any], head: str) -> str:
    """The command, the machine and the tables, with headings that begin with `head`."""
    machine = results["machine"]
    peaks = machine.get("peaks", {})
    known = {name: value for name, value in machine.items() if name != "peaks" and value is not None}
    about = ", ".join(str(value) if name == "date" else f"{name} {value}" for name, value in known.items())
    lines = ["```bash", results["command"], "```", "", about]
    found = grouped(results["rows"])
    for title, rows in found.items():
        lines += ["", f"{head} {title}", "", *table_of(columns(rows[0]), by_batch(with_speed_up(rows)))]
        # What engines warned of, and where profiles are.
        notes = [f"- {r['backend']}, {r['precision']}: {note}" for r in rows for note in r.get("notes", ())]
        notes += [f"- {r['backend']}, {r['precision']}: {r['profile']}" for r in rows if "profile" in r]
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


def columns(row: Row) -> Sequence[Column]:
    """Those of a table that has this row."""
    if not row.get("texts"):
        return COLUMNS
    return THROUGHPUT_COLUMNS if row["call"] == SPEAK_MANY else TEXT_COLUMNS


def succeeded(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if "failed" not in row]


def line(row: Row) -> str:
    """A row in short, to show progress."""
    if "failed" in row:
        what = f"failed: {row['failed']}"
    elif "utterances_per_s" in row:
        what = f"{row['utterances_per_s']:.1f} utterances/s"
    elif row.get("texts"):
        what = f"{row['call']}: {ms(row['latency']['p50'])} ms, 95 %: {ms(row['latency']['p95'])} ms"
    else:
        what = f"{ms(row['latency']['mean'])} ms"
    return f"{title_of(row)}: {row['backend']} {row['precision']} batch {row['batch']}: {what}"


def by_batch(rows: Iterable[Row]) -> list[Row]:
    """Rows of the same batch size together."""
    return sorted(rows, key=lambda row: row["batch"])


def with_speed_up(rows: Sequence[Row]) -> Iterable[Row]:
    """Against the first of the rows that has the same batch size, and of texts the same call."""
    for row in rows:
        same = (row["batch"], row.get("call"))
        first = next(other for other in rows if (other["batch"], other.get("call")) == same)
        known = "failed" not in row and "failed" not in first
        yield row | {"speed_up": seconds_of(first) / seconds_of(row) if known else None}


def seconds_of(row: Row) -> float:
    """What speed-ups compare: the mean of equal runs, the median of texts, or an utterance's share."""
    if "utterances_per_s" in row:
        return 1 / row["utterances_per_s"]
    return row["latency"]["p50" if row.get("texts") else "mean"]


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
    rows = succeeded(results["rows"])
    made = {"latency.png": draw_latency(rows), "throughput.png": draw_throughput(rows)}
    made["stages.png"] = draw_stages(rows)
    return {name: content for name, content in made.items() if content}


def draw_latency(rows: Sequence[Row]) -> bytes | None:
    """A PNG with a panel for each table that has several batch sizes: mean latency, a line a backend."""
    timed = [row for row in rows if "latency" in row]
    return _draw_by_batch(timed, "latency, ms", lambda row: row["latency"]["mean"] * 1e3)


def draw_throughput(rows: Sequence[Row]) -> bytes | None:
    """The same of utterances a second."""
    found = [row for row in rows if "utterances_per_s" in row]
    return _draw_by_batch(found, "utterances/s", lambda row: row["utterances_per_s"])


def _draw_by_batch(rows: Sequence[Row], what: str, value: Callable[[Row], float]) -> bytes | None:
    several = {title: found for title, found in grouped(rows).items() if len({r["batch"] for r in found}) > 1}

    def draw(axis: Any, rows: Sequence[Row]) -> None:
        for label in dict.fromkeys(map(_label, rows)):
            line = by_batch(row for row in rows if _label(row) == label)
            axis.plot([row["batch"] for row in line], [value(row) for row in line], "o-", label=label)
        axis.set(xlabel="batch size", ylabel=what, ylim=(0, None))
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
    return draw_panels({title: partial(draw, rows=rows) for title, rows in tables.items()}, height)


def as_csv(results: dict[str, Any]) -> str:
    """A line for each row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_KEYS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in (row for rows in grouped(results["rows"]).values() for row in with_speed_up(rows)):
        latency = {f"latency_{key}_s": value for key, value in row.get("latency", {}).items()}
        first = row.get("first_audio") or {}
        firsts = {"first_audio_s": first.get("p50"), "first_audio_p95_s": first.get("p95")}
        writer.writerow(row | latency | firsts)
    return text.getvalue()


def write_document(path: Path, files: Sequence[Path]) -> None:
    """One page of several runs, such as those of several machines, with their plots beside it."""
    if not files:
        raise InputError("--document needs the JSON files of earlier runs (results.json of --out FOLDER)")
    found = {file.parent.name if file.stem == "results" else file.stem: read_results(file) for file in files}
    parts = [f"{PAGE}{EXPLAINED}\n{TEXTS_EXPLAINED}\n"]
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

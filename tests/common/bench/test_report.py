"""Tables of results: columns, failures, speed-up, the work of the stages, and what is written."""

import json

import pytest

from melforge.common.bench.report import Panel, Report, ResultTable, draw
from melforge.common.bench.speeds import report_of
from melforge.common.bench.timer import summary

LABEL = {"name": "a -> b", "precision": "fp32", "device": "cpu", "weights": "published", "symbols": 128}


def row(backend: str, batch: int, seconds: float) -> dict:
    stage = {"stage": "b.generator", "sizes": {}, "calls": 0.5}
    return {
        **LABEL,
        **{"backend": backend, "batch": batch, "runs": 10},
        "latency": summary([seconds] * 10),
        "engines_s": seconds / 2,
        "audio_s": 7.43,
        "times_real_time": batch * 7.43 / seconds,
        "memory_bytes": 5e6,
        "stages": [stage | {"seconds": seconds / 2}] * 2,  # chunks of two lengths
    }


@pytest.fixture
def results() -> dict:
    failed = {**LABEL, "backend": "trt", "batch": 1, "failed": "no | GPU", "notes": ["ran without a graph"]}
    rows = [
        row("torch", 1, 0.010),
        row("torch", 8, 0.080),
        failed,
        row("onnx", 1, 0.005),
        row("onnx", 8, 0.1),
    ]
    machine = {"date": "2026-11-21", "cpu": "a CPU", "cores": 2}
    return {"machine": machine, "rows": rows, "streams": [], "cold": []}


def rows_of(text: str) -> list[dict[str, str]]:
    """Of the first table in a text."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")] for line in lines]
    first = [line for line in cells if len(line) == len(cells[0])]
    return [dict(zip(first[0], line, strict=True)) for line in first[2:]]


def test_columns_and_the_speed_up_against_the_first_row_of_the_batch(results):
    report = report_of(results, "melforge benchmark")
    text = report.markdown()
    rows = rows_of(text)
    assert [(one["backend"], one["batch"], one["speed-up"]) for one in rows] == [
        ("torch", "1", "1.00"),
        ("trt", "1", ""),
        ("onnx", "1", "2.00"),
        ("torch", "8", "1.00"),
        ("onnx", "8", "0.80"),
    ]
    assert rows[1]["failed"] == "failed: no / GPU" or rows[1]["failed"] == "no / GPU"
    assert "- trt, fp32: ran without a graph" in text and "melforge benchmark" in text
    assert rows[2]["95 % ms"] == "5.00" and rows[2]["engines ms"] == "2.50" and rows[2]["memory MB"] == "5"
    assert "call" not in rows[0] and "again" not in rows[0]  # columns without values
    assert "date 2026-11-21, cpu a CPU, cores 2\n" in text
    assert json.loads(report.json())["rows"] == results["rows"]


def test_a_batch_counts_all_of_its_audio(results):
    rows = rows_of(report_of(results, "it").markdown())
    assert [one["x real time"] for one in rows] == ["743.0", "", "1486.0", "743.0", "594.4"]


def test_a_stage_s_calls_of_several_lengths_are_one_row(results):
    other = {"stage": "a.encoder", "sizes": {}, "calls": 1.0, "seconds": 0.03}
    results["rows"][0]["stages"].append(other)
    table = report_of(results, "it").tables[-1]
    assert table.title == "Stages: a -> b, 128 symbols, published sizes"
    first, second, *_ = rows_of("\n".join(table.lines()))
    assert [first[key] for key in ("stage", "calls", "ms", "of all")] == ["b.generator", "1", "10.00", "25%"]
    assert [second[key] for key in ("stage", "calls", "ms", "of all")] == ["a.encoder", "1", "30.00", "75%"]


def test_what_is_written_is_what_is_printed(results, tmp_path):
    report = report_of(results, "it")
    report.write(tmp_path / "out", "results")
    assert (tmp_path / "out" / "results.md").read_text() == report.markdown()
    assert (tmp_path / "out" / "results.json").read_text() == report.json()
    assert (tmp_path / "out" / "results.png").read_bytes().startswith(b"\x89PNG")
    Report("it", "", {}, {}, [ResultTable("t", {"a": "a"}, [{"a": 1}])]).write(tmp_path / "plain", "x")
    assert {file.name for file in (tmp_path / "plain").iterdir()} == {"x.json", "x.md"}


def test_panels_stand_in_pairs():
    panels = [Panel(str(n), "x", "y", {"a": [(2, 1.0), (1, 2.0)], "b": [(4, 1.0)]}) for n in range(3)]
    assert draw(panels).startswith(b"\x89PNG") and draw([]) is None

"""Tables of results: columns, failures, speed-up, the work of the stages, and pages of several runs."""

import csv
import io
import json

import pytest

from melforge.common.bench.flops import count_flops
from melforge.common.bench.report import COLUMNS, as_csv, markdown, plots, write_all, write_document
from melforge.common.bench.timer import summary
from melforge.common.registry import get_model

HEADINGS = [heading for heading, _ in COLUMNS]
LABEL = {"name": "a -> b", "precision": "fp32", "device": "cpu", "weights": "published", "symbols": 128}


def row(backend: str, batch: int, seconds: float) -> dict:
    stage = {
        "stage": "b.generator",
        "sizes": {},
        "calls": 1.0,
        "seconds": seconds,
        "flops": 1e9,
        "bytes": 1e6,
    }
    return {
        **LABEL,
        "backend": backend,
        "batch": batch,
        "runs": 10,
        "latency": summary([seconds] * 10),
        "device_s": seconds / 2,
        "samples_per_s": batch * 163840 / seconds,
        "frames": 640.0,
        "audio_s": 7.43,
        "rtf": 7.43 / seconds,
        "first_audio": summary([0.001]),
        "memory_bytes": 5e6,
        "stages": [stage],
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
    machine = {"date": "2026-11-21", "cpu": "a CPU", "cores": 2, "peaks": {"fp32": 1e12, "bytes": 1e10}}
    return {"command": "python scripts/benchmark.py --runs 10", "machine": machine, "rows": rows}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")]


def test_columns_and_the_speed_up_against_the_first_row_of_the_batch(results):
    lines = markdown(results).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| backend"))
    assert cells(lines[start]) == HEADINGS
    rows = [dict(zip(HEADINGS, cells(line), strict=True)) for line in lines[start + 2 : start + 7]]
    assert [(one["backend"], one["batch"], one["speed-up"]) for one in rows] == [
        ("torch", "1", "1.00"),
        ("trt", "1", ""),
        ("onnx", "1", "2.00"),
        ("torch", "8", "1.00"),
        ("onnx", "8", "0.80"),
    ]
    assert rows[1]["runs"] == "failed: no / GPU" and "- trt, fp32: ran without a graph" in lines
    assert rows[2] | {"99 %": "5.00", "RTF": "1486.0", "device ms": "2.50", "memory MB": "5"} == rows[2]
    assert "python scripts/benchmark.py --runs 10" in lines
    stage = next(line for line in lines if "b.generator" in line and "| onnx |" in line)
    assert cells(stage)[-4:] == ["0.2", "20.0%", "0.2", "2.0%"]


def test_a_stage_beyond_the_measured_peaks_has_no_share_above_one(results):
    results["machine"]["peaks"] = {"fp32": 0.9e11, "bytes": 0.9e8}
    shares = [cells(line)[-3::2] for line in markdown(results).splitlines() if "b.generator" in line]
    assert shares == [["more", "more"], ["more", "more"], ["13.9%", "13.9%"], ["11.1%", "11.1%"]]


def test_csv_has_a_line_a_row_in_seconds(results):
    rows = list(csv.DictReader(io.StringIO(as_csv(results))))
    assert len(rows) == 5 and float(rows[3]["latency_mean_s"]) == pytest.approx(0.005)
    assert float(rows[3]["speed_up"]) == pytest.approx(2)
    assert rows[2]["failed"] == "no | GPU" and rows[2]["latency_mean_s"] == ""


def test_results_of_machines_join_in_one_page(results, tmp_path):
    write_all(results, tmp_path / "small")
    other = {**results, "machine": {**results["machine"], "gpu": "A GPU"}}
    (tmp_path / "gpu.json").write_text(json.dumps(other))
    page = tmp_path / "docs" / "benchmarks.md"
    write_document(page, [tmp_path / "gpu.json", tmp_path / "small" / "results.json"])
    text = page.read_text()
    assert text.index("## A GPU") < text.index("## a CPU, 2 cores") and text.count("Latency: from") == 1
    for name in plots(results):
        assert f"(benchmarks/small-{name})" in text
        assert (tmp_path / "docs" / "benchmarks" / f"gpu-{name}").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ValueError, match=r"other\.json holds no results of scripts/benchmark\.py"):
        write_document(page, [tmp_path / "other.json"])


@pytest.mark.parametrize(
    ("model", "stage", "sizes", "gflop"),
    [  # counted by hand from the layers of the published sizes: 0.307 and 2.60 G products a frame
        ("hifigan", "generator", {"batch": 1, "mel": 640}, 393),
        ("waveglow", "generator", {"batch": 1, "mel": 640, "steps": 20480}, 3328),
        ("tacotron2", "decoder_loop", {"batch": 1, "text": 128, "steps": 600}, 22.8),
    ],
)
def test_operations_are_counted_from_the_layers(model, stage, sizes, gflop):
    work = count_flops(model, get_model(model).config_class(), stage, tuple(sizes.items()))
    assert work["flops"] / 1e9 == pytest.approx(gflop, rel=0.01)
    assert work["weights"] * sizes["batch"] > 1e6 and work["values"] > 0

"""The checks of a GPU: their commands, what becomes of each, and what is said where there is no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from melforge.common.cli import benchmark, check_gpu
from melforge.common.cli.check_gpu import GpuCheck, checks_of, main, parse, report_of, run_check
from melforge.common.errors import InputError

ROOT = Path(__file__).parents[2]


@pytest.mark.no_gpu
def test_without_a_gpu_it_says_so(tmp_path):
    command = [sys.executable, "scripts/check_gpu.py", "-o", str(tmp_path / "x")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert found.returncode == 2 and "PyTorch sees none here" in found.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "verify,sped"], "there is no step 'sped': choose from verify, mix, speed"),
        (
            ["--models", "jasper"],
            "--models jasper: what is checked speaks; python -m melforge.jasper.verify_trt",
        ),
        (["--models", "fastpich"], "did you mean 'fastpitch'?"),
    ],
)
def test_what_is_not_there_is_named(words, message):
    with pytest.raises(InputError) as caught:
        main(words)
    assert message in str(caught.value)


def test_every_check_is_a_command_that_its_parser_takes():
    """Models and pairs, weights and precisions; nothing is run."""
    counts = {"verify": 2 * 5 * 2, "mix": 6, "speed": 1, "sentences": 6 * 3, "tests": 1, "kernels": 2}
    names = set()
    for step, count in counts.items():
        checks = list(
            checks_of(step, parse([]), ["fastpitch", "fastspeech", "tacotron2", "hifigan", "waveglow"])
        )
        assert len(checks) == count
        names |= {check.name for check in checks}
    assert len(names) == sum(counts.values())
    (check,) = checks_of("verify", parse(["--weights", "published", "--precision", "fp16"]), ["tacotron2"])
    assert check.words[2:5] == ["melforge.tacotron2.verify_trt", "--precision", "fp16"]
    assert check.words[5:7] == ["--published", "--decoder"]


@pytest.mark.parametrize("step", ["mix", "sentences"])
def test_a_check_fails_for_its_gpu_alone(step, monkeypatch, capsys):
    """The command line is understood: what is wrong is what this machine lacks."""
    from melforge.__main__ import main as melforge

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    check = next(iter(checks_of(step, parse(["--precision", "fp16"]), [])))
    monkeypatch.setattr("sys.argv", ["melforge", *check.words[3:]])
    with pytest.raises(SystemExit):
        melforge()
    said = capsys.readouterr().err
    assert "PyTorch sees n" in said or "not installed: pip install" in said, said


def test_the_speed_of_all_pairs_is_one_benchmark():
    (check,) = checks_of("speed", parse(["--precision", "fp16"]), [])
    args = benchmark.parse(check.words[4:])
    assert args.acoustic == args.vocoder == "all"
    assert (args.backends, args.precisions) == (["torch,trt"], "fp16")


def report(excess: float) -> dict:
    tensor = {"stage": "hifigan.generator", "name": "audio", "excess": 0.1}
    speech = {"mel": 1e-3, "audio_mel": 2e-3}
    return {"tensors": [tensor, {**tensor, "name": "conv", "excess": excess}], "speech": speech}


def test_rows_of_what_commands_report(tmp_path):
    path = tmp_path / "it.json"
    write = f"open({str(path)!r}, 'w').write({json.dumps(report(0.5))!r})"
    good = GpuCheck("good", [sys.executable, "-c", write], path)
    *row, _, verdict = run_check(good, tmp_path, 60)
    assert row == ["good", "2", "hifigan.generator: conv", "0.50", "1.0e-03", "2.0e-03"] and verdict == "ok"
    bad = GpuCheck("bad", [sys.executable, "-c", "import sys; sys.exit('error: no engine')"], path)
    row = run_check(bad, tmp_path, 60)
    assert row[:-2] == ("bad", *[""] * 5) and row[-1] == "status 1: no engine"  # not the report of before
    slow = GpuCheck("slow", [sys.executable, "-c", "import time; time.sleep(60)"])
    assert run_check(slow, tmp_path, 0.5)[-1] == "no end within 0 s"


def test_the_graphs_of_published_sizes_are_exported_on_any_machine(monkeypatch):
    made = []

    class Source:
        def __init__(self, model: str):
            made.append(model)
            self.graphs = {}

    monkeypatch.setattr("melforge.common.bench.random_weights.random_source", Source)
    assert check_gpu.main(["--export-only", "--models", "hifigan,fastpitch"]) == 0
    assert made == ["hifigan", "fastpitch"]


def test_what_the_kernels_step_found_is_one_piece_without_what_failed(tmp_path):
    (tmp_path / "machine.json").write_text('{"gpu": "one"}')
    (tmp_path / "kernels-here.txt").write_text("error: PyTorch sees no GPU here")
    (tmp_path / "kernels-speed").mkdir()
    (tmp_path / "kernels-speed" / "results.json").write_text('{"rows": []}')
    assert report_of(tmp_path) == {"machine": {"gpu": "one"}, "speed": {"rows": []}}

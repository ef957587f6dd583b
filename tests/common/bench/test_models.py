"""What the benchmark runs: lengths are those asked for, on every model and in every mode."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.bench import models
from melforge.common.bench.models import FixedDurations, LoadedModels
from melforge.common.bench.peer import audio_of
from melforge.common.bench.run import measure_workload
from melforge.common.bench.workload import Loading, Subject, Workload
from melforge.common.engines import CapturableEngine
from melforge.common.stages import stages_of
from melforge.fastpitch.config import FastPitchConfig
from tests.conftest import tiny_fastspeech, tiny_hifigan, tiny_tacotron2

STEPS = 6


def measured(workload: Workload) -> list[dict]:
    return list(measure_workload(workload, math.inf))


def loaded(voice: Path, graphs: Path, **how) -> dict:
    """Fields of a workload, those of its loading put together."""
    own = {key: how.pop(key) for key in Loading.__dataclass_fields__ if key in how}
    return {**how, "loading": Loading(voice=str(voice), graphs=graphs, **own)}


def sizes(network_and_config) -> dict:
    return dataclasses.asdict(network_and_config[1])


@pytest.fixture
def workload(tiny_voice, monkeypatch, tmp_path):
    """A workload of tiny networks: the voice's, or seeded ones."""
    monkeypatch.setattr(models, "STEPS", STEPS)
    overrides = {
        "fastspeech": sizes(tiny_fastspeech()),
        "hifigan": sizes(tiny_hifigan()),
        "tacotron2": sizes(tiny_tacotron2()),
    }

    def make(subject: Subject, backend: str = "torch", **how) -> Workload:
        if how.get("weights") == "published":
            how["overrides"] = {model: overrides[model] for model in subject.models.values()}
        return Workload(
            subject, backend, **loaded(tiny_voice, tmp_path, **{"symbols": (7,), "runs": 2, **how})
        )

    return make


def test_a_voices_output_is_as_long_as_asked(workload):
    made = LoadedModels(workload(Subject("fastpitch", "hifigan"), "onnx")).call_of(2, 7).run()
    assert made.frames == [35, 35] and made.samples == [35 * 256, 35 * 256]


@pytest.mark.parametrize(
    ("subject", "frames"),
    [
        (Subject("fastspeech", "hifigan"), 35),
        (Subject("tacotron2", "hifigan"), STEPS),
        (Subject.of("tacotron2.decoder_loop"), STEPS),
        (Subject.of("fastspeech"), 35),
        (Subject.of("hifigan"), 35),
        (Subject.of("fastspeech.decoder"), 35),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_seeded_networks_make_as_much_as_asked(workload, subject, frames):
    (row,) = measured(workload(subject, weights="published"))
    assert "failed" not in row, row
    assert (row["frames"], row["samples_per_s"] > 0) == (frames, True)


def test_the_durations_are_predicted_all_the_same(workload):
    loaded = LoadedModels(workload(Subject.of("fastpitch"), "onnx"))
    (row,) = measured(workload(Subject.of("fastpitch"), "onnx"))
    assert {stage["stage"]: stage["calls"] for stage in row["stages"]} == {
        "fastpitch.encoder": 1,
        "fastpitch.decoder": 1,
    }
    symbols = {"symbols": np.ones((1, 7), np.int64), "lengths": np.full(1, 7)}
    encoder = loaded.drivers["acoustic"].encoder
    own = next(engine for engine in loaded.engines if engine.stage.name == "encoder")
    assert (encoder(**symbols)["duration"] == 5).all() and (own(**symbols)["duration"] != 5).any()


@pytest.mark.parametrize("name", ["fastspeech", "tacotron2", "hifigan"])
def test_half_precision_runs_and_keeps_float32_outside(workload, name):
    subject = Subject.of(name)
    half = LoadedModels(workload(subject, weights="published", precision="fp16", decoder="steps"))
    (driver,) = half.drivers.values()
    assert half.call_of(1, 7).run().frames
    engine = half.engines[0]
    assert next(engine.network.parameters()).dtype.itemsize == 2
    whole = LoadedModels(workload(subject, weights="published"))
    assert next(whole.engines[0].network.parameters()).dtype.itemsize == 4  # not the same network
    for stage in driver.engines.values():
        assert all(tensor.dtype != "float16" for tensor in stage.stage.outputs)


@pytest.mark.no_gpu
def test_what_a_machine_lacks_is_a_row_that_says_so(workload):
    subject = Subject("fastpitch", "hifigan")
    (row,) = measured(workload(subject, "torch-graph"))
    assert row["failed"] == "torch-graph needs a GPU: a CUDA graph is captured there"
    rows = measured(workload(subject, device="cuda", batches=(1, 2)))
    assert [row["failed"] for row in rows] == ["device cuda: PyTorch sees no GPU here"] * 2
    (row,) = measured(workload(subject, symbols=(100_000,)))
    assert "this model goes up to" in row["failed"]
    (row,) = measure_workload(workload(subject), 0.0)
    assert row["failed"] == "left out: the time for all rows was over"


def test_an_option_of_onnx_runtime_holds_for_its_workload_only(workload, monkeypatch):
    from melforge.common.engines import onnx_engine

    plain = onnx_engine.session_options
    (row,) = measured(workload(Subject.of("hifigan.generator"), "onnx-one-thread"))
    assert "failed" not in row and onnx_engine.session_options is plain


def test_a_peers_audio_is_an_array_or_a_list():
    assert [len(x) for x in audio_of(np.zeros((2, 5), np.float32))] == [5, 5]
    with pytest.raises(ValueError, match=r"has the shape \[1, 5\], not samples in a row"):
        list(audio_of([np.zeros((1, 5), np.float32)]))


def test_durations_are_given_to_what_is_captured_too():
    """Of a stage's engine by itself, and of what runs beside it; padding lasts no frame."""
    stage = next(stage for stage in stages_of("fastpitch", FastPitchConfig()) if stage.name == "encoder")

    class Predicting(CapturableEngine):
        backend, device, memory_bytes, memory_owner = "torch", "cpu", 0, None

        def __init__(self):
            self.stage = stage

        def __call__(self, **inputs):
            return {"encoded": inputs["symbols"], "duration": torch.rand(inputs["symbols"].shape)}

        def capturable(self, bucket=None):
            return lambda inputs: self(**inputs)

    engine = FixedDurations(Predicting())
    inputs = {"symbols": torch.ones(2, 6), "lengths": torch.tensor([6, 4])}
    for outputs in (engine(**inputs), engine.capturable()(inputs)):
        assert outputs["duration"].tolist() == [[5.0] * 6, [5.0] * 4 + [0.0] * 2]
        assert torch.equal(outputs["encoded"], inputs["symbols"])


def test_captured_graphs_count_as_their_engines(workload):
    loaded = LoadedModels(workload(Subject("fastpitch", None)))
    driver = loaded.drivers["acoustic"]
    made = {
        "encode": {"encoded": np.zeros((1, 7, 32), np.float32)},
        "decode": {"mel": np.zeros((1, 80, 35), np.float32)},
    }

    class Graphs:
        encoder, decoder = driver.encoder, driver.decoder

        def encode(self, symbols):
            return made["encode"]

        def decode(self, encoded, lengths):
            return made["decode"]

    graphs = Graphs()
    loaded.timer.watch_graphs(graphs)

    def run() -> None:
        graphs.decode(graphs.encode(np.zeros((1, 7))), np.array([35]))

    run()  # with the timer off it notes nothing
    measured = loaded.timer.measure(run, 2, "cpu")["stages"]
    assert [(row["stage"], row["sizes"], row["calls"]) for row in measured] == [
        ("fastpitch.encoder", {"batch": 1, "text": 7}, 1),
        ("fastpitch.decoder", {"batch": 1, "text": 7, "mel": 35}, 1),
    ]

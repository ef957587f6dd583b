"""Profiles: torch.profiler's table and trace of one run, with the names of the stages."""

import gzip
import json

import pytest

from melforge.common.bench.models import LoadedModels
from melforge.common.bench.profiling import write_profile
from melforge.common.bench.workload import Loading, Subject, Workload


@pytest.mark.parametrize(("backend", "with_operators"), [("torch", True), ("onnx", False)])
def test_a_profile_of_a_pair(tiny_voice, tmp_path, backend, with_operators):
    loading = Loading(voice=str(tiny_voice))
    workload = Workload(Subject("fastpitch", "hifigan"), backend, loading=loading, symbols=(7,))
    call = LoadedModels(workload).call_of(1, 7)
    label = {"name": "a -> b", "backend": backend, "precision": "fp32", "symbols": 7, "batch": 1}
    path = write_profile(call, "cpu", tmp_path, label)
    name = f"a-b-{backend}-fp32-7-batch1"
    assert path == str(tmp_path / f"{name}.txt") and call.timer.label is None
    assert {file.name for file in tmp_path.iterdir()} == {f"{name}.txt", f"{name}-trace.json.gz"}
    table = (tmp_path / f"{name}.txt").read_text()
    trace = json.loads(gzip.decompress((tmp_path / f"{name}-trace.json.gz").read_bytes()))
    named = {event.get("name") for event in trace["traceEvents"]}
    for stage in ("fastpitch.encoder", "fastpitch.decoder", "hifigan.generator"):
        assert stage in table and stage in named
    assert ("aten::convolution" in table) is with_operators

"""Files for other programs: they run in ONNX Runtime alone, with their axes named and their own check."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from melforge.common.engines.tensorrt.api import load_tensorrt
from melforge.common.export import check_files, self_contained
from melforge.common.export.self_contained import write_files
from melforge.common.export.to_onnx import export_source, source_stages
from melforge.common.stages import Dim
from melforge.common.stages.choose import choose_stages
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import load_voice
from tests.conftest import save_trained, tiny_source_filter

ROOT = Path(__file__).parents[2]


def check_file(path: Path) -> onnxruntime.InferenceSession:
    """As trtexec, Netron or a C++ program would take it."""
    onnx.checker.check_model(path, full_check=True)
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def run_check(folder: Path) -> subprocess.CompletedProcess:
    """The folder's check.py where nothing but onnxruntime and numpy can be imported."""
    program = (
        "import sys, runpy\n"
        "for name in ('torch', 'onnx', 'common', 'melforge'): sys.modules[name] = None\n"
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", program, str(folder / "check.py")]
    return subprocess.run(command, capture_output=True, text=True, cwd="/", env=environment)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("model", ["fastpitch", "hifigan", "fastspeech", "tacotron2", "waveglow"])
def test_the_shipped_voices_files_run_in_onnx_runtime_alone(model, precision, tmp_path):
    source = load_voice().source(model)
    stages = [stage for stage in source_stages(source) if stage.name in source.graphs]
    written = write_files(source, stages, tmp_path / "out", precision)
    assert {path.suffix for path in written} == {".onnx", ".npz", ".py", ".md"}
    for stage in stages:
        path = tmp_path / "out" / f"{stage.full_name}.onnx"
        session = check_file(path)
        for tensors, values in ((stage.inputs, session.get_inputs()), (stage.outputs, session.get_outputs())):
            for tensor, value in zip(tensors, values, strict=True):
                shape = [dim.name if isinstance(dim, Dim) else dim for dim in tensor.dims]
                assert (value.name, value.shape) == (tensor.name, shape)
                assert value.type == {"float32": "tensor(float)", "int64": "tensor(int64)"}.get(
                    tensor.dtype, "tensor(bool)"
                )
        kinds = {tensor.data_type for tensor in onnx.load(path).graph.initializer if len(tensor.dims) > 1}
        if precision == "fp16" and "*" not in stage.float32_layers:
            assert onnx.TensorProto.FLOAT16 in kinds
        text = (tmp_path / "out" / "README.md").read_text()
        assert f"## {stage.full_name}.onnx" in text and f"in {precision}" in text
        assert all(f"| {tensor.name} |" in text for tensor in (*stage.inputs, *stage.outputs))


def test_the_readme_says_what_a_source_is_made_of(tmp_path):
    weights = read_checkpoint(save_trained(tmp_path / "weights.safetensors", *tiny_source_filter()))
    stages = choose_stages(weights, None)
    source, _ = export_source(weights, tmp_path / "graphs", stages, "none")
    written = write_files(source, stages, tmp_path)
    assert tmp_path / "hifigan.pitch.onnx" in written
    text = (tmp_path / "README.md").read_text()
    assert "\n`pitch`: cycles a sample at the centre of each frame.\n\nMade for:" in text
    assert "phase[t] is phase[t - 1] + 256 * (pitch[t - 1] + pitch[t]) / 2, summed in float64.\n" in text


def shapes_in(text: str, option: str) -> dict[str, tuple[int, ...]]:
    """Those of an option of trtexec, by input."""
    (written,) = re.findall(rf"--{option}=(\S+)", text)
    pairs = (part.split(":") for part in written.split(","))
    return {name: tuple(map(int, shape.split("x"))) for name, shape in pairs}


@pytest.mark.slow
@pytest.mark.trt
@pytest.mark.rtx
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("model", ["fastpitch", "fastspeech", "tacotron2", "hifigan", "waveglow"])
def test_tensorrt_builds_the_files_with_the_readmes_shapes(model, precision, tmp_path):
    """As trtexec does it: TensorRT's own parser and builder, and nothing of ours but the folder."""
    source = load_voice().source(model)
    write_files(source, choose_stages(source, None), tmp_path, precision, sizes="none")
    trt = load_tensorrt().api
    logger = trt.Logger(trt.Logger.ERROR)
    commands = re.findall(r"^trtexec .*$", (tmp_path / "README.md").read_text(), re.MULTILINE)
    files = {re.findall(r"--onnx=(\S+)", command)[0]: command for command in commands}
    assert files.keys() == {path.name for path in tmp_path.glob("*.onnx")}
    for name, command in files.items():
        builder = trt.Builder(logger)
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, logger)
        assert parser.parse_from_file(str(tmp_path / name)), parser.get_error(0)
        profile = builder.create_optimization_profile()
        least, usual, most = (shapes_in(command, f"{which}Shapes") for which in ("min", "opt", "max"))
        for tensor in (network.get_input(i) for i in range(network.num_inputs)):
            if -1 in tuple(tensor.shape):
                profile.set_shape(tensor.name, least[tensor.name], usual[tensor.name], most[tensor.name])
        config = builder.create_builder_config()
        config.add_optimization_profile(profile)
        assert builder.build_serialized_network(network, config), name


def test_the_check_needs_only_onnx_runtime_and_numpy_and_finds_a_damage(tiny_voice, tmp_path):
    source = load_voice(tiny_voice).source("hifigan")
    write_files(source, choose_stages(source, None), tmp_path)
    done = run_check(tmp_path)
    assert done.returncode == 0 and done.stdout.count(" ok\n") == 2, done.stdout + done.stderr
    path = tmp_path / "hifigan.generator.onnx"
    model = onnx.load(path)
    bias = next(tensor for tensor in model.graph.initializer if tensor.name == "conv_post.bias")
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + np.float32(0.1), bias.name))
    onnx.save(model, path)
    done = run_check(tmp_path)
    assert done.returncode == 1 and done.stdout.count("DIFFERS") == 1


def test_weights_that_a_file_cannot_hold_lie_beside_it_with_their_offsets(tiny_voice, tmp_path, monkeypatch):
    monkeypatch.setattr(self_contained, "LARGEST_FILE", 1000)
    source = load_voice(tiny_voice).source("fastpitch")
    write_files(source, choose_stages(source, None), tmp_path)
    model = onnx.load(tmp_path / "fastpitch.encoder.onnx", load_external_data=False)
    beside = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in beside]
    assert beside and {place["location"] for place in places} == {"fastpitch.encoder.onnx.data"}
    ends = [int(place["offset"]) + int(place["length"]) for place in places]
    assert max(ends) == (tmp_path / "fastpitch.encoder.onnx.data").stat().st_size
    assert run_check(tmp_path).returncode == 0


def test_a_failing_check_leaves_nothing_behind(tiny_voice, tmp_path, monkeypatch):
    monkeypatch.setattr(self_contained, "TOLERANCES", {"fp32": -1.0})
    source = load_voice(tiny_voice).source("hifigan")
    with pytest.raises(ValueError, match=r"hifigan\.denoiser\.onnx differs from PyTorch"):
        write_files(source, choose_stages(source, None), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def export(tiny_voice, program):
    return functools.partial(program, ROOT / "scripts" / "export.py", "--voice", tiny_voice)


def test_the_command_writes_one_model_or_all(export, tmp_path):
    status, out, _ = export("hifigan", "-o", tmp_path / "one", "--precision", "fp16")
    assert status == 0 and str(tmp_path / "one" / "check.py") in out.splitlines()
    assert "in fp16" in (tmp_path / "one" / "README.md").read_text()
    status, out, _ = export("-o", tmp_path / "all")
    assert status == 0 and (tmp_path / "all" / "fastpitch" / "fastpitch.decoder.onnx").is_file()
    assert all(row.ok for row in check_files.check(tmp_path / "all" / "hifigan"))


@pytest.mark.slow
@pytest.mark.parametrize("opset", [18, 22])
def test_another_operator_set_can_be_had(export, tmp_path, opset):
    status, _, errors = export("fastpitch", "-o", tmp_path, "--opset", opset)
    assert status == 0, errors
    model = onnx.load(tmp_path / "fastpitch.encoder.onnx")
    assert [entry.version for entry in model.opset_import if not entry.domain] == [opset]
    assert check_file(tmp_path / "fastpitch.encoder.onnx")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("hifigan", "--opset", "21"), "--opset is for files with weights: add --output DIR"),
        (("hifigan", "--precision", "fp16"), "--precision is for files with weights: add --output DIR"),
        (("hifigan", "--check", "-o", "x"), "--output checks what it writes: leave out --check"),
        (("waveglow", "-o", "x"), "voice 'tiny' has no waveglow"),
        (("hifigan", "-o", "x", "--opset", "30"), "opset 30: graphs can be had in opset 18 to 22"),
    ],
)
def test_what_cannot_be_exported_is_refused(export, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    status, _, errors = export(*words)
    assert status == 2 and message in errors
    assert not list(tmp_path.rglob("*.onnx"))

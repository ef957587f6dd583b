"""Engines: what they are built from and for, in both precisions, and which files are refused."""

import dataclasses
import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from melforge.common.cli.build import main as build_command_line
from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.engines.backends import make_engine
from melforge.common.engines.tensorrt import api, build
from melforge.common.engines.tensorrt.api import TensorRT, load_tensorrt
from melforge.common.engines.tensorrt.build import (
    build_engine,
    build_or_read,
    build_stage,
    stage_graph,
    stage_model,
)
from melforge.common.engines.tensorrt.engine_file import (
    build_command,
    engine_file,
    engine_files,
    needed_stages,
    profile_of,
    with_batches,
)
from melforge.common.engines.tensorrt.half import to_half
from melforge.common.errors import InputError
from melforge.common.export import to_onnx
from melforge.common.export.examples import examples_of
from melforge.common.export.to_onnx import example_inputs, source_stages
from melforge.common.stages import fix, stages_of
from melforge.common.synthesis.loading import make_driver, override
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import load_voice
from tests.conftest import TINY, quick_for_the_voice

ALL_STAGES = [(model, stage.name) for model, make in TINY.items() for stage in stages_of(model, make()[1])]
LENGTHS = {"trt_max_input_seq_len_list": (20, 40), "trt_max_output_seq_len_list": (40, 80)}
PRETENDED = TensorRT("tensorrt_rtx", SimpleNamespace(__version__="1.4.0"))


def stage_of(source, name: str):
    return next(stage for stage in source_stages(source) if stage.name == name)


def engine_of(source, name: str, path: Path, trt: TensorRT = PRETENDED, **options):
    """The file of a stage; `path` is a place for a whole model's engines."""
    deployment = Deployment(trt_file_path=str(path), **options)
    return engine_file(stage_of(source, name), source, deployment, trt)


# Half precision


@pytest.mark.parametrize("model, name", quick_for_the_voice(ALL_STAGES))
def test_half_precision_says_nearly_the_same(tiny_sources, model, name):
    source = tiny_sources[model]
    stage = stage_of(source, name)
    sizes = {"batch": 2, "text": 9, "mel": 12, "steps": 5}
    sizes = {n: sizes.get(d.of or n, 2048) * (d.times if d.of else 1) for n, d in stage.dynamic_dims.items()}
    inputs = examples_of(stage.model).settle_inputs(
        stage, source, example_inputs(stage, source.config, sizes, seed=3)
    )
    whole, half = (run_model(stage_model(stage, source, precision), inputs) for precision in ("fp32", "fp16"))
    assert [value.dtype for value in half] == [np.dtype(tensor.dtype) for tensor in stage.outputs]
    for value, reference in zip(half, whole, strict=True):
        scale = max(1.0, np.abs(reference.astype(np.float64)).max())
        np.testing.assert_allclose(value, reference, atol=0.02 * scale)


def run_model(model: onnx.ModelProto, inputs):
    onnx.checker.check_model(model, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    # Else its optimiser takes the casts out again.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def test_products_are_halved_and_named_layers_are_not(tiny_sources):
    source = tiny_sources["hifigan"]
    model = stage_model(stage_of(source, "generator"), source, "fp16")
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert kinds["conv_post.weight"] == TensorProto.FLOAT
    assert kinds["conv_pre.weight.half"] == TensorProto.FLOAT16 and "conv_pre.weight" not in kinds
    assert [value.type.tensor_type.elem_type for value in model.graph.output] == [TensorProto.FLOAT]
    denoiser = stage_of(source, "denoiser")
    assert denoiser.float32_layers == ("*",)
    assert stage_model(denoiser, source, "fp16") == stage_model(denoiser, source, "fp32")


def test_a_weight_that_half_precision_cannot_hold_is_named(tiny_sources):
    source = tiny_sources["hifigan"]
    weight = source.state["conv_pre.bias"].copy()
    weight[0] = -1e5
    source = dataclasses.replace(source, given_state={**source.state, "conv_pre.bias": weight})
    with pytest.raises(ValueError, match=r"conv_pre\.bias holds -1e\+05, more than half precision can hold"):
        stage_model(stage_of(source, "generator"), source, "fp16")


def test_what_has_no_weights_follows_its_inputs():
    """A product is halved, what is added to it is not, and the sum is float32 as its more precise part."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["positive"]),
        helper.make_node("Add", ["positive", "x"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xy"]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 2], [1.0] * 4)
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weight])
    half, _ = to_half(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), (), {})
    found = [(node.op_type, *node.input) for node in half.graph.node]
    assert found == [
        *(("Cast", "x"), ("MatMul", "x.half", "w.half"), ("Relu", "product")),
        *(("Cast", "positive"), ("Add", "positive.float", "x")),
    ]


# Profiles


@pytest.mark.slow
def test_profiles_come_from_the_declaration(tiny_sources):
    source = tiny_sources["waveglow"]
    stage, hop = stage_of(source, "generator"), source.config.hop_length
    mel = stage.dynamic_dims["mel"]
    profile = profile_of(stage)
    steps = hop // source.config.n_group
    assert profile["mel"] == ((1, 80, mel.min), (1, 80, mel.typical), (32, 80, mel.max))
    assert profile["z"][2] == (32, source.config.n_group, mel.max * steps)


def test_a_bucket_fixes_its_lengths(tiny_sources):
    stage = stage_of(tiny_sources["fastpitch"], "decoder")
    profile = profile_of(with_batches(fix(stage, Bucket(20, 40)), 1))
    assert profile["repeat_index"] == ((1, 40),) * 3
    assert profile["pitch"] == ((1, 1, 20),) * 3


def test_engines_are_tuned_for_the_batch_that_is_asked_for(tiny_sources):
    source = tiny_sources["fastpitch"]
    file = engine_of(source, "encoder", Path("x.trt"), batch_size=4)
    assert [shape[0] for shape in file.profile["lengths"]] == [1, 4, 4]
    with pytest.raises(ValueError, match=r"batch_size 33: stage fastpitch.encoder goes up to 32"):
        engine_of(source, "encoder", Path("x.trt"), batch_size=33)


@pytest.mark.slow
def test_a_path_for_a_model_gets_its_stages_names_and_one_for_one_engine_is_used_exactly(tiny_sources):
    source = tiny_sources["fastspeech"]
    assert engine_of(source, "synthesis", Path("e/fs.trt")).path == Path("e/fs.trt")
    assert engine_of(source, "encoder", Path("e/fs.i128.trt")).path == Path("e/fs.i128.encoder.trt")
    both = Deployment(trt_multi_engine=True, trt_file_path_list=("a.trt", "b.engine"), **LENGTHS)
    stage = fix(stage_of(source, "encoder"), Bucket(40, 80))
    assert engine_file(stage, source, both, PRETENDED, Bucket(40, 80)).path == Path("b.encoder.engine")
    files = engine_files(needed_stages(source, both), source, both, PRETENDED)
    assert [file.path for file in files] == [Path("a.trt"), Path("b.engine")]


def test_an_engine_is_written_to_and_read_from_its_exact_path(tiny_sources, tmp_path, built):
    source = tiny_sources["fastspeech"]
    path = tmp_path / "fastspeech.fp16.b1.trt"
    one = Deployment(trt_file_path=str(path), trt_max_input_seq_len=20, trt_max_output_seq_len=40)
    (file,) = engine_files(needed_stages(source, one), source, one, PRETENDED)
    assert build_stage(file, source, PRETENDED, force=False, workspace=1)
    assert sorted(one.name for one in tmp_path.iterdir()) == [path.name, f"{path.name}.json"]
    assert file.read() == path.read_bytes() == b"plan" * 100


def test_a_path_that_cannot_hold_the_engines_is_refused(tiny_sources, tmp_path):
    source = tiny_sources["fastspeech"]
    two = Deployment(trt_multi_engine=True, trt_file_path="x.trt", **LENGTHS)
    with pytest.raises(
        ValueError, match=r"x\.trt is one file, but fastspeech has engines for 2 buckets: give"
    ):
        engine_files(needed_stages(source, two), source, two, PRETENDED)
    for folder in (tmp_path, "engines/"):
        with pytest.raises(ValueError, match=r"is a folder: name a file in it, such as fastspeech\.trt"):
            engine_file(stage_of(source, "encoder"), source, Deployment(trt_file_path=str(folder)), PRETENDED)
    file = engine_of(source, "decoder", tmp_path / "x.trt")
    with pytest.raises(ValueError, match=r"has several engines: .*x\.trt stands for x\.decoder\.trt"):
        file.read()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trt_max_output_seq_len=999999", r"a bucket of 999999 \(mel\): stage hifigan.*goes from 1 to"),
        ("batch_size=999", "batch_size 999: stage hifigan.generator goes up to"),
        ("trt_file_path=.", "the engine file . is a folder: name a file in it, such as hifigan.trt"),
    ],
)
def test_what_no_engine_can_be_is_refused_before_the_export(trained, monkeypatch, tmp_path, setting, message):
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path))
    monkeypatch.setattr(api, "load_tensorrt", lambda flavour=None: PRETENDED)
    words = ["--checkpoint", str(trained["hifigan"]), "--set", setting]
    with pytest.raises(InputError, match=message):
        build_command_line(words, "hifigan")
    assert not list(tmp_path.iterdir())


def test_no_engine_is_built_where_another_cannot_be(tiny_voice, monkeypatch):
    monkeypatch.setattr(api, "load_tensorrt", lambda flavour=None: PRETENDED)
    monkeypatch.setattr(build, "build_stage", lambda *how: pytest.fail("it builds"))
    words = ["--voice", str(tiny_voice), "--set", "hifigan.trt_max_output_seq_len=999999"]
    with pytest.raises(InputError, match="a bucket of 999999"):
        build_command_line(words)


def test_no_size_is_checked_twice():
    """Of a network for short texts the longest is one of the usual lengths."""
    stage = stages_of("fastspeech", TINY["fastspeech"]()[1])[0]
    short = stage.with_dims(lambda dim: dataclasses.replace(dim, typical=2, max=3))
    sizes = to_onnx.check_sizes(short)
    assert sizes and not any(case in sizes[:place] for place, case in enumerate(sizes))


def test_the_caches_names_depend_on_all_that_an_engine_is_made_of(tiny_sources, monkeypatch, tmp_path):
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path))
    source = tiny_sources["hifigan"]
    state = {**source.state, "conv_pre.bias": source.state["conv_pre.bias"] + 1}
    newer = TensorRT("tensorrt_rtx", SimpleNamespace(__version__="1.5.0"))
    stage = stage_of(source, "generator")
    paths = {
        engine_file(stage, one, deployment, trt).path
        for one, deployment, trt in (
            (source, Deployment(), PRETENDED),
            (source, Deployment(precision="fp16"), PRETENDED),
            (source, Deployment(batch_size=2), PRETENDED),
            (source, Deployment(), newer),
            (dataclasses.replace(source, given_state=state), Deployment(), PRETENDED),
        )
    }
    assert len(paths) == 5 and {path.parent for path in paths} == {tmp_path / "trt"}


# What is refused


@pytest.fixture
def built(monkeypatch):
    """No TensorRT is asked for what engines are made of."""
    made = b"plan" * 100, {"layers": 1, "seconds": 0, "warnings": []}
    monkeypatch.setattr(build, "build_engine", lambda *_: made)


@pytest.fixture
def pretended(tiny_sources, tmp_path, built):
    """The file of an engine that no TensorRT has built."""
    source = tiny_sources["hifigan"]
    file = engine_of(source, "generator", tmp_path / "h.trt")
    assert build_stage(file, source, PRETENDED, force=False, workspace=1)
    return source, file


def test_what_was_built_is_read_and_not_built_again_unless_asked(pretended):
    source, file = pretended
    assert file.read() == b"plan" * 100
    assert not build_stage(file, source, PRETENDED, force=False, workspace=1)
    note = json.loads(file.note.read_text())
    assert note["report"]["layers"] == 1 and note["precision"] == "fp32"
    half = dataclasses.replace(file, precision="fp16", made_of={**file.made_of, "precision": "fp16"})
    with pytest.raises(ValueError, match="is in fp32, not fp16"):
        build_stage(half, source, PRETENDED, force=False, workspace=1)
    assert build_stage(half, source, PRETENDED, force=True, workspace=1)


def test_a_missing_engine_is_built_with_a_line_where_it_is_loaded(pretended, capsys):
    source, file = pretended
    file.path.unlink()
    missing = r"h\.generator\.trt is missing: build the engine .* python -m melforge\.hifigan\.build_trt"
    with pytest.raises(ValueError, match=missing):
        build_or_read(file, source, PRETENDED, Deployment(no_build=True))
    assert capsys.readouterr().err == ""
    assert build_or_read(file, source, PRETENDED, Deployment()) == b"plan" * 100
    said = capsys.readouterr().err
    assert re.fullmatch(r"built hifigan\.generator in fp32 in \d+\.\d s: .*/h\.generator\.trt\n", said)
    build_or_read(file, source, PRETENDED, Deployment())
    assert capsys.readouterr().err == ""


def test_an_engine_is_built_anew_once_in_a_process(pretended, capsys, monkeypatch):
    source, file = pretended
    anew = Deployment(trt_force_build=True)
    monkeypatch.setattr(build, "STARTED", time.time_ns() + 10**9)  # the file is older than the process
    build_or_read(file, source, PRETENDED, anew)
    assert capsys.readouterr().err.startswith("built hifigan.generator")
    monkeypatch.setattr(build, "STARTED", file.path.stat().st_mtime_ns - 1)
    build_or_read(file, source, PRETENDED, anew)
    assert capsys.readouterr().err == ""
    with pytest.raises(ValueError, match="no_build and trt_force_build contradict each other"):
        dataclasses.replace(anew, no_build=True)


@pytest.mark.slow
def test_the_command_says_all_that_an_engine_depends_on(tiny_voice, monkeypatch, tiny_sources):
    monkeypatch.setenv("MELFORGE_VOICES", str(tiny_voice.parent))
    source = override(load_voice().source("fastpitch"), {"mask_padding": False})
    how = Deployment(precision="fp16", trt_max_input_seq_len=32, trt_max_output_seq_len=99, mask_padding=True)
    assert build_command(source, how, PRETENDED) == (
        "python -m melforge.fastpitch.build_trt --voice tiny --set fastpitch.mask_padding=false "
        "--precision fp16 --set trt_max_input_seq_len=32 --set trt_max_output_seq_len=99 "
        "--tensorrt tensorrt_rtx"
    )
    monkeypatch.delenv("MELFORGE_VOICES")
    source = load_voice(tiny_voice).source("hifigan")
    lists = Deployment(trt_multi_engine=True, trt_max_output_seq_len_list=(64, 99))
    command = shlex.split(build_command(source, lists, PRETENDED))
    assert command[3:5] == ["--voice", str(tiny_voice)] and "trt_max_output_seq_len_list=[64, 99]" in command
    source = tiny_sources["tacotron2"]
    words = f"python -m melforge.tacotron2.build_trt --checkpoint acoustic={source.weights.parent.parent}"
    loop = engine_of(source, "decoder_loop", Path("x.trt"))
    assert loop.command.startswith(words) and " --decoder loop " in loop.command
    assert "--decoder" not in engine_of(source, "encoder", Path("x.trt")).command
    source = tiny_sources["fastspeech"]
    assert " --decoder fixed " in engine_of(source, "synthesis", Path("x.trt")).command
    assert "--decoder" not in engine_of(source, "decoder", Path("x.trt")).command


def test_what_is_not_exported_has_no_engines(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path))
    monkeypatch.setattr("melforge.common.engines.tensorrt.api.load_tensorrt", lambda: PRETENDED)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    source = read_checkpoint(trained["hifigan"])
    with pytest.raises(ValueError, match=r"no engines yet: build them with python -m melforge\.hifigan\.b"):
        make_driver(source, "trt", "cuda", deployment=Deployment(no_build=True))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="the backend trt on cuda: PyTorch sees no GPU here"):
        make_driver(source, "trt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", [lambda plan: plan[:-1], lambda plan: b"P" + plan[1:], lambda plan: b""])
def test_a_damaged_engine_is_refused(pretended, damage):
    _, file = pretended
    file.path.write_bytes(damage(file.path.read_bytes()))
    with pytest.raises(ValueError, match=r"is damaged .* build it again with .* --force"):
        file.read()
    file.note.write_text("{")
    with pytest.raises(ValueError, match=r"json is damaged: build it again"):
        file.read()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"flavour": "tensorrt"}, "is of tensorrt, but this is tensorrt_rtx"),
        ({"version": "1.3.0"}, "is of version 1.3.0 of tensorrt_rtx, but this is 1.4.0"),
        ({"stage": "hifigan.denoiser"}, "is of stage hifigan.denoiser, not hifigan.generator"),
        ({"precision": "fp16"}, "is in fp16, not fp32"),
        ({"profile": {"mel": [[1, 80, 1], [1, 80, 9], [1, 80, 9]]}}, "is for other lengths or batches"),
        ({"compute_capability": "8.9"}, r"is for GPUs of compute capability 8\.9, this one has 9\.0"),
        ({"made_of": "other"}, "is stale: the weights or the graph have changed since"),
    ],
)
def test_an_engine_of_another_kind_is_refused(pretended, change, message):
    _, file = pretended
    file = dataclasses.replace(file, made_of={"compute_capability": "9.0", **file.made_of})
    note = json.loads(file.note.read_text()) | {"compute_capability": "9.0"}
    file.note.write_text(json.dumps(note | change))
    with pytest.raises(ValueError, match=message + ".*: build it again with"):
        file.read()


def test_a_build_that_fails_leaves_nothing(tiny_sources, tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "build_engine", fail)
    source = tiny_sources["hifigan"]
    with pytest.raises(KeyboardInterrupt):
        build_stage(engine_of(source, "generator", tmp_path / "h.trt"), source, PRETENDED, False, 1)
    assert not list(tmp_path.iterdir())


def test_without_tensorrt_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr(api, "MODULES", {"tensorrt": ("no_such_module",)})
    api._load.cache_clear()
    with pytest.raises(ValueError, match=r"TensorRT is not installed: pip install -e '\.\[trt\]'"):
        load_tensorrt("tensorrt")
    api._load.cache_clear()


def test_an_unknown_flavour_suggests_the_nearest(monkeypatch):
    monkeypatch.setenv("MELFORGE_TENSORRT", "tensort_rtx")
    with pytest.raises(
        ValueError, match=r"\$MELFORGE_TENSORRT: unknown flavour .* did you mean 'tensorrt_rtx'"
    ):
        load_tensorrt()


def test_an_old_tensorrt_is_refused():
    with pytest.raises(ValueError, match=r"TensorRT 8\.6\.1 is too old: 10\.13 or later"):
        api._checked(TensorRT("tensorrt", SimpleNamespace(__version__="8.6.1")))


# With TensorRT, on a machine without a GPU


@pytest.mark.trt
@pytest.mark.rtx
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("model, name", quick_for_the_voice(ALL_STAGES))
def test_every_stage_builds(tiny_sources, tmp_path, model, name, precision):
    source, trt = tiny_sources[model], load_tensorrt()
    file = engine_of(source, name, tmp_path / "x.trt", trt, precision=precision, batch_size=2)
    assert build_stage(file, source, trt, force=False, workspace=8)
    report = json.loads(file.note.read_text())["report"]
    assert report["layers"] > 10 and report["seconds"] > 0
    assert len(file.read()) > 1000


@pytest.mark.trt
@pytest.mark.rtx
def test_an_engine_that_is_missing_is_built_where_it_is_asked_for(
    tiny_sources, tmp_path, monkeypatch, capsys
):
    """All but its loading, which takes a GPU."""
    from melforge.common.engines.tensorrt import engine

    def load(plan, *_):
        return SimpleNamespace(plan=plan, memory_bytes=len(plan), scratch_bytes=0)

    monkeypatch.setattr(engine, "require_gpu", lambda device: None)
    monkeypatch.setattr(engine, "LoadedPlan", load)
    monkeypatch.setattr("melforge.common.engines.tensorrt.engine.new_stream", lambda device: None)
    source = dataclasses.replace(tiny_sources["hifigan"], networks={})
    how = Deployment(trt_file_path=str(tmp_path / "h.trt"))
    made = make_engine(stage_of(source, "denoiser"), source, "trt", "cuda", deployment=how)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("built hifigan.denoiser in fp32 in ") and line.endswith("/h.denoiser.trt")
    assert made.loaded.plan == (tmp_path / "h.denoiser.trt").read_bytes()
    with pytest.raises(ValueError, match=r"generator\.trt is missing: build the engine"):
        refusing = dataclasses.replace(how, no_build=True)
        make_engine(stage_of(source, "generator"), source, "trt", "cuda", deployment=refusing)


@pytest.mark.trt
@pytest.mark.rtx
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_weights_beside_a_graph_make_the_engine_that_they_make_inside(tiny_sources, precision):
    source, trt = tiny_sources["hifigan"], load_tensorrt()
    stage = stage_of(source, "generator")
    graph, weights = stage_graph(stage, source, precision)
    assert weights and all(
        (tensor.name in weights) == (tensor.data_location == TensorProto.EXTERNAL)
        for tensor in graph.graph.initializer
    )
    profile = profile_of(with_batches(stage, 1))
    beside, _ = build_engine(graph, profile, trt, weights=weights)
    inside, _ = build_engine(stage_model(stage, source, precision), profile, trt)
    # Two engines of one graph differ in a few bytes, in half precision in some 60.
    plans = [np.frombuffer(bytes(plan), np.uint8) for plan in (beside, inside)]
    assert len(plans[0]) == len(plans[1]) > 1e5 and np.mean(plans[0] != plans[1]) < 1e-3


@pytest.mark.trt
def test_an_operator_that_tensorrt_refuses_is_named():
    node = helper.make_node("Unique", ["x"], ["y"], name="odd_one")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    model = helper.make_model(
        helper.make_graph([node], "g", values[:1], values[1:]), opset_imports=[helper.make_opsetid("", 17)]
    )
    with pytest.raises(ValueError, match=r"does not take the graph: operator Unique \(node odd_one\)"):
        build_engine(model, {"x": ((1,), (2,), (3,))}, load_tensorrt())


PROGRAM = """
import sys
from pathlib import Path
from melforge.common.engines.tensorrt.build import build_stage
from melforge.common.engines.tensorrt.engine_file import engine_file
from melforge.common.config.deployment import Deployment
from melforge.common.engines.tensorrt.api import load_tensorrt
from melforge.common.weights.voices import load_voice
source = load_voice(sys.argv[1]).models["hifigan"]
trt, deployment = load_tensorrt(), Deployment(trt_file_path=sys.argv[2])
from melforge.hifigan.stages import stages
stage = next(s for s in stages(source.config) if s.name == "generator")
file = engine_file(stage, source, deployment, trt)
print(build_stage(file, source, trt, force=False, workspace=8))
"""


def start_build(voice: Path, path: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, str(voice), str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.trt
def test_of_two_processes_one_builds(tiny_voice, tmp_path):
    both = [start_build(tiny_voice, tmp_path / "h.trt") for _ in range(2)]
    answers = [process.communicate(timeout=120) for process in both]
    assert sorted(out.strip() for out, _ in answers) == ["False", "True"], answers
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h.generator.trt", "h.generator.trt.json"]


@pytest.mark.slow
@pytest.mark.trt
@pytest.mark.parametrize("seconds", [1.0, 2.0, 3.0])
def test_a_build_that_is_killed_leaves_nothing_half_made(tiny_voice, tmp_path, seconds):
    process = start_build(tiny_voice, tmp_path / "h.trt")
    time.sleep(seconds)
    process.kill()
    process.communicate()
    assert len(list(tmp_path.iterdir())) in (0, 2)
    again = start_build(tiny_voice, tmp_path / "h.trt")
    out, err = again.communicate(timeout=120)
    assert out.strip() in ("True", "False"), err

"""Stages as models of Triton's own backends: their configs against the ONNX files."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

from melforge.common.cli.triton import main as write
from melforge.common.errors import InputError
from melforge.common.registry import get_model
from melforge.common.stages import Stage
from melforge.common.triton.choice import Choice
from melforge.common.triton.repository import Layout
from melforge.common.triton.stage_models import stage_config, stages_without_loop, trtexec

pytestmark = pytest.mark.slow
ONNX_TYPES = {"TYPE_INT64": onnx.TensorProto.INT64, "TYPE_FP32": onnx.TensorProto.FLOAT}
STAGES = {  # of voices
    "tiny_voice": ("fastpitch_encoder", "fastpitch_decoder", "hifigan_generator", "hifigan_denoiser"),
    "voice_with_source": (
        *("fastpitch_encoder", "fastpitch_decoder"),
        *("hifigan_generator", "hifigan_denoiser", "hifigan_pitch"),
    ),
}
# As `tritonclient` has the configs' schema, in the server's environment.
PARSE = """
import json, pathlib, sys
from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig
parse = lambda path: text_format.Parse(path.read_text(), ModelConfig())
found = {path.parent.name: parse(path) for path in pathlib.Path(sys.argv[1]).glob("*/config.pbtxt")}
to_dict = lambda message: json_format.MessageToDict(message, preserving_proto_field_name=True)
print(json.dumps({name: to_dict(config) for name, config in found.items()}))
"""


@pytest.fixture(scope="module", params=STAGES)
def voice_name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def stages(voice_name) -> tuple[str, ...]:
    return STAGES[voice_name]


@pytest.fixture(scope="module")
def repositories(voice_name, request, tmp_path_factory):
    """With both kinds of stages, and the ONNX files in half precision."""
    voice = request.getfixturevalue(voice_name)
    folder = tmp_path_factory.mktemp("stages")
    for name, *words in (
        ("onnx", "--device", "cpu"),
        ("trt", "--stages-precision", "fp16", "--batch-size", "4"),
    ):
        assert write([str(folder / name), "--voice", str(voice), "--stages", name, *words]) == 0
    return folder


def parsed(folder) -> dict:
    command = [os.environ["MELFORGE_TRITON_PYTHON"], "-c", PARSE, str(folder)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


@pytest.mark.tritonserver
@pytest.mark.parametrize("backend", ["onnx", "trt"])
def test_configs_are_those_of_the_schema_and_name_the_files_tensors(repositories, stages, backend):
    configs = parsed(repositories / backend)
    assert set(stages) < configs.keys()
    for name, config in configs.items():
        assert config["name"] == name
    for name in stages:
        config, (graph,) = configs[name], (repositories / backend / name).rglob("*.onnx")
        model = onnx.load(graph).graph
        batched = config.get("max_batch_size", 0) > 0
        assert batched == (name != "hifigan_denoiser")  # whose bias is one of all items
        assert ("dynamic_batching" in config) == batched
        for tensors, values in ((config["input"], model.input), (config["output"], model.output)):
            assert [tensor["name"] for tensor in tensors] == [value.name for value in values]
            for tensor, value in zip(tensors, values, strict=True):
                assert ONNX_TYPES[tensor["data_type"]] == value.type.tensor_type.elem_type
                shape = [dim.dim_value or -1 for dim in value.type.tensor_type.shape.dim]
                dims = [int(dim) for dim in tensor["dims"]]
                if "reshape" in tensor:
                    assert (dims, tensor["reshape"].get("shape", [])) == ([1], [])
                    dims = []
                assert ([-1, *dims] if batched else dims) == shape, (name, tensor)


def test_the_onnx_files_are_whole_and_beside_their_configs(repositories, stages):
    for name in stages:
        folder = repositories / "onnx" / name
        text = (folder / "config.pbtxt").read_text()
        (graph,) = (folder / "1").iterdir()
        assert 'backend: "onnxruntime"' in text and f'default_model_filename: "{graph.name}"' in text
        InferenceSession(graph.read_bytes())  # without any other file
        assert onnx.load(graph).ir_version <= 10  # what ONNX Runtime 1.20 takes, of Triton's release 25.02
    (generator,) = (repositories / "onnx" / "hifigan_generator" / "1").iterdir()
    inputs = {"mel": np.zeros((2, 80, 5), np.float32)}
    if "hifigan_pitch" in stages:
        inputs["source"] = np.zeros((2, 18, 5), np.float32)
    (audio,) = InferenceSession(str(generator)).run(None, inputs)
    assert audio.shape[0] == 2
    assert not list((repositories / "onnx").glob(".draft-*"))


def test_plans_are_built_by_a_script_of_their_shapes(repositories, stages):
    folder = repositories / "trt"
    script = folder / "build_plans.sh"
    assert os.access(script, os.X_OK)
    commands = shlex.split(script.read_text().replace("\\\n", " "), comments=True)
    graphs = [word.removeprefix("--onnx=") for word in commands if word.startswith("--onnx=")]
    plans = [word.removeprefix("--saveEngine=") for word in commands if word.startswith("--saveEngine=")]
    assert plans == [f"{name}/1/model.plan" for name in stages]
    assert all((folder / graph).is_file() for graph in graphs)
    assert commands.count("--stronglyTyped") == len(stages)  # in half precision, as --stages-precision says
    generator = (folder / "hifigan_generator" / "config.pbtxt").read_text()
    for words in ('backend: "tensorrt"', "max_batch_size: 4", "kind: KIND_GPU", 'filename: "model.plan"'):
        assert words in generator
    assert any(re.fullmatch(r"--maxShapes=mel:4x80x\d+", word) for word in commands)
    assert (folder / "hifigan_generator" / "1").is_dir()


def test_the_script_runs_trtexec_for_each_plan(repositories, stages, tmp_path):
    stand_in = tmp_path / "trtexec"
    stand_in.write_text('#!/bin/sh\nls "${1#--onnx=}" && echo "$@" >> "$LOG"\n')
    stand_in.chmod(0o755)
    environment = {**os.environ, "TRTEXEC": str(stand_in), "LOG": str(tmp_path / "log")}
    script = repositories / "trt" / "build_plans.sh"
    subprocess.run([str(script)], check=True, env=environment, cwd=tmp_path, capture_output=True)
    assert len((tmp_path / "log").read_text().splitlines()) == len(stages)


@pytest.mark.parametrize(
    ("acoustic", "vocoder", "stages"),
    [
        ("tacotron2", "waveglow", ["encoder", "postnet", "generator", "denoiser"]),
        ("fastspeech", "hifigan", ["encoder", "decoder", "generator", "denoiser"]),
    ],
)
def test_stages_with_a_loop_are_left_out_and_all_others_fit_a_config(acoustic, vocoder, stages):
    found = []
    for kind, model in (("acoustic", acoustic), ("vocoder", vocoder)):
        source = SimpleNamespace(model=model, config=get_model(model).config_class(), given_state=None)
        some: list[Stage] = stages_without_loop(Choice(), kind, source)
        found += [stage.name for stage in some]
        for stage in some:
            config = stage_config("a_name", stage, 4, Layout(), "trt")
            assert [tensor["name"] for tensor in config["input"]] == [tensor.name for tensor in stage.inputs]
            assert all(tensor["dims"] for tensor in (*config["input"], *config["output"]))
            assert "--minShapes=" in trtexec(stage, Path("a.onnx"), Path("a.plan"), 1, "fp32")
    assert found == stages


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--stages", "trt", "--device", "cpu"), "--stages trt: TensorRT's plans run on a GPU"),
        (("--stages-precision", "fp16"), "--stages-precision is for --stages onnx or --stages trt"),
    ],
)
def test_what_does_not_go_together(tiny_voice, tmp_path, words, message):
    with pytest.raises(InputError, match=message):
        write([str(tmp_path / "models"), "--voice", str(tiny_voice), *words])
    assert not (tmp_path / "models").exists()

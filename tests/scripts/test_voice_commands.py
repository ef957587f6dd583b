"""The commands around voices: exporting, checking, making one, measuring."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import soundfile
import torch

from melforge.common.cli import ear, voice_make
from melforge.common.errors import InputError
from melforge.common.remote import fetch_folder
from melforge.common.training import voice
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import FrontendSpec, load_voice
from melforge.fastpitch.infer import FastPitchAcoustic
from melforge.hifigan.config import HifiganSettings
from melforge.waveglow.config import WaveglowSettings
from tests.conftest import save_trained, tiny_waveglow

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = ROOT / "scripts"


def few_sizes(monkeypatch) -> None:
    """Checks of graphs in this process are short: the longest sizes take their time."""
    monkeypatch.setattr(
        "melforge.common.export.to_onnx.check_sizes",
        lambda stage, *_: [{name: d.min for name, d in stage.dynamic_dims.items()} | {"batch": 2}],
    )


@pytest.mark.slow
def test_export_check_prints_every_comparison(tiny_voice, program):
    before = {path: path.stat().st_mtime_ns for path in tiny_voice.rglob("*")}
    status, out, errors = program(SCRIPTS / "export.py", "--voice", tiny_voice, "--check")
    assert status == 0, errors
    lines = out.splitlines()
    for stage in ("fastpitch.encoder", "fastpitch.decoder", "hifigan.generator", "hifigan.denoiser"):
        assert sum(line.startswith(stage) and line.endswith("ok") for line in lines) == 10
    assert {path: path.stat().st_mtime_ns for path in tiny_voice.rglob("*")} == before


def test_export_check_fails_on_a_wrong_graph(voice_copy, monkeypatch, program):
    graph = voice_copy / "hifigan" / "generator.onnx"
    model = onnx.load(graph, load_external_data=False)
    next(node for node in model.graph.node if node.op_type == "LeakyRelu").attribute[0].f = 0.3
    graph.write_bytes(model.SerializeToString())
    few_sizes(monkeypatch)
    status, output, _ = program("melforge.hifigan.export_onnx", "--voice", voice_copy, "--check")
    assert status == 1 and "FAILS" in output and "fastpitch" not in output


@pytest.mark.parametrize(
    "command", ["export_onnx", "verify_trt", pytest.param("build_trt", marks=pytest.mark.rtx)]
)
def test_a_models_commands_name_what_another_models_file_or_a_folder_is(command, program):
    file = ROOT / "tests" / "golden" / "waveglow" / "checkpoint.pt"
    command = f"hifigan.{command}"
    status, _, errors = program(command, "--checkpoint", file)
    assert status == 2 and errors == f"error: checkpoint {file} is a waveglow, not a hifigan\n"
    status, _, errors = program(command, "--checkpoint", file.parent)
    assert status == 2 and errors == f"error: checkpoint {file.parent} is a folder: give the file in it\n"


def test_a_tensor_of_whole_numbers_ends_the_export_with_its_name(tmp_path, program):
    content = torch.load(ROOT / "tests" / "golden" / "hifigan" / "checkpoint.pt", weights_only=True)
    content["generator"]["conv_post.bias"] = content["generator"]["conv_post.bias"].long()
    torch.save(content, tmp_path / "checkpoint.pt")
    status, _, errors = program("melforge.hifigan.export_onnx", "--checkpoint", tmp_path / "checkpoint.pt")
    assert status == 2 and "the tensor conv_post.bias is int64" in errors and errors.count("\n") == 1


def test_graphs_in_the_cache_are_checked_when_that_is_asked_for(trained, tmp_path, monkeypatch, program):
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path))
    few_sizes(monkeypatch)
    words = ("melforge.hifigan.export_onnx", "--checkpoint", trained["hifigan"])
    status, out, errors = program(*words, "--no-check")
    assert status == 0 and "ok" not in out and "comparing" not in errors
    assert "exporting hifigan.generator\n" in errors and "constant folding" not in errors
    status, out, errors = program(*words, "--check")
    assert status == 0 and errors.startswith("comparing hifigan with PyTorch at ")
    assert errors.count("\n") == 1 and "hifigan.generator" in out and "ok" in out
    assert program(*words, "--check", "--no-check")[::2] == (
        2,
        "error: --check and --no-check exclude each other\n",
    )


def test_a_voices_graphs_stay_unless_they_are_asked_for(voice_copy, monkeypatch, program):
    few_sizes(monkeypatch)
    graphs = {path: path.stat().st_mtime_ns for path in voice_copy.glob("hifigan/*.onnx")}
    words = ("melforge.hifigan.export_onnx", "--voice", voice_copy)
    status, out, _ = program(*words)
    assert status == 0 and out.count("(there already; --force exports it again)") == len(graphs) > 1
    assert {path: path.stat().st_mtime_ns for path in graphs} == graphs
    lost = next(iter(graphs))
    lost.unlink()
    status, out, errors = program(*words)
    assert status == 0 and f"{lost}\n" in out and f"exporting hifigan.{lost.stem}\n" in errors
    assert all(path == lost or path.stat().st_mtime_ns == before for path, before in graphs.items())
    assert program(*words, "--force")[0] == 0
    assert all(path.stat().st_mtime_ns != before for path, before in graphs.items())


def test_make_voice_refuses_weights_without_a_config(tmp_path, program):
    (tmp_path / "weights.safetensors").write_bytes(b"nothing")
    words = ("scripts/make_voice.py", tmp_path / "new", "--checkpoint", tmp_path / "weights.safetensors")
    status, _, errors = program(*words)
    assert status == 2 and "no whole safetensors file" in errors
    assert not (tmp_path / "new").exists()


def test_sigterm_leaves_nothing_of_a_voice_that_is_made(trained, tmp_path, monkeypatch, program):
    monkeypatch.setattr(voice, "write_model", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    words = ("scripts/make_voice.py", tmp_path / "new", "--checkpoint", trained["hifigan"])
    status, _, errors = program(*words, "--frontend", "english")
    assert status == 143 and errors == "terminated\n" and not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.s3
def test_a_voice_is_made_in_a_store_and_an_ear_is_not(trained, monkeypatch):
    few_sizes(monkeypatch)
    weights = ["--checkpoint", str(trained["hifigan"])]
    assert voice_make.main(["memory://bucket/new", *weights, "--frontend", "english"]) == 0
    assert list(load_voice(fetch_folder("memory://bucket/new")).models) == ["hifigan"]
    for main, more in ((ear.main, []), (voice_make.main, ["--add"])):
        with pytest.raises(InputError, match="/new must be a file or a folder of this machine"):
            main(["memory://bucket/new", *weights, *more])


@pytest.mark.parametrize("weights", [("--checkpoint", "nowhere.pt"), ("--run", "nowhere")])
def test_nothing_is_added_to_a_voice_that_is_not_there(weights, tmp_path, program):
    """Which is said before the weights are looked at."""
    status, _, errors = program(SCRIPTS / "make_voice.py", tmp_path / "new", "--add", *weights)
    what = f"--add is for a voice that is there, and {tmp_path / 'new'} is none: leave it out"
    assert status == 2 and errors == f"error: {what}\n" and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_vocoder_is_added_to_a_voice_with_its_settings(voice_copy, tmp_path, monkeypatch):
    """The other models, which are not exported again, and what is said about the voice stay as they are."""
    before = {path: path.stat().st_mtime_ns for path in voice_copy.glob("*/*")}
    weights = save_trained(tmp_path / "weights.safetensors", *tiny_waveglow())
    few_sizes(monkeypatch)
    arguments = ("--add", "--checkpoint", weights, "--sigma", "0.7", "--denoising-strength", "waveglow=0.1")
    monkeypatch.setattr(sys, "argv", ["make_voice.py", *map(str, (voice_copy, *arguments))])
    assert voice_make.main() == 0
    voice = load_voice(voice_copy)
    assert list(voice.models) == ["fastpitch", "hifigan", "waveglow"] and voice.licence == "test"
    assert voice.models["waveglow"].settings == WaveglowSettings(0.1, 0.7)
    assert voice.models["hifigan"].settings == HifiganSettings()
    assert voice.models["fastpitch"].settings.pitch_mean == 200.0
    assert {"generator", "denoiser"} < set(voice.models["waveglow"].graphs)
    assert all(path.stat().st_mtime_ns == made for path, made in before.items())


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--sigma", "0.7"), "sigma '0.7': none of hifigan has this setting"),
        (("--denoising-strength", "hifigam=1"), "did you mean 'hifigan'?"),
        (("--denoising-strength", "some"), "'some' is not a number"),
        (("--denoising-strength", "11"), "denoising_strength must be a number from 0 to 10, not 11.0"),
    ],
)
def test_impossible_settings_are_refused(trained, tmp_path, program, arguments, message):
    words = ("scripts/make_voice.py", tmp_path / "new", "--checkpoint", trained["hifigan"])
    status, _, errors = program(*words, *arguments)
    assert status == 2 and message in errors
    assert not (tmp_path / "new").exists()


def test_copy_synthesis_takes_a_vocoders_controls(tiny_voice, tmp_path, program):
    soundfile.write(tmp_path / "in.wav", np.random.default_rng(0).standard_normal(9000) * 0.1, 22050)
    command = (SCRIPTS / "copy_synthesis.py", tmp_path / "in.wav", "--voice", tiny_voice)
    for folder, arguments in (("plain", ()), ("denoised", ("--denoising-strength", "1"))):
        status, _, errors = program(*command, "-o", tmp_path / folder, *arguments)
        assert status == 0, errors
    plain, denoised = (soundfile.read(tmp_path / name / "in.wav")[0] for name in ("plain", "denoised"))
    assert len(plain) == len(denoised) >= 8960 and not np.array_equal(plain, denoised)


def test_copy_synthesis_overwrites_nothing(tiny_voice, tmp_path, program):
    (tmp_path / "other").mkdir()
    for path in (tmp_path / "in.wav", tmp_path / "other" / "in.flac"):
        soundfile.write(path, np.zeros(300), 22050)
    before = (tmp_path / "in.wav").read_bytes()
    command = ("scripts/copy_synthesis.py", "--voice", tiny_voice, tmp_path / "in.wav")
    status, _, errors = program(*command, "-o", tmp_path)
    assert status == 2 and "in.wav is one of the files to copy: give another folder" in errors
    status, _, errors = program(*command, tmp_path / "other" / "in.flac", "-o", tmp_path / "out")
    assert status == 2 and "in.flac would both become" in errors and not (tmp_path / "out").exists()
    status, _, errors = program(*command, "-o", tmp_path / "out")
    assert status == 2 and f"{tmp_path / 'in.wav'}: 300 samples are too few" in errors
    assert not (tmp_path / "out").exists()
    acoustic = ROOT / "tests" / "golden" / "fastpitch" / "checkpoint.pt"
    status, _, errors = program(*command, "-o", tmp_path / "out", "--checkpoint", acoustic)
    assert status == 2 and "checkpoint.pt is a fastpitch, an acoustic model: give a vocoder\n" in errors
    status, _, errors = program(*command, "-o", tmp_path / "in.wav" / "out")
    assert status == 2 and "in.wav is a file: give a folder" in errors
    assert (tmp_path / "in.wav").read_bytes() == before


@pytest.mark.parametrize("name", ["..", ".", "", "PATH"])
def test_make_voice_leaves_folders_alone_that_are_none(name, trained, tmp_path, program, monkeypatch):
    """The repository's own packages have the models' names, and would be replaced."""
    monkeypatch.setenv("MELFORGE_VOICES", str(tmp_path / "voices"))
    (tmp_path / "voices").mkdir()
    for folder in (tmp_path, tmp_path / "voices"):
        (folder / "hifigan").mkdir()
        (folder / "hifigan" / "model.py").write_text("dear")
    given = tmp_path if name == "PATH" else name
    words = ("scripts/make_voice.py", given, "--checkpoint", trained["hifigan"], "--frontend", "english")
    status, _, errors = program(*words)
    said = "is no voice and not empty: give the folder of one, or a new one" if name else "NAME is empty"
    assert status == 2 and said in errors
    assert all((folder / "hifigan" / "model.py").is_file() for folder in (tmp_path, tmp_path / "voices"))


def test_a_vocoder_whose_receptive_field_is_too_short_makes_no_voice(trained, tmp_path, monkeypatch):
    """Its streams would click."""
    few_sizes(monkeypatch)
    monkeypatch.setattr("melforge.hifigan.infer.receptive_field", lambda config: 1)
    source = read_checkpoint(trained["hifigan"])
    with pytest.raises(
        InputError, match=r"hifigan: a mel in chunks .* its receptive_field \(1 frames\) is too"
    ):
        voice.write_voice(tmp_path / "new", [source], FrontendSpec("english"))
    assert not list(tmp_path.iterdir())


def test_an_acoustic_model_that_hears_padding_makes_no_voice(trained, tmp_path, monkeypatch):
    """PyTorch and the graphs agree on it."""
    few_sizes(monkeypatch)
    monkeypatch.setattr(FastPitchAcoustic, "batch_safe", True)
    source = read_checkpoint(trained["fastpitch"])
    unmasked = replace(source, config=replace(source.config, mask_padding=False), networks={})
    with pytest.raises(InputError, match=r"fastpitch: the mel of a text in a batch differs .* not masked"):
        voice.write_voice(tmp_path / "new", [unmasked], FrontendSpec("english"))
    assert not list(tmp_path.iterdir())

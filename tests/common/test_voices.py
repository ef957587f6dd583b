"""voice.yaml and weights: what is read, and how damaged ones are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from common.config.deployment import Deployment
from common.runner import TextToSpeech
from common.stages.choose import choose_stages, parse_backends, parse_kernels
from common.synthesis.loading import make_driver
from common.weights.published import parse_checkpoint, read_checkpoint
from common.weights.voices import list_voices, load_voice

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture
def edit(voice_copy):
    """Changes voice.yaml."""

    def edit(change):
        file = voice_copy / "voice.yaml"
        content = yaml.safe_load(file.read_text())
        change(content)
        file.write_text(yaml.safe_dump(content))
        return voice_copy

    return edit


def test_a_voice_is_found_by_name_path_or_alone(tiny_voice, monkeypatch):
    monkeypatch.setenv("MELFORGE_VOICES", str(tiny_voice.parent))
    assert list_voices() == ["tiny"]
    for name in ("tiny", tiny_voice, tiny_voice / "voice.yaml", None):
        voice = load_voice(name)
        assert voice.name == "tiny" and voice.licence == "test"
        assert voice.models_of("acoustic") == ["fastpitch"] and voice.models_of("vocoder") == ["hifigan"]
    extra = voice.source("fastpitch").extra
    assert extra["pitch_mean"] == 200.0 and extra["pitch_std"] == 50.0


def test_unknown_voice_suggests_the_nearest(tiny_voice, monkeypatch):
    monkeypatch.setenv("MELFORGE_VOICES", str(tiny_voice.parent))
    with pytest.raises(ValueError, match=r"unknown voice 'tyni': did you mean 'tiny'\?"):
        load_voice("tyni")
    with pytest.raises(ValueError, match=r"has no voice\.yaml"):
        load_voice(tiny_voice / "hifigan")


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c: c.update(modles=1), "unknown key 'modles': did you mean 'models'?"),
        (lambda c: c.pop("mel"), "mel is missing"),
        (lambda c: c["mel"].update(hop_lenght=1), "unknown key 'hop_lenght': did you mean 'hop_length'?"),
        (lambda c: c["mel"].update(hop_length=0), "hop_length must be positive"),
        (lambda c: c["models"].update(hifigam={}), "unknown model 'hifigam': did you mean 'hifigan'?"),
        (lambda c: c["models"]["hifigan"].pop("weights"), "weights is missing"),
        (lambda c: c["models"]["hifigan"]["config"].update(resblok="1"), "did you mean 'resblock'?"),
        (lambda c: c["models"]["hifigan"]["config"].update(resblock="3"), 'resblock must be "1" or "2"'),
        (lambda c: c.update(models=[]), "must be a mapping"),
        (lambda c: c.update(frontend={"name": "englisch"}), "unknown text frontend 'englisch'"),
        (lambda c: c["frontend"].update(speed=1), "unexpected keyword argument 'speed'"),
    ],
)
def test_mistakes_in_voice_yaml_are_named(edit, change, message):
    folder = edit(change)
    with pytest.raises(ValueError, match=message):
        TextToSpeech.load(voice=folder, device="cpu")


def test_a_file_that_is_not_yaml_is_refused(voice_copy):
    (voice_copy / "voice.yaml").write_text("models: [unclosed")
    with pytest.raises(ValueError, match="is not valid YAML"):
        load_voice(voice_copy)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def poison(path: Path) -> None:
    state = load_file(path)
    name = "conv_pre.bias"
    state[name] = np.full_like(state[name], np.nan)
    save_file(state, path)


@pytest.mark.parametrize(
    "file, damage, message",
    [
        ("weights.safetensors", Path.unlink, "are missing"),
        ("weights.safetensors", truncate, "no whole safetensors file"),
        ("weights.safetensors", lambda p: p.write_bytes(b"not at all"), "no whole safetensors file"),
        ("weights.safetensors", poison, r"conv_pre\.bias holds NaN"),
        ("generator.onnx", Path.unlink, r"generator\.onnx is missing"),
        ("generator.onnx", truncate, "does not load"),
        ("generator.json", Path.unlink, r"generator\.json is missing"),
        ("generator.json", lambda p: p.write_text("{"), "cannot be read"),
    ],
)
def test_damaged_files_are_named(voice_copy, file, damage, message):
    damage(voice_copy / "hifigan" / file)
    with pytest.raises(ValueError, match=message):
        TextToSpeech.load(voice=voice_copy, device="cpu")


def test_different_mel_contracts_are_shown_side_by_side(tiny_voice):
    with pytest.raises(ValueError, match=r"differ in n_mel_channels(.|\n)*fastpitch +hifigan"):
        TextToSpeech.load(
            voice=tiny_voice, checkpoints=[str(GOLDEN / "fastpitch" / "checkpoint.pt")], backend="torch"
        )


@pytest.mark.parametrize(
    "path, model",
    [
        ("fastpitch/checkpoint.pt", "fastpitch"),
        ("hifigan/checkpoint_oldkeys_module.pt", "hifigan"),
        ("hifigan_jik876/V1/g_02500000", "hifigan"),
    ],
)
def test_published_files_are_recognised(path, model):
    assert read_checkpoint(GOLDEN / path).model == model


def test_a_checkpoint_of_the_other_kind_is_refused():
    with pytest.raises(ValueError, match="is a hifigan"):
        read_checkpoint(GOLDEN / "hifigan_jik876" / "V1" / "g_02500000", "acoustic")


def test_trained_weights_tell_their_sizes(trained):
    source = read_checkpoint(trained["hifigan"])
    assert source.config.upsample_initial_channel == 32 and source.mel.hop_length == 256
    assert read_checkpoint(trained["fastpitch"]).extra["pitch_mean"] == 200.0


def test_checkpoint_arguments():
    assert parse_checkpoint("vocoder=a/b.pt") == ("vocoder", Path("a/b.pt"))
    assert parse_checkpoint("folder/file.pt") == (None, Path("folder/file.pt"))
    with pytest.raises(ValueError, match=r"unknown checkpoint kind 'vocodr': did you mean 'vocoder'\?"):
        parse_checkpoint("vocodr=file.pt")


def test_backend_arguments():
    models = {"acoustic": "fastpitch", "vocoder": "hifigan"}
    assert parse_backends("torch", models) == {"acoustic": "torch", "vocoder": "torch"}
    assert parse_backends("acoustic=torch", models) == {"acoustic": "torch", "vocoder": "onnx"}
    assert parse_backends("onnx,hifigan=torch", models) == {"acoustic": "onnx", "vocoder": "torch"}
    with pytest.raises(ValueError, match="unknown model in --backend 'vocder'"):
        parse_backends("vocder=torch", models)


def test_stages_with_kernels_stand_beside_a_backend(monkeypatch):
    monkeypatch.setattr("tacotron2.stages.KERNELS", {"decoder_loop": "some.engine:Loop"}, raising=False)
    models = {"acoustic": "tacotron2", "vocoder": "hifigan"}
    text = "trt,decoder_loop=cuda,vocoder=onnx"
    assert parse_backends(text, models) == {"acoustic": "trt", "vocoder": "onnx"}
    assert parse_kernels(text, "tacotron2") == ("decoder_loop",)
    assert parse_kernels(text, "hifigan") == ()
    with pytest.raises(ValueError, match=r"is for single stages.*decoder_loop=cuda"):
        parse_backends("cuda", models)
    for model in ("fastpitch", "hifigan"):
        monkeypatch.setattr(f"{model}.stages.KERNELS", {})
    with pytest.raises(ValueError, match="these models have none"):
        parse_backends("trt,decoder_loop=cuda", {"acoustic": "fastpitch", "vocoder": "hifigan"})
    source = load_voice().source("tacotron2")
    stages = choose_stages(source, None, backend="trt", kernels=("decoder_loop",))
    assert "decoder_loop" in [stage.name for stage in stages]
    with pytest.raises(ValueError, match="kernels run on an NVIDIA GPU"):
        make_driver(source, "torch", "cpu", deployment=Deployment(kernels=("decoder_loop",)))

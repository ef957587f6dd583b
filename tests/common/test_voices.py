"""voice.yaml and weights: what is read, and how damaged ones are refused."""

import os
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from melforge.common.config.deployment import Deployment
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from melforge.common.stages import choose, plan_of
from melforge.common.stages.choose import choose_stages, parse_backends, parse_kernels
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights import published, voices
from melforge.common.weights.ears import list_ears, load_ear
from melforge.common.weights.published import parse_checkpoint, read_checkpoint
from melforge.common.weights.voices import list_voices, load_voice, place_of, read_weights, save_weights
from melforge.fastpitch.config import FastPitchSettings
from tests.tables import read_tables

GOLDEN = Path(__file__).parent.parent / "golden"


MISSING = object()


@pytest.fixture
def edit(voice_copy):
    """Gives a key of voice.yaml another value, or takes it out; keys are joined by dots."""

    def edit(keys: str, value: object):
        file = voice_copy / "voice.yaml"
        content = place = yaml.safe_load(file.read_text())
        *folders, key = keys.split(".")
        for folder in folders:
            place = place[folder]
        place[key] = value
        if value is MISSING:
            del place[key]
        file.write_text(yaml.safe_dump(content))
        return voice_copy

    return edit


@pytest.mark.parametrize(
    ("kind", "load", "listed", "file"),
    [("voices", load_voice, list_voices, "voice.yaml"), ("ears", load_ear, list_ears, "ear.yaml")],
)
def test_an_installed_package_keeps_a_users_own_apart(kind, load, listed, file, monkeypatch, tmp_path):
    monkeypatch.delenv(f"MELFORGE_{kind.upper()}", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    shipped, usual = listed(), load()
    assert place_of(kind, "ann") == usual.folder.parent / "ann"  # in a checkout beside those shipped
    with pytest.raises(InputError, match=f"{shipped[0]} is shipped: give another name, or {usual.folder} to"):
        place_of(kind, shipped[0])
    monkeypatch.setattr(voices, "IN_CHECKOUT", False)
    assert listed() == shipped
    own = place_of(kind, "a")
    assert own == tmp_path / "melforge" / kind / "a" and place_of(kind, "./a") == Path("a")
    shutil.copytree(usual.folder, own)
    assert listed() == [*shipped, "a"] and load().folder == usual.folder
    assert load("a").folder == own and next(iter(load("a").models.values())).words[1] == "a"
    own.rename(own.with_name(shipped[0]))  # of one name the user's is taken, and stays the first
    assert listed() == shipped and load().folder == own.with_name(shipped[0]) == place_of(kind, shipped[0])
    words = [next(iter(load(one).models.values())).words[1] for one in (None, usual.folder)]
    assert words == [shipped[0], str(usual.folder)]
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as where a container's user has no home
    assert listed() == shipped and load().folder == usual.folder
    for name in ("a", shipped[0]):
        shutil.copytree(usual.folder, tmp_path / "checkout" / name)
    monkeypatch.setenv(f"MELFORGE_{kind.upper()}", str(tmp_path / "checkout"))
    assert listed() == [shipped[0], "a"] and load().folder.name == shipped[0]  # in one folder too


def test_a_path_is_no_name(tiny_voice, tmp_path, monkeypatch):
    shutil.copytree(tiny_voice, tmp_path / "hazel")
    monkeypatch.chdir(tmp_path)
    assert {load_voice(one).name for one in ("./hazel", Path("./hazel"))} == {"tiny"}
    assert load_voice("hazel").name == "hazel" and load_voice(Path("orchard")).name == "orchard"


def test_a_voice_is_found_by_name_path_or_alone(tiny_voice, monkeypatch):
    monkeypatch.setenv("MELFORGE_VOICES", str(tiny_voice.parent))
    assert list_voices() == ["tiny"]
    for name in ("tiny", tiny_voice, tiny_voice / "voice.yaml", None):
        voice = load_voice(name)
        assert voice.name == "tiny" and voice.licence == "test"
        assert voice.models_of("acoustic") == ["fastpitch"] and voice.models_of("vocoder") == ["hifigan"]
    assert voice.source("fastpitch").settings == FastPitchSettings(pitch_mean=200.0, pitch_std=50.0)
    with pytest.raises(ValueError, match=r"unknown voice 'tyni': did you mean 'tiny'\?"):
        load_voice("tyni")
    with pytest.raises(ValueError, match=r"has no voice\.yaml"):
        load_voice(tiny_voice / "hifigan")


@pytest.mark.parametrize(
    "keys, value, message", read_tables(Path(__file__).parent / "cases.txt")["voice.yaml"]
)
def test_mistakes_in_voice_yaml_are_named(edit, keys, value, message):
    folder = edit(keys, MISSING if value == "MISSING" else yaml.safe_load(value))
    with pytest.raises(InputError, match=message) as error:
        TextToSpeech.load(voice=folder, device="cpu")
    assert re.match(rf"{folder}/voice\.yaml(, line \d+|): ", str(error.value))


def test_a_mistake_in_voice_yaml_names_its_line(voice_copy):
    file = voice_copy / "voice.yaml"
    lines = file.read_text().splitlines()
    number = lines.index("      mask_padding: true")
    lines[number] = "      mask_padding: 'yes'"
    file.write_text("\n".join(lines))
    with pytest.raises(InputError) as error:
        load_voice(voice_copy)
    assert str(error.value) == f"{file}, line {number + 1}: mask_padding must be true or false, not 'yes'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [unclosed", r"voice\.yaml, line 1: "),
        ("name: &a x\nlanguage: *a", r"voice\.yaml, line 2: aliases"),
        ("name: x\nname: y", "line 2: name stands here a second time"),
        ("mel: {hop_length: 1, hop_length: 2}", "hop_length stands here a second time"),
        ("name: !!python/name:os.system", "the tag !!python/name:os.system is not allowed"),
        ("name: x\n---\nname: y", "a second document begins here"),
        ("models: " + "[" * 900_000, "not readable as YAML|nesting depth"),
    ],
)
def test_a_file_that_is_not_plain_yaml_is_refused(voice_copy, text, message):
    (voice_copy / "voice.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        load_voice(voice_copy)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def poison(path: Path, value: float = np.nan) -> None:
    state = load_file(path)
    name = "conv_pre.bias"
    state[name] = np.full_like(state[name], value, dtype=np.float32)
    save_file(state, path)


def overflow(path: Path) -> None:
    poison(path, 3e38)


@pytest.mark.parametrize(
    "file, damage, message",
    [
        ("weights.safetensors", Path.unlink, "are missing"),
        ("weights.safetensors", truncate, "no whole safetensors file"),
        ("weights.safetensors", lambda p: p.write_bytes(b"not at all"), "no whole safetensors file"),
        ("weights.safetensors", poison, r"conv_pre\.bias holds NaN"),
        ("generator.onnx", Path.unlink, r"generator\.onnx is missing"),
        ("generator.onnx", truncate, "does not load"),
        ("generator.onnx", lambda p: p.write_bytes(b"version https://git-lfs"), "it is a Git LFS pointer"),
        ("generator.json", Path.unlink, r"generator\.json is missing"),
        ("generator.json", lambda p: p.write_text("{"), "cannot be read"),
        ("generator.json", lambda p: p.write_text("[" * 100_000), "cannot be read"),
        *(
            ("generator.json", lambda p, note=note: p.write_text(note), "lists no weights")
            for note in ("[1]", "{}", '{"weights": 7}', '{"weights": [7]}')
        ),
        ("weights.safetensors", overflow, r"conv_pre\.bias holds .* infinite squares"),
        (
            "weights.safetensors",
            lambda p: p.write_text("version https://git-lfs"),
            "are no .* Git LFS pointer",
        ),
    ],
)
def test_damaged_files_are_named(voice_copy, file, damage, message):
    damage(voice_copy / "hifigan" / file)
    with pytest.raises(ValueError, match=message):
        TextToSpeech.load(voice=voice_copy, device="cpu")


def test_a_note_that_cannot_be_opened_is_not_called_damaged(voice_copy):
    (note,) = (voice_copy / "hifigan").glob("generator.json")
    note.unlink()
    note.symlink_to(note.name)  # the system refuses to open it
    with pytest.raises(OSError, match="symbolic links"):
        TextToSpeech.load(voice=voice_copy, device="cpu")


@pytest.mark.skipif(os.geteuid() == 0, reason="a user other than root")
def test_weights_that_may_not_be_read_are_called_so(voice_copy):
    (voice_copy / "hifigan" / "weights.safetensors").chmod(0)
    with pytest.raises(PermissionError):
        TextToSpeech.load(voice=voice_copy, device="cpu")


@pytest.mark.parametrize(
    ("model", "key", "value"),
    [
        ("fastpitch", "in_fft_n_layers", 10**9),
        ("fastpitch", "n_symbols", 10**12),
        ("hifigan", "upsample_initial_channel", 16),
    ],
)
@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_a_config_that_contradicts_its_graphs_is_refused(edit, model, key, value, backend):
    folder = edit(f"models.{model}.config.{key}", value)
    with pytest.raises(
        InputError, match=rf"says {key} .*, but \w+\.onnx was exported with .*: set it back, or"
    ):
        TextToSpeech.load(voice=folder, device="cpu", backend=backend)


def test_a_model_of_other_symbols_than_its_frontend_has_says_so_until_they_are_stated(edit):
    source = load_voice(edit("frontend", {"name": "tacotron2"})).source("fastpitch")
    assert len(source.build_frontend().symbols) == source.config.n_symbols
    with pytest.warns(UserWarning, match="has 155 symbols, but its text frontend 148.* option symbols"):
        replace(source, config=replace(source.config, n_symbols=155)).build_frontend()
    letters = "_-!'(),.:;? ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyzäöüßÄÖÜ"
    stated = {"name": "tacotron2", "cleaners": "basic_cleaners", "symbols": [letters, "@*"]}
    source = load_voice(edit("frontend", stated)).source("fastpitch")
    frontend = replace(source, config=replace(source.config, n_symbols=155)).build_frontend()
    (utterance,) = frontend("Größe {AA1 ZH}, ½").utterances
    spelt = [*"größe ", "@AA1", "@ZH", *", "]
    assert utterance.symbols == tuple(spelt) and frontend.symbols[utterance.ids[3]] == "ß"
    assert [utterance.ids[3], *utterance.ids[6:8]] == [letters.index("ß"), len(letters) + 2, 154]


def test_weights_that_give_nan_are_an_error(voice_copy):
    file = voice_copy / "fastpitch" / "weights.safetensors"
    state = {name: value.astype(np.float32) for name, value in load_file(file).items()}
    state["encoder.word_emb.weight"][:, 0] = 1e6
    state["encoder.layers.0.dec_attn.qkv_net.weight"][:, 0] = 1e17
    save_file(state, file)
    with pytest.raises(InputError, match="gives NaN instead of durations"):
        TextToSpeech.load(voice=voice_copy, device="cpu").speak("Hello there.")


def test_different_mel_contracts_are_shown_side_by_side(tiny_voice):
    with pytest.raises(ValueError, match=r"differ in n_mel_channels(.|\n)*fastpitch +hifigan"):
        TextToSpeech.load(
            voice=tiny_voice, checkpoints=[str(GOLDEN / "fastpitch" / "checkpoint.pt")], backend="torch"
        )


def test_files_are_recognised_and_tell_their_sizes(trained):
    assert read_checkpoint(GOLDEN / "fastpitch" / "checkpoint.pt").model == "fastpitch"
    published = GOLDEN / "hifigan_jik876" / "V2" / "g_02500000"
    assert read_checkpoint(published).model == "hifigan"
    with pytest.raises(ValueError, match="is a hifigan"):
        read_checkpoint(published, "acoustic")
    source = read_checkpoint(trained["hifigan"])
    assert source.config.upsample_initial_channel == 32 and source.mel.hop_length == 256
    assert read_checkpoint(trained["fastpitch"]).settings.pitch_mean == 200.0


def test_checkpoint_arguments():
    assert parse_checkpoint("vocoder=a/b.pt") == ("vocoder", Path("a/b.pt"))
    assert parse_checkpoint("folder/file.pt") == (None, Path("folder/file.pt"))
    for one in ("nope.pt", Path("nope.pt"), [Path("nope.pt")]):
        with pytest.raises(FileNotFoundError, match=r"checkpoint nope\.pt not found"):
            TextToSpeech.load(checkpoints=one)
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
    models = {"acoustic": "tacotron2", "vocoder": "hifigan"}
    text = "trt,decoder_loop=cuda,vocoder=onnx"
    assert parse_backends(text, models) == {"acoustic": "trt", "vocoder": "onnx"}
    assert parse_kernels(text, "tacotron2") == ("decoder_loop",)
    assert parse_kernels(text, "hifigan") == ()
    with pytest.raises(ValueError, match=r"or for single stages.*decoder_loop=cuda"):
        parse_backends("trt,vocoders=cuda", models)
    for model in ("fastpitch", "hifigan"):
        monkeypatch.setattr(f"melforge.{model}.stages.PLAN", replace(plan_of(model), kernels={}))
    with pytest.raises(ValueError, match="these models have none"):
        parse_backends("trt,decoder_loop=cuda", {"acoustic": "fastpitch", "vocoder": "hifigan"})
    source = load_voice().source("tacotron2")
    stages = choose_stages(source, None, backend="trt", kernels=("decoder_loop",))
    assert "decoder_loop" in [stage.name for stage in stages]
    with pytest.raises(ValueError, match="kernels run on an NVIDIA GPU"):
        make_driver(source, "torch", "cpu", deployment=Deployment(kernels=("decoder_loop",)))


def test_a_weight_of_whole_numbers_is_named_and_a_counter_is_read(tmp_path):
    """A counter without axes has one once written: `num_batches_tracked` of a published Tacotron 2."""
    save_weights(tmp_path / "good.safetensors", {"a": np.ones(3, np.float16), "counter": np.int64(7)})
    assert read_weights(tmp_path / "good.safetensors")["counter"] == 7
    save_weights(tmp_path / "bad.safetensors", {"a": np.ones(3, np.int64)})
    with pytest.raises(ValueError, match=r"bad\.safetensors: the tensor a is int64; weights are floating"):
        read_weights(tmp_path / "bad.safetensors")


@pytest.mark.parametrize("model", ["fastpitch", "hifigan"])
def test_a_trained_checkpoint_is_read_once(trained, model, monkeypatch):
    """When it is recognised, only its header is, and those of its tensors that are settings."""
    read = Counter()

    def read_counted(path, names=None):
        found = read_weights(path, names)
        read.update(found.keys())
        return found

    for module in (published, voices):
        monkeypatch.setattr(module, "read_weights", read_counted)
    source = read_checkpoint(trained[model])
    settings = {"pitch_mean", "pitch_std"} if model == "fastpitch" else set()
    assert set(read) == settings
    read.clear()
    driver = make_driver(source, "torch", "cpu")
    assert len([driver.engines[stage] for stage in driver.engines]) > 1
    assert set(read) > settings and set(read.values()) == {1}


def test_weights_are_for_those_that_the_umask_lets_read(tmp_path):
    (tmp_path / "any").touch()
    save_weights(tmp_path / "weights.safetensors", {"weight": np.ones(5, np.float32)})
    assert (tmp_path / "weights.safetensors").stat().st_mode == (tmp_path / "any").stat().st_mode
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot write"):
        save_weights(tmp_path / "folder", {"weight": np.ones(5, np.float32)})
    assert {path.name for path in tmp_path.iterdir()} == {"any", "folder", "weights.safetensors"}


def test_a_model_without_kernels_is_refused_on_them(monkeypatch):
    plan = replace(plan_of("hifigan"), on_cuda="")
    monkeypatch.setattr(choose, "plan_of", lambda model: plan)
    with pytest.raises(InputError, match="hifigan has no cuda kernels: use onnx, torch or trt"):
        choose.kernel_stages("hifigan")

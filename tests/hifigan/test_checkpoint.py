"""Published generators in every layout answer as the reference does; files that do not fit are refused."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.audio.pcm import to_pcm16
from melforge.common.engines.onnx_engine import OnnxEngine
from melforge.common.export.to_onnx import export_source, source_stages
from melforge.common.weights.published import read_checkpoint
from melforge.hifigan.checkpoint import load_checkpoint
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.model import HifiganGenerator
from tests.networks import load_network

GOLDEN = Path(__file__).parents[1] / "golden"
NVIDIA = GOLDEN / "hifigan"
AUTHORS = GOLDEN / "hifigan_jik876"
FILES = [NVIDIA / "checkpoint.pt", *(AUTHORS / version / "g_02500000" for version in ("V2", "V3"))]
CONTRACT = MelContract()


@pytest.fixture
def old_names(tmp_path) -> Path:
    """The file with the names of NVIDIA's first programs: flat blocks, of a parallel module, without mel."""
    content = read(NVIDIA / "checkpoint.pt")
    generator = {f"module.{flat(name)}": value for name, value in content["generator"].items()}
    assert "module.resblocks.11.convs2.2.weight_g" in generator
    return save({"generator": generator, "config": content["config"]}, tmp_path / "old_names.pt")


@pytest.fixture
def authors_v1(tmp_path) -> Path:
    """NVIDIA's file as the authors would have written it: V1 in a folder with its config.json."""
    content = read(NVIDIA / "checkpoint.pt")
    stated = json.loads((AUTHORS / "V2" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(stated | content["config"]))
    generator = {flat(name): value for name, value in content["generator"].items()}
    return save({"generator": generator}, tmp_path / "g_02500000")


def flat(name: str) -> str:
    return re.sub(
        r"^resblocks\.(\d+)\.(\d+)", lambda found: f"resblocks.{3 * int(found[1]) + int(found[2])}", name
    )


def read(path: Path) -> dict:
    return torch.load(path, weights_only=True)


def save(content: dict, path: Path) -> Path:
    torch.save(content, path)
    return path


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
@torch.no_grad()
def test_golden_audio(path):
    golden = np.load(path.parent / "io.npz")
    network, _ = load_network("hifigan", path)
    audio = network(torch.from_numpy(golden["mel"]))
    np.testing.assert_allclose(audio.numpy(), golden["audio"], rtol=0, atol=1e-5)
    torch.testing.assert_close(network.generate(torch.from_numpy(golden["mel"]))[0], audio[:, 0])
    if "audio_int16" in golden:
        steps = to_pcm16(audio[:, 0].numpy()).astype(int) - golden["audio_int16"]
        assert np.abs(steps).max() <= 1 and np.mean(steps != 0) < 0.02  # float noise at a rounding edge


def test_v1_of_the_authors_is_the_same_generator(authors_v1):
    found, nvidia = load_checkpoint(authors_v1), load_checkpoint(NVIDIA / "checkpoint.pt")
    assert found.config == nvidia.config and found.info["mel"] == CONTRACT
    assert found.state.keys() == nvidia.state.keys()
    assert all(torch.equal(value, nvidia.state[name]) for name, value in found.state.items())


def test_old_names_are_the_same_generator(old_names):
    found, current = load_checkpoint(old_names), load_checkpoint(NVIDIA / "checkpoint.pt")
    assert found.config == current.config and found.state.keys() == current.state.keys()
    assert all(torch.equal(value, current.state[name]) for name, value in found.state.items())
    assert found.info["mel"] is None and read_checkpoint(old_names).model == "hifigan"


@pytest.mark.slow
def test_the_masked_graph_of_a_published_file_makes_the_golden_audio(tmp_path):
    """The export checks it with PyTorch too, on an item shorter than the batch."""
    source = read_checkpoint(NVIDIA / "checkpoint.pt")
    stage = next(stage for stage in source_stages(source) if stage.name == "masked_generator")
    source, checks = export_source(source, tmp_path, [stage], "few")
    assert {(check.stage, check.ok) for check in checks} == {("hifigan.masked_generator", True)}
    golden = np.load(NVIDIA / "io.npz")
    batch, _, frames = golden["mel"].shape
    padded = np.pad(golden["mel"], [(0, 0), (0, 0), (0, 5)], constant_values=3.0)
    audio = OnnxEngine(stage, source)(mel=padded, lengths=np.full(batch, frames))["audio"]
    np.testing.assert_allclose(audio[:, : frames * 256], golden["audio"][:, 0], rtol=0, atol=1e-5)


@torch.no_grad()
def test_golden_activations():
    golden = np.load(NVIDIA / "io.npz")
    network, _ = load_network("hifigan", NVIDIA / "checkpoint.pt")
    seen = {}
    for name, module in (
        ("act_conv_pre", network.conv_pre),
        ("act_ups0", network.ups[0]),
        ("act_resblock_0_1", network.resblocks[0][1]),
        ("act_conv_post", network.conv_post),
    ):
        module.register_forward_hook(lambda _m, _i, output, name=name: seen.update({name: output}))
    network(torch.from_numpy(golden["mel"]))
    for name, value in seen.items():
        np.testing.assert_allclose(
            value.numpy(), golden[name], rtol=0, atol=1e-4 * max(1, np.abs(golden[name]).max()), err_msg=name
        )


def test_both_names_of_a_setting_give_the_contract():
    assert load_checkpoint(NVIDIA / "checkpoint.pt").info["mel"] == CONTRACT
    assert load_checkpoint(AUTHORS / "V2" / "g_02500000").info["mel"] == CONTRACT
    assert load_checkpoint(NVIDIA / "checkpoint.pt").info["epoch"] == 10000


def test_prefix_of_2019_and_two_dimensional_kernels(tmp_path):
    content = read(NVIDIA / "checkpoint.pt")
    content["generator"] = {
        f"module.1.{name}": value[..., None].half() if value.dim() == 3 else value.half()
        for name, value in content["generator"].items()
    }
    state = load_checkpoint(save(content, tmp_path / "old.pt")).state
    for name, value in load_checkpoint(NVIDIA / "checkpoint.pt").state.items():
        assert state[name].dtype == torch.float32
        torch.testing.assert_close(state[name], value, rtol=5e-3, atol=1e-3)


def test_current_names_with_the_one_convolution_block(tmp_path):
    path = AUTHORS / "V3" / "g_02500000"
    content = {"config": json.loads((path.parent / "config.json").read_text())}
    names = {
        name: f"resblocks.{int(name.split('.')[1]) // 3}.{int(name.split('.')[1]) % 3}."
        + name.split(".", 2)[2]
        if name.startswith("resblocks")
        else name
        for name in read(path)["generator"]
    }
    content["generator"] = {names[name]: value for name, value in read(path)["generator"].items()}
    renamed = load_checkpoint(save(content, tmp_path / "v3.pt"))
    expected = load_checkpoint(path)
    assert renamed.config == expected.config and renamed.state.keys() == expected.state.keys()
    assert all(torch.equal(renamed.state[name], value) for name, value in expected.state.items())


def test_folded_files_and_our_own_training_states_load(tmp_path):
    config = HifiganConfig(upsample_initial_channel=16)
    network = HifiganGenerator(config)
    sizes = {"config": load_checkpoint(NVIDIA / "checkpoint.pt").config.__dict__}
    sizes["config"] = {**sizes["config"], "upsample_initial_channel": 16}
    normed = load_checkpoint(save({"generator": network.state_dict(), **sizes}, tmp_path / "normed.pt"))
    network.remove_weight_norm()
    folded = load_checkpoint(save({"generator": network.state_dict(), **sizes}, tmp_path / "folded.pt"))
    for name, value in network.state_dict().items():
        torch.testing.assert_close(folded.state[name], value, rtol=0, atol=0)
        torch.testing.assert_close(normed.state[name], value, rtol=1e-5, atol=1e-7)


def test_averaged_weights_only_where_asked_for(tmp_path):
    content = read(NVIDIA / "checkpoint.pt")
    with pytest.raises(ValueError, match="holds no averaged weights"):
        load_checkpoint(NVIDIA / "checkpoint.pt", ema=True)
    content["gen_ema"] = {name: value + 1 for name, value in content["generator"].items()}
    path = save(content, tmp_path / "ema.pt")
    plain, averaged = load_checkpoint(path), load_checkpoint(path, ema=True)
    assert plain.info["ema_available"]
    torch.testing.assert_close(averaged.state["conv_pre.bias"], plain.state["conv_pre.bias"] + 1)


@pytest.mark.parametrize("version", ["V1", "V2", "V3"])
def test_without_a_config_published_sizes_are_assumed_aloud(version, tmp_path, authors_v1):
    stated = authors_v1 if version == "V1" else AUTHORS / version / "g_02500000"
    (tmp_path / "alone").mkdir()
    path = Path(shutil.copy(stated, tmp_path / "alone"))
    with pytest.warns(UserWarning, match="assuming upsample_rates .* as in the published models"):
        checkpoint = load_checkpoint(path)
    assert checkpoint.config == load_checkpoint(stated).config
    assert checkpoint.info["mel"] is None


def test_without_a_config_unpublished_sizes_are_refused(tmp_path):
    config = HifiganConfig(
        upsample_initial_channel=16, resblock_kernel_sizes=(9,), resblock_dilation_sizes=((1, 3, 5),)
    )
    path = save({"generator": HifiganGenerator(config).state_dict()}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="does not state resblock_dilation_sizes"):
        load_checkpoint(path)


def test_config_beside(tmp_path):
    path = Path(shutil.copy(AUTHORS / "V2" / "g_02500000", tmp_path / "generator_v2"))
    stated = (AUTHORS / "V2" / "config.json").read_text(encoding="utf-8")
    (tmp_path / "generator_v2.json").write_text(f"\ufeff{stated}", encoding="utf-8")  # as Notepad writes it
    assert load_checkpoint(path).config == load_checkpoint(AUTHORS / "V2" / "g_02500000").config


def test_further_dilations_of_the_config_are_not_read(tmp_path):
    content = read(NVIDIA / "checkpoint.pt")
    content["config"]["resblock_dilation_sizes"] = [[1, 3, 5, 7]] * 3
    checkpoint = load_checkpoint(save(content, tmp_path / "more.pt"))
    assert checkpoint.config == load_checkpoint(NVIDIA / "checkpoint.pt").config


def test_hop_of_the_settings_that_the_network_does_not_make_is_said(tmp_path):
    content = read(NVIDIA / "checkpoint.pt")
    content["train_setup"]["hop_length"] = 300
    with pytest.warns(UserWarning, match="makes 256 samples for each frame"):
        assert load_checkpoint(save(content, tmp_path / "hop.pt")).info["mel"].hop_length == 256


def changed(**changes):
    def change(content):
        content["config"].update(changes)

    return change


def with_zero_direction(content):
    content["generator"]["ups.1.weight_v"][2] = 0


def as_discriminators(content):
    content["mpd"] = content.pop("generator")


def as_a_wrong_length(content):
    content["generator"]["conv_pre.weight_g"] = torch.ones(3, 1, 1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (with_zero_direction, "ups.1.weight holds .* NaN"),
        (as_discriminators, "holds the discriminators.*give the generator's file"),
        (as_a_wrong_length, r"conv_pre.weight_g \(3, 1, 1\) does not fit"),
        (
            lambda content: content["train_setup"].update(mel_fmin="low"),
            "mel_fmin: 'low', which is no number",
        ),
        (lambda content: content["train_setup"].update(mel_fmax=20000), "mel_fmax 20000.0 must be in order"),
        (changed(upsample_rates="8822"), "upsample_rates: '8822' is not a list of positive whole numbers"),
        (changed(upsample_rates=[8, 8, 2]), "upsample_rates has 3 entries"),
        (changed(upsample_initial_channel=-1), "is not a positive whole number"),
        (changed(upsample_initial_channel=64), "tensors have other sizes: conv_pre"),
        (changed(resblock_kernel_sizes=[3, 7, 11]), "tensors have other sizes: resblocks.0.0"),
    ],
)
def test_files_that_do_not_fit_are_refused(damage, message, tmp_path):
    content = read(NVIDIA / "checkpoint.pt")
    damage(content)
    path = save(content, tmp_path / "damaged.pt")
    with pytest.raises(ValueError, match=message) as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not valid JSON"), ("[1]", "holds a list"), ("[" * 100_000, "not valid JSON")],
)
def test_damaged_config_files_are_refused(text, message, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_checkpoint(shutil.copy(AUTHORS / "V2" / "g_02500000", tmp_path))

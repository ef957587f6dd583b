"""FastPitch files in every published layout, and files that must be refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from common.hparams import load_hparams
from fastpitch.checkpoint import infer_sizes, load_checkpoint, load_network
from fastpitch.config import FastPitchConfig
from fastpitch.model import FastPitch
from fastpitch.stages import stages

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture(scope="module")
def content() -> dict:
    return torch.load(GOLDEN / "fastpitch" / "checkpoint.pt", weights_only=True)


@pytest.fixture
def save(tmp_path):
    def save(value) -> Path:
        path = tmp_path / "checkpoint.pt"
        torch.save(value, path)
        return path

    return save


@pytest.mark.parametrize("name", ["checkpoint.pt", "checkpoint_noenergy.pt"])
def test_golden_files_load_strictly(name):
    network, checkpoint = load_network(GOLDEN / "fastpitch" / name)
    assert not network.training
    assert set(checkpoint.state) == set(network.state_dict())
    assert checkpoint.config.energy_conditioning == ("noenergy" not in name)
    assert not checkpoint.config.mask_padding


def test_info_tells_the_text_chain_and_the_pitch(content, save):
    info = load_checkpoint(save(content)).info
    assert info["symbol_set"] == "english_basic" and info["p_arpabet"] == 1.0
    assert info["text_cleaners"] == ["english_cleaners_v2"]
    assert info["sampling_rate"] == 22050 and info["hop_length"] == 256
    assert info["pitch_mean"] == pytest.approx(214.72203)
    assert info["epoch"] == 1000 and not info["ema_available"]


def test_published_sizes_have_the_published_number_of_parameters():
    with torch.device("meta"):
        network = FastPitch(FastPitchConfig())
    assert sum(p.numel() for p in network.parameters()) == 46_266_420


def test_shipped_layout_stays_small_and_keeps_items_apart():
    hparams = GOLDEN.parent.parent / "hparams" / "fastpitch"
    assert load_hparams(hparams / "base.yaml", FastPitchConfig) == (FastPitchConfig(),)
    (config,) = load_hparams(hparams / "compact.yaml", FastPitchConfig)
    with torch.device("meta"):
        network = FastPitch(config)
    spoken = sum(p.numel() for name, p in network.named_parameters() if not name.startswith("attention."))
    assert spoken < 3_950_000
    assert config.mask_padding and config.energy_conditioning


@pytest.mark.parametrize("keep_setup", [True, False])
def test_config_can_be_read_from_the_weights(content, save, keep_setup):
    bare = {k: v for k, v in content.items() if k != "config"} if keep_setup else content["state_dict"]
    # One head of 16 channels divides evenly into no heads of 64.
    assert load_checkpoint(save(bare)).config == FastPitchConfig(**content["config"])


def test_sizes_of_many_options_are_read_from_the_weights():
    config = FastPitchConfig(
        n_symbols=30,
        in_fft_n_layers=1,
        in_fft_n_heads=2,
        out_fft_n_layers=3,
        out_fft_conv1d_kernel_size=5,
        out_fft_conv1d_filter_size=100,
        dur_predictor_n_layers=3,
        pitch_embedding_kernel_size=5,
        energy_predictor_kernel_size=1,
        n_speakers=4,
    )
    for wanted in (config, replace(config, energy_conditioning=False, energy_predictor_kernel_size=3)):
        with torch.device("meta"):
            state = FastPitch(wanted).state_dict()
        assert FastPitchConfig(**infer_sizes(state)) == wanted


def test_wrapped_and_half_precision_names_load(content, save):
    state = {f"module.{name}": value.half() for name, value in content["state_dict"].items()}
    checkpoint = load_checkpoint(save({**content, "state_dict": state}))
    assert set(checkpoint.state) == set(content["state_dict"])
    assert all(value.dtype == torch.float32 for value in checkpoint.state.values())


def test_averaged_weights_are_taken_on_request(content, save):
    average = {name: value + 1 for name, value in content["state_dict"].items()}
    path = save({**content, "ema_state_dict": average})
    assert torch.equal(load_checkpoint(path).state["proj.bias"], content["state_dict"]["proj.bias"])
    assert torch.equal(load_checkpoint(path, ema=True).state["proj.bias"], average["proj.bias"])
    with pytest.raises(ValueError, match="no averaged weights"):
        load_checkpoint(save(content), ema=True)


def test_aligner_may_be_missing(content, save):
    state = {
        name: value for name, value in content["state_dict"].items() if not name.startswith("attention.")
    }
    network, checkpoint = load_network(save({**content, "state_dict": state}))
    assert set(checkpoint.state) == set(state)
    assert torch.equal(network.proj.bias, state["proj.bias"])
    network.load_state_dict(state, strict=True)
    with pytest.raises(RuntimeError, match=r"proj\.bias"):
        network.load_state_dict({k: v for k, v in state.items() if k != "proj.bias"})


def test_missing_and_unexpected_names_are_listed(content, save):
    state = {name.replace("energy_emb", "energie"): value for name, value in content["state_dict"].items()}
    with pytest.raises(
        ValueError, match=r"2 missing: energy_emb.weight, energy_emb.bias; 2 unexpected: energie"
    ):
        load_checkpoint(save({**content, "state_dict": state}))


def test_sizes_that_do_not_fit_are_named(content, save):
    config = {**content["config"], "n_mel_channels": 80, "n_symbols": 200}
    with pytest.raises(ValueError, match=r"encoder.word_emb.weight \(148, 32\) instead of \(200, 32\)"):
        load_checkpoint(save({**content, "config": config}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_symbols": "many"}, "n_symbols: 'many', which is no int"),
        ({"in_fft_conv1d_filter_size": -3}, "no network has the sizes"),
    ],
)
def test_impossible_config_is_refused(content, save, change, message):
    with pytest.raises(ValueError, match=message):
        load_checkpoint(save({**content, "config": {**content["config"], **change}}))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_numbers_are_named(content, save, value):
    bias = content["state_dict"]["proj.bias"].clone()
    bias[3] = value
    with pytest.raises(ValueError, match=r"proj\.bias holds 1 NaN or infinite"):
        load_checkpoint(save({**content, "state_dict": {**content["state_dict"], "proj.bias": bias}}))


class RunsCode:
    def __reduce__(self):
        return os.mkdir, ("made_by_a_checkpoint",)


def test_files_that_run_code_are_refused(content, save, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="wants to run code when it is opened"):
        load_checkpoint(save({**content, "extra": RunsCode()}))
    assert not Path("made_by_a_checkpoint").exists()


def test_torchscript_is_refused(tmp_path):
    path = tmp_path / "program.pt"
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)), path)
    with pytest.raises(ValueError, match="TorchScript program"):
        load_checkpoint(path)


@pytest.mark.parametrize("kept", [0, 1000, -100])
def test_truncated_files_are_refused(content, save, kept):
    path = save(content)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="not a complete PyTorch file") as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value) and str(caught.value).count("\n") <= 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"generator": {}}, "no 'state_dict' but generator"),
        ([1, 2], "holds a list"),
        ({"state_dict": {"weight": 3}}, "'weight' is a int"),
        ({}, "it is empty"),
        ({"state_dict": {"w": torch.zeros(1)}}, "missing: .* 1 unexpected: w"),
    ],
)
def test_foreign_content_is_refused(save, value, message):
    with pytest.raises(ValueError, match=message):
        load_checkpoint(save(value))


def test_missing_file_and_folder_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.pt not found"):
        load_checkpoint(tmp_path / "nothing.pt")
    with pytest.raises(ValueError, match="is a folder"):
        load_checkpoint(tmp_path)


def test_stages_follow_the_config():
    encoder, decoder = stages(FastPitchConfig(n_speakers=2, energy_conditioning=False, n_mel_channels=20))
    assert [x.name for x in encoder.inputs] == ["symbols", "lengths", "speaker"]
    assert [x.name for x in decoder.outputs] == ["mel"]
    assert decoder.outputs[0].dims[1] == 20
    encoder, decoder = stages(FastPitchConfig())
    assert [x.name for x in encoder.inputs] == ["symbols", "lengths"]
    assert [x.name for x in decoder.outputs] == ["mel", "energy"]
    assert encoder.full_name == "fastpitch.encoder"

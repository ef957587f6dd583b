"""What only FastPitch files have: text chain, pitch, averaged weights, sizes to be read from the weights."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from melforge.common.config.hparams import load_hparams
from melforge.fastpitch.checkpoint import infer_sizes, load_checkpoint
from melforge.fastpitch.config import FastPitchConfig
from melforge.fastpitch.model import FastPitch
from melforge.fastpitch.stages import stages
from melforge.fastpitch.train import FastPitchRecipe
from tests.networks import load_network

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture(scope="module")
def content() -> dict:
    return torch.load(GOLDEN / "fastpitch" / "checkpoint.pt", weights_only=True)


@pytest.mark.parametrize("name", ["checkpoint.pt", "checkpoint_noenergy.pt"])
def test_golden_files_load_strictly(name):
    network, checkpoint = load_network("fastpitch", GOLDEN / "fastpitch" / name)
    assert not network.training
    assert set(checkpoint.state) == set(network.state_dict())
    assert checkpoint.config.energy_conditioning == ("noenergy" not in name)
    assert not checkpoint.config.mask_padding


def test_info_tells_the_text_chain_and_the_pitch(content, save_pt):
    info = load_checkpoint(save_pt(content)).info
    assert info["symbol_set"] == "english_basic" and info["p_arpabet"] == 1.0
    assert info["text_cleaners"] == ["english_cleaners_v2"]
    assert info["sampling_rate"] == 22050 and info["hop_length"] == 256
    assert info["pitch_mean"] == pytest.approx(214.72203)
    assert info["epoch"] == 1000 and not info["ema_available"]


def test_the_voices_layout_stays_small_and_keeps_items_apart():
    hparams = GOLDEN.parent.parent / "hparams" / "fastpitch"
    assert load_hparams(hparams / "base.yaml", FastPitchConfig) == (FastPitchConfig(),)
    config = load_hparams(hparams / "train.yaml", FastPitchConfig, FastPitchRecipe)[0]
    with torch.device("meta"):
        network = FastPitch(config)
    spoken = sum(p.numel() for name, p in network.named_parameters() if not name.startswith("attention."))
    assert spoken < 2_950_000
    assert config.mask_padding and config.energy_conditioning


@pytest.mark.parametrize("keep_setup", [True, False])
def test_config_can_be_read_from_the_weights(content, save_pt, keep_setup):
    bare = {k: v for k, v in content.items() if k != "config"} if keep_setup else content["state_dict"]
    # One head of 16 channels divides evenly into no heads of 64.
    assert load_checkpoint(save_pt(bare)).config == FastPitchConfig(**content["config"])


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


def test_averaged_weights_are_taken_on_request(content, save_pt):
    average = {name: value + 1 for name, value in content["state_dict"].items()}
    path = save_pt({**content, "ema_state_dict": average})
    assert torch.equal(load_checkpoint(path).state["proj.bias"], content["state_dict"]["proj.bias"])
    assert torch.equal(load_checkpoint(path, ema=True).state["proj.bias"], average["proj.bias"])
    with pytest.raises(ValueError, match="no averaged weights"):
        load_checkpoint(save_pt(content), ema=True)


def test_aligner_may_be_missing(content, save_pt):
    state = {
        name: value for name, value in content["state_dict"].items() if not name.startswith("attention.")
    }
    network, checkpoint = load_network("fastpitch", save_pt({**content, "state_dict": state}))
    assert set(checkpoint.state) == set(state)
    assert torch.equal(network.proj.bias, state["proj.bias"])
    network.load_state_dict(state, strict=True)
    with pytest.raises(RuntimeError, match=r"proj\.bias"):
        network.load_state_dict({k: v for k, v in state.items() if k != "proj.bias"})


def test_stages_follow_the_config():
    encoder, decoder = stages(FastPitchConfig(n_speakers=2, energy_conditioning=False, n_mel_channels=20))
    assert [x.name for x in encoder.inputs] == ["symbols", "lengths", "speaker"]
    assert [x.name for x in decoder.outputs] == ["mel"]
    assert decoder.outputs[0].dims[1] == 20
    encoder, decoder = stages(FastPitchConfig())
    assert [x.name for x in encoder.inputs] == ["symbols", "lengths"]
    assert [x.name for x in decoder.outputs] == ["mel", "energy"]
    assert encoder.full_name == "fastpitch.encoder"

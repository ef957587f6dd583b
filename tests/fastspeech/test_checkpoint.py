"""What only FastSpeech files have: no sizes beside the weights, and two tables of positions."""

from pathlib import Path

import pytest
import torch

from melforge.common.config.hparams import load_hparams
from melforge.fastspeech.checkpoint import load_checkpoint
from melforge.fastspeech.config import FastSpeechConfig
from melforge.fastspeech.model import FastSpeech
from tests.networks import load_network

GOLDEN = Path(__file__).parent.parent / "golden" / "fastspeech" / "checkpoint_320000.pt"


@pytest.fixture
def content() -> dict:
    return torch.load(GOLDEN, weights_only=True)


def test_the_golden_file_loads_strictly_with_the_sizes_of_its_weights():
    network, checkpoint = load_network("fastspeech", GOLDEN)
    assert not network.training and checkpoint.info["step"] == 320000
    assert checkpoint.config == FastSpeechConfig(
        max_seq_len=160,
        d_model=32,
        phoneme_side_n_layer=2,
        phoneme_side_conv1d_filter_size=48,
        phoneme_side_output_size=32,
        mel_side_n_layer=2,
        mel_side_conv1d_filter_size=48,
        mel_side_output_size=32,
        duration_predictor_filter_size=24,
        n_mel_channels=20,
        n_symbols=checkpoint.config.n_symbols,
    )


def test_shipped_layout_stays_small_and_keeps_items_apart():
    hparams = GOLDEN.parents[3] / "hparams" / "fastspeech"
    assert load_hparams(hparams / "base.yaml", FastSpeechConfig) == (FastSpeechConfig(),)
    (config,) = load_hparams(hparams / "compact.yaml", FastSpeechConfig)
    assert config.mask_padding
    with torch.device("meta"):
        assert sum(p.numel() for p in FastSpeech(config).parameters()) < 2_400_000


def test_sizes_of_many_options_are_read_from_the_weights(save_pt):
    config = FastSpeechConfig(
        max_seq_len=50,
        d_model=24,
        phoneme_side_n_layer=1,
        phoneme_side_head=3,
        phoneme_side_conv1d_filter_size=20,
        phoneme_side_output_size=24,
        mel_side_n_layer=3,
        mel_side_head=1,
        mel_side_conv1d_filter_size=28,
        mel_side_output_size=24,
        fft_conv1d_kernel=5,
        fft_conv1d_padding=2,
        duration_predictor_filter_size=10,
        duration_predictor_kernel_size=5,
        n_mel_channels=12,
        n_symbols=30,
    )
    state = FastSpeech(config).state_dict()
    table = state.pop("position.weight")
    for side in ("phoneme_side", "mel_side"):
        state[f"{side}.position.weight"] = table
    assert load_checkpoint(save_pt({"model": state})).config == config


def test_other_position_tables_are_refused(content, save_pt):
    name = next(name for name in content["model"] if name.endswith("mel_side.position.weight"))
    content["model"][name] = content["model"][name] + 0.1
    with pytest.raises(ValueError, match=r"mel_side\.position\.weight is not the sinusoid table"):
        load_checkpoint(save_pt(content))

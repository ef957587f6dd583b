"""Tacotron 2 files in every published layout, and files that must be refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from common.hparams import load_hparams
from tacotron2.checkpoint import infer_sizes, load_checkpoint, load_network
from tacotron2.config import Tacotron2Config
from tacotron2.model import Tacotron2

GOLDEN = Path(__file__).parent.parent / "golden" / "tacotron2" / "checkpoint_ddp.pt"


@pytest.fixture(scope="module")
def content() -> dict:
    return torch.load(GOLDEN, weights_only=True)


@pytest.fixture(scope="module")
def bare(content) -> dict:
    return {name.removeprefix("module."): value for name, value in content["state_dict"].items()}


@pytest.fixture
def save(tmp_path):
    def save(value, **options) -> Path:
        path = tmp_path / "checkpoint.pt"
        torch.save(value, path, **options)
        return path

    return save


def test_golden_file_loads_strictly(content, bare):
    network, checkpoint = load_network(GOLDEN)
    assert not network.training
    assert set(checkpoint.state) == set(network.state_dict()) == set(bare)
    assert checkpoint.config == Tacotron2Config(**content["config"])
    assert checkpoint.info == {"ema_available": False, "epoch": 1500}


def test_published_sizes_have_the_published_number_of_parameters():
    with torch.device("meta"):
        network = Tacotron2(Tacotron2Config())
    assert sum(p.numel() for p in network.parameters()) == 28_193_153
    base = Path(__file__).parents[2] / "hparams" / "tacotron2" / "base.yaml"
    assert load_hparams(base, Tacotron2Config) == (Tacotron2Config(),)


@pytest.mark.parametrize("prefix", ["", "module.", "module.1.", "module.module."])
@pytest.mark.parametrize("old_format", [True, False])
def test_wrapped_half_precision_and_old_files_load(content, bare, save, prefix, old_format):
    state = {f"{prefix}{k}": v.half() if v.is_floating_point() else v for k, v in bare.items()}
    path = save({**content, "state_dict": state, "amp": {}}, _use_new_zipfile_serialization=not old_format)
    network, checkpoint = load_network(path)
    assert set(checkpoint.state) == set(bare)
    assert all(v.dtype == torch.float32 for v in checkpoint.state.values() if v.is_floating_point())
    torch.testing.assert_close(network.embedding.weight.data, bare["embedding.weight"], rtol=1e-3, atol=1e-3)


def test_sizes_are_read_from_the_weights(content, bare, save):
    checkpoint = load_checkpoint(save(bare))
    assert checkpoint.config == Tacotron2Config(**{**content["config"], "max_decoder_steps": 2000})
    assert load_checkpoint(save({"iteration": 7, "state_dict": bare})).info["iteration"] == 7
    other = Tacotron2Config(
        n_symbols=30,
        n_frames_per_step=2,
        encoder_kernel_size=3,
        encoder_n_convolutions=2,
        attention_location_kernel_size=9,
        postnet_kernel_size=7,
        postnet_n_convolutions=3,
        attention_dim=20,
    )
    with torch.device("meta"):
        state = Tacotron2(other).state_dict()
    assert Tacotron2Config(**infer_sizes(state)) == other


def test_files_without_counters_load(bare, save):
    state = {name: value for name, value in bare.items() if not name.endswith("num_batches_tracked")}
    network, _ = load_network(save(state))
    assert torch.equal(network.embedding.weight, bare["embedding.weight"])


def test_missing_and_unexpected_names_are_listed(content, bare, save):
    state = {name.replace("gate_layer", "stop"): value for name, value in bare.items()}
    with pytest.raises(ValueError, match=r"2 missing: decoder\.gate_layer.*; 2 unexpected: decoder\.stop"):
        load_checkpoint(save({**content, "state_dict": state}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_symbols": 200}, r"embedding.weight \(148, 32\) instead of \(200, 32\)"),
        ({"n_symbols": "many"}, "n_symbols: 'many', which is no int"),
        ({"encoder_kernel_size": 4}, "no network has the sizes in its config .*must be odd"),
        ({"prenet_dim": -3}, "no network has the sizes"),
    ],
)
def test_config_that_does_not_fit_is_refused(content, save, change, message):
    with pytest.raises(ValueError, match=message):
        load_checkpoint(save({**content, "config": {**content["config"], **change}}))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_numbers_are_named(bare, save, value):
    bias = bare["decoder.gate_layer.linear_layer.bias"].clone()
    bias[0] = value
    with pytest.raises(ValueError, match=r"gate_layer\.linear_layer\.bias holds 1 NaN or infinite"):
        load_checkpoint(save({**bare, "decoder.gate_layer.linear_layer.bias": bias}))


class RunsCode:
    def __reduce__(self):
        return os.mkdir, ("made_by_a_checkpoint",)


def test_files_that_run_code_are_refused(content, save, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="wants to run code when it is opened"):
        load_checkpoint(save({**content, "extra": RunsCode()}))
    assert not Path("made_by_a_checkpoint").exists()


@pytest.mark.parametrize("kept", [0, 1000, -100])
def test_truncated_files_are_refused(content, save, kept):
    path = save(content)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="not a complete PyTorch file"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"generator": {}}, "no 'state_dict' but generator"),
        ([1, 2], "holds a list"),
        ({"state_dict": {"weight": 3}}, "'weight' is a int"),
        ({}, "it is empty"),
        ({"state_dict": {"w": torch.zeros(1)}}, "missing: .* 1 unexpected: w"),
        ({"state_dict": {"w": torch.zeros(1)}, "config": [1]}, "its config is a list"),
    ],
)
def test_foreign_content_is_refused(save, value, message):
    with pytest.raises(ValueError, match=message):
        load_checkpoint(save(value))


def test_averaged_weights_are_refused():
    with pytest.raises(ValueError, match="no averaged weights"):
        load_checkpoint(GOLDEN, ema=True)

"""Published WaveGlows in every layout give the same network; files that do not fit are refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from melforge.waveglow.checkpoint import load_checkpoint
from melforge.waveglow.config import WaveglowConfig
from melforge.waveglow.model import Waveglow
from tests.networks import load_network

PATH = Path(__file__).parents[1] / "golden" / "waveglow" / "checkpoint.pt"
CONFIG = WaveglowConfig(
    n_mel_channels=8, n_flows=6, n_early_every=2, n_early_size=2, wn_layers=4, wn_channels=16
)


def read() -> dict:
    return torch.load(PATH, weights_only=True)


def save(content: dict, path: Path, **options) -> Path:
    torch.save(content, path, **options)
    return path


def renamed(prefix: str) -> dict:
    return {name.replace("module.", prefix, 1): value for name, value in read()["state_dict"].items()}


def assert_same(path: Path, tolerance: float = 0.0) -> None:
    expected, found = load_checkpoint(PATH), load_checkpoint(path)
    assert found.config == expected.config and found.state.keys() == expected.state.keys()
    for name, value in expected.state.items():
        assert found.state[name].dtype == torch.float32
        torch.testing.assert_close(found.state[name], value, rtol=tolerance, atol=tolerance)


def test_training_checkpoint():
    checkpoint = load_checkpoint(PATH)
    assert checkpoint.config == CONFIG
    assert checkpoint.info == {"mel": None, "epoch": 1000}


@pytest.mark.parametrize("prefix", ["", "module.", "module.1."])
def test_prefixes_without_a_config(prefix, tmp_path):
    assert_same(save(renamed(prefix), tmp_path / "bare.pt", _use_new_zipfile_serialization=not prefix))
    assert_same(save({"state_dict": renamed(prefix)}, tmp_path / "wrapped.pt"))


def test_half_precision_two_dimensional_kernels_of_2019(tmp_path):
    state = {
        name: (value[..., None] if value.dim() == 3 and not name.endswith("_g") else value).half()
        for name, value in renamed("module.1.").items()
    }
    path = save({"state_dict": state}, tmp_path / "half.pt", _use_new_zipfile_serialization=False)
    found, expected = load_checkpoint(path), load_checkpoint(PATH)
    for name, value in expected.state.items():
        if name.endswith("inverse"):  # of the rounded matrix, but computed in float32
            matrix = found.state[name.replace("inverse", "conv.weight")][:, :, 0]
            unity = found.state[name][:, :, 0] @ matrix
            torch.testing.assert_close(unity, torch.eye(len(unity)), rtol=0, atol=1e-4)
        else:
            torch.testing.assert_close(found.state[name], value, rtol=5e-3, atol=1e-3)


def test_copies_of_torchscript_are_left_out(tmp_path):
    state = renamed("")
    state["convinv_rev.0.conv.weight"] = torch.ones(8, 8, 1)
    state["WN_rev.0.end.bias"] = torch.ones(8)
    assert_same(save(state, tmp_path / "ts.pt"))


def test_one_conditioning_layer_for_a_coupling_net(tmp_path):
    state = {}
    for name, value in renamed("").items():
        net, layers, rest = name.partition(".cond_layers.")
        if not layers:
            state[name] = value
            continue
        key = f"{net}.cond_layer.{rest.partition('.')[2]}"
        state[key] = torch.cat((state[key], value)) if key in state else value
    assert_same(save({"state_dict": state}, tmp_path / "later.pt"))


def test_folded_files_and_our_own_states_load(tmp_path):
    network = Waveglow(CONFIG)
    normed = load_checkpoint(save({"state_dict": network.state_dict()}, tmp_path / "normed.pt"))
    network.remove_weight_norm()
    folded = load_checkpoint(save({"state_dict": network.state_dict()}, tmp_path / "folded.pt"))
    for name, value in network.state_dict().items():
        torch.testing.assert_close(folded.state[name], value, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(normed.state[name], value, rtol=1e-5, atol=1e-6)


def test_network_in_eval_mode_without_early_outputs(tmp_path):
    config = replace(CONFIG, n_flows=2, n_early_every=2)
    path = save(Waveglow(config).state_dict(), tmp_path / "short.pt")
    network, checkpoint = load_network("waveglow", path)
    assert checkpoint.config == config and not network.training


def stated(**changes):
    return lambda content: content["config"].update(changes)


def with_a_singular_matrix(content):
    content["state_dict"]["module.convinv.4.conv.weight"][1] = 0


def with_an_oblong_matrix(content):
    content["state_dict"]["module.convinv.1.conv.weight"] = torch.ones(8, 4, 1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (with_a_singular_matrix, "1x1 convolution of flow 4 is singular"),
        (with_an_oblong_matrix, r"convinv.1.conv.weight \(8, 4, 1\) is not square"),
        (
            stated(WN_config={"n_layers": 4, "kernel_size": 3, "n_channels": 512}),
            "its config says wn_channels 512 instead of 16",
        ),
        (stated(n_early_every=4), "its config says n_early_every 4 instead of 2"),
        (stated(n_flows="six"), "n_flows: 'six', which is not a positive whole number"),
        (stated(WN_config=[4, 3, 16]), "is no mapping of sizes"),
    ],
)
def test_files_that_do_not_fit_are_refused(damage, message, tmp_path):
    content = read()
    damage(content)
    path = save(content, tmp_path / "damaged.pt")
    with pytest.raises(ValueError, match=message) as caught:
        load_checkpoint(path)
    assert str(caught.value).count(str(path)) == 1

"""What only Tacotron 2 files have: sizes to be read from the weights, counters that may be missing."""

from pathlib import Path

import pytest
import torch

from melforge.common.config.hparams import load_hparams
from melforge.tacotron2.checkpoint import infer_sizes, load_checkpoint
from melforge.tacotron2.config import Tacotron2Config
from melforge.tacotron2.model import Tacotron2
from tests.networks import load_network

GOLDEN = Path(__file__).parent.parent / "golden" / "tacotron2" / "checkpoint_ddp.pt"


@pytest.fixture(scope="module")
def content() -> dict:
    return torch.load(GOLDEN, weights_only=True)


@pytest.fixture(scope="module")
def bare(content) -> dict:
    return {name.removeprefix("module."): value for name, value in content["state_dict"].items()}


@pytest.fixture
def save(tmp_path):
    def save(value) -> Path:
        path = tmp_path / "checkpoint.pt"
        torch.save(value, path)
        return path

    return save


def test_golden_file_loads_strictly(content, bare):
    network, checkpoint = load_network("tacotron2", GOLDEN)
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
    network, _ = load_network("tacotron2", save(state))
    assert torch.equal(network.embedding.weight, bare["embedding.weight"])


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


def test_averaged_weights_are_refused():
    with pytest.raises(ValueError, match="no averaged weights"):
        load_checkpoint(GOLDEN, ema=True)

"""What only Tacotron 2 files have: sizes to be read from the weights, counters that may be missing."""

from pathlib import Path

import pytest
import torch

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


def test_golden_file_loads_strictly(content, bare):
    network, checkpoint = load_network("tacotron2", GOLDEN)
    assert not network.training
    assert set(checkpoint.state) == set(network.state_dict()) == set(bare)
    assert checkpoint.config == Tacotron2Config(**content["config"])
    assert checkpoint.info == {"ema_available": False, "epoch": 1500}


def test_sizes_are_read_from_the_weights(content, bare, save_pt):
    checkpoint = load_checkpoint(save_pt(bare))
    assert checkpoint.config == Tacotron2Config(**{**content["config"], "max_decoder_steps": 2000})
    assert load_checkpoint(save_pt({"iteration": 7, "state_dict": bare})).info["iteration"] == 7
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


def test_files_without_counters_load(bare, save_pt):
    state = {name: value for name, value in bare.items() if not name.endswith("num_batches_tracked")}
    network, _ = load_network("tacotron2", save_pt(state))
    assert torch.equal(network.embedding.weight, bare["embedding.weight"])

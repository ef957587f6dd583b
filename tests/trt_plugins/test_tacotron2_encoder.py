"""The encoder's LSTM: weights in the memory that cuDNN takes, and the same numbers."""

import warnings

import pytest
import torch

from melforge.common.engines.torch_engine import build_network
from melforge.common.stages import stages_of
from melforge.common.weights.voices import load_voice
from melforge.trt_plugins.tacotron2_encoder import CapturedTacotron2Encoder, flatten_directions
from tests.conftest import tiny_tacotron2


def test_weights_in_one_chunk_for_each_direction_are_the_same():
    network = tiny_tacotron2()[0].eval()
    symbols, lengths = torch.randint(1, 20, (2, 11)), torch.tensor([11, 7])
    before = {name: value.clone() for name, value in network.state_dict().items()}
    wanted = network.encode(symbols, lengths)
    flatten_directions(network.encoder.lstm)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    for one, other in zip(network.encode(symbols, lengths), wanted, strict=True):
        assert torch.equal(one, other)


def test_a_network_that_another_engine_runs_already_stays_where_it_is():
    network, engine = tiny_tacotron2()[0], object.__new__(CapturedTacotron2Encoder)
    weights = list(network.encoder.lstm.parameters())
    places = []
    for _ in range(2):
        assert engine.method_of(network) == network.encode
        places.append([weight.data_ptr() for weight in weights])
    assert places[0] == places[1]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_cudnn_takes_each_directions_weights_as_they_are(dtype):
    source = load_voice().source("tacotron2")
    network = build_network(stages_of("tacotron2", source.config)[0], source).to("cuda", dtype)
    symbols, lengths = torch.randint(1, 20, (2, 11)).cuda(), torch.tensor([11, 7]).cuda()
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = network.encode(symbols, lengths)
        flatten_directions(network.encoder.lstm)
        warnings.simplefilter("error")  # PyTorch's, that weights are copied at every call
        found = network.encode(symbols, lengths)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))

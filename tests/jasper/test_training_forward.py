"""The fast forward pass of training gives the network's numbers, gradients and running statistics."""

import copy
from dataclasses import replace

import pytest
import torch

from melforge.jasper.config import JasperConfig
from melforge.jasper.model import Jasper
from melforge.jasper.training_forward import TrainingForward, supports, training_encoder
from tests.trt_plugins.training_kernels import torch_depthwise, torch_norms

CONFIG = JasperConfig(
    filters=(24, 24, 24, 40, 16),
    kernel_sizes=(25, 25, 31, 51, 1),
    repeats=(1, 3, 2, 1, 1),
    strides=(2, 1, 1, 1, 1),
    dilations=(1, 1, 1, 2, 1),
    dropouts=(0.0,) * 5,
    residual=(False, True, True, False, False),
    residual_dense=(False, True, True, False, False),
    separable=(True, True, True, True, False),
)
CONFIGS = {
    "dense": CONFIG,
    "plain residuals": replace(CONFIG, residual_dense=(False,) * 5),
    "strides and dilations": replace(CONFIG, strides=(2, 1, 1, 3, 1), dilations=(1, 3, 2, 1, 1)),
    "1x1 first": replace(
        CONFIG, kernel_sizes=(1, 25, 31, 51, 1), strides=(1,) * 5, separable=(False, True, True, True, False)
    ),
}


def largest_difference(found, wanted) -> float:
    """Of tensors in pairs, each as a part of the wanted one's largest value."""
    return max(
        float(((one - other).abs().max() / other.abs().max().clamp(min=1e-4)).detach())
        for one, other in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("config", CONFIGS)
def test_steps_are_those_of_the_network(config):
    torch.manual_seed(0)
    plain = Jasper(CONFIGS[config]).train().double()
    fast = copy.deepcopy(plain)
    forward = TrainingForward(fast.encoder, torch_norms, torch_depthwise)
    optimisers = [torch.optim.SGD(one.parameters(), 0.05) for one in (plain, fast)]
    for frames, counts in ((303, [303, 250, 131]), (64, [64, 2]), (129, [100, 129])):
        features, lengths = torch.randn(len(counts), 64, frames).double(), torch.tensor(counts)
        wanted, found = plain.encoder(features, lengths), forward(features, lengths)
        inside = torch.arange(wanted.shape[2]) < plain.steps(lengths)[:, None]
        wanted, inside = wanted * inside[:, None], inside.double()
        assert largest_difference([found], [wanted]) < 1e-4
        weights = torch.randn_like(wanted)
        for optimiser, made in zip(optimisers, (wanted, found), strict=True):
            optimiser.zero_grad()
            (made * weights).mean().backward()
        gradients = ([p.grad for p in one.encoder.parameters()] for one in (fast, plain))
        assert largest_difference(*gradients) < 1e-3
        for optimiser in optimisers:
            optimiser.step()
    assert all(
        torch.allclose(one, other, rtol=1e-4, atol=1e-6)
        for one, other in zip(fast.state_dict().values(), plain.state_dict().values(), strict=True)
    )
    assert int(fast.state_dict()["encoder.layers.1.conv.2.num_batches_tracked"]) == 3


def test_dropout_drops_its_share():
    torch.manual_seed(0)
    config = replace(CONFIG, dropouts=(0.0, 0.0, 0.0, 0.0, 0.75))
    network = Jasper(config).train()
    made = TrainingForward(network.encoder, torch_norms, torch_depthwise)(
        torch.randn(2, 64, 600), torch.tensor([600, 600])
    )
    assert 0.8 < float((made == 0).float().mean()) < 0.95  # half of what is left is below 0


def test_other_networks_and_devices_run_as_they_are():
    for changed in ({"activation": "selu"}, {"separable": (True, True, False, True, False)}):
        assert not supports(replace(CONFIG, **changed))
    assert all(supports(config) for config in CONFIGS.values()) and not supports(JasperConfig())
    network = Jasper(CONFIG)
    assert training_encoder(network) is network.encoder  # on a CPU

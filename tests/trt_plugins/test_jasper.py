"""Jasper's encoder with folded weights: the network's numbers, in all its forms, on a CPU and on a GPU."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from melforge.common.bench.recognition import RecogniserWorkload, measure
from melforge.common.engines.layer_outputs import listening, shown
from melforge.common.engines.limits import H200, limits_of
from melforge.common.recognition.loading import make_recogniser
from melforge.common.stages import plan_of
from melforge.common.stages.choose import kernel_stages
from melforge.common.weights.published import read_checkpoint
from melforge.jasper.config import JasperConfig
from melforge.jasper.features_network import JasperFeatures
from melforge.jasper.model import Jasper
from melforge.jasper.training_forward import TrainingForward, training_encoder
from melforge.trt_plugins.jasper import convolution
from melforge.trt_plugins.jasper.convolution import TilingChooser
from melforge.trt_plugins.jasper.encoder import FoldedJasper
from melforge.trt_plugins.jasper.features import KernelFeatures
from melforge.trt_plugins.jasper.tiling import Tiling, tilings
from tests.jasper.test_model import GOLDEN
from tests.jasper.test_training_forward import CONFIG as SEPARABLE_AND_DENSE
from tests.networks import load_network
from tests.trt_plugins.training_kernels import (
    depthwise_differences,
    differences,
    reading_difference,
    strided_difference,
)
from tests.trt_plugins.vocoder_kernels import interpreted_error

SEPARABLE = replace(
    SEPARABLE_AND_DENSE,
    filters=(32, 32, 48, 48, 40),
    kernel_sizes=(11, 11, 13, 29, 1),
    repeats=(1, 2, 3, 1, 1),
    dropouts=(0.1,) * 5,
)
CONFIGS = {
    "dense": SEPARABLE,
    "plain residuals": replace(SEPARABLE, residual_dense=(False,) * 5),
    "hardtanh": replace(SEPARABLE, activation="hardtanh"),
    "selu": replace(SEPARABLE, activation="selu"),
}
# Without separable convolutions, whose channels are no whole chunks of the kernels.
DENSE = replace(SEPARABLE, separable=(False,) * 5, filters=(64, 32, 48, 144, 48))
FULL = {
    "relu": DENSE,
    "hardtanh, plain residuals": replace(DENSE, activation="hardtanh", residual_dense=(False,) * 5),
}


def random_network(config: JasperConfig) -> Jasper:
    torch.manual_seed(0)
    network = Jasper(config).eval()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            assert module.running_mean is not None and module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return network


@pytest.mark.parametrize("rows", [0, 10000])
@pytest.mark.parametrize("config", ["published", *CONFIGS])
def test_folded_weights_give_the_networks_numbers(config, rows, monkeypatch):
    monkeypatch.setattr(convolution, "WINDOW_ROWS", rows)
    if config == "published":
        network, _ = load_network("jasper", GOLDEN / "checkpoint.pt")
    else:
        network = random_network(CONFIGS[config])
    features, lengths = torch.randn(3, 64, 112), torch.tensor([112, 80, 57])
    made: dict[str, torch.Tensor] = {}
    with torch.no_grad(), shown(1) as inside:
        (found,) = FoldedJasper(network).encode(features, lengths)
        with listening(network, inside, made):
            wanted = network(features, lengths)
    blocks = network.config.blocks
    assert list(inside) == list(made) and len(inside) == sum(block.repeats for block in blocks)
    for name, tensor in inside.items():  # the first item has no padding
        assert (tensor - made[name])[0].abs().max() < 1e-5 * made[name].abs().max(), name
    for row, steps in enumerate(network.steps(lengths).tolist()):
        error = (found - wanted)[row, :steps].abs().max() / wanted.abs().max()
        assert error < 1e-5


@pytest.mark.triton
@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "tiling"),
    [("relu", "64,64,1"), ("relu", "32,128,5"), ("hardtanh, plain residuals", "32,64,2")],
)
def test_interpreted_kernels_are_near_float32(config, tiling):
    """The kernels without a GPU: Triton's interpreter runs them, in a process of its own."""
    assert interpreted_error("jasper", config, *tiling.split(",")) < 3e-3


@pytest.mark.triton
@pytest.mark.slow
def test_interpreted_features_are_near_float32():
    assert interpreted_error("jasper_features") < 2e-4


@pytest.mark.triton
@pytest.mark.slow
def test_interpreted_kernels_of_training_are_near_pytorchs():
    assert interpreted_error("jasper_training") < 2e-5


def test_a_strided_depthwise_convolution_is_pytorchs():
    assert strided_difference() < 1e-5


@pytest.mark.triton
def test_each_shape_is_timed_once_and_never_while_it_is_captured(monkeypatch):
    timed: list[int] = []
    monkeypatch.setattr(convolution, "compile_missing", lambda launches: None)
    # The third way is the fastest: behind PyTorch and the first tiling.
    monkeypatch.setattr(convolution, "milliseconds", lambda run: timed.append(0) or abs(len(timed) - 3.0))
    capturing = True
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    network = FoldedJasper(random_network(FULL["relu"]).requires_grad_(False))
    choose, found = TilingChooser("cpu"), []

    def chosen(one, alike):
        found.append((one, choose(one, alike)))

    network.choose = chosen
    features, lengths = torch.randn(1, 64, 96), torch.tensor([96])
    network.encode(features, lengths)
    assert not timed and not any(way for _, way in found)
    capturing = False
    found.clear()
    network.encode(features, lengths)
    first = len(timed)
    assert first > 20
    one, way = found[0]
    assert way == choose.ways(one)[2]  # of the first shape that was timed
    network.encode(features, lengths)
    assert len(timed) == first
    network.encode(torch.randn(1, 64, 160), lengths)
    assert len(timed) > first


def test_tilings_cover_few_rows_and_many():
    for items, steps, columns, depth in ((1, 352, 768, 300), (1, 1, 32, 3), (8, 352, 256, 44)):
        found = tilings(items, steps, columns, depth, H200)
        small = H200._replace(shared_bytes=99 << 10)
        assert all(one.shared_bytes <= 99 << 10 for one in tilings(items, steps, columns, depth, small))
        assert len(set(found)) == len(found) and all(1 <= one.splits <= depth for one in found)
        assert max(one.programs(items, steps, columns) for one in found) > min(60, columns // 32)


def test_all_of_its_stages_have_kernels():
    assert kernel_stages("jasper") == ("masked_features", "masked_encoder", "decoder")
    assert set(kernel_stages("jasper")) == set(plan_of("jasper").kernels)


def test_a_cpu_is_refused():
    source = read_checkpoint(GOLDEN / "checkpoint.pt")
    with pytest.raises(ValueError, match="kernels run on an NVIDIA GPU"):
        make_recogniser(source, "cuda", "cpu")


@pytest.mark.gpu
def test_kernels_hear_what_pytorch_hears():
    source = read_checkpoint(GOLDEN / "checkpoint.pt")
    kernels, torchs = make_recogniser(source, "cuda"), make_recogniser(source, "torch", "cuda")
    assert kernels._graph is not None and torchs._graph is None  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    audios = [(rng.standard_normal(n) * 0.1).astype(np.float32) for n in (40000, 16000, 23456)]
    for one, other in zip(kernels.hear(audios), torchs.hear(audios), strict=True):
        assert one.log_probs.shape == other.log_probs.shape
        error = np.abs(one.log_probs - other.log_probs).max() / np.abs(other.log_probs).max()
        assert error < 0.02
    for audio in [*audios, *audios]:
        (one,), (other,) = kernels.hear([audio]), torchs.hear([audio])
        assert np.abs(one.log_probs - other.log_probs).max() / np.abs(other.log_probs).max() < 0.02


@pytest.mark.gpu
def test_features_on_kernels_are_near_pytorchs():
    network = JasperFeatures(JasperConfig()).cuda()
    kernels = KernelFeatures(network).cuda()
    for items, frames in ((1, 64), (3, 192), (8, 1728)):
        lengths = torch.randint(8000, frames * 160 + 1, (items,), device="cuda")
        inside = torch.arange(frames * 160, device="cuda") < lengths[:, None]
        audio = 0.1 * torch.randn(items, frames * 160, device="cuda") * inside
        (wanted, counts), (found, same) = (
            network.extract_each(audio, lengths),
            kernels.extract_each(audio, lengths),
        )
        assert torch.equal(counts, same)
        assert float((found - wanted).abs().max()) < 1e-3


@pytest.mark.gpu
@pytest.mark.products
def test_convolutions_on_kernels_are_near_float32():
    all_of = (64, 128, 4, 4, 1), (128, 128, 8, 3, 5), (128, 256, 8, 4, 3), (64, 256, 4, 4, 2)
    fitting = [one for one in all_of if Tiling(*one).shared_bytes <= limits_of("cuda").shared_bytes]
    assert fitting
    for tiling in fitting:
        assert_convolutions_are_near(tiling)


def assert_convolutions_are_near(tiling: tuple[int, ...]) -> None:
    network = random_network(FULL["relu"]).requires_grad_(False)
    features, lengths = torch.randn(3, 64, 704), torch.tensor([704, 80, 357])
    wanted = network(features, lengths)
    folded = FoldedJasper(network).cuda().half()
    folded.choose = lambda one, alike: Tiling(*tiling) if one.fits else None
    with torch.inference_mode():
        (found,) = folded.encode(features.cuda().half(), lengths.cuda())
        (again,) = folded.encode(features.cuda().half(), lengths.cuda())
    assert torch.equal(found, again)
    for row, steps in enumerate(network.steps(lengths).tolist()):
        error = (found.cpu() - wanted)[row, :steps].abs().max() / wanted.abs().max()
        assert error < 3e-3


@pytest.mark.gpu
@pytest.mark.triton
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 5e-3)])
def test_batch_norms_on_kernels_are_near_float64(dtype, tolerance):
    shapes = ((1, 3, 2), (1, 192, 40001), (2, 192, 40000), (3, 37, 9048), (4, 64, 2047), (6, 512, 12344))
    for shape in shapes:
        assert max(differences(*shape, "cuda", dtype)) < tolerance, shape
    assert max(differences(1, 8, 20000, "cuda", torch.float32, offset=100.0)) < 1e-3


@pytest.mark.gpu
@pytest.mark.triton
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 5e-3)])
def test_depthwise_convolutions_on_kernels_are_near_float64(dtype, tolerance):
    for shape in ((192, 47, 1000, 37, 1), (3, 5, 70, 9, 3), (64, 320, 147, 51, 2), (1, 1, 64, 1, 1)):
        assert max(depthwise_differences("cuda", dtype, *shape)) < tolerance, shape


@pytest.mark.gpu
@pytest.mark.triton
def test_recordings_are_read_as_pytorch_reads_them():
    assert reading_difference("cuda") < 1e-6


@pytest.mark.gpu
@pytest.mark.triton
def test_a_training_step_gives_the_networks_gradients(whole_float32):
    """In float32: the order of additions differs, and so the side of ReLU of few values near 0."""
    torch.manual_seed(0)
    plain = Jasper(replace(SEPARABLE, dropouts=(0.0,) * 5)).cuda().train()
    fast = copy.deepcopy(plain)
    encode = training_encoder(fast)
    assert isinstance(encode, TrainingForward)
    features, lengths = torch.randn(3, 64, 704).cuda(), torch.tensor([704, 80, 357]).cuda()
    wanted, found = plain.encoder(features, lengths), encode(features, lengths)
    inside = torch.arange(wanted.shape[2], device="cuda") < plain.steps(lengths)[:, None]
    wanted = wanted * inside[:, None]
    assert found.dtype == torch.float32
    assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-4
    given = torch.randn_like(wanted)
    for made in (wanted, found):
        (made * given).mean().backward()
    for one, other in zip(fast.encoder.parameters(), plain.encoder.parameters(), strict=True):
        assert float((one.grad - other.grad).abs().max() / other.grad.abs().max()) < 2e-2
    for one, other in zip(fast.buffers(), plain.buffers(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
def test_every_way_of_running_it_is_measured():
    source = read_checkpoint(GOLDEN / "checkpoint.pt")
    words = ("torch", "torch-tuned", "torch-graph", "cuda")
    rows = list(measure(source, RecogniserWorkload(words, ("fp16",), (1.0,), (1, 2), "cuda", runs=2)))
    assert [row["backend"] for row in rows] == [word for word in words for _ in range(2)]

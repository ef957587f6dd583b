"""The kernels of Jasper's training against PyTorch: batch norm of a sum in float64, reading of recordings."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from melforge.jasper.augment import read_at_speeds
from melforge.trt_plugins.jasper import training


def torch_norms(
    products: Tensor, norms: Sequence[nn.BatchNorm1d], inside: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What the kernels `norms` compute."""
    total = torch.zeros_like(products[0])
    for product, norm in zip(products, norms, strict=True):
        total = (
            total + F.batch_norm(product[None], None, None, norm.weight, norm.bias, True, 0.0, norm.eps)[0]
        )
    values = products.detach()
    return total.relu() * inside, values.mean(2), values.var(2)


def torch_depthwise(
    x: Tensor, weights: Tensor, inside: Tensor, lengths: Tensor, dilation: int, stride: int
) -> Tensor:
    """What the kernels `depthwise` compute."""
    places = stride, weights.shape[1] // 2 * dilation, dilation
    return F.conv1d(x.transpose(0, 1), weights[:, None], None, *places, len(x)).transpose(0, 1) * inside


def differences(
    sources: int, channels: int, size: int, device: str, dtype: torch.dtype, offset: float = 3.0
) -> list[float]:
    """Of products (R, C, N): errors of output, gradients and statistics, each as a part of the largest value.

    `offset` is how far the products' means lie from 0, in deviations.
    """
    torch.manual_seed(0)
    norms = [nn.BatchNorm1d(channels, eps=1e-3).to(device) for _ in range(sources)]
    for norm in norms:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    products = torch.randn(sources, channels, size) + offset * torch.randn(sources, channels, 1)
    products = products.to(device, dtype).requires_grad_()
    inside = (torch.rand(size) < 0.8).to(device, dtype)
    given = torch.randn(channels, size).to(device, dtype)
    exact = [nn.BatchNorm1d(channels, eps=1e-3, momentum=1.0).to(device).double() for _ in range(sources)]
    for one, other in zip(exact, norms, strict=True):
        one.weight.data, one.bias.data = other.weight.detach().double(), other.bias.detach().double()
    values = products.detach().double().requires_grad_()
    total = sum(norm(value[None])[0] for norm, value in zip(exact, values, strict=True))
    assert isinstance(total, torch.Tensor)
    given[total.detach().abs() < 1e-3] = 0.0  # there rounding may choose ReLU's other side
    wanted_out = total.relu() * inside.double()
    wanted_out.backward(given.double())
    wanted = [wanted_out, values.grad, *(p.grad for norm in exact for p in norm.parameters())]
    wanted += [torch.stack([norm.running_mean for norm in exact])]
    wanted += [torch.stack([norm.running_var for norm in exact])]

    out, means, variances = training.norms(products, norms, inside)
    out.backward(given)
    found = [out, products.grad, *(p.grad for norm in norms for p in norm.parameters())]
    found += [means, variances]
    assert products.grad is not None and out.dtype == products.grad.dtype == dtype
    return [
        float(((one.double() - other).abs().max() / other.abs().max().clamp(min=1e-6)).detach())
        for one, other in zip(found, wanted, strict=True)
    ]


def reading_difference(device: str) -> float:
    """The largest error of recordings that are read at speeds."""
    torch.manual_seed(0)
    audio = torch.randint(-32768, 32768, (9000,), dtype=torch.int16)
    starts, lengths = torch.tensor([0, 3000, 3001, 4000, 8998]), torch.tensor([3000, 1, 999, 4998, 2])
    given = (audio, starts, lengths, torch.tensor([1.0, 0.85, 1.15, 0.9137, 0.5]))
    given = tuple(tensor.to(device) for tensor in given)
    found, wanted = training.read_at_speeds(*given, 5000), read_at_speeds(*given, 5000)
    assert torch.equal(found[1], wanted[1])
    return float((found[0] - wanted[0]).abs().max())


def depthwise_differences(device: str, dtype: torch.dtype, *shape: int) -> list[float]:
    """For C, B, T, K and dilation: errors of the convolution and its gradients, as parts of their largest."""
    channels, items, steps, taps, dilation = shape
    torch.manual_seed(0)
    lengths = torch.randint(1, steps + 1, (items,)).to(device)
    inside = torch.arange(steps, device=device) < lengths[:, None]
    x = (torch.randn(channels, items, steps).to(device) * inside).to(dtype).requires_grad_()
    weights = torch.randn(channels, taps).to(device, dtype).float().requires_grad_()
    given = torch.randn(channels, items, steps).to(device, dtype)
    found = training.depthwise(x, weights, inside.to(dtype), lengths, dilation, 1)
    exact = x.detach().double().requires_grad_(), weights.detach().double().requires_grad_()
    wanted = torch_depthwise(*exact, inside.double(), lengths, dilation, 1)
    of_found = torch.autograd.grad(found, (x, weights), given)
    of_wanted = torch.autograd.grad(wanted, exact, given.double())
    return [
        float(((one.double() - other).abs().max() / other.abs().max().clamp(min=1e-6)).detach())
        for one, other in zip((found, *of_found), (wanted, *of_wanted), strict=True)
    ]


def strided_difference() -> float:
    """The largest error of a depthwise convolution of stride 2, which PyTorch computes."""
    torch.manual_seed(0)
    x, weights, lengths = torch.randn(3, 2, 31), torch.randn(3, 5), torch.tensor([16, 9])
    given = x, weights, (torch.arange(16) < lengths[:, None]).float(), lengths, 1, 2
    return float((training.depthwise(*given) - torch_depthwise(*given)).abs().max())

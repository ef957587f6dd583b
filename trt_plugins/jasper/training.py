"""Batch norm in the training of Jasper's encoder on kernels of our own (see `jasper.training_forward`)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trt_plugins.graphs import TritonLaunch
from trt_plugins.noise import can_draw

SPLITS = 8  # parts of a row whose sums are computed side by side
BLOCK = 1024  # columns of a program
ALIGNED = 8  # values of 16 bytes in half precision


def norms_on_kernels():
    """`kernel_norms` where Triton can make kernels, else None."""
    return kernel_norms if can_draw() else None


def kernel_norms(
    products: Tensor, norms: Sequence[nn.BatchNorm1d], inside: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As `jasper.training_forward.torch_norms`, on the current stream of the products' device."""
    weight = torch.stack([norm.weight for norm in norms])
    bias = torch.stack([norm.bias for norm in norms])
    return NormalisedSum.apply(products, weight, bias, inside, norms[0].eps)


class NormalisedSum(torch.autograd.Function):
    """products (R, C, N), weight and bias float32 (R, C), inside (N,) -> relu(the sum of the products, each
    normalised) * inside (C, N), and means and unbiased variances float32 (R, C), which have no gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, products: Tensor, weight: Tensor, bias: Tensor, inside: Tensor, epsilon: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        from trt_plugins.jasper import training_kernels as kernels

        (sources, channels, size), rows = products.shape, weight.numel()
        sizes, options, tiles = described(products)
        out = products.new_empty(channels, size)
        totals, squares = weight.new_empty(2, rows, SPLITS).unbind()
        means, deviations, variances = weight.new_empty(3, sources, channels).unbind()
        one_row = {name: value for name, value in options.items() if name != "SOURCES"}
        TritonLaunch(
            kernels.statistics_kernel, (rows, SPLITS), (products, totals, squares, sizes[1]), one_row
        )()
        known = products, totals, squares, weight, bias, inside
        made = out, means, deviations, variances
        TritonLaunch(kernels.normalise_kernel, (channels, tiles), (*known, *made, *sizes, epsilon), options)()
        ctx.save_for_backward(products, weight, bias, inside, means, deviations)
        ctx.mark_non_differentiable(means, variances)
        return out, means, variances

    @staticmethod
    def backward(ctx: Any, given: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from trt_plugins.jasper import training_kernels as kernels

        products, weight, bias, inside, means, deviations = ctx.saved_tensors
        sources, channels, _ = products.shape
        sizes, options, tiles = described(products)
        weight_sums = weight.new_empty(sources * channels, SPLITS)
        bias_sums = weight.new_empty(channels, SPLITS)
        of_products, of_weight, of_bias = map(torch.empty_like, (products, weight, bias))
        known = products, given.contiguous(), weight, bias, inside, means, deviations, weight_sums, bias_sums
        TritonLaunch(kernels.sums_kernel, (channels, SPLITS), (*known, *sizes), options)()
        TritonLaunch(
            kernels.gradients_kernel,
            (channels, tiles),
            (*known, of_products, of_weight, of_bias, *sizes),
            options,
        )()
        return of_products, of_weight, of_bias, None, None


def described(products: Tensor) -> tuple[tuple[int, int, int], dict[str, int], int]:
    """products (R, C, N): the kernels' numbers, their options, and how many programs share a row."""
    sources, channels, size = products.shape
    unit = 1 if size % ALIGNED else ALIGNED
    power = 1 << (sources - 1).bit_length()
    options = {"UNIT": unit, "SPLITS": SPLITS, "BLOCK": BLOCK, "SOURCES": power}
    return (channels, size // unit, sources), options, -(-size // BLOCK)

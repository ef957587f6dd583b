"""Jasper's training on kernels of our own: batch norms of its encoder, and reading recordings at speeds."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trt_plugins.graphs import TritonLaunch

SPLITS = 8  # parts of a row whose sums are computed side by side
BLOCK = 1024  # columns of a program
ALIGNED = 8  # values of 16 bytes in half precision


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


def read_at_speeds(
    audio: Tensor, starts: Tensor, lengths: Tensor, speeds: Tensor, samples: int
) -> tuple[Tensor, Tensor]:
    """As `jasper.augment.read_at_speeds`, on the current stream of the audio's device."""
    from trt_plugins.jasper import training_kernels as kernels

    new = torch.clamp((lengths / speeds).long(), max=samples)
    out = torch.empty(len(starts), samples, device=audio.device)
    TritonLaunch(
        kernels.read_kernel,
        (-(-samples // BLOCK), len(starts)),
        (audio, starts, lengths, speeds, new, out, samples),
        # PyTorch's places in recordings are rounded before their fractions are taken.
        {"BLOCK": BLOCK, "enable_fp_fusion": False},
    )()
    return out, new

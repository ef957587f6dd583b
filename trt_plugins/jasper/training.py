"""Jasper's training on kernels of our own: batch norms, depthwise convolutions, recordings at speeds."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from melforge.trt_plugins.graphs import KernelModule, TritonLaunch

kernels = KernelModule("melforge.trt_plugins.jasper.training_kernels")

SPLITS = 8  # parts of a row whose sums are computed side by side
BLOCK = 1024  # columns that a program sums at once
TILE = 2048  # columns of a program that computes each
OUTPUTS = 64  # of a window of a depthwise convolution
WINDOWS = 64  # that a program multiplies at once
DEPTH = 32  # inputs of each
SPAN = 64  # inputs of each whose shares a program sums
WARPS = 8  # of these programs
WINDOW_SPLITS = 4  # parts of the windows, for the gradients of weights
ALIGNED = 8  # values of 16 bytes in half precision


def norms(products: Tensor, norms: Sequence[nn.BatchNorm1d], inside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A `melforge.jasper.training_forward.NormsFunction`, on the current stream of the products' device."""
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
        (sources, channels, size), rows = products.shape, weight.numel()
        sizes, options, tiles = launch_numbers(products)
        sums = {**options, "BLOCK": BLOCK}
        out = products.new_empty(channels, size)
        totals, squares = weight.new_empty(2, rows, SPLITS).unbind()
        means, deviations, variances = weight.new_empty(3, sources, channels).unbind()
        TritonLaunch(kernels.statistics_kernel, (rows, SPLITS), (products, totals, squares, sizes[1]), sums)()
        known = products, totals, squares, weight, bias, inside
        made = out, means, deviations, variances
        TritonLaunch(kernels.normalise_kernel, (channels, tiles), (*known, *made, *sizes, epsilon), options)()
        ctx.save_for_backward(products, weight, bias, inside, means, deviations)
        ctx.mark_non_differentiable(means, variances)
        return out, means, variances

    @staticmethod
    def backward(ctx: Any, given: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        products, weight, bias, inside, means, deviations = ctx.saved_tensors
        sources, channels, _ = products.shape
        sizes, options, tiles = launch_numbers(products)
        weight_sums = weight.new_empty(sources * channels, SPLITS)
        bias_sums = weight.new_empty(channels, SPLITS)
        of_products, of_weight, of_bias = map(torch.empty_like, (products, weight, bias))
        known = products, given.contiguous(), weight, bias, inside, means, deviations, weight_sums, bias_sums
        sums = {**options, "BLOCK": BLOCK, "SOURCES": 1 << (sources - 1).bit_length()}
        TritonLaunch(kernels.sums_kernel, (channels, SPLITS), (*known, *sizes), sums)()
        TritonLaunch(
            kernels.gradients_kernel,
            (channels, tiles),
            (*known, of_products, of_weight, of_bias, *sizes),
            options,
        )()
        return of_products, of_weight, of_bias, None, None


def launch_numbers(products: Tensor) -> tuple[tuple[int, int, int], dict[str, int], int]:
    """products (R, C, N): the kernels' numbers, their options, and how many programs share a row."""
    sources, channels, size = products.shape
    unit = 1 if size % ALIGNED else ALIGNED
    options = {"UNIT": unit, "SPLITS": SPLITS, "BLOCK": TILE}
    return (channels, size // unit, sources), options, -(-size // TILE)


def depthwise(
    x: Tensor, weights: Tensor, inside: Tensor, lengths: Tensor, dilation: int, stride: int
) -> Tensor:
    """A `melforge.jasper.training_forward.DepthwiseFunction`, by kernels where the stride is 1.

    Only a first block of few channels has another, and then no dilation.
    """
    if stride > 1:
        reach = weights.shape[1] // 2
        windows = F.pad(x, (reach, reach)).unfold(2, weights.shape[1], stride)  # (C, B, T / stride, K)
        return torch.einsum("cbtk,ck->cbt", windows, weights.to(x.dtype)) * inside
    return Depthwise.apply(x, weights, lengths, dilation)


class Depthwise(torch.autograd.Function):
    """x (C, B, T), zeros behind the lengths (B,), weights (C, K) -> convolution (C, B, T), zeros there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, lengths: Tensor, dilation: int) -> Tensor:
        x, weights = x.contiguous(), weights.contiguous()
        ctx.save_for_backward(x, weights, lengths)
        ctx.dilation = dilation
        return convolved(x, weights, lengths, dilation, False)

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weights, lengths = ctx.saved_tensors
        dilation, given = ctx.dilation, given.contiguous()
        (channels, items, steps), taps = x.shape, weights.shape[1]
        span = OUTPUTS + (taps - 1) * dilation
        shares = torch.empty(channels, WINDOW_SPLITS, span, OUTPUTS, device=x.device)
        TritonLaunch(
            kernels.shares_kernel,
            (channels, WINDOW_SPLITS, -(-span // SPAN)),
            (x, given, lengths, shares, items, steps, -(-steps // OUTPUTS), span, taps // 2 * dilation),
            {"SPLITS": WINDOW_SPLITS, "OUTPUTS": OUTPUTS, "BM": WINDOWS, "BK": SPAN, "num_warps": WARPS},
        )()
        # A tap's shares are a diagonal.
        diagonals = shares.as_strided(
            (channels, WINDOW_SPLITS, taps, OUTPUTS),
            (WINDOW_SPLITS * span * OUTPUTS, span * OUTPUTS, dilation * OUTPUTS, OUTPUTS + 1),
        )
        of_x = convolved(given, weights, lengths, dilation, True) if ctx.needs_input_grad[0] else None
        return of_x, diagonals.sum((1, 3)).to(weights.dtype), None, None


def convolved(x: Tensor, weights: Tensor, lengths: Tensor, dilation: int, backward: bool) -> Tensor:
    """What `depthwise_kernel` gives, (C, B, T)."""
    channels, items, steps = x.shape
    out, blocks = torch.empty_like(x), -(-steps // OUTPUTS)
    TritonLaunch(
        kernels.depthwise_kernel,
        (-(-items * blocks // WINDOWS), channels),
        (x, weights, lengths, out, items, steps, blocks, weights.shape[1]),
        {"DILATION": dilation, "BACKWARD": backward, "OUTPUTS": OUTPUTS, "BM": WINDOWS, "BK": DEPTH}
        | {"num_warps": WARPS},
    )()
    return out


def read_at_speeds(
    audio: Tensor, starts: Tensor, lengths: Tensor, speeds: Tensor, samples: int
) -> tuple[Tensor, Tensor]:
    """As `melforge.jasper.augment.read_at_speeds`, on the current stream of the audio's device."""
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

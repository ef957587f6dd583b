"""A faster forward pass of Jasper's encoder for training, where all convolutions are separable or 1x1.

Activations are (C, B, T), so that a 1x1 convolution is one matrix product and a channel's batch statistics
are those of one row. A depthwise convolution is a product of windows of its input with banded Toeplitz
matrices: PyTorch's own kernels take half of a step. N is B * T.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from melforge.common.arrays import length_mask
from melforge.common.registry import load_attribute
from melforge.jasper.config import Block, JasperConfig
from melforge.jasper.model import Jasper, JasperBlock, JasperEncoder, Mask
from melforge.jasper.stages import CAN_MAKE_KERNELS, TRAINING_KERNELS

OUTPUTS = 64  # of a window
SPAN_STEP = 8  # a window's inputs are a multiple of this, as matrix products need them

# x (C, B, T), weights (C, K), inside (B, T'), lengths (B,), dilation and stride -> what `depthwise` gives
Depthwises = Callable[[Tensor, Tensor, Tensor, Tensor, int, int], Tensor]
# products (R, C, N), their R batch norms, inside (N,) -> what `torch_norms` gives
Norms = Callable[[Tensor, Sequence[nn.BatchNorm1d], Tensor], tuple[Tensor, Tensor, Tensor]]


def supports(config: JasperConfig) -> bool:
    """Whether the fast forward computes such a network."""
    return config.activation == "relu" and all(
        block.separable or block.kernel_size == block.stride == 1 for block in config.blocks
    )


def kernel_or(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """Kernels that compute what this function does, on the current GPU if they can be made; else itself."""
    on_gpu = device.type == "cuda" and device.index in (None, torch.cuda.current_device())
    if on_gpu and load_attribute(CAN_MAKE_KERNELS)():
        return load_attribute(TRAINING_KERNELS[function.__name__])
    return function


def training_encoder(model: Jasper) -> Callable[[Tensor, Tensor], Tensor]:
    """features (B, n_mels, T), lengths (B,) -> (B, C, F): a `TrainingForward` where one can run."""
    device = next(model.parameters()).device
    if device.type != "cuda" or not supports(model.config):
        return model.encoder
    return TrainingForward(model.encoder, kernel_or(torch_norms, device), kernel_or(depthwise, device))


class Ends(NamedTuple):
    """Where the items of a batch end."""

    lengths: Tensor  # (B,), steps
    inside: Tensor  # (B, T) in the activations' dtype: 1 up to the items' ends, 0 behind them

    def after(self, block: Block) -> Ends:
        """Behind a block's convolutions."""
        lengths = Mask(self.lengths).after(block).lengths
        assert lengths is not None
        inside = length_mask(lengths, block.length(self.inside.shape[1]))
        return Ends(lengths, inside.to(self.inside.dtype))


class TrainingForward:
    """The encoder's forward pass in training mode; zeros behind the items' ends.

    It has no parameters of its own, and keeps the running statistics of the encoder's batch norms.
    """

    def __init__(self, encoder: JasperEncoder, norms: Norms, depthwise: Depthwises):
        self.encoder, self.norms, self.depthwise = encoder, norms, depthwise

    def __call__(self, features: Tensor, lengths: Tensor) -> Tensor:
        """features (B, n_mels, T), lengths (B,) -> (B, C, F) in autocast's dtype, or that of the features."""
        kind = features.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else features.dtype
        self._statistics: list[tuple[nn.BatchNorm1d, Tensor, Tensor]] = []  # norm, mean and variance (C,)
        x = features.transpose(0, 1).to(dtype)
        ends = Ends(lengths, length_mask(lengths, x.shape[2]).to(dtype))
        inputs = [(x * ends.inside).contiguous()]
        for layer in self.encoder.layers:
            assert isinstance(layer, JasperBlock)
            inputs, ends = self._block(layer, inputs, ends)
        self._keep_statistics()
        return inputs[-1].transpose(0, 1)

    def _block(self, layer: JasperBlock, inputs: list[Tensor], ends: Ends) -> tuple[list[Tensor], Ends]:
        """What `JasperBlock.forward` computes, of inputs (C, B, T)."""
        block, x = layer.block, inputs[-1]
        if block.stride > 1:  # such a block has one repeat, and no residuals
            ends = ends.after(block)
        for repeat, ((*depthwise, conv), norm) in enumerate(layer.convolutions(), start=1):
            for one in depthwise:
                x = self.depthwise(
                    x, one.weight[:, 0], ends.inside, ends.lengths, block.dilation, block.stride
                )
            branches = [(x, conv, norm)]
            if block.residual and repeat == block.repeats:
                branches += [(value, *pair) for value, pair in zip(inputs, layer.res, strict=False)]
            x = self._normalised_sum(branches, ends.inside)
            if block.dropout:
                x = F.dropout(x, block.dropout)
        return ([*inputs, x] if block.residual_dense else [x]), ends

    def _normalised_sum(
        self, branches: Sequence[tuple[Tensor, nn.Conv1d, nn.BatchNorm1d]], inside: Tensor
    ) -> Tensor:
        """Values (C_in, B, T), each with a 1x1 convolution and a batch norm -> relu(sum) (C_out, B, T)."""
        values, convs, norms = zip(*branches, strict=True)
        weights = [conv.weight[:, :, 0].to(values[0].dtype) for conv in convs]
        products = Products.apply(*weights, *(value.flatten(1) for value in values))
        x, means, variances = self.norms(products, norms, inside.flatten())
        self._statistics += zip(norms, means.unbind(), variances.unbind(), strict=True)
        return x.view(-1, *inside.shape)

    @torch.no_grad()
    def _keep_statistics(self) -> None:
        """The running statistics, as `nn.BatchNorm1d` keeps them."""
        norms, means, variances = zip(*self._statistics, strict=True)
        self._statistics = []
        momentum: Any = norms[0].momentum
        torch._foreach_lerp_([norm.running_mean for norm in norms], means, momentum)
        torch._foreach_lerp_([norm.running_var for norm in norms], variances, momentum)
        torch._foreach_add_([norm.num_batches_tracked for norm in norms], 1)


def torch_norms(
    products: Tensor, norms: Sequence[nn.BatchNorm1d], inside: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """products (R, C, N), each with its batch norm, inside (N,) -> relu(their sum) * inside (C, N), and for
    the running statistics means and unbiased variances, float32 (R, C).
    """
    count = products.shape[2]
    total: Any = 0
    means, variances = [], []
    for product, norm in zip(products, norms, strict=True):
        made, mean, deviation = torch.native_batch_norm(
            product[None], norm.weight, norm.bias, None, None, True, 0.0, norm.eps
        )
        total = total + made[0]
        means.append(mean.detach())
        variances.append((deviation.detach() ** -2 - norm.eps) * (count / (count - 1)))
    return F.relu(total) * inside, torch.stack(means), torch.stack(variances)


class Products(torch.autograd.Function):
    """R weights (C_out, C_in) and R values (C_in, N) -> their products (R, C_out, N), in one tensor."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        count = len(tensors) // 2
        ctx.save_for_backward(*tensors)
        out = tensors[0].new_empty(count, tensors[0].shape[0], tensors[-1].shape[1])
        for product, weight, value in zip(out, tensors[:count], tensors[count:], strict=True):
            torch.mm(weight, value, out=product)
        return out

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        tensors = ctx.saved_tensors
        count = len(tensors) // 2
        found: list[Tensor | None] = [
            gradient @ value.T for gradient, value in zip(gradients, tensors[count:], strict=True)
        ]
        for number, (gradient, weight) in enumerate(zip(gradients, tensors[:count], strict=True)):
            found.append(weight.T @ gradient if ctx.needs_input_grad[count + number] else None)
        return tuple(found)


def depthwise(
    x: Tensor, weights: Tensor, inside: Tensor, lengths: Tensor, dilation: int, stride: int
) -> Tensor:
    """x (C, B, T), zeros behind the items' ends, weights (C, K) -> the convolution (C, B, T / stride), zeros
    behind the `lengths` (B,), which `inside` (B, T / stride) says too.
    """
    return Depthwise.apply(x, weights, inside, dilation, stride)


class Depthwise(torch.autograd.Function):
    """x (C, B, T), weights (C, K), inside (B, T / stride) -> convolution * `inside` (C, B, T / stride)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, inside: Tensor, dilation: int, stride: int) -> Tensor:
        rows = windows(x, weights.shape[1], dilation, stride)
        ctx.save_for_backward(rows, weights, inside)
        ctx.dilation, ctx.stride, ctx.steps = dilation, stride, x.shape[2]
        return convolved(rows, weights, dilation, stride, inside.shape) * inside

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        rows, weights, inside = ctx.saved_tensors
        (channels, taps), dilation, stride = weights.shape, ctx.dilation, ctx.stride
        gradient = gradient * inside
        items, steps = inside.shape
        blocks = -(-steps // OUTPUTS)
        given = F.pad(gradient, (0, blocks * OUTPUTS - steps)).view(channels, items * blocks, OUTPUTS)
        # What each input of a window gives to each of its outputs: a tap's are a diagonal.
        shares = torch.bmm(rows.transpose(1, 2), given)
        span = shares.shape[1]
        diagonals = shares.as_strided(
            (channels, taps, OUTPUTS), (span * OUTPUTS, dilation * OUTPUTS, stride * OUTPUTS + 1)
        )
        of_weights = diagonals.sum(2, dtype=torch.float32).to(weights.dtype)
        of_x = None
        if ctx.needs_input_grad[0]:
            if stride > 1:
                spread = gradient.new_zeros(channels, items, ctx.steps)
                spread[:, :, ::stride] = gradient
                gradient = spread
            of_x = convolved(
                windows(gradient, taps, dilation, 1), weights.flip(1), dilation, 1, gradient.shape[1:]
            )
        return of_x, of_weights, None, None, None


def windows(x: Tensor, taps: int, dilation: int, stride: int) -> Tensor:
    """x (C, B, T) -> (C, B * blocks, span): what each OUTPUTS outputs of a convolution are computed from."""
    channels, _, steps = x.shape
    before = taps // 2 * dilation
    blocks = -(-steps // (OUTPUTS * stride))
    span = -(-((OUTPUTS - 1) * stride + (taps - 1) * dilation + 1) // SPAN_STEP) * SPAN_STEP
    behind = (blocks - 1) * OUTPUTS * stride + span - before - steps
    return F.pad(x, (before, behind)).unfold(2, span, OUTPUTS * stride).reshape(channels, -1, span)


def convolved(rows: Tensor, weights: Tensor, dilation: int, stride: int, shape: Sequence[int]) -> Tensor:
    """Windows (C, B * blocks, span) with weights (C, K) -> (C, B, T) for the `shape` (B, T), a view."""
    taps = tap_of(weights.shape[1], dilation, stride, rows.shape[2], rows.device)
    bands = F.pad(weights, (0, 1)).to(rows.dtype)[:, taps]
    made = torch.bmm(rows, bands)
    return made.view(len(made), shape[0], -1)[:, :, : shape[1]]


@cache
def tap_of(taps: int, dilation: int, stride: int, span: int, device: torch.device) -> Tensor:
    """int64 (span, OUTPUTS): which tap joins an input of a window to an output; `taps` where none does."""
    distance = torch.arange(span)[:, None] - stride * torch.arange(OUTPUTS)
    tap = torch.div(distance, dilation, rounding_mode="floor")
    found = (distance % dilation == 0) & (tap >= 0) & (tap < taps)
    return torch.where(found, tap, taps).to(device)

"""A faster forward pass of Jasper's encoder for training, where all convolutions are separable or 1x1.

Activations are (C, B, T), so that a 1x1 convolution is one matrix product and a channel's batch statistics
are those of one row. Batch norms and depthwise convolutions, for which PyTorch's own kernels take half of a
step, are kernels of ours. N is B * T.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from melforge.common.arrays import length_mask
from melforge.common.registry import load_attribute
from melforge.jasper.config import Block, JasperConfig
from melforge.jasper.model import Jasper, JasperBlock, JasperEncoder, Mask
from melforge.jasper.stages import CAN_MAKE_KERNELS, TRAINING_KERNELS

# x (C, B, T), zeros behind the items' ends, weights (C, K), inside (B, T / stride), lengths (B,), dilation,
# stride -> the convolution (C, B, T / stride), zeros behind the lengths, which `inside` says too
DepthwiseFunction = Callable[[Tensor, Tensor, Tensor, Tensor, int, int], Tensor]
# products (R, C, N), each with its batch norm, inside (N,) -> relu(their sum) * inside (C, N), and for the
# running statistics means and unbiased variances, float32 (R, C)
NormsFunction = Callable[[Tensor, Sequence[nn.BatchNorm1d], Tensor], tuple[Tensor, Tensor, Tensor]]


def supports(config: JasperConfig) -> bool:
    """Whether the fast forward computes such a network."""
    return config.activation == "relu" and all(
        block.separable or block.kernel_size == block.stride == 1 for block in config.blocks
    )


def training_kernel(name: str, device: torch.device) -> Callable[..., Any] | None:
    """The kernels of that name, on the current GPU if they can be made; else None."""
    on_gpu = device.type == "cuda" and device.index in (None, torch.cuda.current_device())
    return load_attribute(TRAINING_KERNELS[name]) if on_gpu and load_attribute(CAN_MAKE_KERNELS)() else None


def kernel_or(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """Kernels that compute what this function does, on the current GPU if they can be made; else itself."""
    return training_kernel(function.__name__, device) or function


def training_encoder(model: Jasper) -> Callable[[Tensor, Tensor], Tensor]:
    """features (B, n_mels, T), lengths (B,) -> (B, C, F): a `TrainingForward` where its kernels can run."""
    device = next(model.parameters()).device
    norms, depthwise = (training_kernel(name, device) for name in ("norms", "depthwise"))
    if norms is None or depthwise is None or not supports(model.config):
        return model.encoder
    return TrainingForward(model.encoder, norms, depthwise)


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

    def __init__(self, encoder: JasperEncoder, norms: NormsFunction, depthwise: DepthwiseFunction):
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
                branches += [(value, *pair) for value, pair in zip(inputs, layer.residuals(), strict=False)]
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
        together: Any = torch  # whose types do not show these functions
        momentum = norms[0].momentum
        together._foreach_lerp_([norm.running_mean for norm in norms], means, momentum)
        together._foreach_lerp_([norm.running_var for norm in norms], variances, momentum)
        together._foreach_add_([norm.num_batches_tracked for norm in norms], 1)


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

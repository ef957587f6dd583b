"""The stage `masked_encoder` of Jasper and QuartzNet on PyTorch's kernels, in half precision.

The network is folded once, in float32: batch norm into the convolutions before it, and all residuals of a
block into one product with its earlier inputs side by side. Memory is time-major, as tensor cores take it: a
row has all channels of a step.

Shape letters: B batch, C channels, T steps, N channels of all residual inputs.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.arrays import length_mask
from common.engines.padded import CapturedNetwork
from jasper.config import Block
from jasper.model import BATCH_NORM_EPS, Jasper, Mask

# A convolution of at most so many rows (B * T) is a product with its windows, copied side by side: cuBLAS
# divides a product's depth among processors that a convolution of few rows leaves idle.
WINDOW_ROWS = 1024
LARGEST = 65504.0  # of half precision


def folded(conv: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """Weight (C out, C in, k) and bias (C out,) of a Conv1d with the BatchNorm1d behind it."""
    scale = norm.weight / (norm.running_var + BATCH_NORM_EPS).sqrt()
    return conv.weight * scale[:, None, None], norm.bias - norm.running_mean * scale


class FoldedConv(nn.Module):
    """A convolution over rows (B, T, C), with its bias and without padding masks."""

    def __init__(self, weight: Tensor, bias: Tensor | None, block: Block, stride: int, groups: int = 1):
        super().__init__()
        self.taps = weight.shape[2]
        self.padding = self.taps // 2 * block.dilation
        self.dilation, self.stride, self.groups = block.dilation, stride, groups
        image = weight[:, :, None].contiguous(memory_format=torch.channels_last)  # memory (C out, k, C in)
        self.weight = nn.Parameter(image, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C in) -> (B, T / stride, C out)."""
        plain = self.stride == self.dilation == self.groups == 1
        if plain and (self.taps == 1 or x.shape[0] * x.shape[1] <= WINDOW_ROWS):
            return F.linear(self._windows(x), self.weight.permute(0, 2, 3, 1).flatten(1), self.bias)
        image = x[:, None].permute(0, 3, 1, 2)  # (B, C, 1, T), whose memory is (B, 1, T, C)
        places = (1, self.stride), (0, self.padding), (1, self.dilation)
        made = F.conv2d(image, self.weight, self.bias, *places, self.groups)
        return made.permute(0, 2, 3, 1)[:, 0]

    def _windows(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, k * C), the steps under all taps side by side."""
        if self.taps == 1:
            return x
        batch, steps, channels = x.shape
        x = F.pad(x, (0, 0, self.padding, self.padding))
        return x.as_strided((batch, steps, self.taps * channels), (x.stride(0), channels, 1)).contiguous()


class FoldedBlock(nn.Module):
    """A block's convolutions, each with its batch norm, and the product of its residuals."""

    def __init__(self, layer: Any, block: Block):
        super().__init__()
        self.block = block
        modules: list[Any] = [one for one in layer.conv if isinstance(one, nn.Conv1d | nn.BatchNorm1d)]
        width = 3 if block.separable else 2  # modules of each of the repeats
        residuals = [folded(*pair) for pair in layer.res] if block.residual else []
        convs: list[nn.Module] = []
        for first in range(0, len(modules), width):
            weight, bias = folded(*modules[first + width - 2 : first + width])
            if first + width == len(modules):  # its sum with the residuals has one bias
                bias = bias + sum((one for _, one in residuals), torch.zeros_like(bias))
            if block.separable:
                depthwise = modules[first].weight
                convs.append(
                    nn.Sequential(
                        FoldedConv(depthwise, None, block, block.stride, len(depthwise)),
                        FoldedConv(weight, bias, block._replace(dilation=1), 1),
                    )
                )
            else:
                convs.append(FoldedConv(weight, bias, block, block.stride))
        self.convs = nn.ModuleList(convs)
        if residuals:
            together = torch.cat([weight[:, :, 0] for weight, _ in residuals], dim=1)
            self.residual = nn.Parameter(together, requires_grad=False)  # (C out, N)

    def forward(self, x: Tensor, earlier: Tensor, activate: Callable[[Tensor], Tensor]) -> Tensor:
        """x (B, T, C) and `earlier` (B, T, N) with zeros behind the items' ends -> (B, T / stride, C out).

        `activate` puts zeros behind the items' ends too.
        """
        for number, conv in enumerate(self.convs, start=1):
            x = conv(x)
            if number == len(self.convs) and self.block.residual:
                x = torch.addmm(x.flatten(0, 1), earlier.flatten(0, 1), self.residual.T).view(x.shape)
            x = activate(x)
        return x


class FoldedJasper(nn.Module):
    """The network's `encode`, of features with lengths."""

    def __init__(self, network: Jasper):
        super().__init__()
        self.config = network.config
        with torch.no_grad():
            pairs = zip(network.encoder.layers, network.config.blocks, strict=True)
            self.blocks = nn.ModuleList(FoldedBlock(layer, block) for layer, block in pairs)
            last: Any = network.decoder.layers[0]
            self.weight = nn.Parameter(last.weight[:, :, 0].clone(), requires_grad=False)
            self.bias = nn.Parameter(last.bias.clone(), requires_grad=False)

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor]:
        """features (B, n_mels, T), frames (B,) -> log-probabilities (B, F, labels + 1), in float32.

        Behind an item's end they are those of zeros.
        """
        x, mask = features.transpose(1, 2).contiguous(), Mask(lengths)
        inside = self._inside(mask, x)
        x = x * inside
        activate = self._activation(inside)
        dense: list[Tensor] = []
        for layer, block in zip(self.blocks, self.config.blocks, strict=True):
            dense = [*dense, x] if block.residual_dense else []
            earlier = torch.cat(dense, dim=2) if len(dense) > 1 else x
            if block.stride > 1:
                mask = mask.after(block)
                activate = self._activation(self._inside(mask, x[:, : block.length(x.shape[1])]))
            x = layer(x, earlier, activate)
        return (F.log_softmax(F.linear(x, self.weight, self.bias).float(), dim=2),)

    @staticmethod
    def _inside(mask: Mask, like: Tensor) -> Tensor:
        """1 within an item and 0 behind it, (B, T, 1) for `like` (B, T, C)."""
        assert mask.lengths is not None
        return length_mask(mask.lengths, like.shape[1])[:, :, None].to(like.dtype)

    def _activation(self, inside: Tensor) -> Callable[[Tensor], Tensor]:
        """The activation with zeros behind the items' ends, in one kernel where it only cuts off."""
        if self.config.activation == "selu":
            return lambda x: F.selu(x) * inside
        low = inside.new_zeros(())
        high = inside * (20.0 if self.config.activation == "hardtanh" else LARGEST)
        return lambda x: torch.clamp(x, low, high)


class Encoder(CapturedNetwork):
    """cuDNN tries its algorithms at each new shape, before the shape's graph is captured."""

    def prepared(self, network: nn.Module) -> nn.Module:
        assert isinstance(network, Jasper)
        return FoldedJasper(network)

    def method_of(self, network: nn.Module) -> Callable[..., tuple[Tensor, ...]]:
        method = super().method_of(network)

        def encode(**inputs: Tensor) -> tuple[Tensor, ...]:
            with torch.backends.cudnn.flags(enabled=True, benchmark=True):
                return method(**inputs)

        return encode

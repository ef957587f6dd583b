"""Jasper and QuartzNet: convolutions from features to the log-probabilities of characters (Li and others
2019, arXiv:1904.03288; Kriman and others 2019, arXiv:1910.10261).

Shape letters: B batch, C channels, T frames of features, F outputs. Module names are the published ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from melforge.common.arrays import length_mask
from melforge.jasper.config import Block, JasperConfig, residual_inputs

BATCH_NORM_EPS = 1e-3
ACTIVATIONS = {"relu": nn.ReLU, "hardtanh": lambda: nn.Hardtanh(0.0, 20.0), "selu": nn.SELU}


class Mask:
    """The valid steps `lengths` (B,) of a padded axis; without lengths nothing is masked."""

    def __init__(self, lengths: Tensor | None):
        self.lengths = lengths
        self._kept: tuple[int, Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, C, T) with zeros behind the items' ends."""
        if self.lengths is None:
            return x
        if self._kept is None:
            self._kept = x.shape[2], length_mask(self.lengths, x.shape[2])[:, None]
        return x * self._kept[1].to(x.dtype)

    def after(self, block: Block) -> Mask:
        """The mask behind one of a block's convolutions. Most keep the length, and the mask."""
        if self.lengths is None or block.stride == 1:
            return self
        spread = block.dilation * (block.kernel_size - 1) + 1
        lengths = torch.div(self.lengths + 2 * block.padding - spread, block.stride, rounding_mode="floor")
        return Mask(lengths + 1)


def conv_bn(block: Block, wide: int, narrow: int) -> list[nn.Module]:
    """wide -> narrow channels: a convolution, of a separable block two, and batch norm."""
    shape = {"stride": block.stride, "padding": block.padding, "dilation": block.dilation, "bias": False}
    if not block.separable:
        convs = [nn.Conv1d(wide, narrow, block.kernel_size, **shape)]
    else:
        depthwise = nn.Conv1d(wide, wide, block.kernel_size, groups=wide, **shape)
        convs = [depthwise, nn.Conv1d(wide, narrow, 1, bias=False)]
    return [*convs, nn.BatchNorm1d(narrow, eps=BATCH_NORM_EPS)]


class JasperBlock(nn.Module):
    """Convolutions with batch norm and activation; the residuals are added before the last activation."""

    def __init__(self, block: Block, channels: int, residuals: tuple[int, ...], activation: str) -> None:
        super().__init__()
        self.block = block
        self.conv = nn.ModuleList()
        for repeat in range(block.repeats):
            if repeat:
                self.conv.extend([ACTIVATIONS[activation](), nn.Dropout(block.dropout)])
            self.conv.extend(conv_bn(block, block.filters if repeat else channels, block.filters))
        if block.residual:
            plain = block._replace(kernel_size=1, stride=1, dilation=1, separable=False)
            self.res = nn.ModuleList(
                nn.ModuleList(conv_bn(plain, width, block.filters)) for width in residuals
            )
        self.out = nn.Sequential(ACTIVATIONS[activation](), nn.Dropout(block.dropout))

    def convolutions(self) -> Iterator[tuple[list[nn.Conv1d], nn.BatchNorm1d]]:
        """Of each repeat the convolutions, two in a separable block, and the batch norm behind them."""
        convs: list[nn.Conv1d] = []
        for layer in self.conv:
            if isinstance(layer, nn.Conv1d):
                convs.append(layer)
            elif isinstance(layer, nn.BatchNorm1d):
                yield convs, layer
                convs = []

    def residuals(self) -> Iterable[tuple[nn.Conv1d, nn.BatchNorm1d]]:
        """Of each input that is added the convolution, and the batch norm behind it."""
        return cast(Any, self.res)

    def forward(self, inputs: list[Tensor], mask: Mask) -> tuple[list[Tensor], Mask]:
        """`inputs` (B, C, T) are what residuals are taken of, and last the block's own input."""
        x, masked_by = inputs[-1], mask
        for layer in self.conv:
            if isinstance(layer, nn.Conv1d):
                x = masked_by(x)
                # Of a separable pair the first one has the stride.
                masked_by = masked_by.after(self.block) if layer.stride[0] > 1 else masked_by
            x = layer(x)
        if self.block.residual:
            for value, (conv, norm) in zip(inputs, self.residuals(), strict=False):
                x = x + norm(conv(mask(value)))
        x = self.out(x)
        return ([*inputs, x] if self.block.residual_dense else [x]), masked_by


class JasperEncoder(nn.Module):
    """The blocks in a row."""

    def __init__(self, config: JasperConfig) -> None:
        super().__init__()
        widths = (config.n_mel_channels, *config.filters)
        self.layers = nn.ModuleList(
            JasperBlock(block, channels, residuals, config.activation)
            for block, channels, residuals in zip(
                config.blocks, widths, residual_inputs(config), strict=False
            )
        )

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """features (B, n_mels, T) -> (B, C, F). `lengths` (B,), if given, masks padding."""
        values, mask = [features], Mask(lengths)
        for layer in self.layers:
            values, mask = layer(values, mask)
        return values[-1]


class JasperDecoder(nn.Module):
    """A 1x1 convolution to the labels and the blank."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(channels, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, F) -> log-probabilities (B, F, labels + 1)."""
        return F.log_softmax(self.layers(x).transpose(1, 2), dim=2)


class Jasper(nn.Module):
    """Features to log-probabilities of characters, for CTC."""

    def __init__(self, config: JasperConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = JasperEncoder(config)
        self.decoder = JasperDecoder(config.filters[-1], len(config.labels) + 1)

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """features (B, n_mels, T) -> log-probabilities (B, F, labels + 1).

        `lengths` (B,), if given, are the items' frames: each item is then what it is alone.
        """
        return self.decoder(self.encoder(features, lengths))

    def encode(self, features: Tensor, lengths: Tensor | None = None) -> tuple[Tensor]:
        """The stages "encoder" and, with `lengths`, "masked_encoder"."""
        return (self(features, lengths),)

    def steps(self, lengths: Tensor) -> Tensor:
        """Outputs (B,) for so many frames of features (B,)."""
        mask = Mask(lengths)
        for block in self.config.blocks:
            for _ in range(block.repeats):
                mask = mask.after(block)
        assert mask.lengths is not None
        return mask.lengths


class GreedyDecoder(nn.Module):
    """The best label of each output; it has no weights."""

    def __init__(self, config: JasperConfig) -> None:
        super().__init__()
        self.blank = config.blank

    def decode(self, log_probs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The stage "decoder": log_probs (B, F, labels + 1), lengths (B,) -> labels int64 (B, F), blank
        behind the items' ends, and their log-probabilities (B, F).
        """
        scores, labels = log_probs.max(dim=2)
        inside = length_mask(lengths, log_probs.shape[1])
        return torch.where(inside, labels, self.blank), scores * inside.to(scores.dtype)

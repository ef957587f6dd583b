"""The stage `masked_encoder` of Jasper and QuartzNet in half precision, on PyTorch's kernels and our own.

The network is folded once, in float32: batch norm into the convolutions before it, and all residuals of a
block into one product with its earlier inputs side by side. Memory is time-major, as tensor cores take it: a
row has all channels of a step.

Shape letters: B batch, C channels, T steps, N channels of all residual inputs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from melforge.common.engines.layer_outputs import show
from melforge.common.engines.limits import PRODUCTS, Needs
from melforge.common.engines.padded import CapturedNetwork
from melforge.jasper.config import Block, JasperConfig
from melforge.jasper.model import BATCH_NORM_EPS, Jasper, Mask
from melforge.trt_plugins.jasper.convolution import (
    Activation,
    FoldedConv,
    JasperConvolution,
    JasperWeights,
    TilingChooser,
)
from melforge.trt_plugins.jasper.tiling import Tiling


def folded(conv: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """Weight (C out, C in, k) and bias (C out,) of a Conv1d with the BatchNorm1d behind it."""
    scale = norm.weight / (norm.running_var + BATCH_NORM_EPS).sqrt()
    return conv.weight * scale[:, None, None], norm.bias - norm.running_mean * scale


class FoldedBlock(nn.Module):
    """A block's convolutions, each with its batch norm, and the product of its residuals."""

    def __init__(self, layer: Any, block: Block, name: str):
        super().__init__()
        self.block = block
        # Where the network has each repeat's output: its activations, and behind the last one the block's.
        places = [place for place, part in enumerate(layer.conv) if isinstance(part, nn.Dropout)]
        self.names = [*(f"{name}.conv.{place}" for place in places), f"{name}.out"]
        residuals = [folded(*pair) for pair in layer.residuals()] if block.residual else []
        convs: list[nn.Module] = []
        for repeat, ((*depthwise, conv), norm) in enumerate(layer.convolutions(), start=1):
            weight, bias = folded(conv, norm)
            if repeat == block.repeats:  # its sum with the residuals has one bias
                bias = bias + sum((one for _, one in residuals), torch.zeros_like(bias))
            if depthwise:
                first = depthwise[0].weight
                convs.append(
                    nn.Sequential(
                        FoldedConv(first, None, block.dilation, block.stride, len(first)),
                        FoldedConv(weight, bias),
                    )
                )
            else:
                convs.append(FoldedConv(weight, bias, block.dilation, block.stride))
        self.convs = nn.ModuleList(convs)
        if residuals:
            together = torch.cat([weight[:, :, 0] for weight, _ in residuals], dim=1)
            self.residual = nn.Parameter(together, requires_grad=False)  # (C out, N)

    @property
    def weights(self) -> list[JasperWeights]:
        """Of its convolutions in order; the last one has the residuals'."""
        residual = self.residual if self.block.residual else None
        return [JasperWeights(conv, residual if conv is self.convs[-1] else None) for conv in self.convs]


class Place(NamedTuple):
    """The columns of a buffer that holds the inputs of consecutive dense blocks side by side."""

    start: int
    end: int
    width: int  # of the whole buffer


def places(config: JasperConfig) -> Iterator[Place]:
    """Where each block's input lies, and behind the last block where the last output does."""
    widths = (config.n_mel_channels, *config.filters)
    dense = [*(block.residual_dense for block in config.blocks), False]
    first = 0  # block of the buffer
    for number, width in enumerate(widths):
        if not dense[number] or not dense[number - 1]:
            first = number
        last = number
        while dense[last] and dense[last + 1]:
            last += 1
        start = sum(widths[first:number])
        yield Place(start, start + width, sum(widths[first : last + 1]))


class FoldedJasper(nn.Module):
    """The network's `encode`, of features with lengths."""

    def __init__(self, network: Jasper):
        super().__init__()
        self.config = network.config
        with torch.no_grad():
            pairs = zip(network.encoder.layers, network.config.blocks, strict=True)
            self.blocks = nn.ModuleList(
                FoldedBlock(layer, block, f"encoder.layers.{place}")
                for place, (layer, block) in enumerate(pairs)
            )
            last: Any = network.decoder.layers[0]
            self.weight = nn.Parameter(last.weight[:, :, 0].clone(), requires_grad=False)
            self.bias = nn.Parameter(last.bias.clone(), requires_grad=False)
        self.places = list(places(self.config))
        # Gives the tiling of kernels for a convolution, or None: PyTorch. The weights are all of that shape.
        self.choose: Callable[[JasperConvolution, Sequence[JasperWeights]], Tiling | None] = (
            lambda one, alike: None
        )

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor]:
        """features (B, n_mels, T), frames (B,) -> log-probabilities (B, F, labels + 1), in float32.

        Behind an item's end they are those of zeros.
        """
        mask, steps = Mask(lengths), features.shape[2]
        activation = self._activation(mask, steps, features.dtype)
        wide, x = self._buffer(0, None, features, steps)
        torch.mul(features.transpose(1, 2), activation.inside, out=x)
        alike = self._alike()
        for number, (layer, block) in enumerate(zip(self.blocks, self.config.blocks, strict=True)):
            assert isinstance(layer, FoldedBlock)
            earlier = wide[..., : self.places[number].end] if block.residual_dense else x
            if block.stride > 1:
                mask, steps = mask.after(block), block.length(steps)
                activation = self._activation(mask, steps, x.dtype)
            wide, last = self._buffer(number + 1, wide, x, steps)
            for weights, name in zip(layer.weights, layer.names, strict=True):
                given = earlier if weights.residual is not None else None
                ends = weights.conv is layer.convs[-1]
                out = last if ends else x.new_empty(len(x), steps, block.filters)
                one = JasperConvolution(weights, x, given, activation, out)
                one.run(self.choose(one, alike[weights.shape]))
                show(name, lambda out=out: out.mT)
                x = out
        return (F.log_softmax(F.linear(x, self.weight, self.bias).float(), dim=2),)

    def _buffer(self, number: int, wide: Tensor | None, like: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """The buffer of a block's input, a new one where none is shared, and the input's columns in it."""
        start, end, width = self.places[number]
        if wide is None or not start:
            wide = like.new_empty(len(like), steps, width)
        return wide, wide[..., start:end]

    def _alike(self) -> dict[tuple, list[JasperWeights]]:
        """All convolutions by the shapes of their weights."""
        found: dict[tuple, list[JasperWeights]] = defaultdict(list)
        for layer in self.blocks:
            assert isinstance(layer, FoldedBlock)
            for weights in layer.weights:
                found[weights.shape].append(weights)
        return found

    def _activation(self, mask: Mask, steps: int, dtype: torch.dtype) -> Activation:
        assert mask.lengths is not None
        return Activation(self.config.activation, mask.lengths, steps, dtype)


class JasperEncoderNetwork(CapturedNetwork):
    """On PyTorch's kernels. Each new shape's algorithms of cuDNN are timed before its graph is captured."""

    def prepared(self, network: nn.Module) -> nn.Module:
        assert isinstance(network, Jasper)
        return FoldedJasper(network)

    def method_of(self, network: nn.Module) -> Callable[..., tuple[Tensor, ...]]:
        method = super().method_of(network)

        def encode(**inputs: Tensor) -> tuple[Tensor, ...]:
            with torch.backends.cudnn.flags(enabled=True, benchmark=True):
                return method(**inputs)

        return encode

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        config: JasperConfig = self._network.config  # type: ignore[assignment]
        steps = config.steps(inputs["features"].shape[2])
        return {"log_probs": super().__call__(**inputs)["log_probs"][:, :steps]}


class JasperEncoderKernels(JasperEncoderNetwork):
    """Our kernels are timed too, and run where they are faster than cuDNN's."""

    otherwise = JasperEncoderNetwork

    @classmethod
    def needs(cls, config: JasperConfig) -> Needs:
        return PRODUCTS

    def prepared(self, network: nn.Module) -> nn.Module:
        made: Any = super().prepared(network)
        made.choose = TilingChooser(self.device)
        return made

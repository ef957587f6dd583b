"""A WaveGlow network's weights in the kernels' layout, with consecutive linear layers folded into one:

* Upsampling, `cond` and a layer's conditioning convolution. A step of a given phase (its position within its
  frame) depends on the few frames that the upsampling kernel spans, so each phase has a matrix on those
  frames' mels (320 inputs; the published grouped mel has 640), with a single bias.
* A layer's skip half and `end`: a few rows instead of wn_channels, and no skip tensor.
* `start` and a coupling net's first dilated convolution: a product of a few channels instead of wn_channels.
* The biases of these layers. `start`'s becomes the weight of an additional channel, which is 1 at every step
  of an item, because the convolution pads the output of `start` with zeros.

Everything is computed in float32 and rounded to float16 once. wn_channels is zero-padded to 64, 128, 256 and
so on; padded channels stay zero, as tanh(0) * sigmoid(0) is 0.

Letters: C padded channels, P phases of a frame, W padded mels of a step's window, G n_group.
"""

from dataclasses import dataclass, fields
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from melforge.common.errors import InputError
from melforge.trt_plugins.graphs import overflows
from melforge.waveglow.config import WaveglowConfig
from melforge.waveglow.model import Waveglow

CHUNK = 64  # channels that the kernels multiply at a time
NARROW = 16  # the fewest rows and columns that tensor cores multiply; a flow's channels are padded to it


@dataclass(frozen=True)
class WaveglowLayout:
    """The layout of the kernels' memory."""

    channels: int  # C
    chunks: int  # of C
    phases: int  # P
    window: int  # W / CHUNK
    delays: int  # frames that a step depends on, its own and earlier ones
    taps: int
    layers: int
    margin: int  # frames of zeros around every item: a layer's largest reach


def layout_of(config: WaveglowConfig) -> WaveglowLayout:
    """The layout for a network; raises for one that the kernels do not support."""
    if config.hop_length % config.n_group:
        raise InputError(
            f"hop_length {config.hop_length} must be a multiple of n_group {config.n_group} for the kernels"
        )
    if config.n_group > NARROW:
        raise InputError(f"the kernels take an n_group of {NARROW} at most, not {config.n_group}")
    chunks = 1 << (-(-config.wn_channels // CHUNK) - 1).bit_length()  # tile sizes are powers of two
    phases = config.hop_length // config.n_group
    delays = -(-config.upsample_kernel_size // config.hop_length)
    reach = (config.wn_kernel_size - 1) // 2 * 2 ** (config.wn_layers - 1)
    return WaveglowLayout(
        channels=chunks * CHUNK,
        chunks=chunks,
        phases=phases,
        window=-(-delays * config.n_mel_channels // CHUNK),
        delays=delays,
        taps=config.wn_kernel_size,
        layers=config.wn_layers,
        margin=-(-reach // phases),
    )


@dataclass(frozen=True, eq=False)
class FoldedWaveglow:
    """All flows' weights. N is n_flows * wn_layers, K the chunks of a layer: P * W/64, then taps * C/64."""

    gates: Tensor  # (N, K, 2C, 64) float16; tanh's and sigmoid's rows of a channel alternate
    first: Tensor  # (n_flows, taps, 2C, 16) float16: replaces the taps of a coupling net's first layer
    gate_bias: Tensor  # (N, 2C) float32
    residual: Tensor  # (N, C, C) float16; zeros in a coupling net's last layer
    residual_bias: Tensor  # (N, C) float32
    ends: Tensor  # (N, 16, C) float16: shift and log scale
    end_bias: Tensor  # (n_flows, 16) float32
    start: Tensor  # (n_flows, C, 16) float16: for the unchanged channels, and the bias
    inverse: Tensor  # (n_flows, 16, 16) float32: inputs first; outputs follow the early channels

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, field.name).nbytes for field in fields(self))


def phase_weights(network: Waveglow) -> tuple[Tensor, Tensor]:
    """The linear map from a step's window of mels to the coupling nets' conditioning, for each phase.

    Returns (P, wn_cond_channels, delays * n_mels) and a bias (wn_cond_channels,); a window is ordered as
    delay * n_mels + mel, and delay 0 is the step's own frame.
    """
    config = network.config
    layout = layout_of(config)
    conv, hop, group = network.upsample, config.hop_length, config.n_group
    weight = F.pad(conv.weight, (0, layout.delays * hop - config.upsample_kernel_size))
    weight = weight.unflatten(2, (layout.delays, layout.phases, group)).unflatten(0, (conv.groups, -1))
    mels = config.n_mel_channels
    dense = weight.new_zeros(mels, mels, layout.delays, layout.phases, group)
    inner, outer = mels // conv.groups, weight.shape[2]
    for index in range(conv.groups):
        rows, columns = slice(index * inner, (index + 1) * inner), slice(index * outer, (index + 1) * outer)
        dense[rows, columns] = weight[index]
    phases = dense.permute(3, 1, 4, 2, 0).flatten(3, 4).flatten(1, 2)  # (P, mel out * G, delay * mel in)
    assert conv.bias is not None
    bias = conv.bias.repeat_interleave(group)
    if config.cond_channels:
        matrix = network.cond.weight[:, :, 0]
        phases, bias = matrix @ phases, matrix @ bias + cast(Tensor, network.cond.bias)
    return phases.contiguous(), bias


def fold(network: Waveglow) -> FoldedWaveglow:
    """A network without weight norm, in float32 -> the kernels' weights, on the network's device."""
    config = network.config
    layout = layout_of(config)
    with torch.no_grad():
        phases, phase_bias = phase_weights(network)
        nets = [_fold_net(net, phases, phase_bias, layout) for net in cast(Any, network.WN)]
        stacked = {name: torch.cat([net[name] for net in nets]) for name in nets[0]}
        early = [config.n_early_size if config.is_early(flow) else 0 for flow in range(config.n_flows)]
        convs = zip(cast(Any, network.convinv), early, strict=True)
        inverses = [_inverse(conv.inverse[:, :, 0], skipped) for conv, skipped in convs]
        folded = FoldedWaveglow(**stacked, inverse=torch.stack(inverses))
    for field in fields(folded):
        if overflows(getattr(folded, field.name)):
            raise InputError(
                f"WaveGlow's folded weights ({field.name}) are larger than half precision can hold; "
                "use another backend"
            )
    return folded


def _fold_net(net: Any, phases: Tensor, phase_bias: Tensor, layout: WaveglowLayout) -> dict[str, Tensor]:
    """One flow's part of every field of `FoldedWaveglow` but `inverse`."""
    channels, filled = net.channels, layout.channels
    end = net.end.weight[:, :, 0]  # (G of this flow, channels)
    end_bias = net.end.bias.clone()
    start = torch.cat((net.start.weight[:, :, 0], net.start.bias[:, None]), dim=1)
    start = F.pad(start, (0, NARROW - start.shape[1]))
    first = torch.einsum("ock,cn->kon", net.in_layers[0].weight, start)  # (taps, 2 channels, 16)
    gates, gate_bias, residual, residual_bias, ends = [], [], [], [], []
    for conv, cond, res_skip in zip(net.in_layers, net.cond_layers, net.res_skip_layers, strict=True):
        mel_weight = cond.weight[:, :, 0] @ phases  # (P, 2 channels, delays * n_mels)
        mel_weight = F.pad(mel_weight, (0, layout.window * CHUNK - mel_weight.shape[2]))
        x_weight = F.pad(conv.weight, (0, 0, 0, filled - channels)).transpose(1, 2).flatten(1)
        chunks = [_alternate(w, channels, filled).unflatten(-1, (-1, CHUNK)) for w in (mel_weight, x_weight)]
        of_mel, of_x = (chunk.half().movedim(-2, -3) for chunk in chunks)  # (..., chunks, 2C, 64)
        gates.append(torch.cat((of_mel.flatten(0, 1), of_x)))
        bias = conv.bias + cond.bias + cond.weight[:, :, 0] @ phase_bias
        gate_bias.append(_alternate(bias[:, None], channels, filled)[:, 0])
        weight, bias = res_skip.weight[:, :, 0], res_skip.bias
        skip = weight[-channels:]
        ends.append(F.pad(end @ skip, (0, filled - channels, 0, NARROW - len(end))).half())
        end_bias += end @ bias[-channels:]
        more = (0, filled - channels)
        last = len(weight) == channels
        square = torch.zeros_like(skip) if last else weight[:channels]
        residual.append(F.pad(square, more * 2).half())
        residual_bias.append(F.pad(torch.zeros_like(bias) if last else bias[:channels], more))
    return {
        "gates": torch.stack(gates),
        "first": _alternate(first, channels, filled).half()[None],
        "gate_bias": torch.stack(gate_bias),
        "residual": torch.stack(residual),
        "residual_bias": torch.stack(residual_bias),
        "ends": torch.stack(ends),
        "end_bias": F.pad(end_bias, (0, NARROW - len(end)))[None],
        "start": F.pad(start, (0, 0, 0, filled - channels)).half()[None],
    }


def _alternate(weight: Tensor, channels: int, filled: int) -> Tensor:
    """Rows (..., 2 channels, columns): tanh's then sigmoid's -> (..., 2C, columns), alternating."""
    apart = F.pad(weight.unflatten(-2, (2, channels)), (0, 0, 0, filled - channels))
    return apart.transpose(-3, -2).flatten(-3, -2)


def _inverse(matrix: Tensor, early: int) -> Tensor:
    """A flow's inverse, transposed; its outputs follow the early channels."""
    size = len(matrix)
    return F.pad(matrix.T, (early, NARROW - size - early, 0, NARROW - size))

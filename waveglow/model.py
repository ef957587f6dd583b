"""WaveGlow: normalizing flows between audio and noise, conditioned on a mel (arXiv 1811.00002).

Shape letters: B batch, G channels of a flow, T mel frames, S audio samples, L = S / n_group steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

from melforge.common.errors import InputError
from melforge.waveglow.config import WaveglowConfig

# The smallest ratio of singular values at which a matrix is inverted in float32.
SINGULAR = 1e-6


def invert(matrix: Tensor, name: str) -> Tensor:
    """A square matrix's inverse, computed in float32; an InputError with `name` if it is singular."""
    matrix = matrix.detach().float()
    if not matrix.is_meta:
        spread = torch.linalg.svdvals(matrix.double())
        if not spread[-1] > SINGULAR * spread[0]:
            raise InputError(
                f"{name} is singular (singular values {spread[0]:.1e} to {spread[-1]:.1e}): the flow cannot "
                "be inverted to generate audio; the weights are damaged or the training had diverged"
            )
    return torch.linalg.inv(matrix).contiguous()  # linalg.inv returns it column-major


class InvertibleConv(nn.Module):
    """An invertible 1x1 convolution. `store_inverse` makes the inverse a tensor of the state dict."""

    inverse: Tensor | None

    def __init__(self, channels: int, flow: int) -> None:
        super().__init__()
        self.name = f"the 1x1 convolution of flow {flow}"
        self.conv = nn.Conv1d(channels, channels, 1, bias=False)
        rotation = torch.linalg.qr(torch.randn(channels, channels))[0]
        rotation[:, 0] *= torch.linalg.det(rotation).sign()  # no reflection: the determinant starts at +1
        # In rows: Adam's fused kernel wants gradients, which are, to lie as their weights do.
        self.conv.weight = nn.Parameter(rotation.contiguous()[:, :, None])
        self.register_buffer("inverse", None)

    def store_inverse(self) -> None:
        self.inverse = self._invert(self.conv.weight)

    def _invert(self, weight: Tensor) -> Tensor:
        return invert(weight[:, :, 0], self.name)[:, :, None].to(weight.dtype)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *others) -> None:
        # Published weights have no inverse; it is set together with the matrix.
        key, weight = f"{prefix}inverse", state_dict.get(f"{prefix}conv.weight")
        lacking = self.inverse is not None and key not in state_dict
        if lacking and weight is not None and weight.shape == self.conv.weight.shape:
            state_dict = {**state_dict, key: self._invert(weight)}
        super()._load_from_state_dict(state_dict, prefix, *others)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, G, L) -> mixed (B, G, L), log determinant of the whole mapping: all items and steps.

        A negative determinant gives NaN, as published: training starts at +1 and can reach it only through a
        singular matrix.
        """
        log_det = torch.logdet(self.conv.weight[:, :, 0].float())
        return self.conv(x), x.shape[0] * x.shape[2] * log_det

    def undo(self, x: Tensor) -> Tensor:
        inverse = self._invert(self.conv.weight) if self.inverse is None else self.inverse
        return nn.functional.conv1d(x, inverse)


class CouplingNet(nn.Module):
    """WaveNet-like dilated convolutions: half of a flow's channels -> shift and log scale of the rest."""

    def __init__(self, half: int, config: WaveglowConfig) -> None:
        super().__init__()
        channels, kernel = config.wn_channels, config.wn_kernel_size
        self.channels = channels
        self.start = nn.Conv1d(half, channels, 1)
        self.end = nn.Conv1d(channels, 2 * half, 1)
        nn.init.zeros_(self.end.weight)  # every flow starts as the identity
        assert self.end.bias is not None
        nn.init.zeros_(self.end.bias)
        self.in_layers = nn.ModuleList()
        self.cond_layers = nn.ModuleList()
        self.res_skip_layers = nn.ModuleList()
        for layer in range(config.wn_layers):
            dilation = 2**layer
            padding = (kernel - 1) // 2 * dilation
            self.in_layers.append(nn.Conv1d(channels, 2 * channels, kernel, 1, padding, dilation))
            self.cond_layers.append(nn.Conv1d(config.wn_cond_channels, 2 * channels, 1))
            last = layer == config.wn_layers - 1  # no further layer takes its residual output
            self.res_skip_layers.append(nn.Conv1d(channels, channels if last else 2 * channels, 1))

    def normed(self) -> list[nn.Module]:
        """The convolutions with weight norm: all but the last."""
        return [self.start, *self.in_layers, *self.cond_layers, *self.res_skip_layers]

    def forward(self, x: Tensor, mel: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (B, G/2, L), grouped mel (B, wn_cond_channels, L) -> shift, log scale, each (B, G/2, L).

        `mask` (B, 1, L) is the padding mask: 0 at padding.
        """
        x = self.start(x)
        skips = torch.zeros_like(x)
        for conv, cond, res_skip in zip(self.in_layers, self.cond_layers, self.res_skip_layers, strict=True):
            x = x if mask is None else x * mask
            value, gate = (conv(x) + cond(mel)).chunk(2, dim=1)
            output = res_skip(value.tanh() * gate.sigmoid())
            if output.shape[1] > self.channels:
                residual, output = output.chunk(2, dim=1)
                x = x + residual
            skips = skips + output
        shift, log_scale = self.end(skips).chunk(2, dim=1)
        return shift, log_scale


class Waveglow(nn.Module):
    """The flows, in both directions: `forward` from audio to noise (training), `generate` back.

    With `weight_norm` the coupling nets' convolutions have weight normalisation. `remove_weight_norm` folds
    it into plain weights and inverts the 1x1 convolutions once. `weight_norm=False` builds that form, whose
    state dict holds the inverses too (`convinv.K.inverse`).
    """

    def __init__(self, config: WaveglowConfig, weight_norm: bool = True) -> None:
        super().__init__()
        self.config = config
        mels, kernel, hop = config.n_mel_channels, config.upsample_kernel_size, config.hop_length
        self.upsample = nn.ConvTranspose1d(mels, mels, kernel, hop, groups=config.upsample_groups)
        if config.cond_channels:
            self.cond = nn.Conv1d(config.n_mel_channels * config.n_group, config.cond_channels, 1)
        channels = [config.flow_channels(flow) for flow in range(config.n_flows)]
        self.WN = nn.ModuleList(CouplingNet(count // 2, config) for count in channels)
        self.convinv = nn.ModuleList(InvertibleConv(count, flow) for flow, count in enumerate(channels))
        if weight_norm:
            for net in cast(Iterable[CouplingNet], self.WN):
                for conv in net.normed():
                    parametrizations.weight_norm(conv, dim=0)
        else:
            self.remove_weight_norm()

    def remove_weight_norm(self) -> Waveglow:
        """Converts to the form for generating, in place; returns the network."""
        for net in cast(Iterable[CouplingNet], self.WN):
            for conv in net.normed():
                if parametrize.is_parametrized(conv, "weight"):
                    parametrize.remove_parametrizations(conv, "weight")
        for conv in cast(Iterable[InvertibleConv], self.convinv):
            conv.store_inverse()
        return self

    def _upsampled(self, mel: Tensor, samples: int) -> Tensor:
        """The first `samples` of the transposed convolution `upsample` of mel (B, n_mels, T).

        The kernel spans a few hops, so this is computed as a product at frame rate: a hop of samples depends
        on its frame and the few before. cuDNN takes many times as long for a grouped kernel of this length.
        """
        conv, hop = self.upsample, self.config.hop_length
        assert conv.bias is not None
        taps = -(-self.config.upsample_kernel_size // hop)
        frames = -(-samples // hop)
        weight = F.pad(conv.weight, (0, taps * hop - conv.weight.shape[2]))
        weight = weight.unflatten(2, (taps, hop)).unflatten(0, (conv.groups, -1))  # (g, in, out, taps, hop)
        padded = F.pad(mel, (taps - 1, taps))
        delayed = [padded[:, :, taps - 1 - tap : taps - 1 - tap + frames] for tap in range(taps)]
        delayed = torch.stack(delayed, dim=2).unflatten(1, (conv.groups, -1))  # (B, g, in, taps, frames)
        made = torch.einsum("bgikt,giokr->bgotr", delayed, weight).flatten(1, 2).flatten(2)
        return (made + conv.bias[:, None])[:, :, :samples]

    def _grouped(self, mel: Tensor, samples: int) -> Tensor:
        """mel (B, n_mels, T) -> (B, wn_cond_channels, L), the coupling nets' conditioning for `samples`."""
        n_group = self.config.n_group
        whole = samples // n_group * n_group
        mel = self._upsampled(mel, whole)  # (B, n_mels, S)
        mel = mel.unflatten(2, (-1, n_group)).transpose(2, 3).flatten(1, 2)
        return self.cond(mel) if self.config.cond_channels else mel

    def forward(self, mel: Tensor, audio: Tensor) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """mel (B, n_mels, T), audio (B, S) -> z (B, n_group, L), each flow's log scales (B, G/2, L), and
        log determinants (n_flows,), summed over items and steps.

        Samples of an incomplete group at the end are dropped. `generation_order` reorders z for `generate`.
        """
        config = self.config
        reach = (mel.shape[2] - 1) * config.hop_length + config.upsample_kernel_size
        if mel.shape[0] != audio.shape[0] or not config.n_group <= audio.shape[1] <= reach:
            raise ValueError(
                f"mel {tuple(mel.shape)} and audio {tuple(audio.shape)} don't belong together: "
                f"{mel.shape[2]} frames lead at most {reach} samples"
            )
        mel = self._grouped(mel, audio.shape[1])
        x = audio[:, : mel.shape[2] * config.n_group].unflatten(1, (-1, config.n_group)).transpose(1, 2)
        early, log_scales, log_dets = [], [], []
        for flow, (conv, net) in enumerate(zip(self.convinv, self.WN, strict=True)):
            if config.is_early(flow):
                early.append(x[:, : config.n_early_size])
                x = x[:, config.n_early_size :]
            x, log_det = conv(x)
            fixed, changed = x.chunk(2, dim=1)
            shift, log_scale = net(fixed, mel)
            x = torch.cat((fixed, changed * log_scale.exp() + shift), dim=1)
            log_scales.append(log_scale)
            log_dets.append(log_det)
        return torch.cat((*early, x), dim=1), tuple(log_scales), torch.stack(log_dets)

    def generation_order(self, z: Tensor) -> Tensor:
        """`forward`'s z, which starts with the first early output -> z in the order of `generate`."""
        sizes = [self.config.n_early_size] * self.config.n_early_outputs + [self.config.n_remaining]
        return torch.cat(z.split(sizes, dim=1)[::-1], dim=1)

    def generate(self, mel: Tensor, z: Tensor, lengths: Tensor | None = None) -> tuple[Tensor]:
        """The stage "generator": mel (B, n_mels, T), scaled noise z (B, n_group, L) -> audio (B, S).

        "masked_generator" takes `lengths` (B,) too: each item's audio then equals that of the item alone.
        L is T * hop // n_group and S is L * n_group; waveglow/noise.py says how z is ordered and scaled.
        """
        config = self.config
        length = mel.shape[2] * config.hop_length // config.n_group
        if z.shape[0] != mel.shape[0] or z.shape[1] != config.n_group or z.shape[2] != length:
            raise ValueError(
                f"mel {tuple(mel.shape)} and z {tuple(z.shape)} don't belong together: "
                f"z must be {(mel.shape[0], config.n_group, length)}"
            )
        mel = self._grouped(mel, mel.shape[2] * config.hop_length)
        mask = None
        if lengths is not None:  # the coupling nets' receptive field covers later steps
            ends = lengths * config.hop_length // config.n_group
            mask = (torch.arange(length, device=z.device) < ends[:, None])[:, None].to(z.dtype)
        used = config.n_remaining
        x = z[:, :used]
        for flow in reversed(range(config.n_flows)):
            fixed, changed = x.chunk(2, dim=1)
            shift, log_scale = self.WN[flow](fixed, mel, mask)
            x = torch.cat((fixed, (changed - shift) * (-log_scale).exp()), dim=1)
            x = cast(InvertibleConv, self.convinv[flow]).undo(x)
            if config.is_early(flow):
                x = torch.cat((z[:, used : used + config.n_early_size], x), dim=1)
                used += config.n_early_size
        return (x.transpose(1, 2).flatten(1),)

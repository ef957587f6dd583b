"""The stage `masked_pitch` of vocoders with a harmonic source, on an NVIDIA GPU."""

from __future__ import annotations

import math
from typing import Any, cast

from torch import Tensor, nn

from melforge.common.audio.pitch_network import PitchNetwork
from melforge.common.engines.limits import PLAIN, Needs
from melforge.common.engines.padded import CapturedNetwork
from melforge.trt_plugins.graphs import KernelModule, KernelNetwork, TritonLaunch
from melforge.trt_plugins.pitch.convolution import EXACT_DEPTH, KernelConvolution, power_above, time_major

kernels = KernelModule("melforge.trt_plugins.pitch.kernels")

FRAMES = 16  # of a program of pitches


class KernelPitch(nn.Module):
    """What `PitchNetwork.find` finds, with `lengths`.

    All is float32: what is rounded off adds up in the phase.
    """

    weight: Tensor
    bias: Tensor
    places: Tensor

    def __init__(self, network: PitchNetwork):
        super().__init__()
        assert network.post.bias is not None
        self.pre = KernelConvolution(network.pre, "pitch.pre", exact=True)
        self.convs = nn.ModuleList(
            KernelConvolution(conv, f"pitch.convs.{place}", exact=True)
            for place, conv in enumerate(cast(Any, network.convs))
        )
        self.middle = math.exp(network.middle)
        self.register_buffer("weight", network.post.weight.detach()[:, :, 0].T.contiguous())
        self.register_buffer("bias", network.post.bias.detach())
        self.register_buffer("places", network.places)

    def find_pitch(self, mel: Tensor, lengths: Tensor) -> tuple[Tensor]:
        """mel (B, n_mels, T) -> cycles a sample (B, T)."""
        x = self.pre(time_major(mel.contiguous(), lengths), lengths, leaks=False)
        for conv in self.convs:
            x = conv(x, lengths, residual=True)
        (batch, frames, depth), bins = x.shape, len(self.places)
        out = x.new_empty(batch, frames)
        TritonLaunch(
            kernels.pitch_kernel,
            (-(-frames // FRAMES), batch),
            (x, self.weight, self.bias, self.places, out, frames, self.middle),
            {"DEPTH": depth, "BINS": bins, "BM": FRAMES, "BN": max(16, power_above(bins))}
            | {"BK": EXACT_DEPTH},
        )()
        return (out,)


class PitchKernels(KernelNetwork):
    otherwise = CapturedNetwork

    @classmethod
    def needs(cls, config: object) -> Needs:
        return PLAIN

    def prepared(self, network: nn.Module) -> nn.Module:
        assert isinstance(network.pitch, PitchNetwork)
        return KernelPitch(network.pitch)

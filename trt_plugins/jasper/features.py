"""Jasper's and QuartzNet's stage `masked_features` on three kernels."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from melforge.common.audio.mel import mel_basis
from melforge.common.engines.limits import PRODUCTS, Needs
from melforge.common.engines.padded import CapturedNetwork
from melforge.common.errors import InputError
from melforge.jasper.config import DEVIATION_FLOOR, LOG_FLOOR, JasperConfig
from melforge.jasper.features import symmetric_window
from melforge.jasper.features_network import JasperFeatures
from melforge.trt_plugins.graphs import KernelModule, KernelNetwork, TritonLaunch

kernels = KernelModule("melforge.trt_plugins.jasper.kernels")

BIN_STEP = 16  # bins are filled up to a multiple of this
POWER_FRAMES, POWER_BINS, POWER_POINTS = 32, 64, 32  # of a program
MEL_FRAMES, MEL_BANDS, MEL_BINS = 16, 64, 32
NORMALISE_BLOCK = 1024  # frames


class KernelFeatures(nn.Module):
    """Audio to log mels, each band of which is normalised by itself."""

    def __init__(self, network: JasperFeatures):
        super().__init__()
        self.config = config = network.config
        self.left = network.left
        bins = config.filter_length // 2 + 1
        self.bins = -(-bins // BIN_STEP) * BIN_STEP
        # A window lies in the middle of its points, which turns phases only: it is put at their start.
        angles = 2 * np.pi * np.outer(np.arange(config.win_length), np.arange(bins)) / config.filter_length
        window = symmetric_window(config)[:, None]
        behind = (0, self.bins - bins)
        self._keep("cosines", np.pad(window * np.cos(angles), ((0, 0), behind)))
        self._keep("sines", np.pad(window * np.sin(angles), ((0, 0), behind)))
        self._keep("basis", np.pad(mel_basis(config.mel).T, (behind, (0, 0))))

    def _keep(self, name: str, table: np.ndarray) -> None:
        contiguous = np.ascontiguousarray(table, np.float32)
        self.register_buffer(name, torch.from_numpy(contiguous), persistent=False)

    def extract_each(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """audio (B, T * hop), zeros behind the `lengths` (B,) -> features (B, n_mels, T), frames (B,)."""
        config, hop = self.config, self.config.hop_length
        audio, mels = audio.contiguous(), config.n_mel_channels
        items, samples = audio.shape
        frames = samples // hop
        new: Any = audio.new_empty
        power, mel, out = new(items, frames, self.bins), new(items, mels, frames), new(items, mels, frames)
        counts = torch.empty_like(lengths)
        launches = (
            TritonLaunch(
                kernels.power_kernel,
                (-(-frames // POWER_FRAMES), -(-self.bins // POWER_BINS), items),
                (audio, lengths, self.cosines, self.sines, power, samples, frames, self.bins),
                {"HOP": hop, "LEFT": self.left, "WINDOW": config.win_length, "EMPHASIS": config.preemphasis}
                | {"BM": POWER_FRAMES, "BN": POWER_BINS, "BK": POWER_POINTS},
            ),
            TritonLaunch(
                kernels.mel_kernel,
                (-(-frames // MEL_FRAMES), -(-mels // MEL_BANDS), items),
                (power, self.basis, mel, frames, self.bins, mels),
                {"FLOOR": LOG_FLOOR, "BM": MEL_FRAMES, "BN": MEL_BANDS, "BK": MEL_BINS},
            ),
            TritonLaunch(
                kernels.normalise_kernel,
                (mels, items),
                (mel, lengths, out, counts, frames, mels),
                {"HOP": hop, "FLOOR": DEVIATION_FLOOR, "BLOCK": NORMALISE_BLOCK},
            ),
        )
        for launch in launches:
            launch()
        return out, counts


class JasperFeaturesKernels(KernelNetwork):
    otherwise = CapturedNetwork

    @classmethod
    def needs(cls, config: JasperConfig) -> Needs:
        if config.normalize != "per_feature":
            raise InputError(f"ours normalise each band by itself, not {config.normalize}")
        return PRODUCTS

    def prepared(self, network: nn.Module) -> nn.Module:
        assert isinstance(network, JasperFeatures)
        return KernelFeatures(network)

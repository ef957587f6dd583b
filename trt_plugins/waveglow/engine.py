"""The stage `generator` (or `masked_generator`) of WaveGlow on an NVIDIA GPU, in half precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch

from melforge.common.engines.limits import limits_of
from melforge.common.engines.padded import CapturedNetwork
from melforge.trt_plugins.graphs import KernelModule, ShapedGenerator, TritonLaunch, Zeros, describe
from melforge.trt_plugins.noise import DrawsOnGpu
from melforge.trt_plugins.waveglow.fold import CHUNK, NARROW, FoldedWaveglow, fold, layout_of
from melforge.waveglow.config import WaveglowConfig

kernels = KernelModule("melforge.trt_plugins.waveglow.kernels")


class WaveglowTile(NamedTuple):
    """Rows and columns of a program, its warps and loads ahead."""

    rows: int
    columns: int
    warps: int
    stages: int

    def fitting(self, columns: int) -> WaveglowTile:
        return self._replace(columns=min(self.columns, columns))

    @property
    def options(self) -> dict[str, int]:
        return {"BM": self.rows, "BN": self.columns, "STAGES": self.stages, "num_warps": self.warps}


# Of gates and residuals, whose rows divide the gates': the fastest on an H200 (README.md), and where
# registers hold the operands too.
OF_SHARED = WaveglowTile(128, 128, 4, 3), WaveglowTile(64, 256, 4, 2)
OF_REGISTERS = WaveglowTile(128, 128, 8, 3), WaveglowTile(64, 128, 4, 3)
GATE_ROWS = 128
FLOW_ROWS = WINDOW_ROWS = 16


class WaveglowBuffers:
    """Of one batch size and length."""

    def __init__(
        self,
        config: WaveglowConfig,
        folded: FoldedWaveglow,
        batch: int,
        frames: int,
        zeros: Zeros,
        device: str,
    ):
        self.config, self.folded, self.layout = config, folded, layout_of(config)
        layout = self.layout
        self.batch, self.frames = batch, frames
        self.stride = frames + layout.margin  # rows from one item to the next
        self.tiles = -(-(batch * self.stride - layout.margin) // GATE_ROWS)
        self.rows = 2 * layout.margin + self.tiles * GATE_ROWS  # of a phase
        self.blocks = -(-layout.window // layout.chunks)  # of `rows` rows each, for the windows of mels
        # By itself: whoever holds it would hold all.
        self.audio = torch.zeros(batch, config.noise_length(frames) * config.n_group, device=device)
        channels, area = self.layout.channels, self.layout.phases * self.rows
        # Windows of mels, then x. Margins between items stay zero.
        self.left = zeros(self.blocks * self.rows + area, channels, dtype=torch.float16)
        self.acts = zeros(area, channels, dtype=torch.float16)
        self.states = [zeros(area, NARROW, dtype=torch.float32) for _ in range(2)]
        self.ends = zeros(area, NARROW, dtype=torch.float32)
        self.narrow = zeros(area, NARROW, dtype=torch.float16)

    def describe(
        self, inputs: Mapping[str, torch.Tensor]
    ) -> tuple[list[TritonLaunch], dict[str, torch.Tensor]]:
        self.inputs = inputs
        folded, channels = self.folded, self.layout.channels
        gate, residual = OF_SHARED if limits_of(self.audio.device).multiplies_shared else OF_REGISTERS
        self.gate, self.residual = gate.fitting(2 * channels), residual.fitting(channels)
        self.gate_tensors = (
            describe(self.left, [GATE_ROWS, CHUNK]),
            describe(folded.gates.view(-1, CHUNK), [self.gate.columns, CHUNK]),
            describe(self.narrow, [GATE_ROWS, NARROW]),
            describe(folded.first.view(-1, NARROW), [self.gate.columns, NARROW]),
            folded.gate_bias,
            describe(self.acts, [GATE_ROWS, self.gate.columns // 2]),
        )
        self.residual_tensors = (
            describe(self.acts, [self.residual.rows, CHUNK]),
            describe(folded.residual.view(-1, channels), [self.residual.columns, CHUNK]),
            describe(folded.ends.view(-1, channels), [NARROW, CHUNK]),
            describe(self.narrow, [self.residual.rows, NARROW]),
            describe(folded.start.view(-1, NARROW), [self.residual.columns, NARROW]),
            describe(self.left, [self.residual.rows, self.residual.columns]),
            folded.residual_bias,
            self.ends,
            self.inputs["lengths"],
        )
        return list(self._launches()), {"audio": self.audio}

    def _launches(self) -> Iterator[TritonLaunch]:
        config, layout = self.config, self.layout
        given = self.inputs["mel"], self.left, self.frames, self.stride
        sizes = config.n_mel_channels, layout.delays, layout.margin, self.rows, layout.channels, WINDOW_ROWS
        grid = -(-self.frames // WINDOW_ROWS), self.batch, layout.window
        yield TritonLaunch(kernels.window_kernel, grid, (*given, *sizes), {})
        used = config.n_remaining
        yield self._flow(None, config.n_flows - 1, 0, 0)
        for flow in reversed(range(config.n_flows)):
            for layer in range(layout.layers):
                yield from self._layer(flow * layout.layers + layer, layer)
            early = config.n_early_size if config.is_early(flow) else 0
            yield self._flow(flow, flow - 1, early, used)
            used += early

    def _seen(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows of all phases -> (B, channels, steps), as the network has them."""
        whole = rows.unflatten(0, (self.layout.phases, self.rows))[:, self.layout.margin :]
        items = whole.unfold(1, self.frames, self.stride)[:, : self.batch]  # (P, B, C, frames)
        return items.permute(1, 2, 3, 0).flatten(2)

    def _layer(self, index: int, layer: int) -> Iterator[TritonLaunch]:
        layout = self.layout
        at = index, index // layout.layers
        common = {"PHASES": layout.phases, "MARGIN": layout.margin, "FIRST": layer == 0}
        common |= {"WINDOW": layout.window, "CHUNKS": layout.chunks}
        splits = 2 * layout.channels // self.gate.columns
        net = f"WN.{index // layout.layers}"
        yield TritonLaunch(
            kernels.gate_kernel,
            (layout.phases * self.tiles * splits,),
            (*self.gate_tensors, *at, 2**layer, self.tiles, self.rows),
            {**common, "TAPS": layout.taps, **self.gate.options},
            [(f"{net}.res_skip_layers.{layer}<", lambda: self._seen(self.acts))],
        )
        last = layer == layout.layers - 1
        splits = 1 if last else layout.channels // self.residual.columns
        tiles = self.tiles * (GATE_ROWS // self.residual.rows)
        rows = tiles, self.rows, self.stride, self.batch
        yield TritonLaunch(
            kernels.residual_kernel,
            (layout.phases * tiles * splits,),
            (*self.residual_tensors, *at, *rows),
            {**common, "LAST": last, **self.residual.options},
            [
                (f"{net}.end", lambda: self._seen(self.ends + self.folded.end_bias[at[1]]))
                if last
                else (f"{net}.in_layers.{layer + 1}<", lambda: self._seen(self.left[-len(self.acts) :]))
            ],
        )

    def _flow(self, flow: int | None, after: int, early: int, used: int) -> TritonLaunch:
        """flow_kernel: before the first coupling net, between two, or after the last."""
        config, layout, folded = self.config, self.layout, self.folded
        size = config.n_remaining if flow is None else config.flow_channels(flow)
        state, new = self.states
        self.states = [new, state]
        tensors = state, new, self.ends, folded.end_bias, folded.inverse, self.narrow
        places = self.inputs["z"], self.audio, self.inputs["lengths"]
        sizes = flow or 0, self.rows, self.frames, self.stride, self.batch
        channels = {"SIZE": size, "HALF": size // 2, "NEXT_HALF": (size + early) // 2}
        drawn = {"EARLY": early, "USED": used, "FIRST": flow is None, "FINAL": after < 0}
        rows = {"PHASES": layout.phases, "GROUP": config.n_group, "MARGIN": layout.margin, "BLOCK": FLOW_ROWS}
        grid = -(-self.tiles * GATE_ROWS // FLOW_ROWS), layout.phases
        options = {**channels, **drawn, **rows, "num_warps": 4}
        made = f"convinv.{flow}:undo", lambda: self._seen(new)[:, early:]
        shows = [made] if flow is not None and after >= 0 else []  # the last one makes audio
        return TritonLaunch(kernels.flow_kernel, grid, (*tensors, *places, *sizes), options, shows)


class WaveglowNetwork(DrawsOnGpu, CapturedNetwork):
    """On PyTorch's kernels."""


class WaveglowKernels(DrawsOnGpu, ShapedGenerator):
    shape, otherwise = WaveglowBuffers, WaveglowNetwork
    check, fold = staticmethod(layout_of), staticmethod(fold)

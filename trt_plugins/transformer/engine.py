"""Shared by the stages of FastPitch and FastSpeech on these kernels: memory, launches and CUDA graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from common.arrays import pad_to
from common.config.deployment import Bucket
from common.engines.buckets import cut, resized
from common.engines.check_inputs import check_inputs
from common.engines.cuda_graphs import Captured
from common.engines.torch_engine import build_network
from common.stages import Stage
from common.synthesis.two_graphs import MEL_STEP, TEXT_STEP
from trt_plugins.graphs import Launch, check_machine, processors_of
from trt_plugins.transformer.fold import (
    CHUNK,
    COLUMNS,
    Attention,
    Encoder,
    Layer,
    Norm,
    PredictorLayer,
    Predictors,
    Product,
    Value,
    block_of,
    nbytes,
)

if TYPE_CHECKING:
    from common.weights.voices import ModelSource

SLACK = 128  # rows behind the last item, which the last program may access
STEP_ROWS = 8  # of a program of an embedding kernel
NORM_ROWS = 1
ATTENTION_ROWS, ATTENTION_KEYS = 16, 128
NO_LIMIT = 3e38
UNITS = {"text": TEXT_STEP, "mel": MEL_STEP}  # lengths are padded to multiples of these


class Tile(NamedTuple):
    """The tiling of a product: rows and columns of a program, and splits of the inner dimension (split-K)."""

    rows: int
    columns: int
    splits: int = 1


TILES = ((64, 32), (64, 64), (64, 128), (128, 128))
LOADS_AHEAD = 4
MOST_SPLITS = 12
# Cost model in microseconds, measured on an H200: a launch, and each program of it; a chunk's minimum, or a
# chunk and each of its output elements; an element of a partial sum, written and read.
START, PROGRAM_TIME, FASTEST_CHUNK, CHUNK_TIME, NUMBER_TIME = 1.7, 0.003, 0.22, 0.18, 1.1e-5
PART_TIME = 1.2e-6


def tile_for(
    product: Product, rows: int, processors: int, splittable: bool = False, widest: int = COLUMNS
) -> Tile:
    """The tile with the least estimated time for `rows` on `processors` multiprocessors."""
    steps = product.taps * product.chunks

    def time(tile: Tile) -> float:
        programs = -(-rows // tile.rows) * (product.columns // tile.columns) * tile.splits
        chunk = max(FASTEST_CHUNK, CHUNK_TIME + NUMBER_TIME * tile.rows * tile.columns)
        chunks = -(-programs // processors) * -(-steps // tile.splits)
        parts = tile.splits * rows * product.columns * PART_TIME if splittable else 0.0
        return START + PROGRAM_TIME * programs + chunks * chunk + parts

    most = min(steps, MOST_SPLITS) if splittable else 1
    sizes = [size for size in TILES if size[1] <= widest]
    tiles = [Tile(*size, splits) for size in sizes for splits in range(1, most + 1)]
    return min(tiles, key=time)


class Side:
    """The activations of a batch's symbols or frames; kernels.py describes the layout."""

    def __init__(self, batch: int, size: int, channels: int, margin: int, device: Any):
        self.batch, self.size, self.channels, self.margin = batch, size, channels, margin
        self.stride = size + margin
        self.rows = batch * self.stride  # from the first item's first step
        self.all_rows = margin + self.rows + SLACK
        self.width = -(-channels // CHUNK) * CHUNK
        self.device = device
        self.x32 = self.new(self.width, torch.float32)
        self.x16 = self.new(self.width)
        self.mask, self.inside = (self.new(1, torch.float32).view(-1) for _ in range(2))

    def new(self, width: int, dtype: torch.dtype = torch.float16, count: int = 1) -> Tensor:
        return torch.zeros(count * self.all_rows, width, dtype=dtype, device=self.device)

    @property
    def steps(self) -> Tensor:
        """The layers' output, float32 [B, size, channels]: a view."""
        whole = self.x32[self.margin : self.margin + self.rows]
        return whole.unflatten(0, (self.batch, self.stride))[:, : self.size, : self.channels]

    @property
    def memory(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The outputs of the embedding kernels."""
        return self.x32, self.x16, self.mask, self.inside

    @property
    def layout(self) -> tuple[int, int, int, int]:
        """Arguments of the embedding kernels: size, stride, margin, items."""
        return self.size, self.stride, self.margin, self.batch

    def grid(self, rows: int) -> tuple[int, int]:
        return -(-self.size // rows), self.batch


def items_of(batch: int) -> int:
    """`batch` rounded up to a power of two: a Triton block of lengths."""
    return 1 << (batch - 1).bit_length()


def product_launch(
    product: Product,
    side: Side,
    source: Tensor,
    out: Tensor,
    tile: Tile,
    mask: Tensor | None = None,
    *,
    relu: bool = False,
    parts: bool = False,
    channels: int = 0,
    group: int = 0,
) -> Launch:
    """With `group`, every `group` columns have an input of their own; these are consecutive in `source`."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    from trt_plugins.transformer import kernels

    describe = TensorDescriptor.from_tensor
    whole = parts or channels
    return Launch(
        kernels.product_kernel,
        (-(-side.rows // tile.rows), product.columns // tile.columns, tile.splits),
        (
            describe(source, [tile.rows, CHUNK]),
            describe(product.weight, [tile.columns, CHUNK]),
            product.bias,
            mask,
            out if whole else describe(out, [tile.rows, tile.columns]),
            side.all_rows if group else 0,
            side.all_rows,
            side.margin,
            side.stride,
            side.batch,
            side.size,
        ),
        {
            "TAPS": product.taps,
            "CHUNKS": product.chunks,
            "CHUNK": CHUNK,
            "COLUMNS": product.columns,
            "GROUP": group or product.columns,
            "SPLITS": tile.splits,
            "PARTS": parts,
            "RELU": relu,
            "CHANNELS": channels,
            "BM": tile.rows,
            "BN": tile.columns,
            "STAGES": LOADS_AHEAD,
            "num_warps": 8 if tile.rows * tile.columns > 8192 else 4,
        },
    )


class Stack:
    """The launches of a transformer's layers, on the memory of a `Side`."""

    def __init__(self, layers: Sequence[Layer], side: Side, processors: int):
        self.layers, self.side, self.processors = layers, side, processors
        first = layers[0]
        self.qkv = side.new(first.attention.qkv.columns)
        self.hidden = side.new(first.expand.columns)
        self.contract_tile = tile_for(first.contract, side.rows, processors, splittable=True)
        self.columns = first.contract.columns
        most = max(self.contract_tile.splits, first.attention.heads)
        self.parts = side.new(self.columns, torch.float32, most)

    def launches(self, lengths: Tensor) -> Iterator[Launch]:
        side = self.side
        for layer in self.layers:
            attention, expand, contract = layer.attention, layer.expand, layer.contract
            yield product_launch(attention.qkv, side, side.x16, self.qkv, self._tile(attention.qkv))
            yield self._attention(attention, lengths)
            if attention.heads > 1:
                yield self._norm(attention.bias, attention.norm, attention.heads)
            tile = self._tile(expand)
            yield product_launch(expand, side, side.x16, self.hidden, tile, side.inside, relu=True)
            yield product_launch(contract, side, self.hidden, self.parts, self.contract_tile, parts=True)
            yield self._norm(contract.bias, layer.norm, self.contract_tile.splits)

    def _tile(self, product: Product) -> Tile:
        return tile_for(product, self.side.rows, self.processors)

    def mel(self, product: Product, mel: Tensor) -> Launch:
        """The final projection, into mel (B, n_mels, size)."""
        tile = self._tile(product)
        return product_launch(product, self.side, self.side.x16, mel, tile, channels=mel.shape[1])

    def _attention(self, attention: Attention, lengths: Tensor) -> Launch:
        from trt_plugins.transformer import kernels

        side = self.side
        return Launch(
            kernels.attention_kernel,
            (*side.grid(ATTENTION_ROWS), attention.heads),
            (
                self.qkv,
                lengths,
                attention.weight,
                attention.bias,
                attention.norm.gain,
                attention.norm.shift,
                side.mask,
                side.x32,
                side.x16,
                self.parts,
                side.all_rows,
                side.margin,
                side.stride,
                side.batch,
                side.channels,
            ),
            {
                "MASKED": attention.masked,
                "HEADS": attention.heads,
                "HEAD": attention.head,
                "QKV_WIDTH": attention.qkv.columns,
                "ITEMS": items_of(side.batch),
                "COLUMNS": self.columns,
                "WIDTH": side.width,
                "BLOCK": block_of(side.channels),
                "BM": ATTENTION_ROWS,
                "BN": ATTENTION_KEYS,
                "STAGES": 2,
            },
        )

    def _norm(self, bias: Tensor, norm: Norm, splits: int) -> Launch:
        """Adds a product's partial sums and bias to the residual, then layer norm."""
        from trt_plugins.transformer import kernels

        side = self.side
        return Launch(
            kernels.norm_kernel,
            (-(-side.rows // NORM_ROWS),),
            (
                self.parts,
                bias,
                norm.gain,
                norm.shift,
                side.mask,
                side.x32,
                side.x16,
                side.all_rows,
                side.margin,
                side.channels,
            ),
            {
                "SPLITS": splits,
                "COLUMNS": self.columns,
                "WIDTH": side.width,
                "BLOCK": block_of(side.channels),
                "BM": NORM_ROWS,
            },
        )


class Guess:
    """The launches of predictors of equal sizes, and their output `numbers` (predictors, B, size)."""

    def __init__(self, predictors: Predictors, side: Side, processors: int):
        self.predictors, self.side = predictors, side
        count, layers = len(predictors.last), predictors.layers
        self.tiles = [
            tile_for(layer.product, side.rows, processors, splittable=True, widest=layer.block)
            for layer in layers
        ]
        self.parts = [
            side.new(layer.product.columns, torch.float32, tile.splits)
            for layer, tile in zip(layers, self.tiles, strict=True)
        ]
        self.between = [side.new(layer.block, count=count) for layer in layers[:-1]]
        self.numbers = torch.zeros(count, side.batch, side.size, device=side.device)

    def launches(self, longest: float = 0.0) -> Iterator[Launch]:
        """With `longest`, the first predictor's outputs are durations in frames, clipped to `longest`."""
        side, source = self.side, self.side.x16
        outs = [*self.between, self.numbers]
        steps = zip(self.predictors.layers, self.tiles, self.parts, outs, strict=True)
        for index, (layer, tile, parts, out) in enumerate(steps):
            group = layer.block if index else 0
            yield product_launch(layer.product, side, source, parts, tile, parts=True, group=group)
            yield self._layer(layer, tile, parts, out, longest)
            source = out

    def _layer(self, layer: PredictorLayer, tile: Tile, parts: Tensor, out: Tensor, longest: float) -> Launch:
        from trt_plugins.transformer import kernels

        side, predictors = self.side, self.predictors
        return Launch(
            kernels.predictor_kernel,
            (-(-side.rows // NORM_ROWS), len(predictors.last)),
            (
                parts,
                layer.bias,
                layer.gain,
                layer.shift,
                side.inside,
                side.mask,
                predictors.last,
                predictors.last_bias,
                out,
                side.all_rows,
                side.size,
                side.stride,
                side.margin,
                side.batch,
                layer.channels,
            ),
            {
                "SPLITS": tile.splits,
                "COLUMNS": layer.product.columns,
                "BLOCK": layer.block,
                "LAST": out is self.numbers,
                "LONGEST": longest,
                "BM": NORM_ROWS,
            },
        )


class Room(ABC):
    """The memory of a stage for one set of input shapes."""

    @abstractmethod
    def describe(self, inputs: Mapping[str, Tensor]) -> tuple[list[Launch], dict[str, Tensor]]:
        """The launches for these inputs, and the outputs that they fill."""


def beginning(side: Side, mask_padding: bool) -> dict[str, Any]:
    """Options of the embedding kernels."""
    return {
        "MASK_PADDING": mask_padding,
        "ITEMS": items_of(side.batch),
        "WIDTH": side.width,
        "BLOCK": block_of(side.channels),
        "BM": STEP_ROWS,
    }


class EncoderRoom(Room):
    """Symbols (B, N) -> `encoded` and the predictors' outputs; `duration` in frames is clipped to `longest`.

    `padding` is the padding symbol, which is masked at any position.
    """

    def __init__(
        self,
        folded: Encoder,
        side: Side,
        processors: int,
        *,
        mask_padding: bool,
        longest: float,
        padding: int | None = None,
    ):
        self.folded, self.side, self.longest = folded, side, longest
        self.options = {**beginning(side, mask_padding), "PADDING": padding}
        self.stack = Stack(folded.layers, side, processors)
        self.guesses = [Guess(predictors, side, processors) for predictors in folded.predictors]

    def describe(self, inputs: Mapping[str, Tensor]) -> tuple[list[Launch], dict[str, Tensor]]:
        from trt_plugins.transformer import kernels

        side, folded = self.side, self.folded
        lengths = inputs["lengths"]
        symbols = Launch(
            kernels.symbols_kernel,
            side.grid(STEP_ROWS),
            (
                inputs["symbols"],
                lengths,
                inputs.get("speaker"),
                folded.embedding,
                folded.speakers,
                folded.positions,
                *side.memory,
                *side.layout,
                side.channels,
            ),
            self.options,
        )
        launches = [symbols, *self.stack.launches(lengths)]
        outputs = {"encoded": side.steps}
        for guess in self.guesses:
            names = guess.predictors.names
            launches += guess.launches(self.longest if "duration" in names else 0.0)
            outputs |= dict(zip(names, guess.numbers, strict=True))
        if "pitch" in outputs:  # (B, 1, N)
            outputs["pitch"] = outputs["pitch"][:, None]
        return launches, outputs


def frames_launch(
    side: Side,
    source: Tensor,
    steps: int,
    inputs: Mapping[str, Tensor],
    positions: Tensor | None,
    mask_padding: bool,
    numbers: Tensor | None = None,
    value: Value | None = None,
) -> Launch:
    """The decoder's input: rows of `source` (`steps` per item), gathered by `repeat_index` if there is one.

    The embedding `value` of each symbol's `numbers` (B, N) is added.
    """
    from trt_plugins.transformer import kernels

    width = source.shape[-1]
    return Launch(
        kernels.frames_kernel,
        side.grid(STEP_ROWS),
        (
            source,
            inputs.get("repeat_index"),
            inputs["mel_lengths"],
            numbers,
            value.weight if value else None,
            value.bias if value else None,
            positions,
            *side.memory,
            steps * width,
            numbers.shape[-1] if numbers is not None else steps,
            *side.layout,
            side.channels,
        ),
        {
            **beginning(side, mask_padding),
            "SOURCE_WIDTH": width,
            "TAPS": len(value.weight) if value else 0,
        },
    )


class KernelRun:
    """A stage's launches on the current stream; the next run overwrites the outputs."""

    def __init__(self, make: Callable[[Mapping[str, Tensor]], Room]):
        self._make = make
        self._room: Room | None = None
        self._shapes: dict[str, torch.Size] = {}

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        inputs = {name: tensor.contiguous() for name, tensor in inputs.items()}
        shapes = {name: tensor.shape for name, tensor in inputs.items()}
        if self._room is None or shapes != self._shapes:
            self._room, self._shapes = self._make(inputs), shapes
        launches, outputs = self._room.describe(inputs)
        for launch in launches:
            launch()
        return outputs


class TransformerEngine(ABC):
    """A stage on these kernels, in half precision: CUDA tensors in and out, a CUDA graph for every shape.

    Lengths are padded, so that few graphs are needed. Steps behind the longest item are masked, even in a
    network that attends to the padding of shorter items.
    """

    backend = "cuda"
    hears_padding = False  # behind the longest item
    name: str  # the model's, in messages

    def __init__(self, stage: Stage, source: ModelSource, device: str = "cuda", threads: int | None = None):
        check_machine(device, self.name)
        self.stage, self.device, self.config = stage, device, source.config
        key = (stage.full_name, device, self.backend)
        self.folded = source.networks.get(key)
        if self.folded is None:
            self.folded = source.networks[key] = self.fold(build_network(stage, source).to(device))
        self.memory_owner, self.memory_bytes = self.folded, nbytes(self.folded)
        self.processors = processors_of(device)

    @cached_property
    def _captured(self) -> Captured:
        stream = torch.cuda.Stream(self.device)
        return Captured(self.stage.full_name, lambda inputs: self.alone(), stream)

    @abstractmethod
    def fold(self, network: torch.nn.Module) -> Any:
        """The network's weights in the kernels' layout, as a dataclass."""

    @abstractmethod
    def room(self, inputs: Mapping[str, Tensor]) -> Room:
        """The memory for inputs of these shapes."""

    def alone(self, bucket: Bucket | None = None) -> KernelRun:
        """A run with memory of its own, to be captured together with others."""
        return KernelRun(self.room)

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        check_inputs(self.stage, inputs)
        lengths = {
            dim.name: size
            for tensor in self.stage.inputs
            for dim, size in zip(tensor.dims, inputs[tensor.name].shape, strict=True)
            if getattr(dim, "name", None) in UNITS
        }
        wanted = {name: -(-size // UNITS[name]) * UNITS[name] for name, size in lengths.items()}
        with torch.inference_mode():
            padded = {
                t.name: pad_to(inputs[t.name], resized(t, inputs[t.name], wanted)) for t in self.stage.inputs
            }
            outputs = self._captured(padded)
            if outputs is None:  # no graph; a warning gave the reason
                outputs = {name: tensor.clone() for name, tensor in self.alone()(padded).items()}
        return {
            t.name: cut(outputs[t.name], resized(t, outputs[t.name], lengths)) for t in self.stage.outputs
        }

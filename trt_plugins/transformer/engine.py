"""Shared by the stages of FastPitch and FastSpeech on these kernels: memory, launches and CUDA graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from melforge.common.engines.limits import PRODUCTS, Needs, limits_of
from melforge.common.engines.padded import CapturedNetwork
from melforge.common.stages import Stage
from melforge.trt_plugins.graphs import (
    BufferedEngine,
    Buffers,
    KernelModule,
    TritonLaunch,
    Zeros,
    describe,
    folded_network,
)
from melforge.trt_plugins.transformer import fold

if TYPE_CHECKING:
    from melforge.common.weights.voices import ModelSource

kernels = KernelModule("melforge.trt_plugins.transformer.kernels")

SLACK = 128  # rows behind the last item, which the last program may access
STEP_ROWS = 8  # of a program of an embedding kernel
NORM_ROWS = 1
ATTENTION_ROWS, ATTENTION_KEYS = 16, 128


Shows = Sequence[tuple[str, Callable[[], Tensor]]]  # as a launch's


class ProductTile(NamedTuple):
    """The tiling of a product: rows and columns of a program, and splits of the inner dimension (split-K)."""

    rows: int
    columns: int
    splits: int = 1


TILES = ((64, 32), (64, 64), (64, 128), (128, 128))
LOADS_AHEAD = 4
MOST_SPLITS = 6  # more take memory, and gain less than a microsecond a product
SPLIT_FOR = 2  # items of typical length
# Cost model in microseconds, measured on an H200: a launch, and each program of it; a chunk's minimum, or a
# chunk and each of its output elements; an element of a partial sum, written and read.
START, PROGRAM_TIME, FASTEST_CHUNK, CHUNK_TIME, NUMBER_TIME = 1.7, 0.003, 0.22, 0.18, 1.1e-5
PART_TIME = 1.2e-6


def tile_for(
    product: fold.ProductWeights,
    rows: int,
    processors: int,
    splits: Iterable[int] = (),
    widest: int = fold.COLUMNS,
) -> ProductTile:
    """The tile with the least estimated time for `rows` on `processors` multiprocessors.

    With `splits`, the partial sums of one of these numbers of splits are written.
    """
    steps = product.taps * product.chunks
    return _tile_for(steps, product.columns, rows, processors, tuple(splits), widest)


@lru_cache(4096)  # layers are alike
def _tile_for(
    steps: int, columns: int, rows: int, processors: int, splits: tuple[int, ...], widest: int
) -> ProductTile:
    def time(tile: ProductTile) -> float:
        programs = -(-rows // tile.rows) * (columns // tile.columns) * tile.splits
        chunk = max(FASTEST_CHUNK, CHUNK_TIME + NUMBER_TIME * tile.rows * tile.columns)
        chunks = -(-programs // processors) * -(-steps // tile.splits)
        parts = tile.splits * rows * columns * PART_TIME if splits else 0.0
        return START + PROGRAM_TIME * programs + chunks * chunk + parts

    sizes = [size for size in TILES if size[1] <= widest]
    tiles = [ProductTile(*size, number) for size in sizes for number in splits or (1,)]
    return min(tiles, key=time)


def split_tile_for(
    product: fold.ProductWeights, rows: int, typical: int, processors: int, widest: int = fold.COLUMNS
) -> ProductTile:
    """The tile of a product that may be split, into as many sums as suit SPLIT_FOR items of `typical` rows.

    So each row's sums are added in the same order in every batch and at every padded length: an item has the
    same numbers, to the bit, as alone.
    """
    most = min(product.taps * product.chunks, MOST_SPLITS)
    best = tile_for(product, SPLIT_FOR * typical, processors, range(1, most + 1), widest)
    return tile_for(product, rows, processors, (best.splits,), widest)


class SequenceBuffer:
    """The activations of a batch's symbols or frames; kernels.py describes the layout.

    What the stage does not return is of the memory that `zeros` takes.
    """

    def __init__(self, batch: int, size: int, channels: int, margin: int, zeros: Zeros, device: str):
        self.batch, self.size, self.channels, self.margin = batch, size, channels, margin
        self.stride = size + margin
        self.rows = batch * self.stride  # from the first item's first step
        self.all_rows = margin + self.rows + SLACK
        self.width = -(-channels // fold.CHUNK) * fold.CHUNK
        self.zeros, self.device = zeros, device
        self.x32 = torch.zeros(self.all_rows, self.width, device=device)
        self.x16 = self.new(self.width)
        self.mask, self.inside = (zeros(self.all_rows, dtype=torch.float32) for _ in range(2))
        self.memory = self.x32, self.x16, self.mask, self.inside  # the outputs of the embedding kernels
        self.residual = self.mask, self.x32, self.x16  # what layer norms read and write
        self.layout = size, self.stride, margin, batch  # arguments of the embedding kernels
        self.widths = {"WIDTH": self.width, "BLOCK": fold.block_of(channels)}

    def new(self, width: int, dtype: torch.dtype = torch.float16, count: int = 1) -> Tensor:
        return self.zeros(count * self.all_rows, width, dtype=dtype)

    @property
    def steps(self) -> Tensor:
        """The layers' output, float32 [B, size, channels]: a view."""
        return self.of(self.x32)[..., : self.channels]

    def of(self, rows: Tensor) -> Tensor:
        """The items in memory of all rows: [B, size, ...], a view."""
        whole = rows[self.margin : self.margin + self.rows]
        return whole.unflatten(0, (self.batch, self.stride))[:, : self.size]

    def grid(self, rows: int) -> tuple[int, int]:
        return -(-self.size // rows), self.batch


def items_of(batch: int) -> int:
    """`batch` rounded up to a power of two: a Triton block of lengths."""
    return 1 << (batch - 1).bit_length()


def product_launch(
    product: fold.ProductWeights,
    sequence: SequenceBuffer,
    source: Tensor,
    out: Tensor,
    tile: ProductTile,
    mask: Tensor | None = None,
    *,
    relu: bool = False,
    parts: bool = False,
    channels: int = 0,
    group: int = 0,
    shows: Shows = (),
) -> TritonLaunch:
    """With `group`, every `group` columns have an input of their own; these are consecutive in `source`."""
    tensors = (
        describe(source, [tile.rows, fold.CHUNK]),
        describe(product.weight, [tile.columns, fold.CHUNK]),
        product.bias,
        mask,
        out if parts or channels else describe(out, [tile.rows, tile.columns]),
    )
    rows = sequence.all_rows, sequence.margin, sequence.stride
    columns = {"COLUMNS": product.columns, "GROUP": group or product.columns}
    of_product = {"TAPS": product.taps, "CHUNKS": product.chunks, "CHUNK": fold.CHUNK, **columns}
    of_tile = {"BM": tile.rows, "BN": tile.columns, "SPLITS": tile.splits, "STAGES": LOADS_AHEAD}
    of_tile["num_warps"] = 8 if tile.rows * tile.columns > 8192 else 4
    return TritonLaunch(
        kernels.product_kernel,
        (-(-sequence.rows // tile.rows), product.columns // tile.columns, tile.splits),
        (*tensors, sequence.all_rows if group else 0, *rows, sequence.batch, sequence.size),
        {**of_product, **of_tile, "PARTS": parts, "RELU": relu, "CHANNELS": channels},
        shows,
    )


class LayerLaunches:
    """The launches of a transformer's layers, on the memory of a `SequenceBuffer`.

    `typical` is the length that the products are split for.
    """

    def __init__(
        self, layers: Sequence[fold.LayerWeights], sequence: SequenceBuffer, typical: int, processors: int
    ):
        self.layers, self.sequence, self.processors = layers, sequence, processors
        first = layers[0]
        self.qkv = sequence.new(first.attention.qkv.columns)
        self.hidden = sequence.new(first.expand.columns)
        self.contract_tile = split_tile_for(first.contract, sequence.rows, typical, processors)
        self.columns = first.contract.columns
        most = max(self.contract_tile.splits, first.attention.heads)
        self.parts = sequence.new(self.columns, torch.float32, most)

    def launches(self, lengths: Tensor) -> Iterator[TritonLaunch]:
        sequence = self.sequence
        for layer in self.layers:
            attention, expand, contract = layer.attention, layer.expand, layer.contract
            names, tile = layer.names, self._tile(attention.qkv)
            shows: Shows = [(names.qkv, lambda attention=attention: self._seen_qkv(attention))]
            yield product_launch(attention.qkv, sequence, sequence.x16, self.qkv, tile, shows=shows)
            shows = [(names.attention, lambda: sequence.steps)]
            several = attention.heads > 1
            yield self._attention(attention, lengths)._replace(shows=() if several else shows)
            if several:
                yield self._norm(attention.bias, attention.norm, attention.heads)._replace(shows=shows)
            tile, shows = self._tile(expand), [(names.hidden, lambda: sequence.of(self.hidden).mT)]
            inside = sequence.inside
            yield product_launch(
                expand, sequence, sequence.x16, self.hidden, tile, inside, relu=True, shows=shows
            )
            yield product_launch(contract, sequence, self.hidden, self.parts, self.contract_tile, parts=True)
            shows = [(names.end, lambda: sequence.steps)]
            yield self._norm(contract.bias, layer.norm, self.contract_tile.splits)._replace(shows=shows)

    def _seen_qkv(self, attention: fold.AttentionWeights) -> Tensor:
        """As the network has them, (B, size, 3 * heads * channels)."""
        heads = 3, attention.heads, attention.head
        made = self.sequence.of(self.qkv)[..., : math.prod(heads)].float()
        made = made.unflatten(2, heads)[..., : attention.size].clone()
        made[:, :, 0] *= math.sqrt(attention.size) / fold.LOG2_E
        return (made.transpose(2, 3) if attention.by_heads else made).flatten(2)

    @property
    def start(self) -> Shows:
        """Shows what goes into the first layer."""
        return [(f"{self.layers[0].names.qkv}<", lambda: self.sequence.steps)]

    def _tile(self, product: fold.ProductWeights) -> ProductTile:
        return tile_for(product, self.sequence.rows, self.processors)

    def mel(self, product: fold.ProductWeights, mel: Tensor) -> TritonLaunch:
        """The final projection, into mel (B, n_mels, size)."""
        tile = self._tile(product)
        return product_launch(product, self.sequence, self.sequence.x16, mel, tile, channels=mel.shape[1])

    def _attention(self, attention: fold.AttentionWeights, lengths: Tensor) -> TritonLaunch:
        sequence, norm = self.sequence, attention.norm
        weights = attention.weight, attention.bias, norm.gain, norm.shift
        rows = sequence.all_rows, sequence.margin, sequence.stride, sequence.batch, sequence.channels
        heads = {"HEADS": attention.heads, "HEAD": attention.head, "MASKED": attention.masked}
        tile = {"BM": ATTENTION_ROWS, "BN": ATTENTION_KEYS, "STAGES": 2, "QKV_WIDTH": attention.qkv.columns}
        return TritonLaunch(
            kernels.attention_kernel,
            (*sequence.grid(ATTENTION_ROWS), attention.heads),
            (self.qkv, lengths, *weights, *sequence.residual, self.parts, *rows),
            {**heads, **sequence.widths, **tile, "ITEMS": items_of(sequence.batch), "COLUMNS": self.columns},
        )

    def _norm(self, bias: Tensor, norm: fold.NormWeights, splits: int) -> TritonLaunch:
        """Adds a product's partial sums and bias to the residual, then layer norm."""
        sequence = self.sequence
        rows = sequence.all_rows, sequence.margin
        return TritonLaunch(
            kernels.norm_kernel,
            (-(-sequence.rows // NORM_ROWS),),
            (self.parts, bias, norm.gain, norm.shift, *sequence.residual, *rows, sequence.channels),
            {"SPLITS": splits, "COLUMNS": self.columns, "BM": NORM_ROWS, **sequence.widths},
        )


class PredictorLaunches:
    """The launches of predictors of equal sizes, and their output `numbers` (predictors, B, size)."""

    def __init__(
        self, predictors: fold.PredictorWeights, sequence: SequenceBuffer, typical: int, processors: int
    ):
        self.weights, self.sequence = predictors, sequence
        count, layers = len(predictors.last), predictors.layers
        self.tiles = [
            split_tile_for(layer.product, sequence.rows, typical, processors, layer.block) for layer in layers
        ]
        self.parts = [
            sequence.new(layer.product.columns, torch.float32, tile.splits)
            for layer, tile in zip(layers, self.tiles, strict=True)
        ]
        self.hidden = [sequence.new(layer.block, count=count) for layer in layers[:-1]]
        self.numbers = torch.zeros(count, sequence.batch, sequence.size, device=sequence.device)

    def launches(self, longest: float = 0.0) -> Iterator[TritonLaunch]:
        """With `longest`, the first predictor's outputs are durations in frames, clipped to `longest`."""
        sequence, source = self.sequence, self.sequence.x16
        outs = [*self.hidden, self.numbers]
        steps = zip(self.weights.layers, self.tiles, self.parts, outs, strict=True)
        for index, (layer, tile, parts, out) in enumerate(steps):
            group = layer.block if index else 0
            shows = [
                (conv, lambda place=place, layer=layer, parts=parts: self._seen_sums(place, layer, parts))
                for place, (conv, _) in enumerate(layer.names)
            ]
            yield product_launch(
                layer.product, sequence, source, parts, tile, parts=True, group=group, shows=shows
            )
            yield self._layer(layer, tile, parts, out, longest)
            source = out

    def _seen_values(self, longest: float) -> Shows:
        """What the predictors end with; not where durations have been made of it."""
        return [
            (f"{name}_predictor.fc", lambda values=values: values[:, :, None])
            for name, values in zip(self.weights.names, self.numbers, strict=True)
            if not (longest and name == "duration")
        ]

    def _seen_sums(self, place: int, layer: fold.PredictorLayerWeights, parts: Tensor) -> Tensor:
        """A predictor's convolution, (B, channels, size)."""
        sums = self.sequence.of(parts.unflatten(0, (-1, self.sequence.all_rows)).sum(0))
        return (sums.unflatten(2, (-1, layer.block))[:, :, place] + layer.bias[place]).mT

    def _layer(
        self, layer: fold.PredictorLayerWeights, tile: ProductTile, parts: Tensor, out: Tensor, longest: float
    ) -> TritonLaunch:
        sequence, predictors = self.sequence, self.weights
        before = parts, layer.bias, layer.gain, layer.shift
        after = sequence.inside, sequence.mask, predictors.last, predictors.last_bias
        columns = {"SPLITS": tile.splits, "COLUMNS": layer.product.columns, "BLOCK": layer.block}
        return TritonLaunch(
            kernels.predictor_kernel,
            (-(-sequence.rows // NORM_ROWS), len(predictors.last)),
            (*before, *after, out, sequence.all_rows, *sequence.layout, layer.channels),
            {**columns, "LAST": out is self.numbers, "LONGEST": longest, "BM": NORM_ROWS},
            self._seen_values(longest)
            if out is self.numbers
            else [
                (norm, lambda rows=rows: sequence.of(rows))
                for (_, norm), rows in zip(layer.names, out.chunk(len(layer.names)), strict=True)
            ],
        )


def embedding_options(sequence: SequenceBuffer, mask_padding: bool) -> dict[str, Any]:
    """Options of the embedding kernels."""
    items = {"MASK_PADDING": mask_padding, "ITEMS": items_of(sequence.batch)}
    return {**items, **sequence.widths, "BM": STEP_ROWS}


class EncoderBuffers:
    """The memory for symbols (B, N) -> `encoded` and the predictors' outputs."""

    def __init__(self, engine: TransformerEngine, inputs: Mapping[str, Tensor], zeros: Zeros, device: str):
        folded, config, processors = engine.folded, engine.config, engine.processors
        (batch, text), channels = inputs["symbols"].shape, folded.positions.shape[1]
        self.folded = folded
        self.sequence = SequenceBuffer(batch, text, channels, folded.margin, zeros, device)
        speakers = 0 if folded.speakers is None else len(folded.speakers)
        self.options = {
            **embedding_options(self.sequence, config.mask_padding),
            **{"SPEAKERS": speakers, "PADDING": folded.padding},
        }
        typical = engine.stage.dynamic_dims["text"].typical
        self.stack = LayerLaunches(folded.layers, self.sequence, typical, processors)
        self.predictors = [
            PredictorLaunches(predictors, self.sequence, typical, processors)
            for predictors in folded.predictors
        ]

    def describe(self, inputs: Mapping[str, Tensor]) -> tuple[list[TritonLaunch], dict[str, Tensor]]:
        """The launches for these inputs, and the outputs that they fill."""
        sequence, folded = self.sequence, self.folded
        lengths = inputs["lengths"]
        given = inputs["symbols"], lengths, inputs.get("speaker")
        tables = folded.embedding, folded.speakers, folded.positions
        symbols = TritonLaunch(
            kernels.symbols_kernel,
            sequence.grid(STEP_ROWS),
            (*given, *tables, *sequence.memory, *sequence.layout, sequence.channels),
            self.options,
            self.stack.start,
        )
        launches = [symbols, *self.stack.launches(lengths)]
        outputs = {"encoded": sequence.steps}
        for predictor in self.predictors:
            names = predictor.weights.names
            launches += predictor.launches(folded.longest if "duration" in names else 0.0)
            outputs |= dict(zip(names, predictor.numbers, strict=True))
        if "pitch" in outputs:  # (B, 1, N)
            outputs["pitch"] = outputs["pitch"][:, None]
        return launches, outputs


class DecoderBuffers:
    """The memory for `encoded` (B, N, C) and each frame's symbol (B, T) -> mel.

    A decoder with pitch adds the embeddings of pitch and energy to the symbols first.
    """

    def __init__(self, engine: TransformerEngine, inputs: Mapping[str, Tensor], zeros: Zeros, device: str):
        folded, processors, dims = engine.folded, engine.processors, engine.stage.dynamic_dims
        self.folded, self.masks = folded, engine.config.mask_padding
        (batch, text, _), mel = inputs["encoded"].shape, inputs["repeat_index"].shape[1]
        sizes = folded.positions.shape[1], folded.margin
        self.text = SequenceBuffer(batch, text, *sizes, zeros, device) if folded.pitch else None
        self.sequence = SequenceBuffer(batch, mel, *sizes, zeros, device)
        self.energy = None
        if self.text and folded.predictors:
            typical = dims["text"].typical
            self.energy = PredictorLaunches(folded.predictors, self.text, typical, processors)
        self.stack = LayerLaunches(folded.layers, self.sequence, dims["mel"].typical, processors)
        self.mel = torch.zeros(batch, engine.config.n_mel_channels, mel, device=device)

    def describe(self, inputs: Mapping[str, Tensor]) -> tuple[list[TritonLaunch], dict[str, Tensor]]:
        """The launches for these inputs, and the outputs that they fill."""
        folded, outputs = self.folded, {"mel": self.mel}
        launches, source, steps = [], inputs["encoded"], inputs["encoded"].shape[1]
        numbers = None
        if self.text:
            launches.append(self._with_pitch(self.text, inputs))
            source, steps = self.text.x32[self.text.margin :], self.text.stride
        if self.energy:
            launches += self.energy.launches()
            numbers = self.energy.numbers
            outputs["energy"] = numbers[0]
        return [
            *launches,
            self._frames(source, steps, inputs, numbers),
            *self.stack.launches(inputs["mel_lengths"]),
            self.stack.mel(folded.last, self.mel),
        ], outputs

    def _with_pitch(self, text: SequenceBuffer, inputs: Mapping[str, Tensor]) -> TritonLaunch:
        """The symbols with the embedding of their pitch."""
        weight, bias = self.folded.pitch
        given = inputs["encoded"], inputs["lengths"], inputs["pitch"]
        return TritonLaunch(
            kernels.values_kernel,
            text.grid(STEP_ROWS),
            (*given, weight, bias, *text.memory, *text.layout, text.channels),
            {**embedding_options(text, self.masks), "TAPS": len(weight)},
            [("energy_predictor.layers.0.conv<", lambda: text.of(text.x16).mT)] if self.energy else [],
        )

    def _frames(
        self, source: Tensor, steps: int, inputs: Mapping[str, Tensor], numbers: Tensor | None
    ) -> TritonLaunch:
        """The layers' input: rows of `source` (`steps` per item), with the embedding of each symbol's
        `numbers` (B, N).
        """
        sequence, width, folded = self.sequence, source.shape[-1], self.folded
        given = source, inputs["repeat_index"], inputs["mel_lengths"], numbers
        weight, bias = folded.energy or (None, None)
        sizes = steps * width, numbers.shape[-1] if numbers is not None else steps, *sequence.layout
        taps = {"SOURCE_WIDTH": width, "TAPS": len(weight) if weight is not None else 0}
        return TritonLaunch(
            kernels.frames_kernel,
            sequence.grid(STEP_ROWS),
            (*given, weight, bias, folded.positions, *sequence.memory, *sizes, sequence.channels),
            {**embedding_options(sequence, self.masks), **taps},
            self.stack.start,
        )


class TransformerNetwork(CapturedNetwork):
    """On PyTorch's kernels. The published networks hear padding: theirs run at the lengths that texts have.

    In half precision durations would be rounded to other frames, and what masks a score would be infinite.
    """

    in_float32 = True

    def __init__(self, stage: Stage, source: ModelSource, device: str = "cuda", threads: int | None = None):
        super().__init__(stage, source, device, threads)
        if not source.config.mask_padding:
            self.attends_to_padding, self.units = True, dict.fromkeys(self.units, 1)


class TransformerEngine(BufferedEngine):
    """A stage on these kernels, in half precision."""

    otherwise = TransformerNetwork
    fold_weights: Callable[[Any, Stage], fold.EncoderWeights | fold.DecoderWeights]
    buffers: type[EncoderBuffers] | type[DecoderBuffers]

    def __init__(self, stage: Stage, source: ModelSource, device: str = "cuda", threads: int | None = None):
        self.stage, self.device, self.config = stage, device, source.config
        self.folded: Any = folded_network(
            stage, source, device, stage.full_name, lambda network: self.fold_weights(network, stage)
        )
        self.memory_owner, self.memory_bytes = self.folded, fold.nbytes(self.folded)
        self.processors = limits_of(device).multiprocessors

    @classmethod
    def needs(cls, config: object) -> Needs:
        return PRODUCTS

    def buffers_of(self, inputs: Mapping[str, Tensor], zeros: Zeros, device: str) -> Buffers:
        return self.buffers(self, inputs, zeros, device)

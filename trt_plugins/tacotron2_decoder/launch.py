"""Launches the kernel of Tacotron 2's decoder, and refuses what it does not support.

weights.py arranges the weights; engine.py is the engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from melforge.common.engines.limits import Limits, Needs, device_limits
from melforge.common.errors import InputError
from melforge.trt_plugins.kernel import Grid, Launch

if TYPE_CHECKING:
    from melforge.tacotron2.config import Tacotron2Config

SOURCE = Path(__file__).with_name("tacotron2_decoder.cu")
# The same constants as in tacotron2_decoder.cu.
THREADS = 512
WARPS = THREADS // 32
ITEMS = 8
UNITS = 8  # of an LSTM in a block
ROWS = 16  # of a tile
PART_STRIDE = 49
COPIES = 4
TOGETHER = 4
MOST_TEXT = 512
PAIR_BYTES = 1024  # of two tiles
# The kernel's arguments in order: weights (weights.py), inputs, the exchange, outputs.
WEIGHTS = {
    **dict.fromkeys(("attention", "decoder", "recurrent", "query", "prenet", "out"), "float16"),
    **dict.fromkeys(("attention_bias", "decoder_bias", "out_bias"), "float32"),
    **{"location": "float16", "energy": "float32"},
}
INPUTS = {
    "products": "float16",
    "processed_memory": "float32",
    "lengths": "int64",
    "prenet_noise": "float32",
    "prenet_dropout": "float32",
    "gate_threshold": "float32",
}
OUTPUTS = {
    "frames": "float32",
    "mel_lengths": "int64",
    "gate": "float32",
    "alignment": "float32",
    "stopped": "bool",
    "status": "int32",  # the steps made, and 1 if a block timed out
}
CAPABILITY = (8, 0)  # the first with the mma and redux instructions of the source


class Sizes(NamedTuple):
    """The network sizes that the source is compiled for; field names are those of its macros."""

    prenet: int = 256
    attention_rnn: int = 1024
    decoder_rnn: int = 1024
    encoder: int = 512
    attention: int = 128
    location_kernel: int = 31
    frame: int = 80

    @property
    def macros(self) -> tuple[tuple[str, int], ...]:
        """For the compiler; empty for the source's defaults."""
        return () if self == Sizes() else tuple((k.upper(), v) for k, v in self._asdict().items())


class Plan(NamedTuple):
    """The grid, and what fits into a block's shared memory besides."""

    grid: Grid
    cache_location: bool  # the location layer's weights
    cache_products: bool  # the block's part of the memory's products


def sizes_of(config: Tacotron2Config) -> Sizes:
    lstms = config.attention_rnn_dim, config.decoder_rnn_dim
    attention = config.attention_dim, config.attention_location_kernel_size
    return Sizes(config.prenet_dim, *lstms, config.encoder_embedding_dim, *attention, config.frame_size)


def needs_of(sizes: Sizes) -> Needs:
    """What a network of these sizes needs of a GPU; raises where the kernel cannot run it at all."""
    divisors = {"prenet": 8, "attention_rnn": 8, "decoder_rnn": 8, "encoder": 8, "attention": 4}
    for name, divisor in divisors.items():
        value = getattr(sizes, name)
        if value % divisor:
            raise InputError(f"the decoder's kernel takes multiples of {divisor} for {name}_dim, not {value}")
    if sizes.attention > THREADS:
        raise InputError(
            f"the decoder's kernel takes an attention_dim of at most {THREADS}, not {sizes.attention}"
        )
    roles = small_blocks(sizes)
    # A multiprocessor for each block: of an LSTM, or a small product; or for each item's energies.
    blocks = (sizes.attention_rnn // UNITS, sizes.decoder_rnn // UNITS, sum(roles), sum(roles[:3]) + ITEMS)
    return Needs(CAPABILITY, shared_bytes(sizes, 1, 1, 1), max(blocks), cooperative=True, triton=False)


def shared_bytes(sizes: Sizes, batch: int, text: int, positions: int) -> int:
    """What a block must have of shared memory, with so many of the text's positions."""
    weights = (pairs(sizes.prenet) + pairs(sizes.encoder) + 2 * pairs(sizes.attention_rnn)) * 2 * PAIR_BYTES
    weighted = batch * pairs(text) * 64
    parts = 4 * (WARPS * batch * PART_STRIDE + 32 * pairs(text) + 2 * ITEMS * (UNITS + 1))
    window = positions + 2 * (sizes.location_kernel // 2) + TOGETHER - 1
    return weights + weighted + parts + padded(4 * (positions * sizes.attention + 2 * window))


def plan(sizes: Sizes, limits: Limits, batch: int, text: int) -> Plan:
    """The launch plan of a batch with this padded text length; raises if it does not fit."""
    if not 1 <= batch <= ITEMS:
        raise InputError(f"the decoder's kernel takes batches of 1 to {ITEMS}, not {batch}")
    if not 1 <= text <= MOST_TEXT:
        raise InputError(f"the decoder's kernel takes texts of 1 to {MOST_TEXT} symbols, not {text}")
    positions = -(-text // ((limits.multiprocessors - sum(small_blocks(sizes)[:3])) // batch))
    needed = shared_bytes(sizes, batch, text, positions)
    if needed > limits.shared_bytes:
        raise InputError(
            f"the decoder's kernel needs {needed} bytes of shared memory in a block for {batch} texts of "
            f"{text} symbols, and this GPU gives {limits.shared_bytes}: split the batch or the text"
        )
    kept = []
    location = padded(2 * 2 * sizes.location_kernel * sizes.attention)
    for more in (location, 3 * batch * pairs(text) * PAIR_BYTES):
        kept.append(needed + more <= limits.shared_bytes)
        needed += more * kept[-1]
    return Plan(Grid(limits.multiprocessors, THREADS, needed, cooperative=True), *kept)


def largest_batch(sizes: Sizes, limits: Limits, text: int) -> int:
    """How many texts of this padded length fit one launch; raises if not even one does."""
    for batch in range(ITEMS, 1, -1):
        try:
            plan(sizes, limits, batch, text)
        except InputError:
            continue
        return batch
    plan(sizes, limits, 1, text)
    return 1


def padded(size: int) -> int:
    """Rounded up to a multiple of 16 bytes."""
    return size + -size % 16


def small_blocks(sizes: Sizes) -> tuple[int, ...]:
    """The number of blocks for the query, the prenet's second layer, the step's outputs, and the context."""
    rows = sizes.attention, sizes.prenet, sizes.prenet + sizes.frame + 1, sizes.encoder
    return tuple(-(-each // ROWS) for each in rows)


def pairs(channels: int) -> int:
    return -(-channels // 32)


def exchange_bytes(sizes: Sizes) -> int:
    """The size of the exchange between blocks, which must be zeroed before each launch."""
    halves = sizes.attention_rnn + sizes.decoder_rnn + 2 * sizes.prenet
    words = sizes.encoder + sizes.attention + MOST_TEXT
    return 2 * COPIES * (ITEMS * (2 * halves + 4 * words) + 128)


def launch(
    device: int,
    sizes: Sizes,
    shape: tuple[int, int, int],
    addresses: tuple[int, ...],
    frames_per_step: int,
    early: bool,
    keep: tuple = (),
) -> Launch:
    """`shape` B, N and the step limit; `addresses` as the kernel takes them, weights first, status last.

    Outputs behind the last step made are not written. Mel lengths are steps times `frames_per_step`; unless
    `early`, all steps are made. The exchange must be zeroed.
    """
    batch, text, limit = shape
    limits = device_limits(device)
    largest = batch * limit * max(2 * sizes.prenet, sizes.frame, text)
    if largest >= 2**31:
        raise InputError(f"the decoder's kernel counts to 2**31: a limit of {limit} steps is too much here")
    grid, *kept = plan(sizes, limits, batch, text)
    arguments = (*addresses, batch, text, limit, frames_per_step, int(early), *map(int, kept))
    return Launch(SOURCE, "decode", device, grid, arguments, keep, sizes.macros)

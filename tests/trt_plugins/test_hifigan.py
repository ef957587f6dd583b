"""The folded weights that HiFi-GAN's kernels take: in plain PyTorch they make what the network makes."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from melforge.common.engines.limits import H200
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.model import LAST_LEAKY_SLOPE, LEAKY_SLOPE, HifiganGenerator
from melforge.trt_plugins.hifigan.engine import TILES, tile_for
from melforge.trt_plugins.hifigan.fold import CHUNK, ENDS, ConvProduct, FoldedHifigan, fold, layout_of

# Of hparams/hifigan/compact.yaml.
COMPACT = {
    "upsample_rates": (4, 4, 4, 4),
    "upsample_kernel_sizes": (8, 8, 8, 8),
    "upsample_initial_channel": 256,
    "resblock": "2",
    "resblock_kernel_sizes": (3, 5, 7),
    "resblock_dilation_sizes": ((1, 2), (2, 6), (3, 12)),
}
SMALL = HifiganConfig(
    n_mel_channels=20,
    upsample_rates=(4, 4, 2),
    upsample_kernel_sizes=(8, 8, 4),
    upsample_initial_channel=96,
    resblock_kernel_sizes=(3, 7),
    resblock_dilation_sizes=((1, 3), (1, 3)),
)
CONFIGS = {
    "as published": SMALL,
    "one convolution": dataclasses.replace(
        SMALL, resblock="2", resblock_kernel_sizes=(3, 5), resblock_dilation_sizes=((1, 2), (2, 6))
    ),
    "other dilations": dataclasses.replace(SMALL, resblock_dilation_sizes=((2, 3), (2, 4))),
    "other upsampling": dataclasses.replace(
        SMALL, upsample_rates=(3, 2, 4), upsample_kernel_sizes=(9, 2, 6), resblock_dilation_sizes=((1,), (1,))
    ),
}


def network_of(config: HifiganConfig) -> HifiganGenerator:
    torch.manual_seed(0)
    return HifiganGenerator(config, weight_norm=False).eval().requires_grad_(False)


@pytest.fixture
def unrounded(monkeypatch):
    """Folding without its rounding, so that only float32's own is left."""
    monkeypatch.setattr(torch.Tensor, "half", torch.Tensor.float)


def multiply(product: ConvProduct, block: int, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x (B, L, C) -> (B, rows, spread, N): a block's products of all its rows."""
    unit = product.group * product.spread
    first, end = product.starts[block : block + 2]
    weight = product.weight.unflatten(0, (product.starts[-1], -1))[first:end].transpose(1, 2).flatten(2)
    rows = x.shape[1] // unit + 1
    begin = torch.arange(rows)[:, None] * unit + torch.arange(product.spread)  # the first step of each row
    margin = 64
    padded = F.pad(x, (0, 0, margin, margin + unit))
    total = bias.expand(len(x), rows, product.spread, -1)
    for tap in range(end - first):
        shift = (tap - product.centers[block]) * product.dilations[block] * product.dilation * product.spread
        total = total + padded[:, begin + shift + margin] @ weight[tap].T
    return total


def convolve(product: ConvProduct, block: int, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x (B, L, C) -> (B, L, C)."""
    made = multiply(product, block, x, bias).unflatten(3, (product.group, -1)).transpose(2, 3)
    return made.flatten(1, 3)[:, : x.shape[1]]


def generate(folded: FoldedHifigan, config: HifiganConfig, mel: torch.Tensor) -> torch.Tensor:
    """The stage from folded weights, step by step as the kernels have it."""

    def leaky(x: torch.Tensor, slope: float = LEAKY_SLOPE) -> torch.Tensor:
        return F.leaky_relu(x, slope)

    count = len(config.resblock_kernel_sizes)
    frames = mel.shape[2]
    padded = F.pad(mel, (ENDS // 2, ENDS // 2)).transpose(1, 2)
    heard = torch.cat([padded[:, tap : tap + frames] for tap in range(ENDS)], dim=2)
    heard = F.pad(heard, (0, folded.layout.window * CHUNK - heard.shape[2]))
    x = convolve(folded.first, 0, heard, folded.first.bias[0])
    for index, (up, products) in enumerate(zip(folded.ups, folded.blocks, strict=True)):
        rate, kernel = config.upsample_rates[index], config.upsample_kernel_sizes[index]
        late = (kernel - rate) // 2
        made = multiply(up, 0, F.pad(leaky(x), (0, 0, 0, late)), up.bias[0]).flatten(1, 2)
        made = made.unflatten(2, (rate, -1)).flatten(1, 2)
        x = made[:, late : late + x.shape[1] * rate]
        blocks = [x] * count
        heard = blocks
        for product in products:
            if product.summed:
                parts = [
                    blocks[block] + convolve(product, block, leaky(heard[block]), 0 * product.bias[0])
                    for block in range(count)
                ]
                x = (sum(parts) + product.bias[0, : x.shape[2]]) / count
                continue
            heard = [
                convolve(product, block, leaky(heard[block]), product.bias[block]) for block in range(count)
            ]
            if product.residual:
                heard = blocks = [one + other for one, other in zip(blocks, heard, strict=True)]
    padded = F.pad(leaky(x, LAST_LEAKY_SLOPE), (0, 0, ENDS // 2, ENDS // 2))
    taps = [padded[:, tap : tap + x.shape[1]] @ folded.last[tap] for tap in range(ENDS)]
    return torch.tanh(sum(taps) + folded.last_bias)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(("batch", "frames"), [(1, 1), (2, 7)])
@pytest.mark.parametrize("columns", [16, 128])
def test_folded_weights_make_the_audio_of_the_network(config, batch, frames, columns, unrounded):
    network = network_of(config)
    mel = torch.randn(batch, config.n_mel_channels, frames, generator=torch.Generator().manual_seed(1))
    (wanted,) = network.generate(mel)
    found = generate(fold(network, columns), config, mel)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, atol=2e-5 * float(wanted.abs().max()), rtol=0)


def test_what_is_filled_up_has_no_weight():
    folded = fold(network_of(SMALL))
    assert [level.channels for level in folded.layout.levels] == [128, 64, 32, 16]
    assert not folded.first.weight[:, 96:].any() and not folded.first.bias[:, 96:].any()
    for product, channels in zip(folded.blocks, (48, 24, 12), strict=True):
        for one in product:
            by_step = one.weight.unflatten(1, (one.group, -1))
            assert not by_step[:, :, channels:].any() and not by_step[..., channels:].any()
            assert not one.bias.unflatten(1, (one.group, -1))[..., channels:].any()
    assert not folded.last[:, 12:].any()


def test_published_sizes_are_laid_out_for_128_columns():
    layout = layout_of(HifiganConfig())
    assert [level.channels for level in layout.levels] == [512, 256, 128, 64, 32]
    assert [level.group for level in layout.levels] == [1, 1, 1, 2, 4]
    assert (layout.margin, layout.window) == (4, 9)


def test_blocks_with_most_taps_come_first():
    config = dataclasses.replace(HifiganConfig(), resblock_kernel_sizes=(3, 7, 11))
    assert layout_of(config).order == (2, 1, 0)


def test_the_compact_network_can_be_laid_out():
    layout = layout_of(HifiganConfig(**COMPACT))
    assert [level.channels for level in layout.levels] == [256, 128, 64, 32, 16]


@pytest.mark.parametrize("rows", [192, 5120, 40960])
def test_tiles_are_smaller_where_there_is_less(rows):
    product = fold(network_of(SMALL)).blocks[0][0]
    few, many = tile_for(product, rows, H200), tile_for(product, rows * 64, H200)
    assert few.rows * few.columns <= many.rows * many.columns
    assert few.rows in {tile.rows for tile in TILES} and few.columns <= product.columns


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"upsample_kernel_sizes": (7, 8, 4)}, "upsampling by 4 with kernel 7: the kernels need an even"),
        ({"resblock_dilation_sizes": ((1,), (1, 3))}, "resblock_dilation_sizes of one length for all blocks"),
        ({"istft_n_fft": 16, "istft_hop_length": 4}, "istft_n_fft 16: the kernels end in the published conv"),
    ],
)
def test_sizes_that_the_kernels_cannot_run_are_refused(change, reason):
    with pytest.raises(ValueError, match=reason):
        layout_of(dataclasses.replace(SMALL, **change))


def test_weights_too_large_for_half_precision_are_refused():
    network = network_of(SMALL)
    network.ups[1].weight[0] = 1e6
    with pytest.raises(ValueError, match="weights are larger than half precision can hold"):
        fold(network)

"""How HiFi-GAN's weights are folded for the kernels. That these make its audio test_hifigan_gpu.py shows."""

import dataclasses

import pytest
import torch

from melforge.common.engines.limits import H200
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.model import HifiganGenerator
from melforge.trt_plugins.hifigan.engine import TILES, tile_for
from melforge.trt_plugins.hifigan.fold import fold, layout_of

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


def network_of(config: HifiganConfig) -> HifiganGenerator:
    torch.manual_seed(0)
    return HifiganGenerator(config, weight_norm=False).eval().requires_grad_(False)


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

"""The tiles of the transformers' products."""

from types import SimpleNamespace

import pytest

from melforge.trt_plugins.transformer.engine import MOST_SPLITS, split_tile_for, tile_for

CONTRACT = SimpleNamespace(taps=3, chunks=24, columns=384)  # the published FastPitch's second convolution


@pytest.mark.parametrize("typical", [128, 640])
def test_how_a_sum_is_split_depends_on_neither_batch_nor_length(typical):
    tiles = [split_tile_for(CONTRACT, rows, typical, 132) for rows in (16, 128, 640, 5000, 40000)]
    assert len({tile.splits for tile in tiles}) == 1 and 1 < tiles[0].splits <= MOST_SPLITS
    assert len({tile.rows for tile in tiles}) > 1


def test_without_partial_sums_there_is_one_split():
    assert tile_for(CONTRACT, 128, 132).splits == 1

"""How a convolution's arithmetic may be divided among a GPU's multiprocessors."""

from typing import NamedTuple

from melforge.common.engines.limits import Limits

CHUNK = 64  # channels that the kernels multiply at a time
MOST_SPLITS = 16
# An estimate in microseconds: a multiply-add of a processor; a launch; a number of a partial sum, written and
# read.
PRODUCT_TIME, LAUNCH_TIME, PART_TIME = 4e-7, 2.0, 1.8e-6
SPLITS_TRIED = 3  # of each tile


class Tiling(NamedTuple):
    """Rows and columns of a program, its warps and loads ahead, and splits of the depth (split-K)."""

    rows: int
    columns: int
    warps: int
    stages: int
    splits: int = 1

    @property
    def shared_bytes(self) -> int:
        """Of a block, at most: chunks of rows and columns in half precision."""
        return self.stages * (self.rows + self.columns) * CHUNK * 2

    def programs(self, items: int, steps: int, columns: int) -> int:
        return items * -(-steps // self.rows) * -(-columns // self.columns) * self.splits


TILES = (
    Tiling(64, 128, 4, 4),
    Tiling(128, 128, 8, 3),
    Tiling(128, 128, 8, 5),
    Tiling(128, 128, 4, 4),
    Tiling(64, 256, 4, 4),
    Tiling(128, 256, 8, 3),
    Tiling(128, 256, 8, 4),
    Tiling(256, 128, 8, 4),
)


def tilings(items: int, steps: int, columns: int, depth: int, limits: Limits) -> list[Tiling]:
    """Those worth a try for `items` of `steps` rows, so many columns and a depth of so many chunks."""

    def time(tiling: Tiling) -> float:
        rounds = -(-tiling.programs(items, steps, columns) // limits.multiprocessors)
        chunk = tiling.rows * tiling.columns * CHUNK * PRODUCT_TIME
        sums = LAUNCH_TIME + tiling.splits * items * steps * columns * PART_TIME
        return rounds * -(-depth // tiling.splits) * chunk + (sums if tiling.splits > 1 else 0)

    found = []
    for tile in TILES:
        if tile.shared_bytes > limits.shared_bytes:
            continue
        splits = [tile._replace(splits=number) for number in range(1, min(MOST_SPLITS, depth) + 1)]
        found += sorted(splits, key=time)[:SPLITS_TRIED]
    return found

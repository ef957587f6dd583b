"""How a convolution's arithmetic may be divided among a GPU's multiprocessors."""

from typing import NamedTuple

CHUNK = 64  # channels that the kernels multiply at a time
MOST_SPLITS = 16
SPLIT_COST = 1.5  # steps of CHUNK that a further partial sum costs, in an estimate
SPLITS_TRIED = 3  # of each tile


class Tiling(NamedTuple):
    """Rows and columns of a program, its warps and loads ahead, and splits of the depth (split-K)."""

    rows: int
    columns: int
    warps: int
    stages: int
    splits: int = 1

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


def tilings(items: int, steps: int, columns: int, depth: int, processors: int) -> list[Tiling]:
    """Those worth a try for `items` of `steps` rows, so many columns and a depth of so many chunks."""

    def cost(tiling: Tiling) -> float:
        rounds = -(-tiling.programs(items, steps, columns) // processors)
        return rounds * -(-depth // tiling.splits) + SPLIT_COST * tiling.splits

    found = []
    for tile in TILES:
        splits = [tile._replace(splits=number) for number in range(1, min(MOST_SPLITS, depth) + 1)]
        found += sorted(splits, key=cost)[:SPLITS_TRIED]
    return found

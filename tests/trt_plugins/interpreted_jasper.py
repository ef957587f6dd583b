"""Runs Jasper's kernels in Triton's interpreter and prints the error of log-probabilities.

It is a part of the largest one. Arguments: the config, and rows, columns and splits of the tiling.
"""

import sys

import torch
import triton.language as tl  # noqa: F401 (which a kernel must see)

from melforge.trt_plugins.jasper.encoder import FoldedJasper
from melforge.trt_plugins.jasper.tiling import Tiling
from tests.trt_plugins.test_jasper import FULL, random_network

rows, columns, splits = (int(number) for number in sys.argv[2:])
network = random_network(FULL[sys.argv[1]]).requires_grad_(False)
features, lengths = torch.randn(3, 64, 152), torch.tensor([152, 80, 57])
wanted = network(features, lengths)
folded = FoldedJasper(network).half()
computed = 0


def choose(one, alike):
    global computed
    assert any(one.weights.conv is each.conv for each in alike)
    if not one.fits:
        return None
    computed += 1
    return Tiling(rows, columns, 4, 3, splits)


folded.choose = choose
(found,) = folded.encode(features.half(), lengths)
assert computed == sum(folded.config.repeats)
errors = [(found - wanted)[row, :n].abs().max() for row, n in enumerate(network.steps(lengths).tolist())]
print(float(max(errors) / wanted.abs().max()))

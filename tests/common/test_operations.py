"""The length regulator and the position encoding against the plainest way to write them."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from melforge.common.arrays import repeat_index
from melforge.fastspeech.model import sinusoids
from melforge.fastspeech.operations import add_pos_enc, gather_steps, repeat

# Operators that some runtimes lack, or whose output's length hangs on data.
UNWANTED = {"Loop", "If", "Scan", "NonZero", "Compress", "Where", "ScatterND", "SequenceEmpty"}


def repeated(x: torch.Tensor, counts: torch.Tensor, frames: int) -> torch.Tensor:
    out = torch.zeros(len(x), frames, x.size(2))
    for row, steps, count in zip(out, x, counts, strict=True):
        whole = torch.repeat_interleave(steps, count, dim=0)[:frames]
        row[: len(whole)] = whole
    return out


@pytest.mark.parametrize("frames", [1, 7, 12, 30])
def test_repeat_pads_and_crops_to_the_given_length_exactly(frames):
    torch.manual_seed(1)
    x = torch.randn(3, 5, 4)
    counts = torch.tensor([[1, 0, 4, 2, 5], [0, 0, 0, 0, 0], [3, 3, 3, 3, 3]])
    assert torch.equal(repeat(x, counts, torch.arange(frames)), repeated(x, counts, frames))


def test_repeat_equals_gathering_at_the_drivers_index():
    x, counts = torch.randn(2, 4, 3), torch.tensor([[2, 0, 1, 3], [1, 1, 1, 0]])
    index, lengths = repeat_index(counts)
    inside = (torch.arange(6) < lengths[:, None])[:, :, None]
    assert torch.equal(repeat(x, counts, torch.arange(6)), gather_steps(x, index) * inside)


def test_positions_begin_at_one_and_end_with_the_item():
    x, table = torch.zeros(2, 5, 8), sinusoids(5, 8)
    encoded = add_pos_enc(x, torch.tensor([5, 3]), table)
    assert torch.equal(encoded[0], table[1:6])
    assert torch.equal(encoded[1, :3], table[1:4]) and not encoded[1, 3:].any()
    angles = 4 / 10_000 ** (np.array([0, 2, 4, 6]) / 8)
    np.testing.assert_allclose(table[4, ::2], np.sin(angles), atol=1e-7)
    np.testing.assert_allclose(table[4, 1::2], np.cos(angles), atol=1e-7)


class _Both(torch.nn.Module):
    def forward(self, x, counts, frames, lengths):
        made = repeat(x, counts, frames)
        return made, add_pos_enc(made, lengths, self.table)


def test_onnx_gives_the_same_numbers_at_other_lengths(tmp_path):
    module, dynamic = _Both().eval(), torch.export.Dim.DYNAMIC
    module.register_buffer("table", sinusoids(64, 4))

    def inputs(batch: int, steps: int, frames: int) -> dict[str, torch.Tensor]:
        counts = torch.randint(0, 4, (batch, steps))
        return {
            "x": torch.randn(batch, steps, 4),
            "counts": counts,
            "frames": torch.arange(frames),
            "lengths": counts.sum(1).clamp(max=frames),
        }

    path = tmp_path / "operations.onnx"
    torch.onnx.export(
        module,
        tuple(inputs(2, 5, 9).values()),
        path,
        input_names=["x", "counts", "frames", "lengths"],
        output_names=["repeated", "encoded"],
        dynamic_shapes=({0: dynamic, 1: dynamic}, {0: dynamic, 1: dynamic}, {0: dynamic}, {0: dynamic}),
        opset_version=20,
        verbose=False,
    )
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    graph = onnx.load(path).graph
    assert {node.domain for node in graph.node} == {""}
    assert not {node.op_type for node in graph.node} & UNWANTED
    for sizes in ((1, 1, 1), (3, 11, 20), (2, 40, 33)):
        given = inputs(*sizes)
        found = session.run(None, {name: value.numpy() for name, value in given.items()})
        for got, wanted in zip(found, module(**given), strict=True):
            assert np.array_equal(got, wanted.numpy())

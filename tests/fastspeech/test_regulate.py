"""The length regulator between two engines: numpy does what the operations do; all joined is the network."""

import numpy as np
import pytest
import torch

from melforge.common.arrays import pad_to
from melforge.fastspeech import regulate
from melforge.fastspeech.operations import DECOMPOSED
from tests.conftest import tiny_fastspeech


@pytest.mark.parametrize("frames", [1, 9, 17, 30])
def test_numpys_way_is_the_operations(frames):
    rng = np.random.default_rng(frames)
    encoded, table = (rng.standard_normal(shape, np.float32) for shape in ((3, 7, 4), (31, 4)))
    durations = rng.integers(0, 5, (3, 7))
    durations[2] = 0
    table[0] = 0
    lengths = durations.sum(1).clip(max=frames)
    given = (torch.from_numpy(array) for array in (encoded, durations, lengths, np.arange(frames), table))
    wanted = regulate.place_by(DECOMPOSED, *given)
    found = regulate.place(encoded, durations, lengths, frames, table)
    assert found.dtype == np.float32
    assert np.array_equal(found, wanted.numpy())


def test_joined_it_is_the_network_at_any_length_that_holds_the_mel():
    network, _ = tiny_fastspeech()
    network.eval().requires_grad_(False)

    def encode(inputs):
        return dict(zip(("encoded", "duration"), network.encode(**inputs), strict=True))

    run = regulate.join(
        encode, lambda inputs: {"mel": network.render(**inputs)[0]}, DECOMPOSED, network.position.weight
    )
    lengths = torch.tensor([9, 5])
    symbols = torch.arange(1, 19).reshape(2, 9) * (torch.arange(9) < lengths[:, None])
    wanted = network.infer(symbols, lengths, alpha=1.3)
    for text, frames in ((9, wanted.mel.shape[2]), (12, 60)):
        made = run(
            {
                "symbols": pad_to(symbols, (2, text)),
                "lengths": lengths,
                "alpha": torch.full((1,), 1.3),
                "frames": torch.arange(frames),
            }
        )
        total = made["durations"].sum(1)
        assert total.tolist() == wanted.mel_lengths.tolist() and made["mel"].shape[2] == frames
        for mel, reference, count in zip(made["mel"], wanted.mel, total, strict=True):
            torch.testing.assert_close(mel[:, :count], reference[:, :count], atol=2e-5, rtol=0)

"""The same answers for numpy arrays and torch tensors."""

import numpy as np
import torch

from melforge.common.arrays import length_mask, pad_batch, repeat_index, with_rest


def test_repeat_index_repeats_each_step_and_pads_with_zero():
    index, lengths = repeat_index(np.array([[2, 0, 3], [1, 1, 0]]))
    assert index.tolist() == [[0, 0, 2, 2, 2], [0, 1, 0, 0, 0]]
    assert lengths.tolist() == [5, 2]


def test_repeat_index_is_the_same_for_torch():
    repeats = np.random.default_rng(0).integers(0, 6, (4, 31))
    for ours, theirs in zip(repeat_index(repeats), repeat_index(torch.from_numpy(repeats)), strict=True):
        assert np.array_equal(ours, theirs.numpy())


def test_valid_is_the_same_for_torch():
    lengths = np.array([3, 1, 5])
    assert np.array_equal(length_mask(lengths, 5), length_mask(torch.from_numpy(lengths), 5).numpy())


def test_pad_batch_keeps_rows_and_lengths():
    padded, lengths = pad_batch([np.array([4, 5]), np.array([6])], value=9)
    assert padded.tolist() == [[4, 5], [6, 9]] and lengths.tolist() == [2, 1]


def test_the_beginnings_of_rows_come_with_what_stands_behind_them():
    whole = torch.arange(24.0).view(2, 3, 4)
    mel = whole[1, :, :2]
    assert torch.equal(with_rest(mel), whole[1]) and torch.equal(with_rest(mel, 4), whole[1])
    assert with_rest(mel, 5) is None and with_rest(mel.T) is None and with_rest(mel.numpy()) is None
    assert with_rest(whole[1, :, 1:3]) is None  # the memory ends before the last row does
    assert torch.equal(with_rest(whole[0, :, 1:3]), torch.arange(1.0, 13).view(3, 4))

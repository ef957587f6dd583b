"""Contrast between a mel's bands, added to mels."""

import numpy as np
import torch

from melforge.common.audio.sharpness import sharpen


def test_sharpening_adds_contrast_between_bands_and_nothing_to_what_is_even():
    mel = np.random.default_rng(0).standard_normal((2, 80, 7)).astype(np.float32)
    assert sharpen(mel, np.zeros(2, np.float32)) is mel
    even = np.full((1, 80, 3), -5, np.float32)
    np.testing.assert_allclose(sharpen(even, np.full(1, 0.5, np.float32)), even, atol=1e-6)
    sharper = sharpen(mel, np.full(2, 0.5, np.float32))
    assert sharper.dtype == np.float32
    assert np.abs(np.diff(sharper, axis=1)).mean() > 1.2 * np.abs(np.diff(mel, axis=1)).mean()
    middle = mel[:, 38:43].mean(1)
    np.testing.assert_allclose(sharper[:, 40], mel[:, 40] + 0.5 * (mel[:, 40] - middle), atol=1e-5)
    one = np.array([0.0, 0.5], np.float32)  # each item has its own
    np.testing.assert_array_equal(sharpen(mel, one), np.stack([mel[0], sharper[1]]))
    np.testing.assert_allclose(sharpen(torch.from_numpy(mel), one).numpy(), sharpen(mel, one), atol=1e-6)

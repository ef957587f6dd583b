"""The next chunks of several streams, computed in one batch: each is what it would have been alone."""

import numpy as np
import pytest

from common.engines import WrappedEngine
from common.speech import Controls
from common.synthesis.chunks import ChunkSizes
from common.synthesis.driver import Driver
from common.synthesis.loading import make_driver
from common.weights.voices import load_voice

SAME_DB = 100.0  # float32, in another order of additions
TEXTS = (
    "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background.",
    "It works.",
    "Four hours of steady work faced us. Yes. A large size in stockings is hard to sell.",
)


class Counted(WrappedEngine):
    """As a kernel on a GPU: it takes less time for a batch. Notes the batches' sizes."""

    def __init__(self, inner):
        super().__init__(inner)
        self.prefers_batches = True
        self.batches = []

    def __call__(self, **inputs):
        self.batches.append(len(inputs["mel"]))
        return super().__call__(**inputs)


def batching(model):
    """The voice's vocoder with padding masked, as on kernels, at any length."""
    driver = make_driver(load_voice().source(model), "torch", "cpu", 1, decoder="masked")
    driver.generator = Counted(driver.generator)
    assert driver.prefers_batches
    return driver


def decibels(wanted, got):
    """How much louder the wanted samples are than the difference."""
    noise = np.mean((wanted.astype(np.float64) - got) ** 2)
    return 10 * np.log10(np.mean(wanted.astype(np.float64) ** 2) / noise) if noise else np.inf


def some_mels(*lengths):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, 80, frames), np.float32) * 2 - 5 for frames in lengths]


def powers_of_two(monkeypatch):
    """Batches of few sizes, as on kernels."""
    monkeypatch.setattr(Driver, "padded_batch", lambda self, items: 1 << (items - 1).bit_length())


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("model", ["hifigan", "waveglow"])
def test_chunks_made_together_are_those_alone(model, padded, monkeypatch):
    if padded:
        powers_of_two(monkeypatch)
    driver = batching(model)
    mels = some_mels(90, 61, 33, 61, 120)
    controls = [
        Controls(seed=1, sigma=0.5, denoising_strength=0.3),
        Controls(seed=2, denoising_strength=0.0),
        Controls(seed=1, sigma=0.9, denoising_strength=1.0),
        Controls(seed=2, sigma=0.7, denoising_strength=0.0),
        Controls(seed=5, denoising_strength=0.2),
    ]
    sizes = [ChunkSizes(*one) for one in ((20, 40), (24, 24), (30, 40), (20, 60), (40, 40))]
    given = list(zip(mels, sizes, controls, strict=True))
    alone = [list(driver.vocode_chunks(*one)) for one in given]
    several = [driver.vocode_chunks(*one) for one in given]
    made: list[list[np.ndarray]] = [[] for _ in several]
    batches = driver.generator.batches
    batches.clear()
    while any(chunks.window for chunks in several):
        driver.make_ahead(several)
        launches = len(batches)
        driver.make_ahead([chunks for chunks in several if not chunks.needs_run])
        assert len(batches) == launches
        for mine, chunks in zip(made, several, strict=True):
            if chunks.window:
                mine.append(next(chunks))
    # Those that are denoised apart from the others; one that is much shorter than the others was alone.
    assert batches == ([2, 4, 2, 2, 1, 2, 2] if padded else [2, 3, 2, 2, 1, 2, 2])
    for mine, wanted in zip(made, alone, strict=True):
        assert [len(chunk) for chunk in mine] == [len(chunk) for chunk in wanted]
        for chunk, other in zip(mine, wanted, strict=True):
            assert np.abs(chunk).max() > 1e-3 and decibels(other, chunk) >= SAME_DB

"""What HiFi-GAN's and WaveGlow's kernels must both do: tests to inherit, and what these and others call.

A module that inherits them has a fixture `voice`: the model's source in the shipped voice, or one like it.
"""

import functools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from typing import cast

import numpy as np
import pytest
import torch

from melforge.common.engines.backends import make_engine
from melforge.common.engines.torch_engine import TorchEngine
from melforge.common.export.examples import examples_of
from melforge.common.stages import Stage, stages_of
from melforge.common.weights.voices import ModelSource
from melforge.trt_plugins import graphs
from melforge.trt_plugins.graphs import ShapedGenerator

# Of the largest value. What torch in half precision gives is within it too.
TOLERANCE = 5e-3
VOICE_TOLERANCE = 1.5e-2  # trained weights lose more, of mels that are no speech


def stage_of(source: ModelSource, name: str) -> Stage:
    stages = stages_of(source.model, source.config)
    return next(stage for stage in stages if stage.name == name)


def kernels_of(source: ModelSource, name: str = "generator", device: str = "cuda") -> ShapedGenerator:
    return cast(ShapedGenerator, make_engine(stage_of(source, name), source, "cuda", device))


def inputs_for(source: ModelSource, stage: Stage, batch: int, frames: int, seed: int = 0):
    sizes = {"batch": batch, "mel": frames}
    examples = examples_of(source.model)
    drawn = examples.example_inputs(stage, source.config, sizes, np.random.default_rng(seed))
    return {name: torch.from_numpy(value).cuda() for name, value in drawn.items()}


def assert_near(
    kernels: ShapedGenerator, source: ModelSource, batch: int, frames: int, tolerance: float = TOLERANCE
) -> None:
    """That they give what PyTorch gives in float32."""
    stage = kernels.stage
    inputs = inputs_for(source, stage, batch, frames)
    found, *again = (kernels(**inputs)["audio"] for _ in range(3))  # launched, captured, replayed
    assert all(torch.equal(found, one) for one in again)
    wanted = TorchEngine(stage, source, "cuda")(**inputs)["audio"]
    assert found.shape == wanted.shape and found.dtype == torch.float32
    error = float((found - wanted).abs().max() / wanted.abs().max())
    assert error < tolerance, f"batch {batch}, {frames} frames: {error:.1e} of the largest value"


def assert_repeatable(source: ModelSource, batch: int, frames: int) -> None:
    """That a repeated call gives the same audio, and none changes what another gave."""
    kernels = kernels_of(source)
    inputs = inputs_for(source, kernels.stage, batch, frames)
    first = kernels(**inputs)["audio"]
    kept = first.clone()
    kernels(**inputs_for(source, kernels.stage, batch, frames, seed=1))
    assert torch.equal(kernels(**inputs)["audio"], kept)
    assert torch.equal(first, kept)  # a caller's audio is not written again


@pytest.mark.gpu
class OnGpu:
    """Tests on a GPU. Those of what our kernels keep do without those of PyTorch."""

    voice_tolerance = VOICE_TOLERANCE

    @pytest.fixture(autouse=True)
    def precision(self, whole_float32):
        """All of float32 for PyTorch."""

    @pytest.mark.parametrize("name", graphs.STAGES)
    def test_the_shipped_voice_is_near_float32(self, voice, name):
        kernels = kernels_of(voice, name)
        for batch, frames in ((1, 37), (2, 128), (4, 129), (1, 640)):
            assert_near(kernels, voice, batch, frames, self.voice_tolerance)

    @pytest.mark.products
    def test_shapes_that_are_dropped_come_back(self, voice, monkeypatch):
        kernels = kernels_of(voice)
        monkeypatch.setattr(kernels._captured.graphs, "largest", 2)
        inputs = [inputs_for(voice, kernels.stage, 1, frames) for frames in (20, 300, 40)]
        wanted = [kernels(**given)["audio"] for given in inputs]
        for _ in "ab":
            for given, audio in zip(inputs, wanted, strict=True):
                assert torch.equal(kernels(**given)["audio"], audio)
        assert len(kernels._captured.graphs) == 2 and all(kernels._captured.graphs.values())

    def test_another_stream_gives_the_same_audio(self, voice):
        kernels = kernels_of(voice)
        inputs = inputs_for(voice, kernels.stage, 1, 200)
        wanted = kernels(**inputs)["audio"]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            found = kernels(**inputs)["audio"]
        stream.synchronize()
        assert torch.equal(found, wanted)

    @pytest.mark.products
    def test_engines_of_one_source_share_its_weights(self, voice):
        first, second = (kernels_of(voice, name) for name in graphs.STAGES)
        assert first.memory_owner is second.memory_owner
        assert first.memory_bytes == first.folded.nbytes > 0


def interpreted_error(model: str, *arguments: str) -> float:
    return float(interpreted(model, *arguments))


@functools.cache
def interpreting() -> BaseContext:
    """Makes processes that interpret kernels, each of one that has imported what takes seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "triton"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        forkserver.ensure_running()
    return context


def interpreted(model: str, *arguments: str) -> str:
    """What interpreted_<model>.py prints, in a process of its own."""
    from tests.trt_plugins.triton_interpreter import run

    with ProcessPoolExecutor(1, interpreting()) as pool:
        return pool.submit(run, model, *arguments).result()


def print_error(
    kernels: type[ShapedGenerator], network: torch.nn.Module, lengths: str, **inputs: torch.Tensor
) -> None:
    """The error of kernels on a CPU, as part of the largest value; `lengths` as in "11,6", or ""."""
    if lengths:
        inputs["lengths"] = torch.tensor([int(length) for length in lengths.split(",")])
    (wanted,) = network.generate(**inputs)
    batch, _, frames = inputs["mel"].shape
    buffers = kernels.shape(
        network.config,
        kernels.fold(network),
        batch,
        frames,
        lambda *sizes, dtype: torch.zeros(sizes, dtype=dtype),
        "cpu",
    )
    launches, outputs = buffers.describe({"lengths": torch.full((batch,), frames), **inputs})
    for launch in launches:
        launch()
    print(float((outputs["audio"] - wanted).abs().max() / wanted.abs().max()))

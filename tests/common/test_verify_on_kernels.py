"""verify on CUDA kernels of the shipped voice: 2 % of a weight is found, and nothing where all is right."""

import itertools
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest

from melforge.common.config.deployment import Deployment
from melforge.common.engines import Engine, WrappedEngine
from melforge.common.engines.torch_engine import build_network
from melforge.common.recognition.long_recordings import hear_pieces
from melforge.common.registry import get_model
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.stages import plan_of, stages_of
from melforge.common.stages.choose import kernel_stages
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.verify.compare import Comparison
from melforge.common.verify.stages import ComparedEngine, Setup
from melforge.common.weights.ears import stored_source
from melforge.common.weights.voices import ModelSource, load_voice
from tests.common.damage import first_wrong, with_weight

# TensorRT's drift, say, grows with the length: one short sentence hides it.
TEXTS = (
    "Hello.",
    "Every word of this sentence should be heard as it is spoken.",
    "The birch canoe slid on the smooth planks, and nobody aboard said a word about the leak. When the rain "
    "came, at twenty to nine, they pulled it ashore and slept below it until the wind had turned again.",
)
PAIRS = (("fastpitch", "hifigan"), ("fastspeech", "waveglow"), ("tacotron2", "hifigan"))
MODELS = ("fastpitch", "fastspeech", "tacotron2", "hifigan", "waveglow", "jasper")
DEVICE = "cuda"
Calls = list[tuple[str, dict[str, Any]]]  # the stages that ran, and their inputs


class Recorder(WrappedEngine):
    """Keeps the inputs of each call."""

    def __init__(self, inner: Engine, calls: Calls):
        super().__init__(inner)
        self._calls = calls

    def __call__(self, **inputs):
        self._calls.append((self.inner.stage.name, {name: deepcopy(x) for name, x in inputs.items()}))
        return self.inner(**inputs)


@cache
def source_of(model: str) -> ModelSource:
    if model == "jasper":
        return stored_source(model, None, None)
    return load_voice("hazel").source(model)


@cache
def calls_of(text: str, seed: int = 0) -> Mapping[str, Calls]:
    """Of each model, on PyTorch, in the form that kernels have."""
    calls: dict[str, Calls] = {model: [] for model in MODELS}

    def driver(model: str) -> Any:
        source, mine = source_of(model), calls[model]
        stages = [s for s in stages_of(model, source.config) if s.name in kernel_stages(model)]
        engines = StageEngines(stages, source, "torch", DEVICE, watch=lambda e: Recorder(e, mine))
        return get_model(model).driver_class(source, engines)

    spec = source_of(PAIRS[0][0])
    rate = spec.mel.sampling_rate
    for pair in PAIRS:
        tts = TextToSpeech(spec.frontend.build(), *map(driver, pair), sampling_rate=rate)
        spoken = tts.speak(text, Controls(seed=seed))
    places = np.arange(0, len(spoken.samples), rate / source_of("jasper").config.sampling_rate)
    heard = np.interp(places, np.arange(len(spoken.samples)), spoken.samples).astype(np.float32)
    list(hear_pieces(driver("jasper"), [heard]))
    return calls


def compare(model: str, other: ModelSource, calls: Calls) -> Iterable[Comparison]:
    """PyTorch with the voice's weights beside kernels with the `other` ones."""
    source = source_of(model)
    how = Deployment(kernels=kernel_stages(model), mask_padding=True)
    setup = Setup(other, "cuda", DEVICE, how, plan_of(model).layers)
    stages = {stage.name: stage for stage in stages_of(model, source.config)}
    for name, inputs in calls:
        ComparedEngine(stages[name], source, setup, None)(**inputs)
    return setup.comparisons.values()


def weights_of(model: str) -> list[str]:
    """The matrices that speaking or hearing uses, in the network's order."""
    source = source_of(model)
    network = build_network(stages_of(model, source.config)[0], source)
    unused = (*get_model(model).training_only, "position", "places")
    inverted = [name for name in network.state_dict() if name.startswith("convinv") and "conv.weight" in name]
    return [
        name
        for name, value in network.state_dict().items()
        if value.dim() > 1 and not name.startswith(unused) and name not in inverted and "pos_emb" not in name
    ]


def near(weight: str, found: str) -> bool:
    """Whether the tensor is of the weight's part of the network, or made behind its last layer."""
    module, seen = weight.split(".")[:-1][:2], found.partition(":")[0].rstrip("<").split(".")[:2]
    both = min(len(module), len(seen))
    folded = {"upsample", "cond", "pitch_emb", "energy_emb", "word_emb"} & set(module)
    return bool(folded) or module[:both] == seen[:both] or found.endswith("of these layers")


@pytest.fixture(autouse=True)
def precision(whole_float32):
    """All of float32 for PyTorch."""


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_two_percent_of_a_weight_is_found_and_named(model):
    weights = weights_of(model)
    chosen = [weights[i] for i in np.linspace(0, len(weights) - 1, 10).astype(int)]
    for weight, text in zip(chosen, itertools.cycle(TEXTS), strict=False):
        damaged = with_weight(source_of(model), weight, source_of(model).state[weight] * np.float32(1.02))
        wrong = first_wrong(list(compare(model, damaged, calls_of(text)[model])))
        assert wrong and wrong.layer and near(weight, wrong.name), (weight, wrong)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_found_where_nothing_is_wrong(model):
    for seed in range(20):
        calls = calls_of(TEXTS[seed % len(TEXTS)], seed)[model]
        wrong = first_wrong(list(compare(model, source_of(model), calls)))
        assert wrong is None, (seed, wrong)

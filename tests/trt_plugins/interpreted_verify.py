"""Compares a model on its kernels with PyTorch, in Triton's interpreter, and prints what is out of tolerance.

Arguments: the model ("source": a HiFi-GAN with one), then names of weights, each of which is multiplied by
1.02 in turn; "" is none. It prints a JSON list: of each the first tensor out of tolerance, or null.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import triton.language as tl  # noqa: F401 (which a kernel must see)

from melforge.common.audio.contract import MelContract
from melforge.common.config.deployment import Deployment
from melforge.common.engines import Engine, WrappedEngine
from melforge.common.engines.padded import PaddedEngine
from melforge.common.registry import load_attribute
from melforge.common.stages import Stage, plan_of, stages_of
from melforge.common.stages.choose import kernel_stages
from melforge.common.verify import stages as verify_stages
from melforge.common.verify.stages import Setup
from melforge.common.weights.voices import ModelSource
from tests.common import damage
from tests.conftest import tiny_fastpitch, tiny_fastspeech, tiny_hifigan, tiny_source_filter, tiny_waveglow

HOST = "cpu:0"  # which no engine takes for a machine without a GPU
MADE = {
    "fastpitch": tiny_fastpitch,
    "fastspeech": tiny_fastspeech,
    "waveglow": tiny_waveglow,
    "hifigan": tiny_hifigan,
    "source": tiny_source_filter,
}


class OnHost(WrappedEngine):
    """Runs kernels without CUDA graphs."""

    def __call__(self, **inputs):
        assert isinstance(self.inner, PaddedEngine)
        self.inner.__dict__["_captured"] = lambda padded: None
        return self.inner(**{name: torch.as_tensor(value) for name, value in inputs.items()})


def on_host(stage: Stage, source: ModelSource, *_: object) -> Engine:
    kind = load_attribute(plan_of(stage.model).kernels[stage.name])
    kind = kind if isinstance(kind, type) else kind(source.config)
    return OnHost(kind(stage, source, HOST))


def source_of(name: str) -> ModelSource:
    network, config = MADE[name]()
    state = {key: value.numpy() for key, value in network.state_dict().items()}
    model = "hifigan" if name == "source" else name
    return damage.jittered(ModelSource(model, config, Path("x"), MelContract(), given_state=state), 0)


def first_wrong(source: ModelSource, other: ModelSource) -> str | None:
    stages = [s for s in stages_of(source.model, source.config) if s.name in kernel_stages(source.model)]
    how = Deployment(kernels=kernel_stages(source.model))
    setup = Setup(other, "cuda", "cpu", how, plan_of(source.model).layers, threads=1)
    damage.compare_stages(source, setup, [s for s in stages if "denoiser" not in s.name], 0, 1)
    wrong = damage.first_wrong(list(setup.comparisons.values()))
    return wrong and wrong.full_name


torch.cuda.is_available = lambda: True
verify_stages.make_engine = on_host
damage.SIZES |= {"mel": 12, "samples": 12 * 256}  # as few as are padded: a frame takes a second
plain, found = source_of(sys.argv[1]), []
for weight in sys.argv[2:]:
    changed = plain
    if weight:
        changed = damage.with_weight(plain, weight, plain.state[weight] * np.float32(1.02))
    found.append(first_wrong(plain, changed))
print(json.dumps(found))

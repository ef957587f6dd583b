"""Every stage of the shipped voice on TensorRT against PyTorch: batches that grow and shrink, at any call."""

from functools import cache

import numpy as np
import pytest
import torch

from melforge.common.arrays import to_device
from melforge.common.config.deployment import Deployment
from melforge.common.engines import Engine
from melforge.common.engines.backends import make_engine
from melforge.common.engines.tensorrt.api import load_tensorrt
from melforge.common.engines.tensorrt.build import build_stage
from melforge.common.engines.tensorrt.engine_file import engine_file
from melforge.common.export.examples import examples_of
from melforge.common.export.to_onnx import example_inputs, with_graphs
from melforge.common.stages import Stage, root, stages_of
from melforge.common.weights.voices import ModelSource, load_voice

pytestmark = [pytest.mark.gpu, pytest.mark.trt]
# TensorRT for RTX reuses what it compiled for one batch at another: each order may go wrong on its own.
BATCHES = (1, 2, 4, 8, 2, 1)
TEXT, MEL, STEPS = 37, 70, 8
LAST_CALL = 10
# Root mean square of an item's error over that of the batch's values. Rounding costs a tenth of it.
TOLERANCES = {"fp32": 1e-2, "fp16": 3e-2}


@cache
def source_of(model: str) -> ModelSource:
    source = load_voice().source(model)
    return with_graphs(source, stages_of(model, source.config))


def stage_names(model: str) -> list[str]:
    return [stage.name for stage in stages_of(model, load_voice().source(model).config)]


def engines_of(model: str, name: str, precision: str, folder) -> tuple[Stage, Engine, Engine]:
    """The stage, its engine on PyTorch and that on TensorRT, for batches of up to 8."""
    source, trt = source_of(model), load_tensorrt()
    how = Deployment(trt_file_path=str(folder / f"{model}.trt"), batch_size=max(BATCHES), precision=precision)
    stage = next(stage for stage in stages_of(model, source.config) if stage.name == name)
    build_stage(engine_file(stage, source, how, trt), source, trt, False, 8.0)
    engines = [make_engine(stage, source, b, "cuda", None, how) for b in ("torch", "trt")]
    return stage, engines[0], engines[1]


def inputs_of(stage: Stage, source: ModelSource, reference: Engine, batch: int) -> dict[str, torch.Tensor]:
    """Inputs whose items have different lengths; the batches' own lengths differ too."""
    text = -(-(TEXT + batch) // stage.rtx_text_step) * stage.rtx_text_step
    lengths = {"text": text, "mel": MEL + 8 * batch, "steps": STEPS, "batch": batch}
    sizes = {
        d.name: max(d.min, lengths.get(root(d), d.typical) * (d.times if d.of else 1))
        for d in stage.dynamic_dims.values()
    }
    inputs = example_inputs(stage, source.config, sizes, batch)
    given = {name: to_device(value, "cuda") for name, value in inputs.items()}
    return examples_of(stage.model).steady_inputs(stage, reference, given)


def item_errors(got: torch.Tensor, wanted: torch.Tensor) -> list[float]:
    assert got.shape == wanted.shape
    error = (got.double() - wanted.double()).reshape(len(wanted), -1).square().mean(1).sqrt()
    return (error / wanted.double().square().mean().sqrt().clamp_min(1e-6)).tolist()


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize(("model", "name"), [(m, s) for m in load_voice().models for s in stage_names(m)])
def test_each_item_of_every_batch_is_pytorchs(model, name, precision, tmp_path):
    source = source_of(model)
    stage, reference, engine = engines_of(model, name, precision, tmp_path)
    wrong = []
    for batch in BATCHES:
        inputs = inputs_of(stage, source, reference, batch)
        wanted = {key: value.clone() for key, value in reference(**inputs).items()}
        for call in range(1, LAST_CALL + 1):
            got = engine(**inputs)
            if call not in (1, LAST_CALL):
                continue
            for key, value in wanted.items():
                errors = item_errors(got[key], value)
                if not np.max(errors) <= TOLERANCES[precision]:
                    wrong.append(f"batch {batch}, call {call}, {key}: {' '.join(f'{e:.0e}' for e in errors)}")
    assert not wrong, "\n".join(wrong)

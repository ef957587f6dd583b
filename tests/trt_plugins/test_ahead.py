"""Every launch of every model, compiled for GPUs that are not here: machine code that fits them."""

import pytest

from melforge.common.bench.random_weights import random_source
from melforge.common.config.deployment import Bucket
from melforge.common.registry import MODELS
from melforge.common.weights.ears import list_ears, load_ear
from melforge.common.weights.voices import ModelSource, load_voice
from melforge.trt_plugins.limits import limits_like

SHIPPED = "shipped"
# Of all kinds: without tensor cores in Triton, with tiles that threads load, and with tiles that are copied.
TARGETS = ("sm_75:40", "sm_86:46", "sm_120:170")
RUNS = [(Bucket(128, 640), batch) for batch in (1, 8)]


def source_of(model: str, weights: str, folder) -> ModelSource:
    if weights != SHIPPED:
        return random_source(model, folder)
    return load_ear(list_ears()[0]).only if model == "jasper" else load_voice().source(model)


@pytest.mark.triton
@pytest.mark.slow
@pytest.mark.parametrize("weights", [SHIPPED, "published"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_fit_the_gpu_and_do_not_spill(target, model, weights, tmp_path, monkeypatch):
    from melforge.trt_plugins import ahead

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    (limits,) = limits_like(target)
    launches = ahead.launches_for(source_of(model, weights, tmp_path), RUNS, limits)
    for name, kernel in ahead.compiled(launches, limits).items():
        found = ahead.resources(kernel)
        assert found.shared_bytes <= limits.shared_bytes, name
        assert found.stack_bytes <= ahead.STACK, name


def test_a_target_that_does_not_exist_is_refused():
    for name in ("sm_99", "86", "sm_86:", "RTX 3070"):
        with pytest.raises(ValueError, match=r"is no architecture: use one of sm_75, sm_80, .* sm_86:46"):
            limits_like(name)

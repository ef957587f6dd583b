"""Every launch of every model, compiled for GPUs that are not here: machine code that fits them."""

import gc
import json
import re

import pytest
import torch

from melforge.common.bench.random_weights import random_source
from melforge.common.cli.build import main as build_main
from melforge.common.config.deployment import Bucket
from melforge.common.engines.limits import limits_like
from melforge.common.registry import MODELS
from melforge.common.weights.ears import list_ears, load_ear
from melforge.common.weights.voices import ModelSource, load_voice
from melforge.trt_plugins import direct
from melforge.trt_plugins.graphs import TritonLaunch, collecting

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
        wanted, made = direct.parameter_bytes(kernel), parameter_bytes(kernel.asm["ptx"])
        assert made[: len(wanted)] == wanted and made[len(wanted) :] == [8, 8], name


def parameter_bytes(ptx: str) -> list[int]:
    """Of each parameter of a kernel."""
    entry = ptx[ptx.index(".entry") :]
    found = re.findall(r"\.param .*?\.[usbf](\d+) [^,\[\n]*(?:\[(\d+)\])?", entry[: entry.index(")")])
    return [int(count or 1) * int(bits) // 8 for bits, count in found]


@pytest.mark.triton
def test_after_a_kernel_that_does_not_compile_others_do(tmp_path, monkeypatch):
    import triton
    from triton import language as tl

    from melforge.trt_plugins import ahead

    @triton.jit
    def copy(source, target, fits: tl.constexpr):
        tl.static_assert(fits)
        tl.store(target, tl.load(source))

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    (limits,) = limits_like("sm_86:46")
    tensor = torch.empty(1, device="meta")

    def launch(fits: bool) -> TritonLaunch:
        return TritonLaunch(copy, (1,), (tensor, tensor, fits), {})

    with pytest.raises(triton.CompilationError):
        ahead.compiled([launch(False)], limits)
    assert len(ahead.compiled([launch(True)], limits)) == 1
    assert gc.isenabled()


@pytest.mark.triton
@pytest.mark.slow
def test_kernels_for_another_gpu_are_built_into_the_cache(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    words = ["--backend", "cuda", "--for", "sm_86:46", "--acoustic", "fastspeech", "--json"]
    assert build_main(words) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["GPU"], row["model"]) for row in rows] == [
        ("sm_86:46", "fastspeech"),
        ("sm_86:46", "hifigan"),
    ]
    found = len(list(tmp_path.glob("triton/*/*.cubin")))
    assert 0 < found <= sum(int(row["kernels"]) for row in rows)
    assert build_main(words) == 0
    assert len(list(tmp_path.glob("triton/*/*.cubin"))) == found  # nothing was missing
    assert not list(tmp_path.glob("triton/*/*.so"))  # nothing was made by a C compiler


def test_a_tensor_that_does_not_lie_in_rows_is_launched_nowhere():
    """A transposed one, which looks like any other; a part of longer rows does."""
    x = torch.empty(4, 3, 5)
    with collecting() as launches:
        TritonLaunch(None, (1,), (x, x[:, :, 1:3], x[0], x[:, :1].mT), {})()
        with pytest.raises(ValueError, match=r"\(4, 5, 3\) lies in memory by strides of \(15, 1, 5\)"):
            TritonLaunch(None, (1,), (x, x.mT), {})()
    assert len(launches) == 1

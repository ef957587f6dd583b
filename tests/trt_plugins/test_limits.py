"""Which kernels run on which GPU: by what it has, and never by its name."""

import dataclasses
import json

import pytest
import torch

from melforge.common.bench.random_weights import random_source
from melforge.common.cli import build
from melforge.common.cli.list import main as list_main
from melforge.common.engines import limits
from melforge.common.engines.backends import kernel_kind
from melforge.common.engines.limits import H200, Limits, elsewhere, limits_like
from melforge.common.engines.padded import CapturedNetwork
from melforge.common.engines.torch_engine import META
from melforge.common.errors import InputError
from melforge.common.registry import MODELS, get_model
from melforge.common.stages import stages_of
from melforge.common.stages.choose import kernel_stages
from melforge.common.weights.ears import list_ears, load_ear
from melforge.common.weights.voices import ModelSource, load_voice

ISTFT = {"istft_n_fft": 16, "istft_hop_length": 4}
(T4,), (RTX_3070,) = limits_like("sm_75:40"), limits_like("sm_86:46")


@pytest.fixture(autouse=True)
def has_triton(monkeypatch):
    monkeypatch.setattr(limits, "can_launch", lambda: True)


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> list[ModelSource]:
    folder = tmp_path_factory.mktemp("graphs")
    shipped = [*load_voice().models.values(), *(load_ear(name).only for name in list_ears())]
    return [*shipped, *(random_source(model, folder) for model in ("fastpitch", "hifigan"))]


def kinds(source: ModelSource, on: Limits) -> dict[str, tuple[type, str | None]]:
    stages = {stage.name: stage for stage in stages_of(source.model, source.config)}
    with elsewhere(on):
        return {n: kernel_kind(stages[n], source, META) for n in kernel_stages(source.model) if n in stages}


def test_our_kernels_run_from_8_0_on(sources):
    assert {source.model for source in sources} == set(MODELS)
    for source in sources:
        for on in (H200, RTX_3070, *limits_like("sm_80"), *limits_like("sm_120:170")):
            assert not any(reason for _, reason in kinds(source, on).values())


def test_every_stage_runs_on_a_t4(sources):
    for source in sources:
        ours = {name for name, (_, reason) in kinds(source, T4).items() if reason is None}
        assert "masked_pitch" in ours or not getattr(source.config, "source", False)
        for kind, reason in kinds(source, T4).values():
            assert not reason or reason.startswith("ours need compute capability 8.0, not 7.5")
            assert not reason or not hasattr(kind, "needs")


def test_what_is_older_is_refused():
    with pytest.raises(ValueError, match=r"--backend cuda needs compute capability 7\.5, not 7\.0"):
        kinds(load_voice().source("fastpitch"), T4._replace(capability=(7, 0)))


def test_without_triton_all_run_on_pytorchs_kernels(monkeypatch):
    monkeypatch.setattr(limits, "can_launch", lambda: False)
    for model in ("fastpitch", "waveglow", "hifigan"):
        for kind, reason in kinds(load_voice().source(model), H200).values():
            assert issubclass(kind, CapturedNetwork) and reason in (None, "ours need Triton")
    with pytest.raises(InputError, match="--for needs Triton: pip install triton"):
        build.main(["--backend", "cuda", "--for", "sm_90"])


@pytest.mark.parametrize(
    ("model", "changes", "reason"),
    [
        ("hifigan", {"upsample_kernel_sizes": (16, 16, 4, 3)}, "upsampling by 2 with kernel 3"),
        ("hifigan", {"upsample_rates": (8, 8), "upsample_kernel_sizes": (16, 16), **ISTFT}, "only with"),
        ("waveglow", {"n_group": 32}, "n_group of 16 at most"),
    ],
)
def test_networks_that_the_kernels_do_not_know_run_on_pytorchs(model, changes, reason, tmp_path):
    published = random_source("fastpitch", tmp_path)
    config = dataclasses.replace(get_model(model).config_class(), **changes)
    found = kinds(dataclasses.replace(published, model=model, config=config), H200)["masked_generator"]
    assert reason in (found[1] or "") and not hasattr(found[0], "needs")


@pytest.mark.no_gpu
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_machine_without_a_gpu_is_refused(device):
    source = load_voice().source("fastpitch")
    stage = next(iter(stages_of("fastpitch", source.config)))
    with pytest.raises(ValueError, match=f"device '{device}': .*GPU"):
        kernel_kind(stage, source, device)


def test_limits_of_a_cpu_are_those_of_the_gpu_compiled_for():
    assert limits.limits_of("cpu") == H200
    with elsewhere(T4):
        assert limits.limits_of(torch.device("cpu")) == T4
    assert limits.limits_of("cpu") == H200


def test_a_gpu_is_listed_with_what_runs_on_it(capsys):
    assert list_main(["--device", "sm_75:40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    stages = {(one["owner"], one["stage"]): (one["kernels"], one["reason"]) for one in found["stages"]}
    assert found["capability"] == [7, 5] and found["shared_bytes"] == 64 << 10
    assert stages["hazel", "hifigan.masked_pitch"] == ("ours", "")
    kernels, reason = stages["hazel", "fastpitch.encoder"]
    assert kernels == "PyTorch's" and reason.startswith("ours need compute capability 8.0, not 7.5")
    assert list_main(["--device", "sm_86:46", "--voice", "hazel"]) == 0
    said = capsys.readouterr().out
    assert "compute capability 8.6, 46 multiprocessors, 99 KiB of shared memory a block" in said
    assert "PyTorch's  ours need" not in said and "jasper" not in said


@pytest.mark.parametrize("name", ["sm_99", "86", "sm_86:", "RTX 3070"])
def test_a_gpu_that_does_not_exist_is_refused(name):
    with pytest.raises(ValueError, match=r"is no architecture: use one of sm_75, sm_80, .* sm_86:46"):
        list_main(["--device", name])

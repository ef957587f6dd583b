"""What every benchmark of the kernels has: --help, and one line where there is no GPU."""

from functools import partial

import pytest
import torch

from tests.conftest import ROOT

NAMES = ("operations", "hifigan", "waveglow", "transformer", "tacotron2_decoder")


@pytest.fixture(params=NAMES)
def run(request, program):
    return partial(program, ROOT / "trt_plugins" / "benchmark.py", request.param)


def test_every_benchmark_has_help(run):
    status, out, _ = run("--help")
    assert status == 0 and "default" in out


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_no_gpu_is_said(run):
    assert run() == (2, "", "error: PyTorch sees no GPU here\n")

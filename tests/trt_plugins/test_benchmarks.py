"""What every benchmark of the kernels has: --help, and one line where there is no GPU."""

import warnings

import pytest
import torch

from melforge.common.cli import run_command

NAMES = ("operations", "hifigan", "waveglow", "transformer", "tacotron2_decoder")


@pytest.fixture(params=NAMES)
def run(request, monkeypatch, capsys):
    """Runs a benchmark in this process; its status, stdout and stderr."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def run(*words: str):
        monkeypatch.setattr("sys.argv", ["benchmark.py", request.param, *words])
        with pytest.raises(SystemExit) as stopped:
            run_command("melforge.trt_plugins.benchmark")
        return stopped.value.code, *capsys.readouterr()

    return run


def test_every_benchmark_has_help(run):
    status, out, _ = run("--help")
    assert status == 0 and "default" in out


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_no_gpu_is_said(run):
    assert run() == (2, "", "error: PyTorch sees no GPU here\n")

"""A wheel, installed elsewhere, speaks from another folder with the voice, ear and recipes that it brings."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import soundfile

import melforge

ROOT = Path(__file__).parent.parent
LEFT_OUT = (".git", "build", "dist", "tests", "docs", ".venv", "*.egg-info", "__pycache__", "corpus", "runs")


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The scripts' folder of a fresh environment with the wheel, which sees the packages of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    source = shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(*LEFT_OUT))
    pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")
    build = (*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source))
    subprocess.run(build, check=True)
    environment = folder / "environment"
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(environment)), check=True)
    python = environment / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith(f"melforge-{melforge.__version__}-")
    subprocess.run(
        (*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)), check=True
    )
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin"


def run(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess:
    left_out = ("PYTHONPATH", "MELFORGE_VOICES", "MELFORGE_EARS")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    command = [str(installed / "melforge"), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


@pytest.mark.slow
def test_an_installed_wheel_speaks_from_another_folder(installed, tmp_path):
    result = run(installed, tmp_path, "speak", "Hello.")
    assert result.returncode == 0, result.stderr
    assert soundfile.info(tmp_path / "speech.wav").duration > 0.3
    hparams = ("--hparam", "hparams/tacotron2/infer.yaml", "--print-hparams")
    result = run(installed, tmp_path, "speak", "Hello.", *hparams)
    assert result.returncode == 0, result.stderr
    assert "acoustic: tacotron2  # hparams/tacotron2/infer.yaml" in result.stdout.splitlines()
    assert f"{installed.parent}" in result.stdout  # the voice is the one that was installed
    assert str(ROOT) not in result.stdout
    assert run(installed, tmp_path, "--version").stdout == f"melforge {melforge.__version__}\n"
    listed = run(installed, tmp_path, "list").stdout
    assert "hazel" in listed and all(path.name in listed for path in (ROOT / "ears").iterdir())
    heard = run(installed, tmp_path, "transcribe", "speech.wav")
    assert heard.returncode == 0 and heard.stdout, heard.stderr


@pytest.mark.slow
@pytest.mark.parametrize("data", ["common/serve/page", "common/export/graphs"])
def test_an_installed_wheel_has_the_page_of_the_server_and_the_packed_graphs(installed, data):
    (found,) = installed.parent.glob(f"lib/python*/site-packages/{data}")
    here = {path.name: path.read_bytes() for path in (ROOT / data).iterdir()}
    assert {path.name: path.read_bytes() for path in found.iterdir()} == here

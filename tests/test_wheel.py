"""A wheel, installed elsewhere, is one package: it speaks from any folder, whatever else lies there."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import soundfile

import melforge
from melforge.common import registry

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
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    return environment / "bin"


@pytest.fixture
def crowded(tmp_path) -> Path:
    """A user's folder, whose own modules have the names of folders of our checkout."""
    for name in ("common", "voices", "hifigan"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = 1\n")
    for name in ("ears", "hparams", "jasper", "trt_plugins"):
        (tmp_path / f"{name}.py").write_text("MINE = 1\n")
    return tmp_path


def clean_environment() -> dict[str, str]:
    left_out = ("PYTHONPATH", "MELFORGE_VOICES", "MELFORGE_EARS")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def run(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess:
    command = [str(installed / "melforge"), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=clean_environment())


def run_code(installed: Path, folder: Path, code: str) -> subprocess.CompletedProcess:
    command = [str(installed / "python"), "-c", code]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=clean_environment())


@pytest.mark.slow
def test_a_wheel_is_one_package(installed):
    (wheel,) = installed.parent.parent.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"melforge", f"melforge-{melforge.__version__}.dist-info"}
    assert {f"melforge/{name}/config.py" for name in registry.names()} | {"melforge/py.typed"} <= set(names)
    assert not [name for name in names if name.split("/")[1] in ("tests", "scripts", "recipes", "examples")]


@pytest.mark.slow
def test_an_installed_wheel_speaks_beside_a_users_own_modules(installed, crowded, tiny_voice, monkeypatch):
    result = run(installed, crowded, "speak", "Hello.")
    assert result.returncode == 0, result.stderr
    assert soundfile.info(crowded / "speech.wav").duration > 0.3
    hparams = ("--hparam", "hparams/tacotron2/infer.yaml", "--print-hparams")
    result = run(installed, crowded, "speak", "Hello.", *hparams)
    assert result.returncode == 0, result.stderr
    assert "acoustic: tacotron2  # hparams/tacotron2/infer.yaml" in result.stdout.splitlines()
    assert f"{installed.parent}" in result.stdout  # the voice is the one that was installed
    assert str(ROOT) not in result.stdout
    assert run(installed, crowded, "--version").stdout == f"melforge {melforge.__version__}\n"
    listed = run(installed, crowded, "list").stdout
    assert "hazel" in listed and all(path.name in listed for path in (ROOT / "ears").iterdir())
    shutil.copytree(tiny_voice, crowded / "data/melforge/voices/ann")
    monkeypatch.setenv("XDG_DATA_HOME", str(crowded / "data"))
    assert run(installed, crowded, "speak", "Hello.", "--voice", "ann", "-o", "ann.wav").returncode == 0
    heard = run(installed, crowded, "transcribe", "speech.wav")
    assert heard.returncode == 0 and heard.stdout, heard.stderr
    code = "import common, melforge.hifigan.config, hifigan; from melforge import TextToSpeech"
    result = run_code(
        installed, crowded, f"{code}; print(common.MINE, hifigan.MINE, TextToSpeech.__module__)"
    )
    assert result.stdout.split() == ["1", "1", "melforge.common.runner"], result.stderr
    server = "from melforge.common.serve.app import make_app; import ears; print(ears.MINE)"
    assert run_code(installed, crowded, server).stdout.split() == ["1"]


@pytest.mark.slow
@pytest.mark.parametrize("data", ["common/serve/page", "common/export/graphs"])
def test_an_installed_wheel_has_the_page_of_the_server_and_the_packed_graphs(installed, data):
    (found,) = installed.parent.glob(f"lib/python*/site-packages/melforge/{data}")
    here = {path.name: path.read_bytes() for path in (ROOT / data).iterdir()}
    assert {path.name: path.read_bytes() for path in found.iterdir()} == here

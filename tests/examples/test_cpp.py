"""examples/cpp: compiled as its README says, it speaks as Melforge does."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import soundfile

from melforge.common.cli.export import main as export
from melforge.common.cli.speak import main as speak
from tests.conftest import onnxruntime_headers

FOLDER = Path(__file__).parents[2] / "examples" / "cpp"
TEXT = "Hello there. How are you?"
PACE = 0.9


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """Built with the headers and the library of Python's package, laid out as the release for C++."""
    root = tmp_path_factory.mktemp("onnxruntime")
    library = next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"))
    (root / "lib").mkdir()
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (root / "lib" / name).symlink_to(library)
    (root / "include").symlink_to(onnxruntime_headers())
    line = re.search(r"^g\+\+ .*", (FOLDER / "README.md").read_text(), re.MULTILINE)[0]
    command = line.replace("$ORT", str(root)).replace("-o speak", f"-o {root / 'speak'}")
    subprocess.run(command.split(), cwd=FOLDER.parents[1], check=True)
    return root / "speak"


@pytest.fixture(scope="module", params=["tiny_voice", "voice_with_source"])
def voice(request) -> Path:
    """With a vocoder of either kind."""
    return request.getfixturevalue(request.param)


def export_files(voice: Path, folder: Path) -> tuple[Path, Path]:
    folders = folder / "fastpitch", folder / "hifigan"
    for one in folders:
        assert not export([one.name, "--voice", str(voice), "-o", str(one), "--no-check"])
    return folders


@pytest.fixture(scope="module")
def exported(tiny_voice, tmp_path_factory) -> tuple[Path, Path]:
    return export_files(tiny_voice, tmp_path_factory.mktemp("exported"))


def write_ids(voice: Path, capsys, monkeypatch) -> str:
    monkeypatch.setattr(sys, "argv", ["write_ids.py", TEXT, "--voice", str(voice)])
    runpy.run_path(str(FOLDER / "write_ids.py"), run_name="__main__")
    return capsys.readouterr().out


def test_ids_are_a_line_for_each_utterance(tiny_voice, capsys, monkeypatch):
    lines = [line.split() for line in write_ids(tiny_voice, capsys, monkeypatch).splitlines()]
    assert len(lines) == 2 and float(lines[0][0]) > 0 == float(lines[1][0])
    assert all(int(word) >= 0 for _, *ids in lines for word in ids) and len(lines[0]) > 3


@pytest.mark.onnxruntime_headers
@pytest.mark.slow
def test_the_program_speaks_as_melforge_does(program, voice, tmp_path, capsys, monkeypatch):
    ids = tmp_path / "ids.txt"
    ids.write_text(write_ids(voice, capsys, monkeypatch))
    exported = export_files(voice, tmp_path)
    subprocess.run([program, *exported, ids, tmp_path / "cpp.wav", str(PACE)], check=True)
    words = ["--acoustic", "fastpitch", "--vocoder", "hifigan", "--voice", voice, "--pace", PACE]
    words += ["--denoising-strength", 0, "--text", TEXT, "-o", tmp_path / "melforge.wav"]
    assert not speak(list(map(str, words)))
    (got, rate), (wanted, wanted_rate) = (
        soundfile.read(tmp_path / name) for name in ("cpp.wav", "melforge.wav")
    )
    assert rate == wanted_rate and got.shape == wanted.shape
    assert 10 * np.log10(np.sum(wanted**2) / np.sum((got - wanted) ** 2)) >= 60


@pytest.mark.onnxruntime_headers
@pytest.mark.slow
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("", "no symbol ids to speak"),
        (" \n\t\n", "no symbol ids to speak"),
        *(
            (line, f"not a line of a pause and symbol ids: {line}")
            for line in ("0.1 5 x 7", "x 5", "0.1", "0.1 5 -7", "nan 5", "-1 5", "1e12 5", "1e999 5")
        ),
    ],
)
def test_what_are_no_ids_is_refused(ids, message, program, exported, tmp_path):
    words = [program, *exported, "-", tmp_path / "x.wav"]
    ran = subprocess.run(words, input=ids, capture_output=True, text=True)
    assert ran.returncode == 2 and ran.stderr == f"error: {message}\n"


@pytest.mark.onnxruntime_headers
@pytest.mark.slow
@pytest.mark.parametrize("pace", ["fast", "", "0", "-1", "nan", "1e-9", "1.0x", "11"])
def test_a_bad_pace_is_a_sentence(pace, program, tmp_path):
    words = [program, tmp_path, tmp_path, "-", tmp_path / "x.wav", pace]
    ran = subprocess.run(words, input="", capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr == f"error: the pace must be a number from 0.1 to 10, not '{pace}'\n"

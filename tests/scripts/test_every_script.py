"""What every script has: --help, --hparam, --set, --print-hparams, and errors of one line."""

from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "scripts"
SCRIPTS = sorted(set(FOLDER.glob("*.py")) - {FOLDER / "checkout.py"})


@pytest.fixture
def run(tiny_voice, program, monkeypatch):
    monkeypatch.setenv("MELFORGE_VOICES", str(tiny_voice.parent))
    return program


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_takes_settings_and_tells_them(run, script, tmp_path):
    status, out, _ = run(script, "--help")
    assert status == 0 and all(word in out for word in ("--hparam", "--set", "--print-hparams"))
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    status, out, _ = run(script, "--hparam", tmp_path / "empty.yaml", "--print-hparams")
    values = yaml.safe_load(out)
    assert status == 0 and values and all("  # " in line or line.endswith(":") for line in out.splitlines())
    key = next(iter(values))
    (tmp_path / "wrong.yaml").write_text(f"\n{key}x: 1\n")
    status, out, errors = run(script, "--hparam", tmp_path / "wrong.yaml", "--print-hparams")
    assert (status, out) == (2, "")
    place = f"error: {tmp_path / 'wrong.yaml'}, line 2: unknown key '{key}x'; did you mean '{key}'?"
    assert errors.splitlines() == [place]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [x, x]\npace: *a", "line 2: aliases (*name) are not allowed"),
        ("pace: !!python/object/apply:os.system [ls]", "line 1: the tag !!python/object/apply:os.system is"),
        ("parent_yaml: bad.yaml", "line 1: parent_yaml goes in a circle"),
        ("pace: 0", "line 1: pace must be a number from 0.1 to 10, not 0.0"),
    ],
)
def test_bad_files_are_errors_of_one_line(run, text, message, tmp_path):
    (tmp_path / "bad.yaml").write_text(text)
    script = next(path for path in SCRIPTS if path.stem == "infer")
    status, out, errors = run(script, "--text", "Hello.", "--hparam", tmp_path / "bad.yaml")
    assert (status, out) == (2, "") and len(errors.splitlines()) == 1
    assert errors.startswith(f"error: {tmp_path / 'bad.yaml'}, {message}")

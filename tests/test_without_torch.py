"""The main job runs where PyTorch and onnx are not installed.

$MELFORGE_SLIM_PYTHON names the Python of an environment with the base install only (.ci/run makes one).
Without it, an import hook hides the packages.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from melforge.common.registry import MODELS

ROOT = Path(__file__).parent.parent
HIDE = f"""
import runpy, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "onnx", "onnxscript", "scipy", "matplotlib"):
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Hidden())
sys.argv = sys.argv[1:]
sys.path.insert(0, {str(ROOT / "scripts")!r})
run = runpy.run_path if sys.argv[0].endswith(".py") else runpy.run_module
run(sys.argv[0], run_name="__main__")
"""
TRAINING = [
    *(f"{model}.train" for model in MODELS),
    *(
        "melforge.fastpitch.align",
        "melforge.fastpitch.predict_mels",
        "melforge.fastspeech.align_tacotron2",
        "melforge.tacotron2.predict_mels",
    ),
    *("recipes.hazel.prepare", "recipes.hazel.rise"),
    *("recipes.english.train_g2p", "recipes.english.train_homographs"),
]


@pytest.fixture(params=["tiny", "shipped"])
def voice(request, tiny_voice) -> Path:
    if request.param == "tiny":
        return tiny_voice
    return ROOT / "voices" / "hazel"


def run(tmp_path: Path, *arguments: object, script: str = "infer.py") -> subprocess.CompletedProcess:
    return run_without_torch(tmp_path, str(ROOT / "scripts" / script), *map(str, arguments))


def run_without_torch(tmp_path: Path, program: str, *words: str) -> subprocess.CompletedProcess:
    """Of a script, or of a module by its name."""
    slim = os.environ.get("MELFORGE_SLIM_PYTHON")
    python = [slim] if slim else [sys.executable, "-c", HIDE]
    named = ["-m"] if slim and not program.endswith(".py") else []
    command = [*python, *named, program, *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)


def test_the_main_job_needs_no_torch(voice, tmp_path):
    pair = ("--acoustic", "fastpitch", "--vocoder", "hifigan", "--voice", voice)
    result = run(tmp_path, *pair, "--text", "Hello there.")
    assert result.returncode == 0, result.stderr
    assert soundfile.info(tmp_path / "speech.wav").duration > 0.1


def test_a_cold_start_loads_nothing_that_takes_long(tiny_voice):
    """FastPitch draws no noise, and hashes nothing: each of these takes a twentieth of the start."""
    code = (
        "import sys; from melforge import TextToSpeech; "
        f"TextToSpeech.load('fastpitch', 'hifigan', {str(tiny_voice)!r}, device='cpu').speak('Hello.'); "
        "print(*sorted({'torch', 'numpy.random', 'hashlib', 'logging'} & sys.modules.keys()))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [os.environ.get("MELFORGE_SLIM_PYTHON") or sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.stdout == "\n", result.stdout + result.stderr


def test_the_options_of_speaking_load_no_recogniser():
    code = (
        "import sys; from melforge.common.cli.speak import parse; parse(['Hello.']); "
        "print(*sorted({'melforge.jasper.config', 'melforge.waveglow.stages'} & sys.modules.keys()))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.stdout == "\n", result.stdout + result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--backend", "torch"),
        ("--checkpoint", ROOT / "tests" / "golden" / "hifigan_jik876" / "V2" / "g_02500000"),
    ],
)
def test_what_needs_torch_says_so(tiny_voice, tmp_path, arguments):
    result = run(tmp_path, "--voice", tiny_voice, "--text", "Hello.", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ") and "needs PyTorch: pip install -e '.[torch]'" in result.stderr


@pytest.mark.parametrize("module", [*TRAINING, "melforge.trt_plugins.export_onnx", "recipes.pack_graphs"])
def test_a_module_that_imports_torch_says_what_it_needs(module, tmp_path):
    result = run_without_torch(tmp_path, module)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert re.fullmatch(r"error: this needs (PyTorch|onnx): pip install -e '\.\[torch\]'\n", result.stderr)

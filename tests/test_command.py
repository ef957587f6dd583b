"""The public face: `import melforge`, the command, its exit statuses, and a clone without an install."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import melforge
from melforge import __version__
from melforge.__main__ import COMMANDS, VOICE_COMMANDS
from melforge.common.cli import run as run_module
from melforge.common.errors import InputError, counted, with_article

ROOT = Path(__file__).parent.parent
SPOKEN = str(ROOT / "tests" / "data" / "heard" / "teacher.ogg")
SCRIPTS = sorted(set((ROOT / "scripts").glob("*.py")) - {ROOT / "scripts" / "checkout.py"})


def python(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, cwd=cwd)


def test_the_public_names_come_without_torch():
    code = (
        "import sys, melforge; assert not {'numpy', 'melforge.common.runner'} & set(sys.modules)\n"
        "from melforge import Audio, Controls, TextToSpeech, __version__; assert 'torch' not in sys.modules\n"
        "print(Controls(pace=2).pace, TextToSpeech.__name__, Audio.__name__, __version__)"
    )
    result = python("-c", code)
    assert result.stdout.split() == ["2", "TextToSpeech", "Audio", melforge.__version__], result.stderr
    assert dir(melforge) == sorted(melforge.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Controlls'"):
        melforge.Controlls  # noqa: B018


def test_speaking_leaves_nothing_behind_and_tells_nobody(tiny_voice, tmp_path):
    """ONNX Runtime would keep a number for this machine, and what it has yet to send."""
    ours = {name: value for name, value in os.environ.items() if name not in ("CI", "ORT_DISABLE_TELEMETRY")}
    code = "import sys; from melforge import TextToSpeech as T; T.load(voice=sys.argv[1]).speak('Hello.')"
    environment = ours | dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(tmp_path))
    subprocess.run([sys.executable, "-c", code, str(tiny_voice)], check=True, cwd=ROOT, env=environment)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("own", "used"), [(None, "1"), ("3", "3")])
def test_a_short_command_begins_no_threads_of_a_blas(own, used, monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if own:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", own)
    code = (
        "import os; from melforge.common.cli import prepare_short\n"
        "prepare_short(); print(os.environ['OPENBLAS_NUM_THREADS'])"
    )
    result = python("-c", code)
    assert result.stdout.split() == [used], result.stderr


def test_help_lists_every_command_in_a_line(melforge):
    for words, wanted in (((), 2), (("--help",), 0), (("help",), 0)):
        status, out, _ = melforge(*words)
        assert status == wanted and "--version" in out
        assert [line.split()[0] for line in out.splitlines() if line.startswith("  ")] == list(COMMANDS)
    assert melforge("--version") == (0, f"melforge {__version__}\n", "")


EVERY = [(name,) for name in COMMANDS if name != "voice"] + [("voice", name) for name in VOICE_COMMANDS]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_has_help(melforge, words):
    status, out, _ = melforge(*words, "--help")
    assert status == 0 and out.startswith(f"usage: melforge {' '.join(words)} ") and "--debug" in out


def test_help_is_a_word_too(melforge):
    assert melforge("help", "voice", "make") == melforge("voice", "make", "--help")


@pytest.mark.parametrize(("words", "wanted"), [(("voice",), 2), (("voice", "--help"), 0)])
def test_the_commands_of_voices_are_listed(melforge, words, wanted):
    status, out, _ = melforge(*words)
    assert status == wanted and out.startswith("usage: melforge voice COMMAND ")
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  ")] == list(VOICE_COMMANDS)


def test_no_command_has_two_names():
    modules = [what for commands in (COMMANDS, VOICE_COMMANDS) for what, _ in commands.values()]
    assert len(modules) == len({str(what) for what in modules})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("speek", "unknown command 'speek': did you mean 'speak'?"),
        ("voice chekc", "unknown command of melforge voice 'chekc': did you mean 'check'?"),
        (
            "voice ann --checkpoint a.pt",
            "melforge voice takes a command first: melforge voice make ann --checkpoint a.pt",
        ),
        ("voice --run=r ann", "melforge voice takes a command first: melforge voice make --run=r ann"),
        ("voice check-corpus d --ear e", "this command is melforge check-corpus d --ear e"),
        ("clone ann a.wav", "this command is melforge voice clone ann a.wav"),
    ],
)
def test_an_unknown_command_is_a_sentence_with_the_nearest(melforge, words, sentence):
    status, _, errors = melforge(*words.split())
    assert status == 2 and errors.startswith(f"error: {sentence}")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("speak Hi --price 3", "--price is for tables of texts: give --format too"),
        ("speak Hi --set workers=2", "--set workers=2 is for tables of texts: give --format too"),
        ("build --for sm_86", "--for is for kernels: give --backend cuda too"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(melforge, words, sentence):
    assert melforge(*words.split()) == (2, "", f"error: {sentence}\n")


def test_python_m_melforge_is_the_command():
    result = python("-m", "melforge", "--version")
    assert result.stdout == f"melforge {melforge.__version__}\n"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_clone_without_an_install_says_what_to_do(script, tmp_path):
    result = python("-S", "-E", script, cwd=tmp_path)
    assert result.returncode == 2 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: this needs ") and ": run python3 -m venv .venv && .venv/bin/pip" in line


def test_a_file_where_a_folder_is_wanted_is_named(melforge, tmp_path):
    file = tmp_path / "taken"
    file.touch()
    words = ("export", "hifigan", "-o", str(file))
    assert melforge(*words) == (2, "", f"error: {file} is a file: give a folder\n")
    with pytest.raises(NotADirectoryError) as caught:
        (file / "a" / "b").mkdir()
    assert run_module.words_of(caught.value) == f"{file} is a file: give a folder"


def test_nouns_agree_with_their_numbers():
    assert [counted(number, "tensor") for number in (0, 1, 2)] == ["0 tensors", "1 tensor", "2 tensors"]
    assert (with_article("acoustic model"), with_article("vocoder")) == ("an acoustic model", "a vocoder")


def raising(error: BaseException):
    def main():
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (InputError("no such voice"), 2, "error: no such voice"),
        (
            FileNotFoundError(2, "No such file or directory", "a.wav"),
            2,
            "error: a.wav: No such file or directory",
        ),
        (IsADirectoryError(21, "Is a directory", "phrases"), 2, "error: phrases is a folder: give a file"),
        (
            FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/var/tmp']"),  # Python's
            2,
            "error: no folder for temporary files can be written to: set $TMPDIR to one that can",
        ),
        (FileNotFoundError("voice folder x not found"), 2, "error: voice folder x not found"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            Exception('Error building "literal" validator: KeyboardInterrupt:'),
            130,
            "interrupted",
        ),  # pydantic's
        (MemoryError(), 2, "error: out of memory"),
        (
            ValueError("shapes (3,)\nand (4,)"),
            1,
            "error: this is a fault of Melforge (ValueError: shapes (3,) and (4,)); please report it; "
            "--debug or MELFORGE_DEBUG=1 shows the traceback",
        ),
        (
            KeyError("mel"),
            1,
            "error: this is a fault of Melforge (KeyError: 'mel'); please report it; "
            "--debug or MELFORGE_DEBUG=1 shows the traceback",
        ),
    ],
)
def test_the_exit_status_tells_whose_fault_it_is(error, status, sentence, capsys, monkeypatch):
    monkeypatch.delenv("MELFORGE_DEBUG", raising=False)
    monkeypatch.setattr("sys.argv", ["melforge"])
    with pytest.raises(SystemExit) as stopped:
        run_module.run(raising(error))
    assert stopped.value.code == status
    assert capsys.readouterr().err == f"{sentence}\n"


@pytest.mark.dev_full
@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        ("--help", ""),
        ("voice --help", "1"),
        ("--version", ""),
        ("say-as --help", ""),
        ("speak Hi --print-hparams", ""),
        ("say-as Hi", ""),
        ("say-as Hi", "1"),
    ],
)
def test_an_output_that_is_full_is_a_sentence(words, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "melforge", *words.split()]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert result.returncode == 2
    assert re.fullmatch(
        r"error: (cannot write to standard output: )?No space left on device\n", result.stderr
    )


@pytest.mark.usefixtures("not_under_nohup")
@pytest.mark.parametrize(("number", "times"), [(signal.SIGTERM, 1), (signal.SIGTERM, 2), (signal.SIGHUP, 2)])
def test_a_signal_ends_a_command_in_order(number, times, tmp_path, capsys, monkeypatch):
    """And the processes that it began. A second signal does not stop what is being removed."""
    monkeypatch.setattr("sys.argv", ["melforge"])
    before = signal.getsignal(number)
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    child.start()

    def main() -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path):
            try:
                os.kill(os.getpid(), number)
                time.sleep(60)
            finally:
                for _ in range(times - 1):
                    os.kill(os.getpid(), number)

    with pytest.raises(SystemExit) as stopped:
        run_module.run(main)
    assert stopped.value.code == 128 + number and capsys.readouterr().err == "terminated\n"
    assert not list(tmp_path.iterdir()) and signal.getsignal(number) == before
    child.join()
    assert child.exitcode == -signal.SIGTERM


def test_a_command_leaves_another_answer_to_sigterm_alone(monkeypatch):
    """Who began it may let it ignore the signal, or have a server's answer."""
    monkeypatch.setattr("sys.argv", ["melforge"])
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with pytest.raises(SystemExit) as stopped:
            run_module.run(lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert stopped.value.code == 0 and came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("number", "status", "word"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_signal_while_a_library_is_imported_is_no_fault(number, status, word, capsys, monkeypatch):
    """A module in C makes an ImportError of what is raised meanwhile."""
    monkeypatch.setattr("sys.argv", ["melforge"])

    def main() -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(60)
        except BaseException as error:
            raise ImportError("initialization failed") from error

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job behind "&" ignores it
    try:
        with pytest.raises(SystemExit) as stopped:
            run_module.run(main)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.value.code == status and capsys.readouterr().err == f"{word}\n"


def test_an_interrupt_before_there_is_anything_to_run_is_a_word():
    code = (
        "import sys\nclass Finder:\n    def find_spec(self, name, *_):\n"
        "        if name == 'melforge.common.cli.run':\n            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from melforge.common.cli import run_command\nrun_command('melforge.common.cli.speak')"
    )
    result = python("-c", code)
    assert (result.returncode, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("how", ["--debug", "MELFORGE_DEBUG"])
def test_a_fault_of_ours_shows_its_traceback_on_request(how, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["melforge", *([how] if how.startswith("-") else [])])
    monkeypatch.setenv("MELFORGE_DEBUG", "0" if how.startswith("-") else "1")
    with pytest.raises(SystemExit) as stopped:
        run_module.run(raising(ValueError("wrong shape")))
    errors = capsys.readouterr().err
    assert stopped.value.code == 1 and errors.startswith("Traceback")
    assert errors.endswith("error: this is a fault of Melforge (ValueError: wrong shape); please report it\n")


@pytest.mark.no_gpu
@pytest.mark.parametrize(
    "words",
    [
        *(("check-gpu", "-o", "x"), ("speak", "Hello.", "--backend", "trt"), ("verify", "--backend", "trt")),
        *(("speak", "Hello.", "--device", "cuda"), ("transcribe", SPOKEN, "--backend", "trt")),
        *(("transcribe", SPOKEN, "--device", "cuda"), ("build", "hifigan")),
        *(
            ("export", "hifigan", "--device", "cuda"),
            ("copy-synthesis", SPOKEN, "-o", "x", "--backend", "trt"),
        ),
    ],
    ids=" ".join,
)
def test_without_a_gpu_commands_advise_no_option_that_they_lack(words, melforge, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, _, errors = melforge(*words)  # which looks for such options
    assert status == 2 and errors.startswith("error: ") and not any(tmp_path.iterdir())


def test_an_optional_package_that_is_missing_is_a_sentence(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["melforge"])
    error = ModuleNotFoundError("No module named 'pocketsphinx'", name="pocketsphinx")
    with pytest.raises(SystemExit) as stopped:
        run_module.run(raising(error))
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "error: this needs pocketsphinx: pip install -e '.[train]'\n"

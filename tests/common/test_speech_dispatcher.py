"""The module of Speech Dispatcher: by its protocol, and with the daemon itself and its client."""

import fcntl
import os
import re
import subprocess
import sys
import termios
import threading
import time
from array import array
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from melforge.common.audio.pcm import to_pcm16
from melforge.common.cli.speech_dispatcher import Module, controls_of, key
from melforge.common.runner import TextToSpeech
from melforge.common.serve.pairs import LoadOptions, Pairs
from melforge.common.synthesis.timestamps import bookmarks
from tests.conftest import ROOT

PATIENCE = 200.0  # seconds
LONG = "This is a long text that goes on and on, as they do. " * 40


@pytest.fixture(scope="module")
def pairs():
    return Pairs(LoadOptions(device="cpu", threads=1))


@pytest.fixture(scope="module")
def direct():
    return TextToSpeech.load(voice="hazel", device="cpu", threads=1)


class Daemon:
    """The other side of the protocol."""

    def __init__(self, module, commands, answers):
        self.module, self.commands, self.answers = module, commands, answers

    def ask(self, *lines, until):
        """Sends lines; what comes up to a line that begins so."""
        self.commands.write("".join(f"{line}\n" for line in lines).encode())
        self.commands.flush()
        return self.read(until)

    def read(self, until):
        found = []
        while not found or not found[-1].startswith(until):
            line = self.answers.readline()
            assert line, found
            found.append(line.rstrip(b"\n"))
        return found

    def set(self, **settings):
        lines = (f"{name}={value}" for name, value in settings.items())
        return self.ask("SET", *lines, ".", until=(b"203 OK SETTINGS", b"303"))[-1]

    def speak(self, text, command="SPEAK", until=b"702"):
        """Events and, in the place of audio, its samples."""
        answers = self.ask(command, text, ".", until=(until, b"301"))
        assert answers[:2] == [b"202 OK RECEIVING MESSAGE", b"200 OK SPEAKING"], answers
        return [one for line in answers[2:] for one in told(line)]


def told(line):
    if line.startswith(b"705-AUDIO\0"):
        data = re.sub(b"}(.)", lambda found: bytes([found[1][0] ^ 0x20]), line[10:])
        yield np.frombuffer(data, "<i2").astype(int)
    elif not line.startswith(b"705"):
        yield line.decode()


def samples_of(events):
    return np.concatenate([np.zeros(0, int), *(one for one in events if not isinstance(one, str))])


def words_of(events):
    return [one for one in events if isinstance(one, str)]


@pytest.fixture
def daemon(pairs):
    (commands_in, commands_out), (answers_in, answers_out) = os.pipe(), os.pipe()
    with (
        os.fdopen(commands_in, "rb", 0) as read_commands,
        os.fdopen(commands_out, "wb") as commands,
        os.fdopen(answers_in, "rb") as answers,
        os.fdopen(answers_out, "wb") as write_answers,
    ):
        module = Module(pairs, read_commands, write_answers)
        thread = threading.Thread(target=module.run)
        thread.start()
        one = Daemon(module, commands, answers)
        one.ask("INIT", until=b"299 OK")
        yield one
        assert one.ask("QUIT", until=b"210")[-1] == b"210 OK QUIT"
        thread.join(PATIENCE)


def wanted(direct, text, controls=None):
    """What `speak` gives, without the silence that it begins with."""
    samples = direct.speak(text, controls).samples
    first = max(0, int(np.flatnonzero(np.abs(samples) > 3e-3)[0]) - 200)
    return to_pcm16(samples[first:]).astype(int)


def test_a_text_is_what_speak_speaks_without_its_first_silence(daemon, direct):
    events = daemon.speak("<speak>Hello there. And } again.</speak>")
    assert words_of(events) == ["701 BEGIN", "702 END"]
    heard, expected = samples_of(events), wanted(direct, "Hello there. And } again.")
    assert heard.shape == expected.shape and np.abs(heard - expected).max() <= 1
    assert np.array_equal(samples_of(daemon.speak("<speak>Hello there. And } again.</speak>")), heard)


def test_marks_come_where_they_are_reached(daemon, direct):
    text = "<speak>Hello there, you.<mark name='__spd_0'/> This is the second.<mark name='end'/></speak>"
    events = daemon.speak(text)
    assert words_of(events) == [
        "701 BEGIN",
        "700-__spd_0",
        "700 INDEX MARK",
        "700-end",
        "700 INDEX MARK",
        "702 END",
    ]
    spoken = direct.speak(text)
    left_out = len(spoken.samples) - len(wanted(direct, text))
    for mark in bookmarks(spoken):
        before = samples_of(events[: [str(event) for event in events].index(f"700-{mark.name}")])
        assert abs(len(before) + left_out - mark.time * 22050) <= 1
    assert np.array_equal(samples_of(events), wanted(direct, text))


@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        ("CHAR", "a", "a"),
        ("CHAR", "<", "less than"),
        ("CHAR", "space", "space"),
        ("CHAR", " ", "space"),
        ("CHAR", "comma", "comma"),
        ("KEY", "control_a", "control a"),
        ("KEY", "double-quote", "double quote"),
        ("KEY", "_", "underscore"),
        ("SOUND_ICON", "new-mail", "new mail"),
    ],
)
def test_characters_and_keys_are_said_by_their_names(daemon, direct, command, text, said):
    events = daemon.speak(text, command)
    heard, expected = samples_of(events), wanted(direct, said)
    assert words_of(events) == ["701 BEGIN", "702 END"] and len(heard) == len(expected)


def test_a_capital_and_a_spelt_text_are_said_where_that_is_asked_for(daemon, direct):
    daemon.set(cap_let_recogn="spell", spelling_mode="on")
    assert len(samples_of(daemon.speak("B", "CHAR"))) == len(wanted(direct, "capital B"))
    spelt = "<speak><say-as interpret-as='characters'>cat</say-as></speak>"
    assert len(samples_of(daemon.speak("<speak>cat</speak>"))) == len(wanted(direct, spelt))


def test_settings_change_how_it_is_spoken(daemon):
    length = len(samples_of(daemon.speak("<speak>One sentence of some length.</speak>")))
    assert daemon.set(rate=100, pitch=20, pitch_range=-50, volume=-20) == b"203 OK SETTINGS RECEIVED"
    fast = samples_of(daemon.speak("<speak>One sentence of some length.</speak>"))
    assert 3 < length / len(fast) < 5
    assert daemon.set(rate="fast").startswith(b"303") and daemon.module.settings["rate"] == "100"
    daemon.set(rate=0, pitch=0, pitch_range=0, volume=-50)
    assert len(samples_of(daemon.speak("<speak>One sentence of some length.</speak>"))) == length
    daemon.set(volume=100, synthesis_voice="daniel")
    daniel = samples_of(daemon.speak("<speak>One sentence of some length.</speak>"))
    daemon.set(synthesis_voice="NULL")
    assert (
        len(samples_of(daemon.speak("<speak>One sentence of some length.</speak>"))) == length != len(daniel)
    )


def test_rates_go_from_a_quarter_to_four_times():
    assert [controls_of({"rate": rate}).pace for rate in ("-100", "0", "NULL", "100")] == [0.25, 1, 1, 4]
    assert controls_of({}).asked() == [] and controls_of({"volume": "100"}).asked() == []
    assert key("shift_kp-enter") == "<speak>shift kp enter</speak>"


def test_a_stop_ends_a_text_and_nothing_of_it_comes_after(daemon):
    """Whether its first sound was there or not: each end has a beginning before it."""
    for began in (True, False) * 3:
        daemon.ask("SPEAK", LONG, ".", until=b"705 AUDIO" if began else b"200 OK SPEAKING")
        answers = daemon.ask("STOP", until=b"703")
        assert (b"701 BEGIN" in answers) or began
        assert words_of(daemon.speak("<speak>Next.</speak>")) == ["701 BEGIN", "702 END"]
    daemon.ask("SPEAK", LONG, ".", until=b"705 AUDIO")
    assert daemon.ask("PAUSE", until=b"704")[-1] == b"704 PAUSE"
    assert daemon.ask("STOP", "LIST VOICES", until=b"200 OK VOICE")[0].startswith(b"200-hazel\ten\t")


def test_what_cannot_be_spoken_ends_without_a_sound(daemon, capfd):
    for text in ("...", "<speak><oops</speak>"):
        assert words_of(daemon.speak(text)) == ["701 BEGIN", "702 END"]
    assert daemon.ask("SPEAK", ".", until=b"301")[-1] == b"301 ERROR CANT SPEAK"
    assert "not spoken: " in capfd.readouterr().err


def test_the_daemon_is_answered_as_it_asks(daemon):
    assert (
        daemon.ask("AUDIO", "audio_output_method=server", ".", until=b"203")[-1]
        == b"203 OK AUDIO INITIALIZED"
    )
    assert daemon.ask("AUDIO", "audio_output_method=alsa", ".", until=b"303")
    assert daemon.ask("LOGLEVEL", "log_level=3", ".", until=b"203 OK LOGLEVEL")
    assert daemon.ask("DEBUG ON log", until=b"200 OK DEBUGGING ON")
    assert daemon.ask("WHAT", until=b"300")
    listed = daemon.ask("LIST VOICES", until=b"200 OK")
    assert b"200-orchard\ten\tnone" in listed and b"200-daniel\ten\tnone" in listed


def test_a_stop_leaves_little_to_read_and_a_daemon_that_dies_takes_the_module_along():
    words = [sys.executable, "-m", "melforge", "speech-dispatcher"]
    environment, pipe = os.environ | {"PYTHONPATH": str(ROOT)}, subprocess.PIPE
    how = {"env": environment, "stdin": pipe, "stdout": pipe, "stderr": pipe, "bufsize": 0}  # as the daemon
    with subprocess.Popen(words, **how) as process:
        one = Daemon(None, process.stdin, process.stdout)
        one.ask("INIT", until=b"299 OK")
        one.ask("SPEAK", LONG, ".", until=b"705 AUDIO")
        end, waiting = time.monotonic() + PATIENCE, array("i", [0])
        while not waiting[0]:  # bytes in the pipe
            assert time.monotonic() < end
            fcntl.ioctl(process.stdout, termios.FIONREAD, waiting)
        left = sum(map(len, one.ask("STOP", until=b"703")))
        assert left < 16384
        one.ask("SPEAK", LONG, ".", until=b"705 AUDIO")
        process.stdout.close()
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


# The daemon itself


@contextmanager
def speech_dispatcher(folder, install):
    """The daemon of a user for whom these lines install our module, and whose sound goes to a file; the
    environment of its clients.
    """
    program, settings = folder / "bin" / "melforge", folder / "settings"
    for one in (program.parent, settings):
        one.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m melforge "$@"\n')
    program.chmod(0o755)
    (folder / ".asoundrc").write_text(
        f'pcm.!default {{ type file slave.pcm "null" file "{folder}/sound.raw" format "raw" }}\n'
    )
    lines = {"AudioOutputMethod": '"alsa"', "Timeout": "0", "LogDir": f'"{folder}"', "LogLevel": "3"}
    (settings / "speechd.conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    environment = os.environ | {"HOME": str(folder), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    environment |= {"SPEECHD_ADDRESS": f"unix_socket:{folder}/socket", "XDG_DATA_HOME": ""}
    subprocess.run(["sh", "-euc", install], env=environment, check=True)
    words = ["speech-dispatcher", "-s", "-C", settings, "-c", "unix_socket", "-S", folder / "socket"]
    log = (folder / "output.log").open("w")
    with (
        log,
        subprocess.Popen([*words, "-P", folder / "pid"], env=environment, stdout=log, stderr=log) as one,
    ):
        try:
            end = time.monotonic() + PATIENCE
            while not (folder / "socket").exists():
                assert one.poll() is None and time.monotonic() < end, (folder / "output.log").read_text()
                time.sleep(0.01)
            yield environment
        finally:
            with suppress(ProcessLookupError):
                one.terminate()


@pytest.mark.speech_dispatcher
def test_speech_dispatcher_speaks_with_it(direct, tmp_path):
    """As docs/clients.md installs it and has it speak."""
    section = (ROOT / "docs" / "clients.md").read_text().partition("## Screen readers\n")[2]
    *install, say = re.search(r"```bash\n(.*?)\n```", section, re.S)[1].splitlines()
    with speech_dispatcher(tmp_path, "\n".join(install)) as environment:

        def run(command):
            how = {"env": environment, "timeout": PATIENCE, "check": True}
            return subprocess.run(["sh", "-c", command], capture_output=True, text=True, **how).stdout

        assert "daniel" in run("spd-say -o melforge -L")
        run(f"{say} -w")
        expected, end = wanted(direct, "Hello there."), time.monotonic() + PATIENCE
        # The daemon's volume is applied, and its device may hold the last samples for a while.
        while len(heard := np.fromfile(tmp_path / "sound.raw", "<i2")) < len(expected) - 22050 / 5:
            assert time.monotonic() < end, len(heard)
            time.sleep(0.01)
        assert np.corrcoef(heard, expected[: len(heard)])[0, 1] > 0.999

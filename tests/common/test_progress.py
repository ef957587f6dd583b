"""Long work is counted on a terminal, and nowhere else."""

import contextlib
import fcntl
import math
import os
import pty
import struct
import termios
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import soundfile

from melforge.common import progress
from melforge.common.cli import voice_clone


def on_terminal(run: Callable[[], Any]) -> tuple[Any, str]:
    """What a function gives while stderr is a terminal, and what it wrote there."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    terminal, text = os.fdopen(writer, "w"), b""
    with terminal, contextlib.redirect_stderr(terminal):
        found = run()
        print(END, file=terminal, flush=True)
        while END.encode() not in text:
            text += os.read(reader, 1 << 16)
    os.close(reader)
    return found, text.decode().partition(END)[0]


END = "that is all"
SPEAK = ("speak", "One. Two. Three, four. " * 20)
HEAR = ("transcribe", "noise.wav")


@pytest.fixture
def command(melforge, tiny_voice, small_ear, tmp_path, monkeypatch):
    monkeypatch.setenv("MELFORGE_VOICES", str(tiny_voice.parent))
    monkeypatch.setenv("MELFORGE_EARS", str(small_ear.parent))
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(3).standard_normal(40 * 16000) * 0.1
    soundfile.write("noise.wav", noise, 16000)
    return lambda words: melforge(*words)[:2]


@pytest.mark.parametrize(
    ("words", "shown"), [(SPEAK, ("speaking:", "/60 sentences", "writing:")), (HEAR, ("hearing:", "/40 s"))]
)
def test_one_long_text_or_recording_is_counted(command, monkeypatch, words, shown):
    quiet = command(words)
    monkeypatch.setattr(progress, "SHOWN_AFTER", 0.0)
    said, found = on_terminal(lambda: command(words))
    assert said == quiet
    assert all(one in found for one in shown), found
    assert found.rpartition("\r")[0].endswith(" ")  # the line is empty at the end


def test_a_clone_counts_down_from_its_estimate():
    def run():
        with voice_clone._one_bar(60.0, voice_clone.planned(60.0, 1, 600.0)) as (prepare, train, finish):
            prepare(1.0)
            train(0.5)
            finish(1.0)

    shown = on_terminal(run)[1]
    assert shown.endswith(", 00:00 left\r\n") and ": :" not in shown


@pytest.mark.parametrize("words", [SPEAK, HEAR])
def test_short_ones_are_not(command, monkeypatch, words):
    monkeypatch.setattr(progress, "SHOWN_AFTER", math.inf)
    assert on_terminal(lambda: command(words))[1] == ""


def test_only_a_terminal_counts(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SHOWN_AFTER", 0.0)
    with progress.counting("speaking", 3, " sentences") as spoken:
        spoken(1)
    assert capsys.readouterr() == ("", "")

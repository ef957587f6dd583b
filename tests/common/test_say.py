"""`melforge say`: what it asks, what it writes or plays, and what it says about errors."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from melforge.common import progress
from melforge.common.audio.wire import encode
from melforge.common.cli import say
from melforge.common.errors import InputError
from tests.common.test_progress import on_terminal
from tests.plain_server import answering

TONE = (0.3 * np.sin(np.arange(36000) / 20)).astype(np.float32)  # 1.5 s at 24 kHz


def speak(handler, body):
    """The tone in the format that was asked for, in chunks of odd lengths."""
    rate = body.get("sample_rate", 24000)
    data = encode(TONE, body["response_format"], 24000, rate)
    handler.chunked([data[start : start + 4999] for start in range(0, len(data), 4999)])


@pytest.fixture
def server():
    with answering(speak) as server:
        yield server


@pytest.fixture
def run(server, tmp_path, monkeypatch, capsysbinary):
    """Runs the command in an empty folder; its status and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(say.KEY_VARIABLE, raising=False)

    def run(*words: str, url: str = server.url):
        status = say.main(["Hello there.", "--server", url, *words])
        out, errors = capsysbinary.readouterr()
        return status, out, errors.decode()

    return run


@pytest.mark.parametrize("suffix", ["wav", "mp3", "opus", "ogg", "flac"])
def test_a_file_of_each_format(run, server, tmp_path, suffix):
    status, out, _ = run("-o", f"x.{suffix}")
    assert status == 0
    samples, rate = soundfile.read(tmp_path / f"x.{suffix}")
    assert rate == 24000 and abs(len(samples) - len(TONE)) <= 24
    assert out.decode().startswith(f"x.{suffix}: 1.50 s, first audio ") and "times real time" in out.decode()
    assert server.asked[0]["response_format"] == {"wav": "pcm", "ogg": "opus"}.get(suffix, suffix)
    assert list(tmp_path.iterdir()) == [tmp_path / f"x.{suffix}"]


def test_a_wav_file_has_its_sizes(run, tmp_path):
    run("-o", "x.wav", "--sample-rate", "16000")
    data = (tmp_path / "x.wav").read_bytes()
    assert int.from_bytes(data[40:44], "little") == len(data) - 44 == 2 * 24000
    assert soundfile.info(tmp_path / "x.wav").samplerate == 16000


def test_standard_output_is_a_stream(run):
    status, out, errors = run("-o", "-")
    samples, rate = soundfile.read(io.BytesIO(out))
    assert status == 0 and (len(samples), rate) == (len(TONE), 24000)
    assert errors.startswith("said: 1.50 s, first audio")


def test_what_is_asked(run, server, monkeypatch):
    run("-o", "x.pcm")
    fields = {"model": "tts-1", "voice": "alloy", "input": "Hello there.", "response_format": "pcm"}
    asked = server.asked[0]
    assert asked == {"path": "/v1/audio/speech", "headers": asked["headers"], **fields}
    monkeypatch.setenv(say.KEY_VARIABLE, "secret")
    words = ("--pace", "1.5", "--seed", "3", "--model", "tacotron2-hifigan", "--sample-rate", "22050")
    run("-o", "x.pcm", *words)
    asked = server.asked[1]
    assert asked.pop("headers")["Authorization"] == "Bearer secret"
    assert (asked["speed"], asked["seed"], asked["model"]) == (1.5, 3, "tacotron2-hifigan")
    assert asked["sample_rate"] == 22050 and "pace" not in asked and "volume" not in asked


def test_json(run):
    status, out, _ = run("-o", "x.mp3", "--json")
    measured = json.loads(out)
    assert status == 0 and measured["audio_s"] == pytest.approx(1.5, abs=1e-3)
    assert 0 < measured["first_audio_s"] <= measured["total_s"]
    assert measured["chunks"] > 1 and measured["rtf"] > 0


class SoundCard:
    """What sounddevice has of one."""

    class PortAudioError(Exception):
        pass

    def __init__(self, fails: bool = False):
        self.fails, self.played, self.ended = fails, bytearray(), False

    def RawOutputStream(self, samplerate, channels, dtype):
        if self.fails:
            raise self.PortAudioError("no device")
        self.form = samplerate, channels, dtype
        return self

    def start(self):
        pass

    def write(self, data):
        assert len(data) % 2 == 0
        self.played += data

    def stop(self):
        self.ended = True

    def close(self):
        assert self.ended


def test_it_is_played_where_it_can_be(run, monkeypatch):
    card = SoundCard()
    monkeypatch.setitem(sys.modules, "sounddevice", card)
    status, out, _ = run()
    assert status == 0 and card.ended and card.form == (24000, 1, "int16")
    assert bytes(card.played) == encode(TONE, "pcm", 24000, 24000)
    assert out.startswith(b"said: 1.50 s")


def test_where_nothing_can_play_the_way_out_is_named(run, server, monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(InputError, match=r"pip install -e '.\[play\]'; or write a file: -o speech.wav"):
        run()
    monkeypatch.setitem(sys.modules, "sounddevice", SoundCard(fails=True))
    with pytest.raises(InputError, match=r"nothing to play on .no device.: write a file"):
        run()
    assert not server.asked
    with pytest.raises(InputError, match="no server at"):  # the nearer cause
        run(url="http://127.0.0.1:9")


@pytest.mark.parametrize(("name", "shown"), [("x.wav", " s of sound ["), ("x.flac", " kB [")])
def test_a_long_text_is_counted_on_a_terminal(run, monkeypatch, name, shown):
    monkeypatch.setattr(progress, "SHOWN_AFTER", 0.0)
    assert shown in on_terminal(lambda: run("-o", name))[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "x.xyz"), "the suffix does not name a sound format; use one of .mp3"),
        (("-o", "x.wav", "--format", "wave"), "unknown audio format 'wave': did you mean 'wav'?"),
        (("--format", "mp3"), "--format mp3 is for a file"),
        (("-o", "-", "--json"), "--json and -o - both write to stdout"),
        (("-o", "x.wav", "--pace", "20"), "--pace must be a number from 0.1 to 10"),
    ],
)
def test_wrong_options_ask_nothing(run, server, words, message):
    with pytest.raises(InputError) as caught:
        run(*words)
    assert message in str(caught.value) and not server.asked
    with pytest.raises(FileNotFoundError, match="the folder nowhere does not exist"):
        run("-o", "nowhere/x.wav")


def refusing(status: int, message: str):
    body = json.dumps({"error": {"message": message}}).encode()
    return answering(lambda handler, _: handler.whole(status, body, Retry_After="2"))


@pytest.mark.parametrize(
    ("status", "said", "message"),
    [
        (400, "speed must be 1", r"\(400\): speed must be 1"),
        (401, "no such key", r"taken from \$MELFORGE_API_KEY"),
    ],
)
def test_what_a_caller_can_mend_is_an_input_error(run, tmp_path, status, said, message):
    with refusing(status, said) as server, pytest.raises(InputError, match=message):
        run("-o", "x.wav", url=server.url)
    assert not list(tmp_path.iterdir())


def test_what_is_the_servers_is_a_sentence_and_status_1(run, tmp_path):
    with refusing(503, "the queue is full") as server:
        status, out, errors = run("-o", "x.wav", url=server.url)
        url = server.url
    assert (status, out) == (1, b"")
    assert errors.startswith(f"error: {url} (503): the queue is full") and "try again in 2 s" in errors
    with pytest.raises(InputError, match=rf"no server at {url}: start one \(melforge serve\)"):
        run("-o", "x.wav", url=url)
    with pytest.raises(InputError, match=r"no server at http://nowhere\.invalid:80: start one"):
        run("-o", "x.wav", url="http://nowhere.invalid")
    for impossible in ("http://a..b", f"http://{'a' * 70}.invalid"):
        with pytest.raises(InputError, match="is no server's address"):
            run("-o", "x.wav", url=impossible)
    assert not list(tmp_path.iterdir())


def test_the_text_may_come_from_standard_input(run, server, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(read=lambda: "From a pipe.\n"))
    say.main(["-", "--server", server.url, "-o", "x.pcm"])
    assert server.asked[0]["input"] == "From a pipe.\n"


def test_it_needs_neither_a_model_nor_the_server_s_packages(server, tmp_path):
    code = (
        "import sys\n"
        "for name in ('torch', 'fastapi', 'uvicorn', 'soxr', 'onnxruntime', 'melforge.common.runner'):\n"
        "    sys.modules[name] = None\n"
        "from melforge.common.cli.say import main\n"
        f"sys.exit(main(['Hello.', '--server', '{server.url}', '-o', 'x.mp3']))\n"
    )
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=tmp_path, env=os.environ | path, capture_output=True)
    assert result.returncode == 0, result.stderr.decode()
    assert (tmp_path / "x.mp3").is_file()

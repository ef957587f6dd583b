"""The page of `melforge voice record`: what it keeps, what it says of it, and who may use it."""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import httpx
import numpy as np
import pytest

from melforge.common.audio.sound_files import encode_audio, read_audio
from melforge.common.errors import InputError
from melforge.common.training.corpus.takes import find_takes
from tests.serve.conftest import PATIENCE, ROOT, wait_for

pytestmark = pytest.mark.serve
RATE = 48_000
TEXTS = ("One is said.", "Two is said.")


def spoken(gain: float = 0.2) -> bytes:
    """A second of a buzz in syllables, with silence around it."""
    time = np.arange(RATE) / RATE
    buzz = gain * np.sin(2 * np.pi * 150 * time) * np.maximum(0.1, np.sin(2 * np.pi * 3 * time))
    noise = 1e-4 * np.random.default_rng(0).standard_normal(2 * RATE)
    return encode_audio((np.pad(buzz, RATE // 2) + noise).clip(-1, 1), RATE)


@contextmanager
def recording(folder, texts=TEXTS):
    """A client of the page's server for a folder."""
    import uvicorn

    from melforge.common.serve.server import listen
    from melforge.common.training.corpus.recorder import RecordingFolder, make_recorder

    listening = listen("127.0.0.1", 0)
    app = make_recorder(RecordingFolder(folder, texts))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        wait_for(lambda: server.started, "the server")
        with httpx.Client(
            base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=PATIENCE
        ) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(PATIENCE)


def test_ctrl_c_ends_it_and_says_what_comes_next(tmp_path):
    (tmp_path / "own.txt").write_text("One | is said.\n")
    words = ("voice", "record", "my room", "--sentences", "own.txt", "--port", "0")
    command = subprocess.Popen(
        [sys.executable, "-m", "melforge", *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with command:
        assert command.stdout
        address = command.stdout.readline().split()[0]
        wait_for(lambda: "One is said." in httpx.get(f"{address}/sentences").text)
        command.send_signal(signal.SIGINT)
        assert command.communicate()[0] == "my room has 0 recordings: melforge voice clone 'my room' NAME\n"
    assert command.returncode == 0


def test_sentences_of_ones_own_are_read_before_a_folder_is_made(tmp_path, melforge):
    folder, own = tmp_path / "recordings", tmp_path / "own.txt"
    own.write_text("\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for text, number, why in (
            ("\n", 0, f"{own} holds no sentences"),
            ("One.\n", port, f"port {port}"),
            ("One.\n", 65536, "--port must be 65535 at most, not 65536"),
        ):
            own.write_text(text)
            status, _, errors = melforge("voice", "record", folder, "--sentences", own, "--port", number)
            assert status == 2 and why in errors and not folder.exists(), errors


def test_recordings_become_a_folder_that_is_read_and_gone_on_with(tmp_path):
    with recording(tmp_path) as client:
        found = client.put("/recordings/002", content=spoken()).json()
        assert found["kept"] and found["advice"] == [] and 0.9 < found["seconds"] < 1.1
        assert -30 < found["level"] < -15 and found["noise"] < -70
    with recording(tmp_path) as client:
        assert [row["recorded"] for row in client.get("/sentences").json()] == [False, True]
        client.put("/recordings/001", content=spoken())
        assert client.get("/recordings/001").content == (tmp_path / "wavs" / "001.wav").read_bytes()
    takes = find_takes(tmp_path)
    assert [(take.name, take.text) for take in takes] == [("001", TEXTS[0]), ("002", TEXTS[1])]
    assert read_audio(takes[0].sound)[1] == RATE and len(read_audio(takes[0].sound)[0]) == 2 * RATE
    from melforge.common.training.corpus.recorder import RecordingFolder

    with pytest.raises(InputError, match="recordings of other sentences: give another folder"):
        RecordingFolder(tmp_path, ("Three is said.", *TEXTS))


def test_what_is_wrong_with_a_recording_is_said_and_silence_is_not_kept(tmp_path):
    with recording(tmp_path) as client:
        found = client.put("/recordings/001", content=encode_audio(np.zeros(RATE), RATE)).json()
        assert not found["kept"] and "is it the right microphone?" in found["advice"][0]
        assert not (tmp_path / "metadata.csv").exists()
        found = client.put("/recordings/001", content=spoken(gain=20)).json()
        assert found["kept"] and "are cut off at the level" in found["advice"][0]
        found = client.put("/recordings/001", content=spoken(gain=0.002)).json()
        assert any("above the noise" in one for one in found["advice"])
        for name, content, status in (
            ("001", b"nothing", 400),
            ("003", spoken(), 404),
            ("..", spoken(), 404),
        ):
            answer = client.put(f"/recordings/{name}", content=content)
            assert answer.status_code in (status, 405) and not list(tmp_path.rglob("*.tmp*"))
        assert client.put("/recordings/002", content=bytes(33 << 20)).status_code == 413
    assert [path.name for path in (tmp_path / "wavs").iterdir()] == ["001.wav"]


def test_only_this_machine_s_own_page_may_use_it(tmp_path):
    with recording(tmp_path) as client:
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 421
        headers = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
        assert client.put("/recordings/001", content=spoken(), headers=headers).status_code == 403
        page = client.get("/")
        assert page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
        for name in ("recorder.js", "recorder.css", "tape.js", "style.css", "icon.svg"):
            assert client.get(f"/page/{name}").status_code == 200
        assert client.get("/page/recorder.py").status_code == 404
    assert not list((tmp_path / "wavs").iterdir())


def test_the_shipped_sentences_hold_all_phones_and_are_whole():
    from melforge.common.text.frontends import get_frontend
    from melforge.common.text.symbols import ARPABET
    from melforge.common.training.corpus.recorder import shipped_sentences

    sentences, frontend, found = shipped_sentences(), get_frontend("english"), set()
    assert len(sentences) == len(set(sentences)) == 60
    pairs = set()
    for text in sentences:
        analysis = frontend(text)
        assert len(analysis.utterances) == 1 and not analysis.unspoken
        symbols = analysis.utterances[0].symbols
        phones = [symbol[1:].rstrip("012") for symbol in symbols if symbol.startswith("@")]
        found |= set(phones)
        pairs |= set(itertools.pairwise(phones))
    assert found == {phone.rstrip("012") for phone in ARPABET} and len(pairs) > 650


@pytest.mark.browser
@pytest.mark.slow
def test_a_browser_records_a_sentence(tmp_path):
    from playwright.sync_api import sync_playwright

    (tmp_path / "microphone.wav").write_bytes(spoken())
    with recording(tmp_path / "out") as client, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=[
                *("--no-sandbox", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"),
                f"--use-file-for-fake-audio-capture={tmp_path / 'microphone.wav'}",
            ],
        )
        page = browser.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(str(client.base_url))
        page.get_by_text(TEXTS[0]).wait_for()
        page.get_by_role("button", name="Record").click()
        wait_for(lambda: page.locator("#level").evaluate("level => level.value") > -30, "a sound")
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("of speech at").wait_for()
        assert page.locator("#count").text_content() == "Sentence 1 of 2, 1 recorded"
        page.keyboard.press("ArrowRight")
        page.get_by_text(TEXTS[1]).wait_for()
        browser.close()
    assert not faults
    audio, _ = read_audio(tmp_path / "out" / "wavs" / "001.wav")
    assert np.abs(audio).max() > 0.05

"""The page in a real browser, Chromium without a window, against a server in this process."""

import base64
import io
import itertools
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image

from melforge.common.serve.tokens import Token, write_token
from tests.serve.conftest import PATIENCE, SPEECH, own_pcm, running, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.slow]
TEXT = "The first sentence is here. The second one follows."
LONG = "The first sentence is here, the second one follows, and a third one comes behind them in the end."
BOOK = TEXT * 12
# A client of OpenAI's for browsers does the same.
REALTIME = """
({ token, text }) => new Promise((heard) => {
  const address = `${location.origin.replace("http", "ws")}/v1/realtime?model=gpt-realtime`;
  const socket = new WebSocket(address, ["realtime", `openai-insecure-api-key.${token}`]);
  const send = (event) => socket.send(JSON.stringify(event));
  const parts = [];
  socket.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    if (event.type === "session.created") {
      send({ type: "session.update", session: { type: "realtime", audio: { output: { voice: "hazel" } } } });
      const content = [{ type: "input_text", text }];
      send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
      send({ type: "response.create" });
    } else if (event.type === "response.output_audio.delta") parts.push(event.delta);
    else if (event.type === "response.done") heard(parts);
  };
  socket.onclose = () => heard(["closed"]);
})
"""
# Notes each buffer that is given to the sound card, and each word that is marked.
RECORDER = """
window.started = [];
window.marked = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (when, ...rest) {
  const { buffer, context } = this;
  const loudest = buffer.getChannelData(0).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const { duration: seconds, sampleRate: rate } = buffer;
  started.push({ when, seconds, rate, loudest, now: context.currentTime });
  return start.call(this, when, ...rest);
};
new MutationObserver((changes) => {
  for (const { target } of changes) {
    if (target.hasAttribute("aria-current")) marked.push(target.textContent);
  }
}).observe(document, { subtree: true, attributes: true, attributeFilter: ["aria-current"] });
"""


@dataclass
class Opened:
    """A page, and what it complained of."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def opened(self) -> None:
        ready = "[data-part=model], #error:not(:empty), #key-form:not([hidden])"
        wait_for(lambda: self.page.locator(ready).count(), "the page")

    def part(self, name: str, column: str = "A") -> Any:
        return self.page.locator(f"[aria-label='Speech {column}'] [data-part={name}]")

    def state(self, column: str = "A") -> str:
        return self.page.locator(f"[aria-label='Speech {column}']").get_attribute("data-state")

    def wait(self, state: str, column: str = "A") -> None:
        wait_for(lambda: self.state(column) == state, f"{state} of {column}, not {self.state(column)}")
        if state == "whole":  # a slow page shows its end later
            made = float(self.part("audio", column).inner_text().removesuffix(" s"))
            wait_for(lambda: self.duration(column) == made, f"{made} s of {column}")

    def position(self, column: str = "A") -> float:
        return float(self.part("position", column).input_value())

    def duration(self, column: str = "A") -> float:
        return float(self.part("position", column).get_attribute("max"))

    def speak(self, text: str) -> None:
        self.page.fill("#text", text)
        self.page.click("#speak")

    def error(self) -> str:
        wait_for(lambda: self.page.inner_text("#error"), "an error")
        return self.page.inner_text("#error")

    def run(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield one
        one.close()


@contextmanager
def opened(browser, url: str, **how: Any) -> Iterator[Opened]:
    """A page of its own session, whose columns are there unless a key is wanted."""
    how = {"viewport": {"width": 1100, "height": 900}} | how
    with browser.new_context(**how) as context:
        context.set_default_timeout(PATIENCE * 1000)
        context.add_init_script(RECORDER)
        one = Opened(context.new_page())
        one.page.on("console", lambda line: one.complaints.append(line.text))
        one.page.on("pageerror", lambda error: one.complaints.append(str(error)))
        one.page.on("request", lambda request: one.asked.append(request.url))
        one.page.goto(url)
        one.opened()
        yield one


@pytest.fixture
def page(browser, server) -> Iterator[Opened]:
    with opened(browser, server.url) as one:
        yield one
        assert not one.complaints


class HeldStream:
    """A stream that waits after its first chunks until it is released, and may break there."""

    def __init__(self, stream, chunks, release, breaks=False):
        self.stream, self.chunks, self.release, self.breaks = stream, chunks, release, breaks

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def __iter__(self):
        return self

    def __next__(self):
        if not self.chunks:
            self.release.wait(PATIENCE)
            if self.breaks:
                raise RuntimeError("out of order")
        self.chunks -= 1
        return next(self.stream)


@pytest.fixture
def held(monkeypatch) -> Iterator[threading.Event]:
    """Streams go on after the first chunk only when this is set."""
    from melforge.common.serve import service

    make, release = service.make_stream, threading.Event()
    monkeypatch.setattr(service, "make_stream", lambda *how: HeldStream(make(*how), 1, release))
    yield release
    release.set()


# What it does


def test_the_page_loads_without_complaints_and_asks_only_its_server(page, server):
    page.speak("Hello there.")
    page.wait("whole")
    assert page.page.title() == "Melforge"
    assert all(url.startswith(server.url) for url in page.asked)
    options = page.part("model").locator("option").all_inner_texts()
    assert options == list(server.service.pairs.names)


def test_sound_is_played_before_the_whole_is_made(page, held, direct):
    page.speak(BOOK)
    wait_for(lambda: page.position() > 0.1, "sound")
    assert page.state() == "receiving"  # the server holds the rest back
    assert not page.part("figures").is_visible()
    before = page.run("started")
    assert before and max(one["loudest"] for one in before) > 0.05
    assert all(one["rate"] == 22050 and one["when"] > one["now"] for one in before)
    held.set()
    page.wait("whole")
    wait_for(lambda: page.run("started.length") > len(before), "more")
    seconds = len(direct.speak(BOOK).samples) / 22050
    started = page.run("started")
    assert sum(one["seconds"] for one in started) == pytest.approx(seconds, abs=1e-3)
    ends = [one["when"] + one["seconds"] for one in started]
    assert all(next_["when"] > end - 1e-6 for end, next_ in zip(ends, started[1:], strict=False))
    assert page.part("figures").is_visible() and page.part("audio").inner_text() == f"{seconds:.2f} s"
    assert page.part("first").inner_text().endswith(" ms")
    total, factor = (float(page.part(name).inner_text().rstrip(" s")) for name in ("total", "rtf"))
    # Both are rounded where they are shown: to a hundredth of a second, and to a tenth.
    assert seconds / (total + 0.006) - 0.06 < factor < seconds / (total - 0.006) + 0.06
    page.page.keyboard.press("Escape")


def test_chunks_are_scheduled_without_a_gap(page):
    page.run(
        """async () => {
            const { Player } = await import("/page/player.js");
            const player = new Player(22050, () => {});
            player.play();
            for (const length of [1001, 17, 6000, 3]) player.append(new Float32Array(length));
            player.pause();
        }"""
    )
    frames = [(one["when"] * 22050, one["seconds"] * 22050) for one in page.run("started")]
    assert [round(length) for _, length in frames] == [1001, 17, 6000, 3]
    for (frame, length), (following, _) in itertools.pairwise(frames):
        assert following == pytest.approx(frame + length, abs=1e-5)


def test_playing_pauses_goes_on_and_can_begin_anywhere(page):
    page.speak(TEXT * 8)
    wait_for(lambda: page.position() > 0.1, "sound")
    play = page.part("play")
    assert play.inner_text() == "Pause"
    play.click()
    page.wait("whole")
    wait_for(lambda: play.inner_text() == "Play", "the pause")
    place, whole = page.position(), page.duration()
    assert place < whole - 1 and page.position() == place
    page.part("position").fill(f"{whole - 0.5:.2f}")
    play.click()
    wait_for(lambda: page.position() > whole - 0.4, "more sound")
    wait_for(lambda: play.inner_text() == "Play", "the end")
    assert page.position() == pytest.approx(whole, abs=0.02)


def test_the_text_is_shown_as_written_and_marked_as_it_is_spoken(page, server):
    text = "Was it $5.50,  “she” asked?\n\nNobody – knew."
    words = server.speak(text, stream_format="json", sample_rate=22050, response_format="pcm").json()["words"]
    page.speak(text)
    page.wait("whole")
    wait_for(lambda: page.part("play").inner_text() == "Play", "the end")
    assert page.part("words").text_content() == text
    pieces = ["Was", "it", "$5.50,", "“she”", "asked?", "Nobody –", "knew."]
    assert page.part("words").locator("span").all_inner_texts() == pieces
    rest = iter(pieces)
    assert all(piece in rest for piece in page.run("marked"))  # in order; a slow screen may miss a short one
    places = {word["text"]: (word["start"] + word["end"]) / 2 for word in words}
    for word, piece in (("it", "it"), ("five", "$5.50,"), ("cents", "$5.50,"), ("Nobody", "Nobody –")):
        page.part("position").fill(f"{places[word]:.2f}")
        now = page.part("words").locator("[aria-current=true]")
        wait_for(lambda piece=piece, now=now: now.all_inner_texts() == [piece], piece)
    page.part("words").locator("span").nth(2).click()
    wait_for(lambda: page.position() == pytest.approx(words[2]["start"], abs=0.02), "the amount")


# Of the picture's parts: the waveform, the mel and the alignment.
WAVE, MEL, ALIGNMENT = (0, 56), (64, 204), (248, 360)
GREENS = (12, 30, 42, 62, 116, 196, 248)  # of its colours, from quiet to loud


def pixels(page: Opened, part: tuple[int, int], column: str = "A") -> np.ndarray:
    """What a part of the picture shows, uint8 [height, width, 4]."""
    url = page.run("(canvas) => canvas.toDataURL()", page.part("picture", column).element_handle())
    return np.array(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))[slice(*part)]


def drawn(page: Opened, part: tuple[int, int], column: str = "A") -> float:
    """The part of the width that shows something."""
    return float(pixels(page, part, column)[..., 3].any(0).mean())


@pytest.mark.parametrize("model", ["tacotron2-hifigan", "fastpitch-hifigan"])
def test_the_picture_grows_and_shows_the_whole_in_the_end(page, held, model):
    page.part("model").select_option(model)
    assert not page.part("result").is_visible() and "Press Speak" in page.part("said").inner_text()
    page.speak(LONG)
    wait_for(lambda: page.position() > 0.1, "sound")
    for part in (WAVE, MEL, ALIGNMENT):
        assert 0 < drawn(page, part) < 0.9
    held.set()
    page.wait("whole")
    for part in (WAVE, MEL, ALIGNMENT):
        wait_for(lambda part=part: drawn(page, part) == 1, "the rest")
    said = page.part("caption").inner_text()
    assert page.page.get_by_role("img", name=said).count() == 1


def test_a_long_text_is_shown_in_pages_without_a_blank(page):
    page.speak(BOOK)
    page.wait("whole")
    page.part("play").click()
    wait_for(lambda: page.part("play").inner_text() == "Play", "the pause")
    for seconds in (0, page.duration() / 2, page.duration()):
        page.part("position").fill(f"{seconds:.2f}")
        wait_for(lambda seconds=seconds: page.position() == pytest.approx(seconds, abs=0.02), "the place")
        assert all(drawn(page, part) == 1 for part in (WAVE, MEL, ALIGNMENT)), seconds
    width = page.part("picture").bounding_box()["width"]
    page.part("picture").click(position={"x": width / 2, "y": 10})
    place = page.duration() - width / 2 / 180  # the last page ends with the sound
    wait_for(lambda: page.position() == pytest.approx(place, abs=0.02), "the place")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "model, what", [("tacotron2-hifigan", "attention to"), ("fastpitch-hifigan", "durations of")]
)
def test_mel_and_alignment_are_the_server_s(browser, server, scheme, model, what):
    told = server.speak("Hello there.", model=model, stream_format="json", alignment=True).json()
    (one,) = told["alignments"]
    count, ends = len(one["symbols"]), np.cumsum(one["seconds"])
    if one["attention"]:
        weights = np.frombuffer(base64.b64decode(one["attention"]["weights"]), np.uint8).reshape(-1, count)
        middles = (np.arange(len(weights)) + 0.5) * ends[-1] / len(weights)
        symbols = weights.argmax(1)
    else:
        symbols = np.flatnonzero(one["seconds"])
        middles = ends[symbols] - np.array(one["seconds"])[symbols] / 2
    levels = np.frombuffer(base64.b64decode(one["mel"]["levels"]), np.uint8)
    levels = levels.reshape(one["mel"]["frames"], -1).astype(float)
    with opened(browser, server.url, color_scheme=scheme) as page:
        page.part("model").select_option(model)
        page.speak("Hello there.")
        page.wait("whole")
        wait_for(lambda: page.part("play").inner_text() == "Play", "the end")
        assert f"{what} {count} symbols from bottom to top" in page.part("caption").inner_text()
        shown = pixels(page, ALIGNMENT)[::-1, :, 1].astype(int)  # green grows with the level
        columns = (shown.shape[1] / page.duration() * middles).astype(int)
        rows = (shown.shape[0] * (np.arange(count) + 0.5) / count).astype(int)
        found = shown[rows][:, columns].argmax(0)
        assert np.mean(found == symbols) > 0.95  # one column is under the mark of the position
        shown = pixels(page, MEL)[::-1, :, 1].astype(int)
        columns = (shown.shape[1] * (np.arange(len(levels)) + 0.5) / len(levels)).astype(int)
        rows = (shown.shape[0] * (np.arange(levels.shape[1]) + 0.5) / levels.shape[1]).astype(int)
        wanted = np.interp(levels, np.linspace(0, 255, len(GREENS)), GREENS)
        assert np.abs(shown[rows][:, columns].T - wanted).mean() < 8
        assert not page.complaints


def test_two_pairs_are_spoken_one_after_the_other(page, server):
    page.page.check("#compare")
    page.part("model").select_option("fastpitch-hifigan")
    page.part("model", "B").select_option("fastspeech-hifigan")
    page.page.click("[aria-label='Speech B'] summary")
    page.page.fill("#b-speed", "2")
    page.speak("Hello there.")
    page.wait("whole")
    page.wait("whole", "B")
    wait_for(lambda: page.position("B") > 0.05, "B")
    whole = page.duration()
    assert page.position() == pytest.approx(whole, abs=0.02)  # A was heard to its end
    (spoken,) = json.loads(page.run("localStorage.getItem('melforge.history')"))
    assert [one["model"] for one in spoken["columns"]] == ["fastpitch-hifigan", "fastspeech-hifigan"]
    answer = server.speak("Hello there.", model="fastspeech-hifigan", speed=2, response_format="pcm")
    assert page.part("audio", "B").inner_text() == f"{len(answer.content) / 48000:.2f} s"


def test_one_side_can_be_stopped(page, held):
    page.page.check("#compare")
    page.speak(LONG)
    wait_for(lambda: page.position() > 0.1, "A")
    page.part("stop").click()
    assert page.state() == "stopped"
    held.set()
    page.wait("whole", "B")
    wait_for(lambda: page.position("B") > 0.1, "B, whose turn it is")
    assert page.position() < 1 and page.part("figures", "B").is_visible()
    page.page.keyboard.press("Escape")


def test_a_recording_is_chosen_or_dropped_and_transcribed(page, server, tmp_path):
    spoken = tmp_path / "spoken.wav"
    spoken.write_bytes(server.speak("Nobody had lit the fire.", response_format="wav", stream=False).content)
    page.page.set_input_files("#recording", spoken)
    heard, said = page.page.locator("#heard"), page.page.locator("#heard-status")
    wait_for(heard.is_visible, "the transcript")
    assert "fire" in heard.inner_text() and said.inner_text().startswith("rowan heard spoken.wav in ")
    page.page.select_option("#transcript", "srt")
    wait_for(lambda: "-->" in heard.inner_text(), "subtitles")
    page.run(
        """([data, name]) => {
            const dataTransfer = new DataTransfer();
            const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
            dataTransfer.items.add(new File([bytes], name));
            for (const kind of ["dragover", "drop"]) {
                const event = new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true });
                if (document.body.dispatchEvent(event)) throw new Error("the browser would open the file");
            }
        }""",
        [base64.b64encode(b"no sound").decode(), "notes.wav"],
    )
    wait_for(lambda: said.inner_text().startswith("file: "), "that it is no sound")
    assert not heard.is_visible() and "400" in page.complaints.pop()  # Chromium's own line


def test_the_api_is_described_without_other_sites(browser):
    for keys in ((), (b"secret",)):
        with running(keys) as server, opened(browser, server.url) as page:
            page.page.goto(f"{server.url}/docs")
            wait_for(lambda page=page: page.page.locator("table").count(), "the description")
            paths = [title.split()[-1] for title in page.page.locator("h2 code").all_inner_texts()]
            with server.client() as client:
                assert paths == [*client.get("/openapi.json").json()["paths"]]
            told = page.page.inner_text("#api")
            assert ("Authorization: Bearer KEY" in told) == bool(keys)
            assert "number from 0.25 to 4 (default: 1)" in told and "Retry-After" in told
            assert all(url.startswith(server.url) for url in page.asked)


def test_each_format_can_be_saved(page, server, direct):
    samples = direct.speak("Hello there.").samples
    page.page.fill("#text", "Hello there.")
    formats = page.part("format").locator("option").all_inner_texts()
    for name in formats:
        page.part("format").select_option(name)
        with page.page.expect_download() as saving:
            page.part("download").click()
        assert saving.value.suggested_filename == f"fastpitch-hifigan.{name}"
        data = saving.value.path().read_bytes()
        if name in ("wav", "flac", "mp3", "opus"):
            info = soundfile.info(io.BytesIO(data))
            assert info.samplerate == 24000
            seconds = len(soundfile.read(io.BytesIO(data))[0]) / 24000
            assert seconds == pytest.approx(len(samples) / 22050, abs=0.1), name
    page.part("format").select_option("wav")
    page.part("rate").select_option("16000")
    with page.page.expect_download() as saving:
        page.part("download").click()
    assert soundfile.info(io.BytesIO(saving.value.path().read_bytes())).samplerate == 16000
    assert {"mp3", "opus", "flac", "wav", "pcm"} <= {*formats}


# What goes wrong


def test_a_wrong_control_is_said_in_words_and_marked(page):
    page.page.click("[aria-label='Speech A'] summary")
    page.page.fill("#a-volume", "99")
    page.speak("Hello there.")
    assert page.error() == "volume: Input should be less than or equal to 10, not 99."
    assert page.page.get_attribute("#a-volume", "aria-invalid") == "true"
    page.page.fill("#a-volume", "1")
    assert page.page.get_attribute("#a-volume", "aria-invalid") == "false"
    page.speak("Hello there.")
    page.wait("whole")
    assert page.page.inner_text("#error") == ""
    assert len(page.complaints) == 1 and "400" in page.complaints.pop()  # Chromium's own line


def test_speech_that_breaks_off_is_said_and_what_came_can_be_heard(page, monkeypatch):
    from melforge.common.serve import service

    make, release = service.make_stream, threading.Event()
    monkeypatch.setattr(service, "make_stream", lambda *how: HeldStream(make(*how), 2, release, breaks=True))
    page.speak(BOOK)
    wait_for(lambda: page.duration() > 0.2, "what came")  # Chromium drops what it has not read when it breaks
    came = page.duration()
    release.set()
    assert page.error() == "The speech broke off."
    assert page.state() == "failed" and page.duration() >= came
    page.complaints.clear()


def test_no_server_is_said(page):
    page.page.route("**/v1/audio/speech", lambda route: route.abort())
    page.speak("Hello there.")
    assert page.error() == "The server does not answer."
    page.complaints.clear()


def test_a_key_is_asked_for_and_its_limit_said(browser, held):
    with running(keys=(b"secret",), key_requests=1) as server, opened(browser, server.url) as page:
        assert page.run("document.activeElement.id") == "key"
        assert not page.page.inner_text("#error") and not page.page.is_visible("#text")
        page.page.keyboard.type("wrong")
        page.page.keyboard.press("Enter")
        assert page.error() == "This is no valid key."
        page.page.fill("#key", "secret")
        page.page.keyboard.press("Enter")
        wait_for(lambda: page.page.inner_text("#status") == "The key is accepted.", "the columns")
        assert not page.page.inner_text("#error") and not page.page.is_visible("#key")
        with server.client("secret") as client, client.stream("POST", SPEECH, json=own_pcm(BOOK)) as other:
            pieces = other.iter_raw()
            next(pieces)
            page.speak("Hello there.")
            said = "Too many requests: this key has 1 requests under way, of 1. Try again in 1 s."
            assert page.error() == said
            held.set()
        wait_for(lambda: not server.service.running, "the other's end")
        page.page.click("#speak")
        page.wait("whole")
        assert page.page.inner_text("#error") == ""
        stored = page.run("[JSON.stringify(localStorage), JSON.stringify(sessionStorage), location.href]")
        assert not any("secret" in one for one in stored) and "ek_" in stored[1]
        late = write_token(Token("owner 1", 0, {}), server.service.token_secret("owner 1"))
        page.run("token => sessionStorage.setItem('melforge.token', token)", late)
        chosen = page.part("model").input_value()
        page.page.click("#speak")
        assert (
            page.error()
            == "Please enter the key again: its two hours are over, or the server was started again."
        )
        page.page.fill("#key", "secret")
        page.page.keyboard.press("Enter")
        wait_for(lambda: not page.page.is_visible("#key"), "the key's answer")
        page.page.click("#speak")
        page.wait("whole")
        assert page.part("model").input_value() == chosen and page.page.input_value("#text") == "Hello there."


def test_a_page_s_script_speaks_by_realtime_events_with_a_token(browser):
    with running(keys=(b"secret",)) as server, opened(browser, server.url) as page:
        with server.client("secret") as client:
            token = client.post("/v1/realtime/client_secrets", json={}).json()["value"]
            wanted = client.post(SPEECH, json=own_pcm(TEXT) | {"sample_rate": 24000}).content
        heard = page.run(REALTIME, {"token": token, "text": TEXT})
        assert b"".join(map(base64.b64decode, heard)) == wanted
        assert "closed" in page.run(REALTIME, {"token": "ek_x", "text": TEXT})
        page.complaints.clear()


def test_a_full_queue_and_a_long_text_are_said(browser, held):
    with running(queue=1, max_characters=1000) as server, opened(browser, server.url) as page:
        with server.client() as client, client.stream("POST", SPEECH, json=own_pcm(BOOK)) as other:
            pieces = other.iter_raw()
            next(pieces)
            page.speak("Hello there.")
            assert page.error().startswith("The server is busy: 1 requests are being spoken or wait")
            held.set()
        wait_for(lambda: not server.service.running, "the other's end")
        page.speak("a" * 1001)
        assert page.page.inner_text("#count") == "1001 of 1000 characters"
        wait_for(lambda: page.error() == "input: 1001 characters, of 1000 at most.", "the limit")


# Links, history, keys of the keyboard, screens


def test_a_link_brings_everything_back(page, browser, server):
    text = "Grüße & 100 % – #1?\nA second line = here."
    page.page.fill("#text", text)
    page.page.check("#compare")
    page.part("model").select_option("tacotron2-hifigan")
    page.part("model", "B").select_option("fastpitch-waveglow")
    for column in "AB":
        page.page.click(f"[aria-label='Speech {column}'] summary")
    page.page.check("#a-dropout")
    page.page.fill("#a-seed", "7")
    page.page.fill("#b-speed", "1.25")
    page.page.check("#b-pitch_invert")
    page.page.click("#share")
    wait_for(lambda: "address bar" in page.page.inner_text("#status"), "the link")
    with opened(browser, page.page.url) as other:
        assert other.page.input_value("#text") == text
        assert other.page.is_checked("#compare")
        assert other.part("model").input_value() == "tacotron2-hifigan"
        assert other.part("model", "B").input_value() == "fastpitch-waveglow"
        assert other.page.input_value("#a-seed") == "7" and other.page.input_value("#b-speed") == "1.25"
        assert other.page.is_checked("#a-dropout") and other.page.is_checked("#b-pitch_invert")
        assert not other.page.is_checked("#b-pitch_flatten")
        assert not other.complaints
    with opened(browser, f"{server.url}/#text=Hi&a.model=nothing&a.speed=x") as other:
        assert other.page.input_value("#text") == "Hi" and not other.complaints


def test_controls_are_those_of_the_pair(page):
    page.page.click("[aria-label='Speech A'] summary")
    page.part("model").select_option("tacotron2-hifigan")
    assert page.page.is_visible("#a-gate_threshold") and not page.page.is_visible("#a-speed")
    page.part("model").select_option("fastpitch-waveglow")
    assert page.page.is_visible("#a-speed") and page.page.is_visible("#a-sigma")
    assert not page.page.is_visible("#a-gate_threshold")
    page.page.fill("#a-sigma", "0.5")
    assert page.part("changed").inner_text() == "1 changed"
    page.part("reset").click()
    assert page.part("changed").inner_text() == "" and page.page.input_value("#a-sigma") == ""


def test_the_history_keeps_the_last_twenty_in_this_browser(page):
    entries = page.page.locator("#history button")
    for text in ("One.", "Two.", "One."):
        page.speak(text)
        page.wait("whole")
    assert entries.all_inner_texts() == ["One.", "Two."]
    page.page.reload()
    page.opened()
    entries.nth(1).click()
    assert page.page.input_value("#text") == "Two."
    page.run(
        """async () => {
            const { addToHistory } = await import("/page/state.js");
            for (let i = 0; i < 25; i++) addToHistory({ text: `Text ${i}.`, columns: [] });
        }"""
    )
    page.page.reload()
    page.opened()
    assert entries.count() == 20 and entries.first.inner_text() == "Text 24."
    page.page.click("#clear")
    assert entries.count() == 0 and page.run("localStorage.getItem('melforge.history')") == "[]"


def test_the_keyboard_speaks_and_stops(page, server, held):
    page.page.fill("#text", BOOK)
    page.page.press("#text", "Control+Enter")
    wait_for(lambda: page.position() > 0.1, "sound")
    assert server.service.running == 1
    page.page.keyboard.press("Escape")
    assert page.state() == "stopped" and page.part("said").inner_text() == "Stopped."
    place = page.position()
    wait_for(lambda: not server.service.running, "the server to notice")
    assert page.position() == pytest.approx(place, abs=0.05)
    wait_for(lambda: page.page.is_disabled("#stop"), "the next drawing")
    assert not page.page.inner_text("#error")


def test_another_text_takes_the_place_of_the_one_that_is_spoken(page, server, held):
    page.speak(BOOK)
    wait_for(lambda: page.position() > 0.1, "sound")
    held.set()
    page.speak("Hello there.")
    page.wait("whole")
    assert page.part("words").inner_text() == "Hello there."
    wait_for(lambda: not server.service.running, "the first one's end")
    assert page.duration() < 2 and not page.page.inner_text("#error")


def test_all_can_be_reached_by_tab_seen_there_and_named(page):
    page.page.check("#compare")
    page.page.click("[aria-label='Speech A'] summary")
    page.speak("Hello.")
    page.wait("whole", "B")
    wanted = page.run(
        """() => [...document.querySelectorAll("a, button, input, select, textarea, summary")]
            .filter((one) => !one.disabled && one.checkVisibility()).length"""
    )
    page.run("() => { document.activeElement.blur(); }")
    reached, nameless, unseen = set(), [], []
    for _ in range(3 * wanted):
        page.page.keyboard.press("Tab")
        number, tag, name, outline = page.run(
            """() => {
                const one = document.activeElement;
                const all = [...document.querySelectorAll("*")];
                const label = one.getAttribute("aria-label") ?? one.labels?.[0]?.textContent;
                const name = (label ?? one.textContent).trim();
                return [all.indexOf(one), one.tagName, name, getComputedStyle(one).outlineStyle];
            }"""
        )
        if tag != "BODY":
            if number in reached:
                break
            reached.add(number)
            nameless += [] if name else [tag]
            unseen += [] if outline == "solid" else [tag]
    assert len(reached) >= wanted and not nameless and not unseen


def test_a_phone_has_no_horizontal_scrolling(browser, server):
    with opened(browser, server.url, viewport={"width": 320, "height": 640}) as page:
        page.page.check("#compare")
        for column in "AB":
            page.page.click(f"[aria-label='Speech {column}'] summary")
        page.speak("Hello there. " + "Unbreakable" * 12)
        page.wait("whole")
        overflowing = page.run(
            """() => [...document.querySelectorAll("main *")]
                .filter((one) => one.getBoundingClientRect().right > 320).map((one) => one.outerHTML)"""
        )
        assert not overflowing and not page.complaints
        assert page.run("document.documentElement.scrollWidth") == 320


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(browser, server, scheme):
    with opened(browser, server.url, color_scheme=scheme) as page:
        page.run("() => { document.getElementById('error').textContent = 'An error.'; }")
        ground = luminance(page.run("getComputedStyle(document.body).backgroundColor"))
        assert (ground < 0.05) == (scheme == "dark")
        for selector in ("h1", "header p", "header a", "#speak", "#stop", "#error", ".help", "dt", "select"):
            text, behind = page.run(
                """(selector) => {
                    const one = document.querySelector(selector);
                    let place = one;
                    const colour = () => getComputedStyle(place).backgroundColor;
                    while (colour() === "rgba(0, 0, 0, 0)") place = place.parentElement;
                    return [getComputedStyle(one).color, colour()];
                }""",
                selector,
            )
            low, high = sorted((luminance(text), luminance(behind)))
            assert (high + 0.05) / (low + 0.05) >= 4.5 or selector == "#stop", (selector, text, behind)


def luminance(colour: str) -> float:
    """Of "rgb(r, g, b)", as WCAG defines it."""
    parts = [int(word) / 255 for word in colour[4:-1].split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot((0.2126, 0.7152, 0.0722), linear))

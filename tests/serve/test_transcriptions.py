"""Transcripts over OpenAI's API: what `transcribe` gives, in every form, and refusals that say why."""

import http.client
import io
import json
import threading
import tracemalloc

import numpy as np
import pytest
import soundfile

from melforge.common.recognition.captions import captions
from melforge.common.recognition.loading import load_recogniser
from melforge.common.recognition.long_recordings import transcribe
from melforge.common.recognition.transcript import HeardWord, Transcript
from melforge.common.serve.hearing import Transcriber
from melforge.common.serve.protocols.transcriptions import TranscriptionFields, WholeForm, answer_of
from tests.serve.conftest import own_pcm, running, samples_of, wait_for
from tests.serve.test_api import require_error

pytestmark = pytest.mark.serve
ROUTE = "/v1/audio/transcriptions"
RATE = 22050


@pytest.fixture(scope="module")
def hears(small_ear):
    with running(ear=str(small_ear), recordings=2, recording_bytes=400_000, recording_seconds=5.0) as one:
        yield one


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    """Noise with a pause, float32 [S]."""
    samples = (np.random.default_rng(3).standard_normal(4 * RATE) * 0.1).astype(np.float32)
    samples[RATE : 2 * RATE] = 0
    return samples


def sound(samples: np.ndarray, rate: int = RATE, form: str = "wav") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form)
    return file.getvalue()


@pytest.fixture(scope="module")
def wav(noise) -> bytes:
    return sound(noise)


@pytest.fixture(scope="module")
def wanted(small_ear, wav) -> Transcript:
    return transcribe(
        load_recogniser(small_ear, device="cpu"), [soundfile.read(io.BytesIO(wav), dtype="float32")]
    )[0]


def ask(server, file: bytes | None, **fields):
    files = {} if file is None else {"file": ("speech.wav", file)}
    with server.client() as client:
        return client.post(ROUTE, files=files or {"": ("", b"")}, data={"model": "whisper-1", **fields})


def test_every_form_has_the_words_that_transcribe_gives(hears, wav, wanted):
    assert wanted.words
    answer = ask(hears, wav)
    assert answer.json() == {"text": wanted.text, "usage": {"type": "duration", "seconds": 4}}
    text = ask(hears, wav, response_format="text")
    assert text.text == wanted.text + "\n" and text.headers["content-type"].startswith("text/plain")
    for form, mark in (("srt", "1\n00:00:0"), ("vtt", "WEBVTT\n")):
        subtitles = ask(hears, wav, response_format=form)
        assert subtitles.text.startswith(mark) and subtitles.text.count("-->") == len(captions(wanted))
        words = [line for line in subtitles.text.splitlines() if line[:1].isalpha() and line != "WEBVTT"]
        assert " ".join(words).split() == wanted.text.split()


@pytest.mark.parametrize("said", ["", "a word"])
def test_nothing_heard_is_an_empty_text_in_every_form(said):
    words = (HeardWord("word", 0.1, 0.5, 0.9),) if said else ()

    def answer(**fields):
        wanted = TranscriptionFields(model="whisper-1", **fields)
        return answer_of(Transcript(said, words, 1.0), wanted, "english").body.decode()

    assert json.loads(answer())["text"] == said and answer(response_format="text") == f"{said}\n"
    assert (
        answer(response_format="srt").count("-->") == answer(response_format="vtt").count("-->") == len(words)
    )
    whole = json.loads(answer(response_format="verbose_json", timestamp_granularities=["word", "segment"]))
    assert whole["text"] == said and len(whole["words"]) == len(whole["segments"]) == len(words)
    events = [json.loads(line.removeprefix("data: ")) for line in answer(stream=True).split("\n\n")[:-1]]
    assert [one["type"] for one in events] == ["transcript.text.delta"] * len(words) + [
        "transcript.text.done"
    ]
    assert "".join(one.get("delta", "") for one in events) == events[-1]["text"] == said


def test_words_and_segments_have_times(hears, wav, wanted):
    lists = {"timestamp_granularities[]": ["word", "segment"], "response_format": "verbose_json"}
    found = ask(hears, wav, **lists).json()
    assert (found["task"], found["language"], found["duration"]) == ("transcribe", "english", 4.0)
    assert found["text"] == wanted.text
    assert [(w["word"], w["start"], w["end"]) for w in found["words"]] == [
        (w.word, round(w.start, 3), round(w.end, 3)) for w in wanted.words
    ]
    assert " ".join(s["text"].strip() for s in found["segments"]) == wanted.text
    assert all(s["avg_logprob"] <= 0 and s["end"] > s["start"] for s in found["segments"])
    plain = ask(hears, wav, response_format="verbose_json").json()
    assert "words" not in plain and plain["segments"] == found["segments"]
    words = ask(hears, wav, response_format="verbose_json", timestamp_granularities="word").json()
    assert "segments" not in words and words["words"] == found["words"]


def test_captions_end_at_pauses_and_stay_short():
    word = [HeardWord("word", n * 0.4, n * 0.4 + 0.3, 0.5) for n in range(60)]
    late = [HeardWord("late", 30.0, 30.4, 0.25)]
    found = captions(Transcript("", (*word, *late), 31.0))
    assert found[-1].words == tuple(late) and found[-1].log_score == pytest.approx(np.log(0.25))
    assert all(one.cue.end - one.cue.start <= 7 and len(one.text) <= 84 for one in found)
    assert [w for one in found for w in one.words] == [*word, *late]
    assert [len(one.words) for one in found] == [17, 17, 17, 9, 1]  # of 84 characters at most
    slow = tuple(HeardWord("slow", n * 1.1, n * 1.1 + 0.9, 0.5) for n in range(12))
    assert [len(one.words) for one in captions(Transcript("", slow, 14.0))] == [6, 6]  # of 7 seconds


@pytest.mark.parametrize("form", ["flac", "ogg", "mp3"])
def test_other_files_and_rates_are_heard(hears, noise, form):
    answer = ask(hears, sound(np.stack([noise, noise], 1), 44100 if form == "mp3" else RATE, form))
    assert answer.status_code == 200 and answer.json()["text"]


def test_a_large_recording_lies_on_disk_and_goes_with_its_request(hears, wav, monkeypatch):
    files, transcribe = [], Transcriber.transcribe
    monkeypatch.setattr(WholeForm, "spool_max_size", 1000)
    monkeypatch.setattr(
        Transcriber, "transcribe", lambda self, file: files.append(file) or transcribe(self, file)
    )
    assert ask(hears, wav).status_code == 200
    assert files[0]._rolled and files[0].closed


def test_silence_has_no_words(hears):
    answer = ask(hears, sound(np.zeros(16000)), response_format="verbose_json")
    assert answer.json()["text"] == "" and answer.json()["segments"] == []
    assert ask(hears, sound(np.zeros(0))).json()["text"] == ""


def test_what_is_not_used_is_said_in_a_header(hears, wav):
    answer = ask(hears, wav, prompt="Names: Melforge.", temperature="0.5", stream="false", own="1")
    assert answer.headers["x-melforge-ignored"] == "own, prompt, temperature"
    for language in ("en", "EN-US", "english", ""):
        unset = {"response_format": "", "temperature": "", "stream": "", "timestamp_granularities[]": ""}
        assert "x-melforge-ignored" not in ask(hears, wav, language=language, **unset).headers
    assert ask(hears, wav, model="", language="en-US").status_code == 200  # as NVIDIA's clients


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"model": "whisper-9"}, "model", "unknown model 'whisper-9'"),
        ({"response_format": "docx"}, "response_format", "'json', 'text', 'srt', 'verbose_json' or 'vtt'"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities", "in verbose_json only"),
        ({"timestamp_granularities[]": "letter"}, "timestamp_granularities", "'segment' or 'word'"),
        ({"stream": "true", "response_format": "srt"}, "response_format", "events have no srt"),
        ({"temperature": "hot"}, "temperature", "a valid number"),
        ({"temperature": "1.5"}, "temperature", "less than or equal to 1"),
        ({"temperature": "nan"}, "temperature", "less than or equal to 1"),
        ({"language": "fr"}, "language", "the ear hears en, not 'fr'"),
    ],
)
def test_a_wrong_field_is_named(hears, wav, fields, param, message):
    assert message in require_error(ask(hears, wav, **fields), 400, param)["message"]


def test_what_is_no_recording_is_refused(hears, noise):
    for content, message in (
        (b"", "file: it is empty"),
        (b"no sound at all", "file: it cannot be read as sound"),
        (sound(np.zeros(6 * 8000), 8000), "file: it is longer than 5 seconds"),
        (sound(np.zeros(2000), 2000), "file: its rate is 2000 Hz"),
    ):
        error = require_error(ask(hears, content), 400, "file")
        assert message in error["message"]
    file = io.BytesIO()
    soundfile.write(file, np.full(8000, np.nan), 8000, "FLOAT", format="wav")
    assert "not all numbers" in require_error(ask(hears, file.getvalue()), 400)["message"]
    long = require_error(ask(hears, sound(np.zeros(220000), 44100)), 413)
    assert "file: 440044 bytes, of 400000 at most" in long["message"]
    require_error(ask(hears, bytes(500_000)), 413)


FILE = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"'
MODEL = b'\r\n--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1'


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("multipart/form-data", b"--", "Missing boundary"),
        ("multipart/form-data; boundary=x", b"", "the form breaks off"),
        ("multipart/form-data; boundary=x", b"--x\r\nA: b\r\n\r\nno end", "cannot be read"),
        ("multipart/form-data; boundary=x", FILE + b"\r\n\r\nRIFF", "the form breaks off"),
        ("multipart/form-data; boundary=x", b"--x\r\nno headers\r\n--x--", "cannot be read"),
        ("multipart/form-data; boundary=x", b"--x\r\nA: b\r\n\r\nc\r\n--x--", '"name" must be provided'),
        ("multipart/form-data; boundary=x", b"--x--", "model is missing"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nc\r\n--x--\r\n',
            "model is missing",
        ),
        (
            "multipart/form-data; boundary=x",
            FILE + b"\r\n\r\nc" + MODEL + FILE.join((b"\r\n", b"\r\n\r\nd\r\n--x--\r\n")),
            "Too many files",
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nc' + MODEL + b"\r\n--x--\r\n",
            "file: send it as a file, with a file name",
        ),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\n" + b'Content-Disposition: form-data; name="a"\r\n\r\nc\r\n--x\r\n' * 70,
            "Maximum number of fields is 64",
        ),
        (
            "multipart/form-data; boundary=x",
            MODEL[2:] + b"1" * 70_000 + b"\r\n--x--\r\n",
            "Part exceeded maximum size of 64KB",
        ),
    ],
)
def test_a_wrong_form_is_refused(hears, kind, body, message):
    with hears.client() as client:
        answer = client.post(ROUTE, content=body, headers={"content-type": kind})
    assert message in require_error(answer, 400)["message"]


def test_what_is_no_form_is_415(hears):
    with hears.client() as client:
        assert "must be multipart/form-data" in require_error(client.post(ROUTE, json={}), 415)["message"]


def test_a_server_without_an_ear_says_how_to_get_one(wav, monkeypatch, tmp_path):
    monkeypatch.setenv("MELFORGE_EARS", str(tmp_path))
    with running() as server:
        error = require_error(ask(server, wav), 400, "model")
        assert error["code"] == "no_ear" and "melforge serve --ear FOLDER" in error["message"]
        with server.client() as client:
            assert "whisper-1" not in client.get("/v1/models").text


def test_the_ear_is_listed(hears):
    with hears.client() as client:
        names = [one["id"] for one in client.get("/v1/models").json()["data"]]
        assert {"small", "whisper-1"} <= set(names)
        assert client.get("/v1/models/small").json()["id"] == "small"


def test_a_missing_ear_ends_the_start(tmp_path):
    from melforge.common.serve.settings import ServeSettings

    with pytest.raises(ValueError, match="is not an ear"):
        Transcriber(ServeSettings(ear=str(tmp_path)), lambda *used: None)


def test_speech_goes_on_beside_a_recording_and_others_wait_up_to_a_limit(hears, wav, direct, monkeypatch):
    from melforge.common.serve import hearing

    begun, going_on = threading.Event(), threading.Event()
    whole = hearing.decode_blocks

    def slow(*how):
        begun.set()
        assert going_on.wait(30)
        return whole(*how)

    monkeypatch.setattr(hearing, "decode_blocks", slow)
    answers = []
    asking = [threading.Thread(target=lambda: answers.append(ask(hears, wav))) for _ in range(2)]
    for one in asking:
        one.start()
    assert begun.wait(30)
    wait_for(lambda: hears.service.hearing.running == 2)
    text = own_pcm()["input"]
    assert len(samples_of(hears.speak(text, response_format="pcm", sample_rate=22050).content)) == len(
        direct.speak(text).samples
    )
    busy = ask(hears, wav)
    assert require_error(busy, 429)["code"] == "rate_limit_exceeded" and busy.headers["retry-after"] == "1"
    going_on.set()
    for one in asking:
        one.join()
    assert [answer.status_code for answer in answers] == [200, 200]
    wait_for(lambda: not hears.service.hearing.running)


def test_who_leaves_ends_the_work(hears, noise, monkeypatch):
    import httpx

    from melforge.common.serve import hearing

    steps = []
    going_on = threading.Event()
    whole = hearing.hear_blocks

    def slow(*how, **more):
        for piece in whole(*how, **more):
            for number in range(3):
                steps.append(number)
                going_on.wait(30)
                yield piece

    monkeypatch.setattr(hearing, "hear_blocks", slow)
    files, url = {"file": ("a.wav", sound(noise))}, httpx.URL(hears.url)
    request = httpx.Request("POST", url.join(ROUTE), files=files, data={"model": "small"})
    leaving = http.client.HTTPConnection(url.host, url.port)
    leaving.request("POST", ROUTE, request.read(), dict(request.headers))
    wait_for(lambda: steps)
    leaving.close()
    wait_for(lambda: not hears.service.running)
    going_on.set()
    monkeypatch.undo()
    assert ask(hears, sound(noise)).status_code == 200
    assert len(steps) == 1  # the second one was not begun


def test_figures_and_the_log_have_what_was_heard(hears, wav, monkeypatch):
    lines = []
    monkeypatch.setattr("melforge.common.serve.gate.log", lambda event, **fields: lines.append(fields))
    before = hears.service.metrics.heard._value.get()
    assert ask(hears, wav).status_code == 200
    wait_for(lambda: lines)
    assert hears.service.metrics.heard._value.get() == before + 4
    assert lines[0]["heard_s"] == 4 and lines[0]["model"] == "whisper-1" and lines[0]["words"] > 0
    assert "text" not in json.dumps(lines[0])
    with hears.client() as client:
        page = client.get("/metrics").text
        assert "melforge_heard_seconds_total" in page and "melforge_transcription_seconds_count" in page


@pytest.mark.openai
@pytest.mark.filterwarnings("ignore:deprecated")  # translations, in new clients
def test_openai_s_client_gets_every_form(hears, wav, wanted):
    import openai

    audio = openai.OpenAI(base_url=f"{hears.url}/v1", api_key="none", max_retries=0).audio
    create = audio.transcriptions.create
    file = ("speech.wav", wav)
    assert create(model="whisper-1", file=file).text == wanted.text
    assert audio.translations.create(model="whisper-1", file=file).text == wanted.text
    assert create(model="small", file=file, response_format="text").strip() == wanted.text
    assert create(model="whisper-1", file=file, response_format="srt").startswith("1\n")
    assert create(model="whisper-1", file=file, response_format="vtt").startswith("WEBVTT")
    verbose = create(
        model="whisper-1",
        file=file,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        language="en",
        prompt="Hello.",
        temperature=0.2,
    )
    assert [word.word for word in verbose.words] == wanted.text.split()
    assert verbose.segments[0].id == 0 and float(verbose.duration) == 4.0
    delta, done = create(model="gpt-4o-transcribe", file=file, stream=True)
    assert (delta.type, delta.delta) == ("transcript.text.delta", wanted.text)
    assert (done.type, done.text) == ("transcript.text.done", wanted.text)
    with pytest.raises(openai.BadRequestError) as error:
        create(model="whisper-1", file=("a.wav", b"nothing"))
    assert error.value.param == "file"


def test_a_long_recording_is_never_whole_in_memory(small_ear, noise):
    from melforge.common.serve.settings import ServeSettings

    seconds, rate = 200, 48000
    silence = np.zeros(seconds * rate, np.int16)
    silence[-4 * RATE :] = noise * 32767
    file = io.BytesIO(sound(silence, rate, "flac"))
    del silence
    transcriber = Transcriber(ServeSettings(ear=str(small_ear)), lambda *used: None)
    transcriber._recogniser  # noqa: B018  loads it
    tracemalloc.start()
    try:
        transcript = transcriber._transcribe(file, threading.Event())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert transcript.seconds == seconds and most < 25e6, "the samples have 38 MB"
    file.seek(0)
    assert [transcript] == transcribe(transcriber._recogniser, [soundfile.read(file, dtype="float32")])
    assert transcript.words


def test_what_decoders_complain_of_is_not_in_the_log(hears, noise, capfd):
    from melforge.common.audio.wire import encode

    broken = bytearray(encode(noise, "mp3", RATE, 24000))
    for place in np.random.default_rng(0).integers(len(broken) // 3, len(broken), 200).tolist():
        broken[place] ^= 255
    capfd.readouterr()
    assert ask(hears, bytes(broken)).status_code == 200
    assert capfd.readouterr().err == ""

"""The real server runs the repository: audio as `speak` makes it, errors, batches, streams, the probe."""

import collections
import functools
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from melforge.common.bench.triton_statistics import settled
from melforge.common.cli.benchmark_triton import main as measure
from melforge.common.cli.triton_client import main as speak_phrases
from melforge.common.errors import InputError
from melforge.common.serve.client import Address, ServerError
from melforge.common.speech import Controls
from melforge.common.triton.client import HttpClient
from tests import flood as floods
from tests.flood import CLIENTS, SECONDS, flood, post, private_mb, seconds_from_now
from tests.serve.conftest import wait_for
from tests.triton.conftest import PATIENCE, QUEUE_SIZE, ROOT, own_environment, read_bytes, tritonserver

pytestmark = [pytest.mark.tritonserver, pytest.mark.slow, floods.IN_TIME]
MODELS = ("frontend", "acoustic", "vocoder")
TEXTS_OF_STREAMS = floods.TEXTS[::3]
TEXTS = ("Hello there.", "One sentence. And here is another one, which is longer!", "Three.")


@pytest.fixture
def client(server):
    client = HttpClient(Address.parse(server.http), PATIENCE)
    yield client
    client.close()


def alone(client, text, parameters):
    """The audio of a text alone in its request."""
    return client.speak([text], parameters)[0].audio


def streamed(client, text, parameters):
    return np.concatenate([chunk.audio for chunk in client.stream(text, parameters)])


def close_to(audio, wanted) -> bool:
    """The server's numpy and ONNX Runtime may be other ones than ours."""
    return audio.shape == wanted.shape and bool(np.allclose(audio, wanted, atol=1e-4))


@pytest.mark.parametrize(
    "controls", [{}, {"pace": 1.5, "pause_factor": 2}, {"pitch_flatten": True, "sentence_pause": 0.5}]
)
def test_audio_is_what_speak_gives(client, tts, controls):
    assert client.sampling_rate() == tts.sampling_rate
    for text in TEXTS:
        wanted = tts.speak(text, Controls(**controls)).samples
        assert close_to(alone(client, text, controls), wanted)
        assert close_to(streamed(client, text, controls), wanted)


@pytest.mark.parametrize(
    ("text", "parameters", "message"),
    [
        ("", {}, "no audio made: the text is empty"),
        ("Hello.", {"pace": 100}, "pace must be a number from 0.1 to 10, not 100"),
        ("Hello.", {"sigma": 0.5}, "the control 'sigma' would change nothing: waveglow has it"),
        ("Hello.", {"pacce": 2}, "unknown parameter 'pacce': did you mean 'pace'?"),
    ],
)
def test_what_cannot_be_spoken_is_an_invalid_argument(client, text, parameters, message):
    with pytest.raises(ServerError, match="^" + message.replace("?", r"\?")) as whole:
        alone(client, text, parameters)
    with pytest.raises(ServerError, match="^" + message.replace("?", r"\?")) as stream:
        list(client.stream(text, parameters))
    assert (whole.value.status, stream.value.status) == (400, 400)


def test_ssml_and_marks_are_spoken(client, tts):
    said = "<speak>One <sub alias='two'>2x</sub>. <break time='300ms'/> Three.</speak>"
    assert close_to(alone(client, said, {}), tts.speak(said).samples)
    for text in (
        "<speak>One. <break time='300ms'/> <prosody rate='80%'>Two</prosody>.</speak>",
        "[pause:1s] One.",
    ):
        assert close_to(streamed(client, text, {}), tts.speak(text).samples)
        with pytest.raises(ServerError, match="need text_to_speech_stream"):
            alone(client, text, {})


@pytest.mark.parametrize(
    ("body", "status"), [('{"text": ""}', 400), ('{"text": 12}', 500), ('{"text": null}', 500), ("{", 500)]
)
def test_statuses_of_generate_are_those_of_the_page(server, body, status):
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{server.http}/v2/models/text_to_speech/generate", body.encode(), PATIENCE)
    assert error.value.code == status


def test_what_cannot_be_spoken_is_told(client, tts):
    text = "One 你好 two. And 你 three."
    wanted = [(one.symbol, one.position) for one in tts.speak(text).unspoken]
    assert wanted
    plain, with_symbols = client.speak(["Hello.", text], {})
    first, *rest = client.stream(text, {})
    for speech in (with_symbols, first):
        assert [(one.symbol, one.position) for one in speech.unspoken] == wanted
    assert not any(speech.unspoken for speech in (plain, *rest))


def infer(server, model, **inputs):
    """Asks one model for what it makes of arrays; the status, and the answer as JSON."""
    types = {"int64": "INT64", "float32": "FP32", "float64": "FP64"}
    named = [
        {"name": name, "datatype": types[array.dtype.name], "shape": array.shape, "data": array.tolist()}
        for name, array in inputs.items()
    ]
    data = json.dumps({"inputs": named}).encode()
    try:
        request = urllib.request.Request(f"{server.http}/v2/models/{model}/infer", data)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_tensors_that_fit_no_model_are_invalid_arguments(server, client):
    def ids(*values):
        return np.array([values], np.int64)

    mel = np.zeros((1, 80, 8), np.float32)
    for model, inputs, message in (
        ("acoustic", {"symbols": ids(1, 2), "lengths": ids(3)}, "lengths [3] of a tensor of 2"),
        ("acoustic", {"symbols": ids(1, 2), "lengths": ids(-1)}, "without utterances"),
        ("acoustic", {"symbols": ids(1), "lengths": ids(1), "kept": ids(-2)}, "kept [-2] of 1 utterances"),
        ("acoustic", {"symbols": ids(1, 2), "lengths": ids(0, 2)}, "lengths [0, 2] of a tensor of 2"),
        ("acoustic", {"symbols": ids(1, 2), "lengths": ids(-1, 2)}, "lengths [-1, 2] of a tensor of 2"),
        ("acoustic", {"symbols": ids(1, 9999), "lengths": ids(2)}, "symbol ids from 1 to 9999"),
        ("vocoder", {"mel": mel, "mel_lengths": ids(9), "pauses": np.zeros((1, 1))}, "of a tensor of 8"),
        ("vocoder", {"mel": mel, "mel_lengths": ids(4, 4), "pauses": np.zeros((1, 1))}, "of 2 utterances"),
        ("vocoder", {"mel": mel, "mel_lengths": ids(8), "pauses": np.full((1, 1), 1e9)}, "pauses"),
    ):
        status, answer = infer(server, model, **inputs)
        assert (status, message in answer["error"]) == (400, True), answer
    assert len(alone(client, "It still speaks.", {}))


def test_batches_form_and_everyone_gets_their_own_sentence(server, client, tts):
    texts = [f"This is sentence number {number}, {'long ' * (number % 5)}indeed." for number in range(48)]
    texts[17] = ""  # an error in a batch is nobody else's
    before = settled(client)

    def ask(some):
        client = HttpClient(Address.parse(server.http), PATIENCE)
        try:
            return [spoken(client, text) for text in some]
        finally:
            client.close()

    def spoken(client, text):
        try:
            return alone(client, text, {})
        except ServerError as error:
            return error

    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, [texts[number::8] for number in range(8)]))
    for number, some in enumerate(answers):
        for text, answer in zip(texts[number::8], some, strict=True):
            if text:
                assert close_to(answer, tts.speak(text).samples)
            else:
                assert isinstance(answer, ServerError) and answer.status == 400
    after = settled(client)
    for model in MODELS:
        texts_made = after[model].texts - before[model].texts
        assert texts_made == (48 if model == "frontend" else 47)
        assert after[model].since(before[model])["batch"] > 2, model


def test_streams_at_a_time_are_not_mixed_up(server, tts):
    texts = [f"Sentence number {number}. {TEXTS[1]}" for number in range(6)]

    def ask(text):
        client = HttpClient(Address.parse(server.http), PATIENCE)
        try:
            return list(client.stream(text, {}))
        finally:
            client.close()

    with ThreadPoolExecutor(len(texts)) as clients:
        for text, chunks in zip(texts, clients.map(ask, texts), strict=True):
            assert close_to(np.concatenate([chunk.audio for chunk in chunks]), tts.speak(text).samples)


def test_a_long_text_comes_in_chunks(client, tts):
    text = " ".join([TEXTS[1]] * 20)
    chunks = list(client.stream(text, {}))
    assert len(chunks) > 1  # how many depends on how fast they are taken
    assert close_to(np.concatenate([chunk.audio for chunk in chunks]), tts.speak(text).samples)


def test_a_request_of_several_texts_is_answered_with_their_lengths(client, tts):
    for text, speech in zip(TEXTS, client.speak(TEXTS, {}), strict=True):
        wanted = tts.speak(text)
        assert close_to(speech.audio, wanted.samples)
        assert speech.frames == sum(mel.shape[1] for mel in wanted.mels)


@pytest.fixture
def phrases(tmp_path):
    path = tmp_path / "phrases.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def require_wavs(folder, tts, **controls):
    for number, text in enumerate(TEXTS, start=1):
        audio, rate = soundfile.read(folder / f"{number}.wav", dtype="float32")
        wanted = tts.speak(text, Controls(**controls)).samples
        assert rate == tts.sampling_rate and np.allclose(audio, wanted, atol=2e-4)


def test_the_client_writes_a_wav_for_each_line(server, tts, phrases, tmp_path, capsys):
    words = (str(phrases), "--server", server.http)
    assert speak_phrases([*words, "-o", str(tmp_path / "whole"), "--concurrency", "3"]) == 0
    assert "3 phrases" in capsys.readouterr().out
    (tmp_path / "odd.txt").write_text("One 你好 two.\n", encoding="utf-8")
    odd = (str(tmp_path / "odd.txt"), "--server", server.http, "-o", str(tmp_path / "odd"))
    assert speak_phrases(odd) == 0
    warned = capsys.readouterr().err
    assert "odd.txt line 1: '你" in warned and "at position 4 cannot be spoken" in warned
    require_wavs(tmp_path / "whole", tts)
    assert speak_phrases([*words, "-o", str(tmp_path / "stream"), "--stream", "--pace", "1.5"]) == 0
    assert "first audio" in capsys.readouterr().out
    require_wavs(tmp_path / "stream", tts, pace=1.5)
    assert speak_phrases([*words, "-o", str(tmp_path / "none"), "--sigma", "1"]) == 2
    assert f"error: {phrases} line 3: the control 'sigma'" in capsys.readouterr().err


def test_the_client_says_where_there_is_no_server(phrases, tmp_path):
    with pytest.raises(InputError, match=r"no server at http://127\.0\.0\.1:1"):
        speak_phrases([str(phrases), "-o", str(tmp_path), "--server", "http://127.0.0.1:1"])


@pytest.mark.parametrize("way", [(), ("--stream",)])
def test_the_client_speaks_grpc(server, tts, phrases, tmp_path, way):
    """In the server's environment, which has the package tritonclient."""

    def run(*more):
        words = f"-m melforge triton-client {phrases} -o {tmp_path} --protocol grpc --server {server.grpc}"
        command = [os.environ["MELFORGE_TRITON_PYTHON"], *words.split(), *way, *more]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=own_environment())

    spoken = run("--pace", "1.5")
    assert spoken.returncode == 0, spoken.stderr
    require_wavs(tmp_path, tts, pace=1.5)
    wrong = run("--pace", "1.5", "--sigma", "1")
    assert wrong.returncode == 2 and "the control 'sigma' would change nothing" in wrong.stderr
    assert run().returncode == 0  # the server has survived it


def test_the_benchmark_has_what_callers_and_the_server_say(server, phrases, tmp_path, capsys):
    words = f"{phrases} --server {server.http} --runs 2 --warm-up-runs 1 --out {tmp_path}".split()
    loads = ("--batches", "1,3,99", "--concurrency", "4", "--streams", "2")
    assert measure([*words, *loads]) == 0
    assert (tmp_path / "triton.md").read_text() == capsys.readouterr().out
    one, three, many, dynamic, stream = json.loads((tmp_path / "triton.json").read_text())["rows"]
    assert [row["answers"] for row in (one, three, many, dynamic, stream)] == [2, 2, 0, 8, 4]
    assert "batch-size must be <= 32" in many["failed"]
    assert three["server"]["vocoder"]["batch"] == 3
    for row in (one, three, dynamic):
        assert row["frames_per_s"] > row["items_per_s"] > 0
        assert 0 < row["compute_s"] < row["compute_s"] + row["queue_s"] + row["client_s"]
    assert stream["first_audio"]["mean"] < stream["total"]["mean"]


def test_the_autoscaler_asks_for_what_the_server_counts(server, client):
    alone(client, "Hello.", {})
    list(client.stream("Hello.", {}))
    values = yaml.safe_load((ROOT / "examples/triton/helm/prometheus-adapter.yaml").read_text())
    queries = " ".join(rule["metricsQuery"] for rule in values["rules"]["custom"])
    with urllib.request.urlopen(f"{server.metrics}/metrics", timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    parts = re.findall(r'((?:nv|melforge)_\w+)\{[^}]*model=~?"([\w|]+)"', queries)
    assert len(parts) == 3
    for name, models in parts:
        for model in models.split("|"):
            assert any(line.startswith(f"{name}{{") and f'model="{model}"' in line for line in lines)


async def ask_for_audio(connection, text):
    given = {"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": [text]}
    wanted = {"name": "audio", "parameters": {"binary_data": True}}
    body = json.dumps({"inputs": [given], "outputs": [wanted]}).encode()
    status, headers, content = await post(connection, "/v2/models/text_to_speech/infer", body)
    return status, content[int(headers.get("inference-header-content-length", 0)) :]


def test_a_flood_is_refused_as_it_comes_and_the_server_is_alive_meanwhile(server, client, tts):
    @functools.cache
    def samples(text):
        return tts.speak(text).samples

    def is_whole(text, content):
        return close_to(np.frombuffer(content, np.float32), samples(text))

    flood(server.http, ask_for_audio, is_whole, seconds_from_now(min(SECONDS, 4)))
    before, memory = settled(client), private_mb(map(server.stub, MODELS))
    with ThreadPoolExecutor(1) as aside:
        flooding = aside.submit(flood, server.http, ask_for_audio, is_whole, seconds_from_now())
        during = [server.probe()]
        found = flooding.result()
    begun, behind = time.monotonic(), server.probe()
    print(f"{found}\nmemory {memory:.0f} MB before, {private_mb(map(server.stub, MODELS)):.0f} MB after")
    print(f"a probe right behind it: {behind.stdout.strip()} after {time.monotonic() - begun:.1f} s")
    assert not found.failed and not found.wrong and len(found.answered) >= QUEUE_SIZE, found
    assert len(found.refused) >= CLIENTS - 3 * QUEUE_SIZE, found
    assert [one.returncode for one in [*during, behind]] == [0, 0], during
    after = settled(client)
    made = [after[model].texts - before[model].texts for model in MODELS]
    assert made[0] == made[1] == made[2] >= len(found.answered), "whom the first model takes is spoken"


def test_streams_beyond_the_most_are_refused(server):
    together = threading.Barrier(3 * QUEUE_SIZE)

    def ask(number):
        client = HttpClient(Address.parse(server.http), PATIENCE)
        try:
            together.wait(PATIENCE)
            return len(streamed(client, " ".join([TEXTS[1]] * 8), {}))
        except ServerError as error:
            return str(error)
        finally:
            client.close()

    with ThreadPoolExecutor(3 * QUEUE_SIZE) as clients:
        answers = list(clients.map(ask, range(3 * QUEUE_SIZE)))
    refused = [answer for answer in answers if isinstance(answer, str)]
    assert 0 < len(refused) < len(answers) and all("busy" in answer for answer in refused), refused


def test_a_dead_model_ends_what_waits_for_it_and_the_server_starts_again(server, client, tts):
    """tritonserver itself would leave streams that are under way to their clients' patience."""
    stream = client.stream(" ".join([TEXTS[1]] * 200), {})
    next(stream)
    server.kill(server.stub("text_to_speech_stream"))
    with pytest.raises(ServerError, match="the connection broke"):
        list(stream)
    assert close_to(streamed(client, TEXTS[0], {}), tts.speak(TEXTS[0]).samples)
    models = len(MODELS) + 1
    assert len(list(Path("/dev/shm").glob(f"melforge-{server.process.pid}-*"))) == models


def test_a_model_that_pauses_while_it_is_loaded_does_not_hang_the_server(server, client, tts):
    """tritonserver waits for the end of its process for ever: it takes it for dead, and does not end it."""

    def only_one_is_being_loaded():
        return read_bytes(server.log)[begun:].count(b"successfully loaded") == 3

    def waits():
        return b"do_wait" in map(read_bytes, Path(f"/proc/{again}/task").glob("*/wchan"))

    begun = len(read_bytes(server.log))
    os.kill(server.stub("frontend"), signal.SIGKILL)
    # The server also waits, for a moment, for the process in which each model is tried before it is loaded.
    wait_for(only_one_is_being_loaded, "the acoustic model being the last, which is warmed up")
    again, paused = server.server(), server.stub("acoustic")
    os.kill(paused, signal.SIGSTOP)
    wait_for(waits, "the server taking it for dead")
    os.kill(paused, signal.SIGCONT)
    wait_for(lambda: not Path(f"/proc/{again}").exists(), "the end of the server that waits")
    wait_for(lambda: not server.probe().returncode, "another server")
    assert close_to(alone(client, TEXTS[0], {}), tts.speak(TEXTS[0]).samples)


def test_a_server_that_is_told_to_end_leaves_nothing(repository, tmp_path):
    shutil.copytree(repository, tmp_path / "models")
    with tritonserver(tmp_path / "models", tmp_path) as server:
        client = HttpClient(Address.parse(server.http), PATIENCE)
        next(client.stream(" ".join([TEXTS[1]] * 200), {}))
        processes = [server.server(), *map(server.stub, (*MODELS, "text_to_speech_stream"))]
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(PATIENCE)
    assert not any(Path(f"/proc/{process}").exists() for process in processes)
    for process in (server.process.pid, processes[0]):
        assert not list(Path("/dev/shm").glob(f"melforge-{process}-*"))


async def ask_for_stream(connection, text):
    path = "/v2/models/text_to_speech_stream/generate_stream"
    status, _, content = await post(connection, path, json.dumps({"text": text}).encode())
    rows = [json.loads(line.removeprefix(b"data: ")) for line in content.splitlines() if line.strip()]
    if status != 200 or any("error" in row for row in rows):
        return max(status, 500), content
    return 200, np.concatenate([np.float32(row["audio"]) for row in rows]).tobytes()


def test_what_is_killed_again_and_again_leaves_whole_answers_or_errors(server, tts):
    turns = itertools.cycle(("text_to_speech_stream", *MODELS, "server"))
    is_over, kills, heard = seconds_from_now(), [], []

    @functools.cache
    def samples(text):
        return tts.speak(text).samples

    def is_whole(text, content):
        heard.append(text)
        return close_to(np.frombuffer(content, np.float32), samples(text))

    async def ask(connection, text):
        return await (ask_for_stream if text in TEXTS_OF_STREAMS else ask_for_audio)(connection, text)

    def kill():
        while not is_over() or len(kills) < 2:
            wait_for(lambda: len(heard) > 2 * len(TEXTS_OF_STREAMS), "answers")
            heard.clear()
            kills.append(next(turns))
            server.kill(server.server() if kills[-1] == "server" else server.stub(kills[-1]))

    with ThreadPoolExecutor(1) as aside:
        killing = aside.submit(kill)
        found = flood(server.http, ask, is_whole, killing.done, clients=6)
        killing.result()
    print(f"{len(kills)} killed: {collections.Counter(kills)}\n{found}\n{collections.Counter(found.failed)}")
    assert not found.wrong and found.answered, found
    assert not any("nothing came" in one for one in found.failed), "nobody waits for who is dead"

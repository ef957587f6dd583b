"""NVIDIA Riva's gRPC services, by NVIDIA's own client."""

import asyncio
import contextlib
import io
import json
import signal
import ssl
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import soundfile

from melforge.common.cli.benchmark_server import main as benchmark
from melforge.common.cli.serve import main as serve
from melforge.common.errors import InputError
from tests.serve.conftest import PATIENCE, ROOT, own_pcm, running, samples_of, serving, wait_for

pytestmark = [pytest.mark.serve, pytest.mark.riva]
TEXT = "The first sentence is here. The second one follows. And a third."
LONG = " ".join([TEXT] * 60)
SPEECH = "nvidia.riva.tts.RivaSpeechSynthesis"


@pytest.fixture(scope="module")
def server():
    with running(riva_port=0) as found:
        yield found


def client(port, key="", kind="SpeechSynthesisService", host="127.0.0.1", **how):
    """A service of NVIDIA's client."""
    import riva.client

    metadata = [["authorization", f"Bearer {key}"]] if key else []
    auth = riva.client.Auth(uri=f"{host}:{port}", metadata_args=metadata, **how)
    return getattr(riva.client, kind)(auth)


def http_pcm(server, text=TEXT, rate=22050, **fields):
    """The same by HTTP."""
    with server.client() as one:
        wanted = {**own_pcm(text, **fields), "sample_rate": rate}
        return one.post("/v1/audio/speech", json=wanted).content


def sound(answers):
    return b"".join(one.audio for one in answers)


@contextlib.contextmanager
def refused(code, message=None):
    import grpc

    with pytest.raises(grpc.RpcError, match=message) as error:
        yield error
    assert error.value.code() is getattr(grpc.StatusCode, code)


def wait_until_idle(server):
    """Until nothing is left of what was asked."""
    service = server.service
    wait_for(lambda: not (service.running or service.scheduler.jobs or service.hearing.running), "its end")


def test_offline_and_online_have_the_bytes_of_http(server):
    speech, wanted = client(server.riva), http_pcm(server)
    assert speech.synthesize(TEXT, language_code="en-US").audio == wanted
    answers = list(speech.synthesize_online(TEXT, "English-US.hazel", "en-US"))
    assert sound(answers) == wanted and len(answers) > 1
    assert speech.synthesize(TEXT, future=True).result().audio == wanted
    wait_until_idle(server)


def test_texts_of_one_stream_are_spoken_in_turn(server):
    texts = ["The first sentence is here.", " ", "The second one follows.", "And a third."]
    answers = client(server.riva).synthesize_online(texts, custom_configuration={"speed": "1.3"})
    assert sound(answers) == b"".join(http_pcm(server, text, speed=1.3) for text in texts if text.strip())


def test_the_voices_are_listed_as_nvidia_s_talk_py_lists_them():
    from riva.client.proto.riva_tts_pb2 import RivaSynthesisConfigRequest

    with running(voice=None, riva_port=0) as server:
        speech = client(server.riva)
        listed = speech.stub.GetRivaSynthesisConfig(RivaSynthesisConfigRequest()).model_config
        names = {
            f"{one.parameters['voice_name']}.{subvoice.split(':')[0]}"
            for one in listed
            if one.parameters["language_code"] == "en-US"
            for subvoice in one.parameters["subvoices"].split(",")
        }
        assert {"English-US.hazel", "English-US.emma", "English-US-tacotron2-waveglow.hazel"} <= names
        emma = http_pcm(server, "Hello.", voice="emma")
        assert speech.synthesize("Hello.", "English-US.emma").audio == emma
        nova = http_pcm(server, "Hello.", voice="nova")
        assert speech.synthesize("Hello.", "Magpie-Multilingual.EN-US.Aria").audio == nova
        some = RivaSynthesisConfigRequest(model_name="fastpitch-hifigan")
        models = {one.model_name for one in speech.stub.GetRivaSynthesisConfig(some).model_config}
        assert models == {"fastpitch-hifigan"}
        with refused("NOT_FOUND", "no model 'x'"):
            speech.stub.GetRivaSynthesisConfig(RivaSynthesisConfigRequest(model_name="x"))


def test_rates_opus_ssml_words_and_dictionaries(server):
    from riva.client import AudioEncoding

    speech = client(server.riva)
    assert speech.synthesize(TEXT, sample_rate_hz=48000).audio == http_pcm(server, rate=48000)
    opus = {"encoding": AudioEncoding.OGGOPUS, "sample_rate_hz": 24000}
    for data in (speech.synthesize(TEXT, **opus).audio, sound(speech.synthesize_online(TEXT, **opus))):
        assert soundfile.info(io.BytesIO(data)).subtype == "OPUS"
    ssml = "<speak>Say <prosody rate='slow'>this</prosody>.</speak>"
    assert speech.synthesize(ssml).audio == http_pcm(server, ssml)
    words = {"tomato": "təˈmɑːtoʊ", "potato": "P AH0 T AA1 T OW0"}
    lexicon = {"tomato": {"ipa": words["tomato"]}, "potato": {"arpabet": words["potato"]}}
    text = "A tomato, a potato."
    spoken = speech.synthesize(text, custom_dictionary=words).audio
    assert spoken == http_pcm(server, text, lexicon=lexicon) != http_pcm(server, text)


def test_an_answer_has_the_text_as_it_is_read_and_the_times_of_its_words(server):
    text = "It costs $5. Good."
    speech = client(server.riva)
    whole = speech.synthesize(text, enable_word_time_offsets=True)
    assert whole.meta.text == text and whole.meta.processed_text == "It costs five dollars. Good."
    assert [one.word for one in whole.meta.words] == ["It", "costs", "five", "dollars", "Good"]
    times = [time for one in whole.meta.words for time in (one.start_time, one.end_time)]
    length = len(whole.audio) / 2 / 22050 * 1000
    assert times == sorted(times) and times[1] > times[0] and times[-1] <= length
    assert abs(sum(whole.meta.predicted_durations) + 250 - length) < 1  # with the pause between the sentences
    answers = list(speech.synthesize_online(text, enable_word_time_offsets=True))
    assert [word for one in answers for word in one.meta.words] == list(whole.meta.words)
    assert not speech.synthesize(text).meta.words


def test_an_utterance_that_is_spoken_while_an_answer_is_made_has_its_words_in_the_next(monkeypatch):
    from melforge.common.serve.protocols import riva_speech

    async def job():
        yield b"one"
        yield b"two"

    told, durations = [], [0]
    spoken = SimpleNamespace(job=job(), stream=SimpleNamespace(durations=durations))

    def answer(request, audio, spoken, first, known):
        told.append((first, known))
        durations.append(0)
        return b""

    monkeypatch.setattr(riva_speech, "speech_answer", answer)
    request = SimpleNamespace(enable_word_time_offsets=True)

    async def whole():
        return [one async for one in riva_speech.online_answers(request, spoken)]

    assert asyncio.run(whole()) == [b"", b""] and told == [(0, 1), (1, 2)]


def test_ids_come_back_and_what_has_no_effect_is_said(server):
    from riva.client.proto.riva_tts_pb2 import SynthesizeSpeechRequest

    request = SynthesizeSpeechRequest(text="Hello.", voice_name="Magpie-Multilingual.EN-US.Leo.Happy")
    request.id.value = "seven"
    request.custom_configuration["exaggeration_factor"] = "1.5"
    answer, call = client(server.riva).stub.Synthesize.with_call(request, metadata=[("x-request-id", "a-7")])
    assert answer.id.value == "seven"
    trailer = dict(call.trailing_metadata())
    assert trailer == {"x-request-id": "a-7", "x-melforge-ignored": "emotion, exaggeration_factor"}


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ({"text": ""}, "INVALID_ARGUMENT", "text: "),
        ({"text": "..."}, "INVALID_ARGUMENT", "can be spoken"),
        ({"text": "x" * 5000}, "INVALID_ARGUMENT", "text: 5000 characters, of 4096 at most"),
        ({"voice_name": "English-US.nobody"}, "NOT_FOUND", "voice_name: unknown voice 'English-US.nobody'"),
        ({"voice_name": "x" * 100_000}, "INVALID_ARGUMENT", "voice_name: .*at most 1000 characters"),
        ({"language_code": "de-DE"}, "INVALID_ARGUMENT", "this is for en, not for 'de-DE'"),
        ({"sample_rate_hz": 5}, "INVALID_ARGUMENT", "pcm cannot have 5 Hz"),
        ({"sample_rate_hz": -5}, "INVALID_ARGUMENT", "-5 is no rate"),
        ({"encoding": 2}, "INVALID_ARGUMENT", "unknown encoding 'FLAC'"),
        ({"encoding": 77}, "INVALID_ARGUMENT", "unknown encoding '77'"),
        ({"encoding": 4}, "INVALID_ARGUMENT", "opus cannot have 22050 Hz"),
        ({"custom_dictionary": {"word": ""}}, "INVALID_ARGUMENT", "custom_dictionary"),
        ({"custom_dictionary": {"word": "b" * 100_000}}, "INVALID_ARGUMENT", "100006 characters, of 65536"),
        ({"custom_configuration": {"speed": "9"}}, "INVALID_ARGUMENT", "speed"),
        ({"custom_configuration": {"speed": "NaN"}}, "INVALID_ARGUMENT", "speed"),
        ({"text": "<speak>x"}, "INVALID_ARGUMENT", "SSML"),
    ],
)
def test_what_is_wrong_has_its_code(server, how, code, message):
    speech = client(server.riva)
    with refused(code, message):
        speech.synthesize(**{"text": TEXT, **how})
    with refused(code, message if how.get("text") != "" else "there is none"):
        list(speech.synthesize_online(**{"text": TEXT, **how}))
    wait_until_idle(server)


def test_a_message_has_a_limit_that_streams_have_not(server, monkeypatch):
    monkeypatch.setattr("melforge.common.serve.protocols.riva_speech.MOST_BYTES", 50_000)
    speech = client(server.riva)
    with refused("RESOURCE_EXHAUSTED", "more than 50000 bytes.*SynthesizeOnline"):
        speech.synthesize(TEXT, language_code="en-US")
    assert len(sound(speech.synthesize_online(TEXT, language_code="en-US"))) > 50_000
    wait_until_idle(server)


def test_a_prompt_for_a_zero_shot_voice_is_refused_in_words(server, tmp_path):
    prompt = tmp_path / "prompt.wav"
    prompt.write_bytes(b"RIFF")
    with refused("INVALID_ARGUMENT", "clones no voices from a prompt: leave zero_shot_data out"):
        client(server.riva).synthesize(TEXT, zero_shot_audio_prompt_file=prompt)


@pytest.mark.parametrize("method", ["Synthesize", "SynthesizeOnline", "GetRivaSynthesisConfig", "Nothing"])
def test_what_is_no_message_is_refused(server, method):
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{server.riva}") as channel:
        call = channel.stream_stream(f"/{SPEECH}/{method}")
        with refused("UNIMPLEMENTED" if method == "Nothing" else "INVALID_ARGUMENT"):
            list(call(iter([b"\xff\xff\xff"]), timeout=PATIENCE))
        with refused("UNIMPLEMENTED" if method == "Nothing" else "INVALID_ARGUMENT"):
            list(call(iter([]), timeout=PATIENCE))
    wait_until_idle(server)


def test_a_stream_that_fails_in_the_middle_ends_with_the_error(server):
    answers = client(server.riva).synthesize_online(["The first sentence is here.", "..."])
    got = []
    with refused("INVALID_ARGUMENT", "can be spoken"):
        got.extend(answers)
    assert sound(got) == http_pcm(server, "The first sentence is here.")
    wait_until_idle(server)


def test_keys_and_their_limits():
    with running((b"secret",), riva_port=0, key_requests_minute=2) as server:
        for key in ("", "other"):
            with refused("UNAUTHENTICATED", "a valid API key is needed"):
                client(server.riva, key).synthesize(TEXT)
        for _ in range(2):
            assert client(server.riva, "secret").synthesize("Hello.").audio
        with refused("RESOURCE_EXHAUSTED", "2 requests of the minute") as error:
            client(server.riva, "secret").synthesize("Hello.")
        assert int(dict(error.value.trailing_metadata())["retry-after"]) > 0
        with server.client("secret") as http:
            page = http.get("/metrics").text
        route = f"/{SPEECH}/Synthesize"
        assert f'melforge_requests_total{{route="{route}",status="OK"}} 2.0' in page
        assert f'melforge_requests_total{{route="{route}",status="UNAUTHENTICATED"}} 2.0' in page
        assert 'melforge_key_characters_total{key="owner 1"} 12.0' in page


def test_a_full_queue_and_a_server_that_stops_are_unavailable():
    with running(riva_port=0, queue=1, ahead=0.5) as server:
        speech = client(server.riva)
        first = speech.synthesize_online(LONG)
        next(first)
        with refused("UNAVAILABLE", "try again later"):
            speech.synthesize("Hello.")
        first.cancel()
        wait_until_idle(server)
        server.service.draining = True
        with refused("UNAVAILABLE", "about to stop"):
            speech.synthesize("Hello.")


def test_connections_beyond_the_limit_are_closed_until_there_is_room():
    own = {"options": [("grpc.use_local_subchannel_pool", 1)]}
    with running(riva_port=0, connections=1) as server:
        first, second = client(server.riva, **own), client(server.riva, **own)
        assert first.synthesize("Hello.").audio
        with refused("UNAVAILABLE"):
            second.synthesize("Hello.")
        first.auth.channel.close()
        from riva.client.proto.riva_tts_pb2 import SynthesizeSpeechRequest

        request = SynthesizeSpeechRequest(text="Hello.")
        assert second.stub.Synthesize(request, wait_for_ready=True, timeout=PATIENCE).audio


def test_who_cancels_leaves_nothing_behind(server):
    speech = client(server.riva)
    threads, tasks = threading.active_count(), None
    for _ in range(3):
        answers = speech.synthesize_online([LONG, LONG])
        next(answers)
        wait_for(lambda: server.service.running == 2, "the next text, which is begun ahead")
        job, *_ = server.service.scheduler._jobs
        answers.cancel()
        wait_until_idle(server)
        tasks = tasks or len(asyncio.all_tasks(job._loop))
        wait_for(lambda loop=job._loop, most=tasks: len(asyncio.all_tasks(loop)) <= most, "the tasks' ends")
    whole = speech.synthesize(LONG, future=True)
    wait_for(lambda: server.service.scheduler.jobs)
    whole.cancel()
    wait_until_idle(server)
    assert speech.synthesize("Hello.").audio
    wait_for(lambda: threading.active_count() <= threads + 1, "the threads' ends")


def test_a_text_of_megabytes_is_refused_before_it_is_read(server):
    with refused("RESOURCE_EXHAUSTED", "more than 1048576 bytes"):
        client(server.riva).synthesize("a" * 2_000_000)


def test_a_compressed_message_is_refused(server):
    """It would be any size when it is read."""
    with refused("UNIMPLEMENTED", "'gzip' is disabled"):
        client(server.riva, options=[("grpc.default_compression_algorithm", 2)]).synthesize("Hello. " * 100)
    wait_until_idle(server)


def test_an_answer_that_its_caller_refuses_is_no_fault_of_the_server(server, caplog):
    little = {
        "grpc.max_receive_message_length": 1000,
        "grpc.http2.lookahead_bytes": 1024,
        "grpc.http2.bdp_probe": 0,
    }
    speech = client(server.riva, options=[*little.items()])
    for _ in range(6):
        with refused("RESOURCE_EXHAUSTED", "larger than max"):
            speech.synthesize(TEXT, sample_rate_hz=192000)
    wait_until_idle(server)
    assert "fault" not in caplog.messages


def test_a_deadline_ends_the_work(server):
    from riva.client.proto.riva_tts_pb2 import SynthesizeSpeechRequest

    stub = client(server.riva).stub
    with refused("DEADLINE_EXCEEDED"):
        stub.Synthesize(SynthesizeSpeechRequest(text=LONG), timeout=0.1)
    wait_until_idle(server)


def test_the_server_s_own_limit_of_time_is_a_deadline_too():
    with running(riva_port=0, seconds=0.05) as server:
        with refused("DEADLINE_EXCEEDED", "not answered within 0.05 seconds"):
            client(server.riva).synthesize(LONG)
        wait_until_idle(server)


def test_a_slow_reader_s_text_is_paused_and_then_spoken_whole():
    text = LONG[:1000]
    with running(riva_port=0, ahead=0.5) as server:
        wanted = http_pcm(server, text)
        # Else the client's buffer grows to what the connection carries, which may be all of the speech.
        speech = client(server.riva, options=[("grpc.http2.bdp_probe", 0)])
        answers = speech.synthesize_online(text)
        got = [next(answers)]
        wait_for(lambda: any(job.parked for job in server.service.scheduler._jobs))
        got.extend(answers)
        assert sound(got) == wanted


def test_health():
    from riva.client.proto.health_pb2 import HealthCheckRequest
    from riva.client.proto.health_pb2_grpc import HealthStub

    with running((b"secret",), riva_port=0) as server:
        stub = HealthStub(client(server.riva).auth.channel)
        for name in ("", "nvidia.riva.tts.RivaSpeechSynthesis"):
            assert stub.Check(HealthCheckRequest(service=name)).status == 1
        with refused("NOT_FOUND", "there is no 'x'"):
            stub.Check(HealthCheckRequest(service="x"))
        assert next(stub.Watch(HealthCheckRequest(service="x"))).status == 3
        told = stub.Watch(HealthCheckRequest())
        assert next(told).status == 1
        server.service.draining = True
        assert [one.status for one in told] == [2]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of localhost that it signed itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    files = [str(folder / name) for name in ("certificate.pem", "key.pem")]
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    name = ["-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", *words.split(), *name, "-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    return files


@pytest.mark.openssl
def test_tls(certificate):
    with running(riva_port=0, certificate=certificate[0], certificate_key=certificate[1]) as server:
        import httpx

        speech = client(server.riva, host="localhost", ssl_root_cert=certificate[0])
        audio = speech.synthesize("Hello.").audio
        assert samples_of(audio).any()
        port = server.url.rpartition(":")[2]
        trusting = httpx.Client(verify=ssl.create_default_context(cafile=certificate[0]), timeout=PATIENCE)
        with trusting as http:
            answer = http.post(f"https://localhost:{port}/v1/audio/speech", json=own_pcm("Hello."))
        assert answer.content == audio
        with refused("UNAVAILABLE"):
            client(server.riva).synthesize("Hello.")


@pytest.mark.openssl
def test_a_wrong_certificate_ends_the_start(certificate):
    for given, key, message in (
        (certificate[0], None, "TLS needs both"),
        (certificate[0], "nowhere.pem", "No such file"),
        (certificate[1], certificate[1], "no certificate and its key"),
    ):
        with pytest.raises(InputError, match=message):
            serve(["--certificate", given, *(["--certificate-key", key] if key else [])])


@contextlib.contextmanager
def in_a_process(*words):
    """A server in a process of its own, and the port of its Riva."""
    with serving("--riva-port", "0", "--workers", "1", *words) as server:
        line = {}
        while line.get("protocol") != "riva":
            line = json.loads(server.process.stderr.readline())
        threading.Thread(target=server.process.stderr.read, daemon=True).start()
        yield server, int(line["url"].rpartition(":")[2])


def test_what_was_begun_is_spoken_to_its_end_after_sigterm():
    with in_a_process() as (server, port):
        speech, texts = client(port), [TEXT] * 6  # of which two are begun at a time
        wanted = len(sound(speech.synthesize_online(texts)))
        answers = speech.synthesize_online(texts)
        got = [next(answers)]
        server.process.send_signal(signal.SIGTERM)
        got.extend(answers)
        assert len(sound(got)) == wanted
        assert server.process.wait(PATIENCE) == 0


@pytest.mark.slow
def test_two_processes_share_the_port():
    """What one begins both end, each with connections of its own."""
    with in_a_process("--processes", "2") as (server, port):
        for _ in range(4):
            assert samples_of(client(port).synthesize("Hello.").audio).any()
        with pytest.raises(OSError, match="in use"):
            serve(["--port", "0", "--riva-port", str(port), "--processes", "2"])
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0


@pytest.mark.slow
def test_a_port_that_another_program_has_ends_the_start(server):
    command = [sys.executable, "-m", "melforge", "serve", "--port", "0", "--riva-port", str(server.riva)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    assert ended.returncode and f"cannot listen at 127.0.0.1 port {server.riva}" in ended.stderr


def test_ray_has_none_of_it():
    with pytest.raises(InputError, match="for one machine: leave --ray out"):
        serve(["--riva-port", "50051", "--ray"])


def test_the_measuring_client_has_rows_of_both_protocols(server, tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    texts.write_text("Hello there.\nThe second text.\n")
    words = ["--server", f"{server.url},grpc://127.0.0.1:{server.riva}", "--texts", str(texts)]
    words += ["--model", "fastpitch-hifigan", "--voice", "hazel", "--streams", "1,3", "-o", str(tmp_path)]
    assert benchmark([*words, "--riva", "--iterations", "1"]) == 0
    assert f"grpc://127.0.0.1:{server.riva}, closed loop, 3 streams: first audio" in capsys.readouterr().err
    _, table = (tmp_path / "server.md").read_text().split("## What NVIDIA publishes of Riva\n")
    assert [line.split(" | ")[:2][-1].strip() for line in table.splitlines() if line.startswith("| ")] == [
        *("streams", "-------", "1", "1", "3", "3")
    ]
    rows = json.loads((tmp_path / "server.json").read_text())["rows"]
    assert [(row["address"][:4], row["number"]) for row in rows] == [
        ("http", 1),
        ("grpc", 1),
        ("http", 3),
        ("grpc", 3),
    ]
    assert rows[2]["audio_s"] == rows[3]["audio_s"] and not any(row["errors"] for row in rows)
    refusing = [*words[:4], "--voice", "nobody"]
    refusing[1] = refusing[1].partition(",")[2]
    with pytest.raises(InputError, match=r"\(404\): voice_name: unknown voice 'nobody'"):
        benchmark(refusing)
    with pytest.raises(InputError, match=r"no server at grpc://127\.0\.0\.1:1 "):
        benchmark(["--server", "grpc://127.0.0.1:1"])

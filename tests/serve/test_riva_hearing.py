"""NVIDIA Riva's recognition, by NVIDIA's own client."""

import io
import queue
import threading

import numpy as np
import pytest
import soundfile

from tests.serve import test_riva
from tests.serve.conftest import PATIENCE, running, wait_for
from tests.serve.test_riva import LONG, client, in_a_process, refused, wait_until_idle

pytestmark = [pytest.mark.serve, pytest.mark.riva]
SAID = ("She said that it was a good day.", "We have to be at the house in the morning.")
HEARD = tuple(text.lower().strip(".") for text in SAID)
RATE = 16000
server = test_riva.server


@pytest.fixture(scope="module")
def spoken(direct):
    """The sentences, float32 [S] each, at 16 kHz."""
    import soxr

    return [soxr.resample(direct.speak(text).samples, direct.sampling_rate, RATE) for text in SAID]


def hearing(server, **how):
    return client(server.riva, kind="ASRService", **how)


def config(encoding="LINEAR_PCM", **fields):
    from riva.client import AudioEncoding, RecognitionConfig

    usual = {"language_code": "en-US", "sample_rate_hertz": RATE, "encoding": AudioEncoding.Value(encoding)}
    return RecognitionConfig(**{**usual, **fields})


def streaming(**fields):
    from riva.client import StreamingRecognitionConfig

    return StreamingRecognitionConfig(config=config(**fields), interim_results=True)


def sound(samples, form="WAV", coding="PCM_16", **how):
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format=form, subtype=coding, **how)
    return file.getvalue()


def raw(samples, coding="PCM_16"):
    return sound(samples, "RAW", coding)


@pytest.mark.parametrize(
    ("encoding", "form", "coding"),
    [
        ("LINEAR_PCM", "RAW", "PCM_16"),
        ("ENCODING_UNSPECIFIED", "WAV", "PCM_16"),
        ("LINEAR_PCM", "WAV", "PCM_16"),
        ("FLAC", "FLAC", "PCM_16"),
        ("MULAW", "RAW", "ULAW"),
        ("ALAW", "RAW", "ALAW"),
        ("OGGOPUS", "OGG", "OPUS"),
    ],
)
def test_a_recording_is_heard_in_each_encoding(server, spoken, encoding, form, coding):
    rate = 0 if form in ("WAV", "FLAC", "OGG") else RATE
    answer = hearing(server).offline_recognize(
        sound(spoken[0], form, coding), config(encoding, sample_rate_hertz=rate)
    )
    (result,) = answer.results
    assert result.alternatives[0].transcript == HEARD[0] and not result.alternatives[0].words
    assert abs(result.audio_processed - len(spoken[0]) / RATE) < 0.1
    assert 0.5 < result.alternatives[0].confidence <= 1
    wait_until_idle(server)


def test_words_have_times_and_what_has_no_effect_is_said(server, spoken):
    from riva.client.proto.riva_asr_pb2 import RecognizeRequest

    stereo = np.stack([spoken[0]] * 2, axis=1)
    asked = config(enable_word_time_offsets=True, enable_automatic_punctuation=True, audio_channel_count=2)
    request = RecognizeRequest(config=asked, audio=raw(stereo))
    request.id.value = "nine"
    answer, call = hearing(server).stub.Recognize.with_call(request)
    assert answer.id.value == "nine"
    words = answer.results[0].alternatives[0].words
    assert " ".join(word.word for word in words) == HEARD[0]
    times = [time for word in words for time in (word.start_time, word.end_time)]
    assert times == sorted(times) and times[-1] <= len(spoken[0]) / RATE * 1000
    assert dict(call.trailing_metadata())["x-melforge-ignored"] == "enable_automatic_punctuation"


def test_silence_has_no_result(server):
    quiet = np.zeros(RATE, np.float32)
    assert not hearing(server).offline_recognize(raw(quiet), config()).results
    assert not list(hearing(server).streaming_response_generator([raw(quiet)], streaming()))


def pieces(data, size=3201):  # which cuts samples in two
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("coding", ["PCM_16", "ULAW"])
def test_a_stream_s_sentences_are_heard_as_soon_as_their_speaker_pauses(server, spoken, coding):
    """The second one is not sent before the first one's result is there."""
    sent: queue.SimpleQueue = queue.SimpleQueue()
    pause = np.zeros(RATE, np.float32)
    asked = streaming(encoding="MULAW" if coding == "ULAW" else "LINEAR_PCM", enable_word_time_offsets=True)
    for one in pieces(raw(np.concatenate([spoken[0], pause]), coding)):
        sent.put(one)
    answers = hearing(server).streaming_response_generator(iter(sent.get, None), asked)
    first = next(answers).results[0]
    assert first.is_final and first.alternatives[0].transcript == HEARD[0]
    for one in pieces(raw(spoken[1], coding)):
        sent.put(one)
    sent.put(None)
    (second,) = (result for answer in answers for result in answer.results)
    assert second.alternatives[0].transcript == HEARD[1]
    begin = (len(spoken[0]) + len(pause)) / RATE * 1000
    assert begin - 100 <= second.alternatives[0].words[0].start_time <= begin + 500
    wait_until_idle(server)


@pytest.mark.parametrize("form", ["WAV", "FLAC"])
def test_a_file_is_streamed_as_nvidia_s_transcribe_file_py_does(server, spoken, tmp_path, form):
    from riva.client import AudioChunkFileIterator, add_audio_file_specs_to_config

    path = tmp_path / f"said.{form.lower()}"
    path.write_bytes(sound(spoken[0], form))
    asked = streaming(sample_rate_hertz=0)
    add_audio_file_specs_to_config(asked, path)
    with AudioChunkFileIterator(path, 1600) as chunks:
        answers = list(hearing(server).streaming_response_generator(chunks, asked))
    assert [result.alternatives[0].transcript for one in answers for result in one.results] == [HEARD[0]]


def test_the_ear_is_listed_for_both_methods(server):
    from riva.client.proto.riva_asr_pb2 import RivaSpeechRecognitionConfigRequest as Request

    stub = hearing(server).stub
    listed = stub.GetRivaSpeechRecognitionConfig(Request()).model_config
    assert [(one.model_name, one.parameters["type"]) for one in listed] == [
        ("rowan", "offline"),
        ("rowan", "online"),
    ]
    assert {one.parameters["language_code"] for one in listed} == {"en-US"}
    with refused("NOT_FOUND", "no model 'x'"):
        stub.GetRivaSpeechRecognitionConfig(Request(model_name="x"))


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"language_code": "de-DE"}, "INVALID_ARGUMENT", "this is for en, not for 'de-DE'"),
        ({"model": "whisper-2"}, "NOT_FOUND", "unknown model 'whisper-2'"),
        ({"sample_rate_hertz": 0}, "INVALID_ARGUMENT", "samples have 4000 to 384000 Hz, not 0"),
        ({"sample_rate_hertz": 2**31 - 1}, "INVALID_ARGUMENT", "samples have 4000 to 384000 Hz"),
        ({"audio_channel_count": 2**30}, "INVALID_ARGUMENT", "audio_channel_count: 1 to 8, not 1073741824"),
        ({"audio_channel_count": -1}, "INVALID_ARGUMENT", "audio_channel_count: 1 to 8, not -1"),
        ({"encoding": "FLAC"}, "INVALID_ARGUMENT", "this is no sound file"),
        (
            {"enable_separate_recognition_per_channel": True, "audio_channel_count": 2},
            "INVALID_ARGUMENT",
            "send each channel by itself",
        ),
    ],
)
def test_what_is_wrong_has_its_code(server, spoken, fields, code, message):
    with refused(code, message):
        hearing(server).offline_recognize(raw(spoken[0]), config(**fields))
    with refused(code, message):
        list(hearing(server).streaming_response_generator([raw(spoken[0])], streaming(**fields)))
    wait_until_idle(server)


def test_speakers_are_not_told_apart(server, spoken):
    from riva.client import add_speaker_diarization_to_config

    asked = config(model="parakeet-1.1b-en-US-asr-streaming")
    assert hearing(server).offline_recognize(raw(spoken[0]), asked).results
    add_speaker_diarization_to_config(asked, True, 2)
    with refused("INVALID_ARGUMENT", "does not tell speakers apart"):
        hearing(server).offline_recognize(raw(spoken[0]), asked)


def test_what_is_no_sound_and_what_comes_in_another_order(server):
    from riva.client.proto.riva_asr_pb2 import StreamingRecognizeRequest

    with refused("INVALID_ARGUMENT", "audio: it is empty"):
        hearing(server).offline_recognize(b"", config())
    with refused("INVALID_ARGUMENT", "audio: it cannot be read as sound"):
        hearing(server).offline_recognize(b"RIFF" + bytes(100), config())
    stub = hearing(server).stub
    for first in ([StreamingRecognizeRequest(audio_content=b"x")], []):
        with refused("INVALID_ARGUMENT", "streaming_config: it has to be in the first message"):
            list(stub.StreamingRecognize(iter(first)))
    wait_until_idle(server)


def test_limits_and_who_leaves(spoken):
    with running(riva_port=0, recordings=1, recording_bytes=50_000) as server:
        ears = hearing(server)
        with refused("RESOURCE_EXHAUSTED", "of 50000 at most"):
            ears.offline_recognize(raw(spoken[1]), config())
        with refused("RESOURCE_EXHAUSTED", "more than 50000 bytes"):
            list(ears.streaming_response_generator(pieces(sound(spoken[1])), streaming()))
        with refused("RESOURCE_EXHAUSTED", "larger than max"):  # it is not even read
            ears.offline_recognize(bytes(2 << 20), config())
        call = ears.stub.StreamingRecognize(requests_without_end(streaming()))
        wait_for(lambda: server.service.hearing.running)
        with refused("RESOURCE_EXHAUSTED", "1 recordings are being transcribed or wait"):
            ears.offline_recognize(raw(spoken[0][:RATE]), config())
        call.cancel()
        wait_until_idle(server)
        assert ears.offline_recognize(raw(spoken[0][:RATE]), config(), future=True).result(PATIENCE).results


def requests_without_end(asked):
    """Its configuration, and then nothing, until the call ends."""
    from riva.client.proto.riva_asr_pb2 import StreamingRecognizeRequest

    yield StreamingRecognizeRequest(streaming_config=asked)
    yield from iter(queue.SimpleQueue().get, None)


@pytest.mark.slow
def test_a_server_that_is_killed_is_unavailable_and_no_part_looks_whole():
    with in_a_process() as (server, port):
        spoken = client(port).synthesize_online(LONG)
        next(spoken)
        asked, begun = requests_without_end(streaming()), threading.Event()
        requests = (begun.set() or one for one in asked)
        heard = client(port, kind="ASRService").stub.StreamingRecognize(requests)
        assert begun.wait(PATIENCE)
        server.process.kill()
        for answers in (spoken, heard):
            with refused("UNAVAILABLE"):
                list(answers)


def test_without_an_ear(tmp_path, monkeypatch):
    monkeypatch.setenv("MELFORGE_EARS", str(tmp_path))
    with running(riva_port=0) as server, refused("UNIMPLEMENTED", "this server has no ear"):
        hearing(server).offline_recognize(b"x" * 100, config())

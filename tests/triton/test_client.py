"""The HTTP client against answers of every kind."""

import json

import numpy as np
import pytest

from melforge.common.serve.client import Address, ServerError
from melforge.common.text import Unspoken
from melforge.common.triton.client import HttpClient
from tests.plain_server import answering


def output(name, datatype, shape, **content):
    return {"name": name, "datatype": datatype, "shape": shape, **content}


AUDIO = np.array([0.5, -0.25, 1.0], np.float32)
OUTPUTS = [
    output("audio_length", "INT64", [1, 1], data=[3]),
    output("audio", "FP32", [1, 3], parameters={"binary_data_size": 12}),
    output("mel_lengths", "INT64", [1, 2], data=[4, 2]),
    output("unspoken", "BYTES", [1, 1], data=['[{"symbol": "x", "position": 2}]']),
]
HEAD = json.dumps({"outputs": OUTPUTS}).encode()


def client_of(server) -> HttpClient:
    return HttpClient(Address.parse(server.url), 5)


def test_samples_follow_the_json_and_the_connection_is_kept():
    def respond(handler, body):
        handler.whole(200, HEAD + AUDIO.tobytes(), Inference_Header_Content_Length=str(len(HEAD)))

    with answering(respond) as server:
        client = client_of(server)
        for text in ("Hello.", "“Grüße”"):
            (speech,) = client.speak([text], {"pace": 1.5})
            np.testing.assert_array_equal(speech.audio, AUDIO)
            assert speech.frames == 6
            assert speech.unspoken == (Unspoken("x", 2, text),)
        client.close()
        assert server.opened == 1
        assert [asked["binary"][4:].decode() for asked in server.asked] == ["Hello.", "“Grüße”"]
        assert server.asked[0]["parameters"] == {"pace": "1.5"}
        assert server.asked[0]["path"] == "/v2/models/text_to_speech/infer"


def test_several_texts_in_a_request_are_without_what_pads_them():
    outputs = [
        output("audio", "FP32", [2, 3], parameters={"binary_data_size": 24}),
        output("audio_length", "INT64", [2, 1], data=[3, 1]),
        output("mel_lengths", "INT64", [2, 2], data=[4, 2, 3, -1]),
        output("unspoken", "BYTES", [2, 1], data=["[]", "[]"]),
    ]
    head = json.dumps({"outputs": outputs}).encode()
    samples = np.array([AUDIO, [0.25, 0, 0]], np.float32).tobytes()

    def respond(handler, body):
        handler.whole(200, head + samples, Inference_Header_Content_Length=str(len(head)))

    with answering(respond) as server:
        client = client_of(server)
        made = client.speak(["One.", "Two."], {})
        client.close()
    assert [one.audio.tolist() for one in made] == [[0.5, -0.25, 1.0], [0.25]]
    assert [one.frames for one in made] == [6, 3]
    (given,) = server.asked[0]["inputs"]
    assert (given["name"], given["datatype"], given["shape"]) == ("text", "BYTES", [2, 1])
    assert server.asked[0]["binary"] == b"\4\0\0\0One.\4\0\0\0Two."


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, b'{"error":"in ensemble \'text_to_speech\', no audio made"}', "no audio made"),
        (400, b'data: {"error":"the text is empty"}\n\n', "the text is empty"),
        (503, b"<html>busy</html>", "<html>busy</html>"),
        (500, b"[]", "what answers there is no Triton Inference Server"),
        (502, b"<html></html>", "<html></html>"),
    ],
)
def test_an_answer_that_is_no_speech_is_an_error_with_its_words(status, body, message):
    with answering(lambda handler, asked: handler.whole(status, body)) as server:
        client = client_of(server)
        for ask in (lambda: client.speak(["Hello."], {}), lambda: list(client.stream("Hello.", {}))):
            with pytest.raises(ServerError) as caught:
                ask()
            assert (caught.value.status, str(caught.value)) == (status, message)
        client.close()


def test_a_connection_that_breaks_is_an_error_and_opened_again():
    def respond(handler, body):
        if len(server.asked) == 1:
            handler.close_connection = True
        else:
            handler.whole(200, HEAD + AUDIO.tobytes(), Inference_Header_Content_Length=str(len(HEAD)))

    with answering(respond) as server:
        client = client_of(server)
        with pytest.raises(ServerError, match="the connection broke") as caught:
            client.speak(["Hello."], {})
        assert caught.value.status == 0
        np.testing.assert_array_equal(client.speak(["Hello."], {})[0].audio, AUDIO)
        client.close()


def test_a_stream_gives_each_chunk_and_the_error_that_ends_it():
    rows = '[{"symbol": "x", "position": 2}]'
    events = [{"audio": [0.5, -0.25], "unspoken": rows}, {"audio": 1.0}, {"error": "the models gave NaN"}]
    lines = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    with answering(lambda handler, body: handler.chunked(lines)) as server:
        client = client_of(server)
        chunks = client.stream("Hello.", {"seed": 3})
        first, second = next(chunks), next(chunks)
        assert (first.audio.tolist(), second.audio.tolist()) == ([0.5, -0.25], [1.0])
        assert (first.unspoken, second.unspoken) == ((Unspoken("x", 2, "Hello."),), ())
        with pytest.raises(ServerError, match="the models gave NaN"):
            next(chunks)
        client.close()
        assert (server.asked[0]["text"], server.asked[0]["seed"]) == ("Hello.", 3)


def test_a_stream_that_breaks_off_is_an_error():
    def respond(handler, body):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        event = b'data: {"audio": [0.5]}\n\n'
        handler.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        handler.close_connection = True

    with answering(respond) as server:
        client = client_of(server)
        chunks = client.stream("Hello.", {})
        assert next(chunks).audio.tolist() == [0.5]
        with pytest.raises(ServerError, match="the connection broke") as caught:
            next(chunks)
        assert caught.value.status == 0
        client.close()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        *((200, body) for body in (b"ok", b"[]", b'{"parameters": {"rate": 1}}', b"\xff")),
        (404, b'{"error": {"message": "GET /v2/models/text_to_speech/config: Not Found"}}'),  # Melforge's own
        (404, b'{"detail": "Not Found"}'),
    ],
)
def test_another_server_is_said_to_be_no_triton(status, body):
    paths = []

    def respond(handler, asked):
        paths.append(handler.path)
        handler.whole(status, body)

    with answering(respond) as server:
        client = client_of(server)
        with pytest.raises(ServerError, match="what answers there is no Triton Inference Server"):
            client.parameters_of("a model é")
        client.close()
    assert paths[0] == "/v2/models/a%20model%20%C3%A9/config"

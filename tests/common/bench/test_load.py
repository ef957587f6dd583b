"""The load on a speech server, and what is made of its answers."""

import json

import numpy as np
import pytest

from melforge.common.bench.load import (
    CLOSED,
    LISTENERS,
    OPEN,
    RIVA_SENTENCES,
    Load,
    TimedAnswer,
    row_of,
    run_load,
)
from melforge.common.bench.targets import HttpTarget
from melforge.common.cli import benchmark_server
from melforge.common.cli.phrases import read_texts
from melforge.common.errors import InputError
from melforge.common.serve.client import Address
from tests.plain_server import answering

RATE = 8000
CHUNK = bytes(2 * RATE // 20)  # 50 ms


def speak(handler, body):
    handler.chunked([CHUNK] * 4, 0.01)


def target(url: str, *texts: str) -> HttpTarget:
    return HttpTarget(
        Address.parse(url), None, {"model": "m", "voice": "v"}, RATE, texts or ("a", "b", "c"), 20.0
    )


@pytest.mark.parametrize("processes", [1, 2])
def test_a_closed_loop_asks_each_text_in_each_stream_and_waits_for_the_end(processes):
    with answering(speak) as server:
        answers = run_load(target(server.url), Load(CLOSED, 3, requests=6), processes)
    assert len(answers) == len(server.asked) == 3 * 2 * 3
    assert sorted(asked["input"] for asked in server.asked) == sorted("abc" * 6)
    assert server.opened == 3  # a connection a stream: one request at a time
    assert all(not answer.error and len(answer.chunks) == 4 for answer in answers)
    assert all(answer.audio == pytest.approx(0.2) and answer.total >= 0.03 for answer in answers)
    assert all(asked["response_format"] == "pcm" for asked in server.asked)


def test_an_open_loop_sends_when_due_whatever_became_of_those_before():
    with answering(lambda handler, body: handler.chunked([CHUNK] * 3, 0.3)) as server:
        answers = run_load(target(server.url), Load(OPEN, 30, seconds=1.0))
    assert 15 <= len(answers) <= 50
    due = sorted(answer.due for answer in answers)
    assert due[-1] - due[0] <= 1.0
    # An answer takes 0.6 s: one after the other there would be two.
    assert server.opened > 5
    again = [answer.due - due[0] for answer in answers]
    assert np.std(np.diff(sorted(again))) > 0.005  # not evenly spaced


def test_a_listener_hears_an_answer_to_its_end_before_the_next():
    with answering(speak) as server:
        answers = run_load(target(server.url), Load(LISTENERS, 2, seconds=1.2))
    # 0.2 s of audio that is made in 0.03 s.
    assert 2 <= len(answers) <= 2 * 7
    assert server.opened == 2


def test_errors_are_counted_and_the_load_goes_on():
    def respond(handler, body):
        if body["input"] == "b":
            handler.whole(503, json.dumps({"error": {"message": "busy"}}).encode())
        elif body["input"] == "c":
            handler.whole(200, b"")
        else:
            speak(handler, body)

    with answering(respond) as server:
        load = Load(CLOSED, 2, requests=6)
        row = row_of(load, run_load(target(server.url), load))
    assert (row["answers"], row["errors"]) == (4, 8)
    assert row["by_error"] == {"503: busy": 4, "an answer without sound": 4}


def test_a_server_that_is_gone_is_an_error_of_each_request():
    with answering(speak) as server:
        url = server.url
    load = Load(CLOSED, 1, requests=3)
    row = row_of(load, run_load(target(url), load))
    assert row["errors"] == 3 and "no connection" in row["failed"]


def test_what_a_listener_hears_of_late_chunks():
    """Playback starts with the first chunk; it stops for as long as a chunk comes late, once."""
    answer = TimedAnswer(10.0, 13.0, chunks=[(11.0, 0.5), (11.2, 0.5), (12.3, 0.5), (13.0, 0.1)])
    assert answer.first_audio == pytest.approx(1.0) and answer.total == pytest.approx(3.0)
    assert answer.gaps == pytest.approx([0.2, 1.1, 0.7])
    assert answer.dry == pytest.approx(0.5)  # 1 s was there at 11.2, the next at 12.3, and then at 13.0
    assert TimedAnswer(0, 1, chunks=[(0.5, 1.0), (1.0, 1.0)]).dry == 0


def test_a_row_says_how_fast_and_how_late():
    made = [TimedAnswer(i, i + 2.0, chunks=[(i + 0.1, 1.0), (i + 2.0, 3.0)]) for i in range(4)]
    row = row_of(Load(CLOSED, 4), made)
    assert row["audio_s"] == 16 and row["elapsed_s"] == 5 and row["times_real_time"] == pytest.approx(3.2)
    assert row["first_audio"]["p50"] == pytest.approx(0.1) and row["total"]["p99"] == pytest.approx(2.0)
    assert row["chunk_gap"]["mean"] == pytest.approx(1.9)
    assert row["dry"] == 4 and row["longest_dry_s"] == pytest.approx(0.9)


def test_the_command_makes_a_table_json_and_a_plot(tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    texts.write_text("# a comment\nOne.\n\nTwo.\n")
    with answering(speak) as server:
        words = ["--server", server.url, "--texts", str(texts), "--sample-rate", str(RATE)]
        words += ["--streams", "1,2", "--rates", "10", "--listeners", "2", "--seconds", "0.5"]
        assert benchmark_server.main([*words, "-o", str(tmp_path / "out")]) == 0
    out, progress = capsys.readouterr()
    assert out == (tmp_path / "out" / "server.md").read_text()
    for heading in ("## Closed loop", "## Open loop", "## Listeners", "| first audio 50 % ms | 95 %"):
        assert heading in out
    assert len(progress.splitlines()) == 4 and "closed loop, 2 streams: first audio" in progress
    rows = json.loads((tmp_path / "out" / "server.json").read_text())["rows"]
    assert [row["number"] for row in rows] == [1, 2, 10, 2]
    assert rows[1]["answers"] == 4 and rows[1]["times_real_time"] > 0
    assert (tmp_path / "out" / "server.png").read_bytes()[:4] == b"\x89PNG"
    warm, *_ = server.asked
    assert warm["sample_rate"] == RATE and {asked["input"] for asked in server.asked} == {"One.", "Two."}


def test_the_published_method():
    loads = benchmark_server.make_loads(benchmark_server.parse(["--riva"]), len(read_texts(RIVA_SENTENCES)))
    assert [load.number for load in loads] == [1, 4, 6, 8, 16, 32, 64]
    assert {(load.kind, load.requests) for load in loads} == {(CLOSED, 20 * 10)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--streams", "1,x"], "--streams takes whole positive numbers with commas, not 'x'"),
        (["--rates", "0"], "--rates takes positive numbers with commas, not '0'"),
        (["--seconds", "0"], "--seconds must be seconds above 0 and below 1000000, not '0'"),
        (["--rates", "1", "--seconds", "inf"], "below 1000000, not 'inf'"),
        (["--server", "127.0.0.1:1"], "no server at http://127.0.0.1:1"),
    ],
)
def test_wrong_options(words, message):
    with pytest.raises(InputError) as caught:
        benchmark_server.main(words)
    assert message in str(caught.value)


def test_a_text_that_the_server_refuses_ends_the_command():
    body = json.dumps({"error": {"message": "no such model"}}).encode()
    with (
        answering(lambda handler, _: handler.whole(404, body)) as server,
        pytest.raises(InputError, match=r"\(404\): no such model"),
    ):
        benchmark_server.main(["--server", server.url])

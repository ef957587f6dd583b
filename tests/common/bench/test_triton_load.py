"""The load on a Triton Inference Server, and what is made of its answers and statistics."""

import json
import re
import threading

import numpy as np
import pytest

from melforge.common.bench.load import STATIC, STREAM, Load, TimedAnswer, row_of
from melforge.common.bench.triton_statistics import Counts, counts_of, spent_on_server
from melforge.common.cli import benchmark_triton
from melforge.common.errors import InputError
from tests.plain_server import answering
from tests.triton.test_client import output

RATE = 8000
SECONDS, FRAMES = 0.05, 25  # of each text
MODELS = ("frontend", "acoustic", "vocoder")


class Triton:
    """Answers as a server with our models; each executes a request alone."""

    def __init__(self):
        self.done = {name: [0, 0] for name in MODELS}  # texts, requests
        self.lock = threading.Lock()

    def __call__(self, handler, body):
        if handler.path.endswith("/config"):
            self.reply(handler, {"parameters": {"sampling_rate": {"string_value": str(RATE)}}})
        elif handler.path.endswith("/stats"):
            self.reply(handler, {"model_stats": [self.statistics(name) for name in MODELS]})
        elif handler.path.endswith("/generate_stream"):
            events = [b"data: " + json.dumps({"audio": [0.0] * 200}).encode() + b"\n\n"] * 2
            handler.chunked(events, 0.01)
        else:
            self.speak(handler, texts_of_request(handler.server.asked[-1]))

    def reply(self, handler, message):
        handler.whole(200, json.dumps(message).encode())

    def speak(self, handler, texts):
        if "" in texts:
            self.reply_error(handler)
            return
        with self.lock:
            for counts in self.done.values():
                counts[0] += len(texts)
                counts[1] += 1
        samples = np.zeros((len(texts), int(SECONDS * RATE)), "<f4")
        count, size = samples.shape
        outputs = [
            output("audio", "FP32", [count, size], parameters={"binary_data_size": samples.nbytes}),
            output("audio_length", "INT64", [count, 1], data=[size] * count),
            output("mel_lengths", "INT64", [count, 1], data=[FRAMES] * count),
            output("unspoken", "BYTES", [count, 1], data=["[]"] * count),
        ]
        head = json.dumps({"outputs": outputs}).encode()
        handler.whole(200, head + samples.tobytes(), Inference_Header_Content_Length=str(len(head)))

    def reply_error(self, handler):
        handler.whole(400, b'{"error":"no audio made: the text is empty"}')

    def statistics(self, name):
        texts, requests = self.done[name]
        spent = {
            "queue": 2_000_000,
            "compute_input": 0,
            "compute_infer": 3_000_000,
            "compute_output": 1_000_000,
        }
        stats = {key: {"count": requests, "ns": requests * each} for key, each in spent.items()}
        counts = {"inference_count": texts, "execution_count": requests}
        return {"name": name, **counts, "inference_stats": {"success": {"count": requests}, **stats}}


@pytest.fixture
def phrases(tmp_path):
    path = tmp_path / "phrases.txt"
    path.write_text("# a comment\nOne.\n\nTwo.\nThree.\n", encoding="utf-8")
    return path


def texts_of_request(asked: dict) -> list[str]:
    """Of the binary tensor of a request: each text behind its length."""
    data, texts = asked["binary"], []
    while data:
        size = int.from_bytes(data[:4], "little")
        texts.append(data[4 : 4 + size].decode())
        data = data[4 + size :]
    return texts


def texts_of(server) -> list[list[str]]:
    return [texts_of_request(asked) for asked in server.asked if "binary" in asked]


def test_static_batches_take_the_texts_in_turn(phrases, capsys):
    with answering(Triton()) as server:
        words = ("--server", server.url, "--batches", "2", "--runs", "3", "--warm-up-runs", "0", "--json")
        assert benchmark_triton.main([str(phrases), *words]) == 0
    assert texts_of(server) == [["One.", "Two."], ["Three.", "One."], ["Two.", "Three."]]
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["answers"], row["errors"]) == (3, 0)
    assert row["server"]["acoustic"] == pytest.approx({"queue_s": 0.002, "compute_s": 0.004, "batch": 2.0})
    assert (row["queue_s"], row["compute_s"]) == pytest.approx((0.006, 0.012))
    assert row["audio_s"] == pytest.approx(6 * SECONDS)


@pytest.mark.parametrize("processes", [1, 2])
def test_each_client_makes_its_runs_after_its_warm_up(phrases, capsys, processes):
    with answering(Triton()) as server:
        words = ["--server", server.url, "--concurrency", "3", "--runs", "4", "--warm-up-runs", "2", "--json"]
        assert (
            benchmark_triton.main([str(phrases), *words, "--processes", str(processes), "--pace", "1.5"]) == 0
        )
    assert len(texts_of(server)) == 3 * (2 + 4)
    assert all(len(texts) == 1 for texts in texts_of(server))
    assert all(asked["parameters"] == {"pace": "1.5"} for asked in server.asked)
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["answers"] == 12  # those of the warm-up do not count
    assert row["frames_per_s"] == pytest.approx(row["items_per_s"] * FRAMES)


def test_all_loads_in_tables_json_and_a_plot(phrases, tmp_path, capsys):
    words = ["--runs", "2", "--batches", "1,2", "--concurrency", "1,2", "--streams", "1,2"]
    with answering(Triton()) as server:
        out = tmp_path / "out"
        assert benchmark_triton.main([str(phrases), "--server", server.url, *words, "-o", str(out)]) == 0
    page, progress = capsys.readouterr()
    assert page == (out / "triton.md").read_text()
    for heading in ("## Static batching", "## Dynamic batching", "## Stream"):
        assert heading in page
    parts = "client, network ms | queue | compute | frontend queue | frontend compute | frontend batch |"
    text = re.sub(" +", " ", page)
    columns = "total 50 % ms | total 95 % | total 99 % | a second | mel frames/s | x real time |"
    assert f"| batch | answers | errors | {columns}" in text and f"| batch | {parts}" in text
    assert f"| concurrency | answers | errors | {columns}" in text and f"| concurrency | {parts}" in text
    assert "| streams | answers | errors | first audio 50 % ms |" in text
    assert len(progress.splitlines()) == 6 and "dynamic batching, 2 concurrency: answered in" in progress
    assert len(json.loads((out / "triton.json").read_text())["rows"]) == 6
    assert (out / "triton.png").read_bytes()[:4] == b"\x89PNG"


def test_a_row_says_how_fast_and_where_the_time_is_spent():
    answers = [TimedAnswer(i, i + 2.0, chunks=[(i + 2.0, 3.0)], frames=100) for i in range(4)]
    row = row_of(Load(STATIC, 8, 4), answers)
    assert row["elapsed_s"] == 5 and row["items_per_s"] == pytest.approx(4 * 8 / 5)
    assert row["frames_per_s"] == 80 and row["times_real_time"] == pytest.approx(12 / 5)
    assert row["total"]["mean"] == 2 and "first_audio" not in row
    done = {name: Counts(4, 8, 4, 0.4, 2.0) for name in MODELS}
    spent = spent_on_server({}, done, 2.0)
    assert spent["server"]["vocoder"] == {"queue_s": 0.1, "compute_s": 0.5, "batch": 2.0}
    assert (spent["queue_s"], spent["compute_s"], spent["client_s"]) == pytest.approx((0.3, 1.5, 0.2))
    assert not spent_on_server({}, {**done, "idle": Counts()}, 2.0)
    assert row_of(Load(STREAM, 1, 4), answers)["first_audio"]["mean"] == 2.0


def test_statistics_of_grpc_are_strings_without_zeros():
    stats = {"success": {"count": "4"}, "queue": {"count": "4", "ns": "2000000000"}, "compute_infer": {}}
    model = {"name": "acoustic", "inference_count": "8", "execution_count": "2", "inference_stats": stats}
    counts = counts_of([model, {"name": "idle"}])
    assert counts["acoustic"].since(counts["idle"]) == {"queue_s": 0.5, "compute_s": 0.0, "batch": 4.0}
    assert counts["idle"].since(counts["idle"]) == {}


def test_a_load_without_answers_has_its_error_and_the_status_says_it(tmp_path, capsys):
    path = tmp_path / "phrases.txt"
    path.write_text("Hello.\n")

    def refuse(handler, body):
        if "inputs" in body:
            handler.whole(400, b'{"error":"no audio made"}')
        else:
            Triton()(handler, body)

    with answering(refuse) as server:
        words = ("--server", server.url, "--batches", "1", "--runs", "2", "--warm-up-runs", "0")
        assert benchmark_triton.main([str(path), *words]) == 1
    assert "| 1     | 0       | 2      | 400: no audio made |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batches", "1,x"], "--batches takes whole positive numbers with commas, not 'x'"),
        (["--concurrency", "0"], "--concurrency takes whole positive numbers with commas, not '0'"),
        (["--timeout", "0"], "--timeout must be seconds above 0 and below 1000000, not '0'"),
        (["--server", "127.0.0.1:1"], "no server at http://127.0.0.1:1"),
        (["--server", "ftp://a"], "no server's address"),
        (["--pace", "99"], "pace must be a number from 0.1 to 10, not 99"),
    ],
)
def test_wrong_options(words, message):
    with pytest.raises(InputError) as caught:
        benchmark_triton.main(words)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"), [(b"\n# only\n", "holds no text to speak"), (b"a\n\xff\n", "line 2 is not UTF-8")]
)
def test_wrong_files(tmp_path, content, message):
    path = tmp_path / "phrases.txt"
    path.write_bytes(content)
    with answering(Triton()) as server, pytest.raises(InputError, match=message):
        benchmark_triton.main([str(path), "--server", server.url])

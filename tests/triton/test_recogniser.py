"""A recogniser's repository, its models with a stand-in for Triton, and the real server on it."""

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch

from melforge.common.bench.triton_statistics import settled
from melforge.common.cli.benchmark_triton import main as measure
from melforge.common.cli.triton import main as write
from melforge.common.cli.triton_client import main as ask_client
from melforge.common.engines import WrappedEngine
from melforge.common.errors import InputError
from melforge.common.recognition.loading import load_recogniser
from melforge.common.recognition.long_recordings import transcribe
from melforge.common.recognition.transcript import greedy_text
from melforge.common.serve.client import Address
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.triton.client import HttpClient
from melforge.common.triton.recogniser_models import AudioToFeatures, CharactersToText, FeaturesToCharacters
from melforge.common.triton.tensors import recogniser_signatures
from melforge.jasper.checkpoint import read_config
from tests.jasper.test_model import GOLDEN
from tests.plain_server import answering
from tests.triton.conftest import PATIENCE, ROOT, free_ports, own_environment, tritonserver
from tests.triton.test_backend import Request, Triton
from tests.triton.test_repository import read_parameters

ENSEMBLE = "jasper-onnx-ensemble"
RATE = 16000


@pytest.fixture(scope="module")
def recogniser(small_ear):
    return load_recogniser(small_ear, device="cpu", threads=1)


@pytest.fixture(scope="module")
def audios() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    lengths = (24000, 16000, 40000, 8000, 31337, 12345, 20000, 28000)
    return [(0.1 * rng.standard_normal(n)).astype(np.float32) for n in lengths]


@pytest.fixture(scope="module")
def texts(recogniser, audios) -> list[str]:
    return [one.text for one in transcribe(recogniser, [(audio, RATE) for audio in audios])]


# Without a server


def test_the_repository_has_nvidia_s_names_and_no_path_of_this_machine(small_ear, tmp_path, capsys):
    words = f"--ear {small_ear} --backend onnx,torch,trt --batch-size 8 --queue-delay 50".split()
    assert write([str(tmp_path / "models"), *words]) == 0
    names = capsys.readouterr().out.strip().partition(": ")[2].split(", ")
    assert set(names) == {
        *("features", "decoder", "jasper-onnx", "jasper-pyt", "jasper-trt"),
        *("jasper-onnx-ensemble", "jasper-pyt-ensemble", "jasper-trt-ensemble"),
    }
    for name, signature in recogniser_signatures("jasper", ("onnx", "torch", "trt"), 64, 29).items():
        text = (tmp_path / "models" / name / "config.pbtxt").read_text()
        assert f'name: "{name}"' in text and "max_batch_size: 8" in text
        assert all(f'name: "{one.name}"' in text for one in (*signature.inputs, *signature.outputs))
        assert ("platform" in text) == ("model_name" in text) == name.endswith("-ensemble")
        assert (
            ("allow_ragged_batch" in text)
            == ("max_queue_delay_microseconds: 50" in text)
            == (not name.endswith("-ensemble"))
        )
    for path in (tmp_path / "models").rglob("*"):
        assert not path.is_file() or str(small_ear.parent).encode() not in path.read_bytes(), path
    assert 'string_value: "torch"' in (tmp_path / "models/jasper-pyt/config.pbtxt").read_text()


MODELS = {
    "features": AudioToFeatures,
    **dict.fromkeys(("jasper-onnx", "jasper-pyt"), FeaturesToCharacters),
    "decoder": CharactersToText,
}


IN_ORDER = (AudioToFeatures, FeaturesToCharacters, CharactersToText)


def loaded(folder, name):
    """The model of a repository, as Triton makes it ready."""
    model = MODELS[name]()
    model.triton, model.instance, model.max_batch_size = Triton(), ("CPU", "0"), 2
    model.choose(read_parameters(folder / name), folder / name / "1")
    model.load()
    return model


@pytest.fixture
def laid_in(tmp_path):
    """Writes a repository of a checkpoint with its config.yaml, which are gone then; it is elsewhere."""
    checkpoint, config = tmp_path / "some.pt", tmp_path / "config.yaml"

    def laid_in(backend, *words):
        shutil.copy(GOLDEN / "checkpoint.pt", checkpoint)
        shutil.copy(GOLDEN / "config.yaml", config)
        given = ("--ear", f"--checkpoint={checkpoint}", "--threads=1", f"--backend={backend}", *words)
        assert write([str(tmp_path / "models"), *given]) == 0
        checkpoint.unlink()
        config.unlink()
        return (tmp_path / "models").rename(tmp_path / "moved")

    return laid_in


def test_a_checkpoint_is_read_once_by_the_model_that_takes_its_weights(laid_in, audios, monkeypatch):
    folder, read, load = laid_in("torch"), [], torch.load
    config = read_config(GOLDEN / "config.yaml")
    monkeypatch.setattr(torch, "load", lambda path, **how: read.append(path) or load(path, **how))
    requests = [request(audios[:3]), request(audios[3:4])]
    for name in ("features", "jasper-pyt", "decoder"):
        model = loaded(folder, name)
        if name != "decoder":  # which has no engine
            (stage,) = model.recogniser.engines
            assert stage.removeprefix("masked_") == model.step and model.recogniser.config == config
            assert "state" not in vars(model.recogniser.source) or name == "jasper-pyt"
        requests = [passed_on(answer) for answer in model.execute(requests)]
    assert read == [folder / "jasper-pyt" / "1" / "jasper.pt"]
    assert [path.relative_to(folder) for path in folder.rglob("*.pt")] == [Path("jasper-pyt/1/jasper.pt")]
    whole = load_recogniser(checkpoint=GOLDEN / "checkpoint.pt", backend="torch", device="cpu", threads=1)
    texts = [one.text for one in transcribe(whole, [(audio, RATE) for audio in audios[:4]])]
    found = [text.decode() for one in requests for (text,) in one.inputs["TRANSCRIPT_TEXT"].tolist()]
    assert found == texts


@pytest.mark.slow
def test_graphs_of_a_described_model_lie_beside_those_of_the_weights(laid_in, audios, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("MELFORGE_CACHE", str(cache))
    folder = laid_in("onnx")
    (features,) = loaded(folder, "features").make([audios[0]])
    (exports,) = cache.glob("onnx/*")
    assert {path.name for path in exports.iterdir()} == {"masked_features.onnx", "masked_features.json"}
    encoder = loaded(folder, "jasper-onnx")
    assert {path.name for path in exports.glob("*[sx]")} == {
        *("masked_features.onnx", "masked_encoder.onnx", "weights.safetensors")
    }
    (rows,) = encoder.make([features])
    assert rows.shape[1] == 29 and np.isfinite(rows).all()


@pytest.mark.parametrize(("words", "warm"), [((), False), (("--warm-up",), True), (("--no-warm-up",), False)])
@pytest.mark.parametrize("name", ["features", "jasper-pyt"])
def test_a_step_has_run_every_batch_before_it_is_ready_if_asked(name, words, warm, laid_in, monkeypatch):
    folder, made = laid_in("torch", *words), []
    make = MODELS[name].make
    monkeypatch.setattr(MODELS[name], "make", lambda self, items: made.append(items) or make(self, items))
    loaded(folder, name)
    assert [len(items) for items in made] == ([2, 1] if warm else [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--vocoder", "hifigan"), "--vocoder is for models that speak"),
        (("--stages", "onnx"), "--stages is for models that speak"),
        (("--backend", "onnx,tpu"), "unknown backend 'tpu'"),
        (("--backend", "onnx,onnx"), "each one once"),
    ],
)
def test_options_of_models_that_speak_are_refused(small_ear, tmp_path, words, message):
    with pytest.raises(InputError, match=message):
        write([str(tmp_path / "models"), "--ear", str(small_ear), *words])


def model_of(kind, recogniser):
    model = kind()
    model.triton, model.recogniser, model.labels = Triton(), recogniser, recogniser.labels
    model.triton.Logger = SimpleNamespace(log_error=lambda text: None)
    return model


def request(audios, lengths=None, parameters="{}"):
    longest = max(map(len, audios))
    signal = np.stack([np.pad(audio, (0, longest - len(audio))) for audio in audios])
    counts = np.array([[len(audio)] for audio in audios], np.int32) if lengths is None else lengths
    return Request({"AUDIO_SIGNAL": signal, "NUM_SAMPLES": counts}, parameters)


def passed_on(answer) -> Request:
    assert answer.error is None, answer.error
    return Request({one.name: one.array for one in answer.outputs})


def test_three_models_make_the_text_that_transcribe_makes(recogniser, audios, texts):
    requests = [request(audios[:3]), request(audios[3:4]), request(audios[4:])]
    for kind in IN_ORDER:
        answers = model_of(kind, recogniser).execute(requests)
        requests = [passed_on(answer) for answer in answers]
    found = [text for one in requests for (text,) in one.inputs["TRANSCRIPT_TEXT"].tolist()]
    assert [text.decode() for text in found] == texts
    labels = requests[0].inputs["TRANSCRIPT"]
    assert labels.dtype == np.int32 and (labels[1, 60:] == len(recogniser.labels)).all()


class NotedEngine(WrappedEngine):
    """Remembers the shapes of the first input."""

    def __init__(self, inner):
        super().__init__(inner)
        self.shapes = []

    def __call__(self, **inputs):
        self.shapes.append(inputs[self.stage.inputs[0].name].shape)
        return self.inner(**inputs)


def test_on_kernels_all_runs_are_of_shapes_that_were_warmed_up(recogniser, audios, monkeypatch):
    """A CUDA graph is captured for each number of items."""
    monkeypatch.setattr(StageEngines, "on_kernels", True)
    requests = [request(audios[:2]), request(audios[2:3])]
    for kind in IN_ORDER[:2]:
        model, noted = model_of(kind, recogniser), NotedEngine(getattr(recogniser, kind.step))
        monkeypatch.setitem(vars(recogniser), kind.step, noted)
        model.max_batch_size = 3
        runs = model.warm_up_runs()
        assert len(runs) == 32 * 3 and runs[0] == (2048, 4) and runs[-1] == (64, 1)
        requests = [passed_on(answer) for answer in model.execute(requests)]
        assert {shape[0] for shape in noted.shapes} == {4}


def test_a_wrong_recording_is_an_error_of_its_own_request(recogniser, audios):
    model = model_of(AudioToFeatures, recogniser)
    bad = [
        (request(audios[:1], np.array([[24001]], np.int32)), "24001 samples of a tensor of 24000"),
        (request(audios[:1], np.array([[0]], np.int32)), "0 samples of a tensor"),
        (request([np.zeros(16000, np.float32)]), "nothing can be heard"),
        (request([np.full(16000, np.nan, np.float32)]), "not all numbers"),
        (request([np.ones(recogniser.longest_samples + 1, np.float32)]), "cut the recording"),
        (request(audios[:1], parameters='{"pace": 2}'), "unknown parameter 'pace'"),
    ]
    answers = model.execute([request(audios[:1]), *(one for one, _ in bad), request(audios[:1])])
    for answer, (_, message) in zip(answers[1:-1], bad, strict=True):
        assert message in str(answer.error) and not answer.outputs
    for one, other in zip(answers[0].outputs, answers[-1].outputs, strict=True):
        np.testing.assert_array_equal(one.array, other.array)


class Ensemble:
    """Answers as a server with a recogniser; what it hears is each recording's length in a word."""

    def __call__(self, handler, body):
        if handler.path.endswith("/config"):
            parameters = {"sampling_rate": "16000", "labels": recogniser_labels}
            named = {name: {"string_value": value} for name, value in parameters.items()}
            tensors = {"input": [{"data_type": "TYPE_FP32"}], "output": [{"name": "TRANSCRIPT_TEXT"}]}
            handler.whole(200, json.dumps({"parameters": named, **tensors}).encode())
        elif handler.path.endswith("/stats"):
            handler.whole(200, b'{"model_stats": []}')
        else:
            (shape,) = (one["shape"] for one in body["inputs"] if one["name"] == "NUM_SAMPLES")
            data = b"\5\0\0\0heard" * shape[0]
            heard = {"name": "TRANSCRIPT_TEXT", "datatype": "BYTES", "shape": shape}
            heard["parameters"] = {"binary_data_size": len(data)}
            head = json.dumps({"outputs": [heard]}).encode()
            handler.whole(200, head + data, Inference_Header_Content_Length=str(len(head)))


recogniser_labels = " abcdefghijklmnopqrstuvwxyz'"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a.wav",), "give --output DIR for the wavs, or --transcribe"),
        (("a.txt", "--json", "-o", "x"), "--transcribe, which --json is for"),
        (("a.wav", "--transcribe", "--stream"), "takes no --output, --stream or controls"),
        (("a.wav", "--transcribe", "--pace", "2"), "takes no --output, --stream or controls"),
        (("Hello",), '^"Hello" is no file: give a file with a phrase a line and --output DIR, or - and'),
        (("Hello " * 100, "-o", "x"), r'Hello\.\.\." is no file: give a file'),
        (("Hello", "--transcribe"), "^sound file or folder Hello not found$"),
        ((".", "-o", "x"), r"^\. is a folder: give a file with a phrase a line, or --transcribe for its"),
        (("a.txt", "-o", "a.wav"), "a.wav"),
        (("a.txt", "-o", "x", "--timeout", "inf"), "must be seconds above 0 and below 1000000, not 'inf'"),
        (("a.txt", "-o", "x", "--timeout", "0"), "must be seconds above 0 and below 1000000, not '0'"),
    ],
)
def test_the_client_speaks_or_transcribes(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.wav", "a.txt"):
        (tmp_path / name).write_text("It is.")
    with pytest.raises((InputError, OSError), match=message):
        ask_client(list(words))
    assert {path.name for path in tmp_path.iterdir()} == {"a.wav", "a.txt"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--seconds", "2"), "--seconds is for --transcribe"),
        (("--transcribe", "--streams", "2"), "takes no texts, --streams or controls"),
        (("--transcribe", "--seconds", "x"), "--seconds takes positive numbers"),
    ],
)
def test_a_load_is_of_texts_or_of_recordings(words, message):
    with pytest.raises(InputError, match=message):
        measure(list(words))


def test_where_a_loads_report_cannot_be_written_is_said_first(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        measure(["--out", str(tmp_path / "file" / "out"), "--server", "http://127.0.0.1:1"])


# The real server


@pytest.fixture(scope="module")
def server(small_ear, tmp_path_factory):
    folder = tmp_path_factory.mktemp("triton") / "models"
    words = ("--device", "cpu", "--threads", "1", "--queue-delay", "25000", "--warm-up", "--batch-size", "8")
    assert write([str(folder), "--ear", str(small_ear), *words]) == 0
    with tritonserver(folder, tmp_path_factory.mktemp("tritonserver")) as one:
        yield one


@pytest.fixture
def sounds(tmp_path, audios):
    for number, audio in enumerate(audios[:4]):
        soundfile.write(tmp_path / f"{number}.wav", audio, RATE, "FLOAT")
    return tmp_path


@pytest.mark.tritonserver
@pytest.mark.slow
def test_the_client_prints_what_transcribe_hears(server, sounds, texts, capsys):
    words = ("--transcribe", "--server", server.http)
    assert ask_client([str(sounds / "0.wav"), *words]) == 0
    assert capsys.readouterr().out.strip() == texts[0]
    lines = [{"audio_filepath": f"{n}.wav", "text": text} for n, text in enumerate(texts[:4])]
    manifest = sounds / "manifest.json"
    manifest.write_text("\n".join(map(json.dumps, lines)))
    assert ask_client([str(manifest), *words, "--json", "--concurrency", "4"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["text"] for one in found["recordings"]] == texts[:4] and found["wer"] == 0
    (sounds / "1.txt").write_text("nothing of the kind")
    assert ask_client([str(sounds), *words]) == 0
    assert "word error rate" in capsys.readouterr().out


@pytest.mark.tritonserver
@pytest.mark.slow
def test_the_client_transcribes_over_grpc(server, sounds, texts):
    """In the server's environment, which has the package tritonclient."""
    words = [str(sounds / "0.wav"), "--transcribe", "--protocol", "grpc", "--server", server.grpc]
    command = [os.environ["MELFORGE_TRITON_PYTHON"], "-m", "melforge", "triton-client", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=own_environment())
    assert (done.returncode, done.stdout.strip()) == (0, texts[0]), done.stderr


@pytest.mark.tritonserver
@pytest.mark.slow
def test_batches_form_and_everyone_gets_their_own_transcript(server, audios, texts):
    client = HttpClient(Address.parse(server.http), PATIENCE)
    assert client.hear(audios, ENSEMBLE) == texts
    before = settled(client)

    def ask(number):
        one = HttpClient(Address.parse(server.http), PATIENCE)
        try:
            return [one.hear([audios[number]], ENSEMBLE)[0] for _ in range(6)]
        finally:
            one.close()

    with ThreadPoolExecutor(8) as clients:
        for text, found in zip(texts, clients.map(ask, range(8)), strict=True):
            assert found == [text] * 6
    after = settled(client)
    for model in ("features", "jasper-onnx", "decoder"):
        assert after[model].texts - before[model].texts == 48
        assert after[model].since(before[model])["batch"] > 1.5, model
    client.close()


@pytest.fixture(scope="module")
def jasper_server(small_ear, tmp_path_factory):
    folder = tmp_path_factory.mktemp("triton") / "models"
    words = ("--device", "cpu", "--threads", "1", "--batch-size", "8", "--jasper-client")
    assert write([str(folder), "--ear", str(small_ear), *words]) == 0
    with tritonserver(folder, tmp_path_factory.mktemp("tritonserver")) as one:
        yield one


@pytest.mark.tritonserver
@pytest.mark.slow
def test_nvidia_s_own_client_gets_what_it_asks_for(jasper_server, recogniser, audios, sounds, capsys):
    """It takes the dtypes from the config, pads with noise, and makes the text of labels."""
    import tritonclient.http as http

    client = http.InferenceServerClient(jasper_server.http.removeprefix("http://"))
    config = client.get_model_config(ENSEMBLE)
    signal, counts = config["input"]
    (transcript,) = config["output"]
    assert (signal["data_type"], counts["data_type"], transcript["data_type"]) == (
        *("TYPE_FP16", "TYPE_INT32", "TYPE_INT32"),
    )
    batch = np.stack([audios[4][:24000], audios[0]]).astype(np.float16)
    given = [
        http.InferInput(signal["name"], batch.shape, "FP16"),
        http.InferInput(counts["name"], [2, 1], "INT32"),
    ]
    given[0].set_data_from_numpy(batch)
    given[1].set_data_from_numpy(np.full((2, 1), 24000, np.int32))
    rows = client.infer(ENSEMBLE, given).as_numpy(transcript["name"])
    client.close()
    wanted = [one.text for one in transcribe(recogniser, [(row.astype(np.float32), RATE) for row in batch])]
    assert [" ".join(greedy_text(row, recogniser.labels).split()) for row in rows] == wanted
    assert ask_client([str(sounds / "0.wav"), "--transcribe", "--server", jasper_server.http]) == 0
    assert capsys.readouterr().out.strip() == wanted[1]
    assert jasper_server.probe().returncode == 0


def test_models_that_speak_have_no_jasper_client(tmp_path):
    with pytest.raises(InputError, match="--jasper-client is for models that hear"):
        write([str(tmp_path / "models"), "--jasper-client"])


def test_a_load_without_statistics_has_its_rows(capsys):
    with answering(Ensemble()) as server:
        words = ("--transcribe", ENSEMBLE, "--seconds", "0.5", "--batches", "2", "--runs", "2")
        assert measure([*words, "--server", server.url, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["answers"] == 2 and row["audio_s"] == 2.0 and "server" not in row


def test_nobody_at_the_address_is_a_sentence(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(800), 8000)
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(InputError, match="no server at"):
        ask_client([str(tmp_path / "a.wav"), "--transcribe", "--server", url])

"""What `melforge triton` writes, and what its models make of a batch, without a server."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from melforge.common.cli.triton import main as write
from melforge.common.config.deployment import Deployment
from melforge.common.errors import InputError
from melforge.common.runner import known_controls
from melforge.common.speech import Controls
from melforge.common.triton import speaking
from melforge.common.triton.backend import MelToAudio, SymbolsToMel, TextToSymbols
from melforge.common.triton.choice import Choice, describe, pick_instance_device
from melforge.common.triton.config import Constant, to_text
from melforge.common.triton.streaming import TextToChunks
from melforge.common.triton.tensors import signatures
from melforge.common.weights.voices import load_voice
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.model import HifiganGenerator

# Of each control that a voice of FastPitch and HiFi-GAN has another value than the usual one.
ASKED = {
    **{"pace": 1.5, "pitch_shift": 40, "pitch_semitones": 2, "pitch_amplify": 2, "denoising_strength": 0.5},
    **{"pitch_flatten": True, "pitch_invert": True, "seed": 3, "volume": 0.5, "pause_factor": 2},
    **{"clause_pause": 0.0, "sentence_pause": 0.5, "paragraph_pause": 1.0},
}
PAUSES = f"{'and a clause, ' * 30}ends. A second one. [pause:700ms] A third.\n\nAnother paragraph."
GOLDEN = Path(__file__).parents[1] / "golden"


TEXT = f'''name: "a \\"name\\""
max_batch_size: 8
input [
  {{ name: "text", data_type: TYPE_STRING, dims: [1, -1] }}
]
dynamic_batching {{ }}
empty: []
decoupled: true
step {{
  long: "{"x" * 100}"
}}
'''


def test_a_config_is_text_that_people_can_read():
    message = {
        "name": 'a "name"',
        "max_batch_size": 8,
        "input": [{"name": "text", "data_type": Constant("TYPE_STRING"), "dims": [1, -1]}],
        "dynamic_batching": {},
        "empty": [],
        "decoupled": True,
        "step": {"long": "x" * 100},
    }
    assert to_text(message) == TEXT


@pytest.fixture
def run(tiny_voice, tmp_path, capsys):
    def run(*words):
        assert write([str(tmp_path / "models"), "--voice", str(tiny_voice), *words]) == 0
        capsys.readouterr()
        return {path.parent.name: path.read_text() for path in tmp_path.glob("models/*/config.pbtxt")}

    return run


def test_every_model_has_its_tensors_and_no_path_of_this_machine(run, tiny_voice, tmp_path):
    configs = run()
    assert configs.keys() == signatures().keys()
    for name, signature in signatures(80).items():
        text = configs[name]
        for tensor in (*signature.inputs, *signature.outputs):
            dims = ", ".join(map(str, tensor.dims))
            assert re.search(rf'name: "{tensor.name}", data_type: \w+, dims: \[{re.escape(dims)}\]', text)
    assert all("allow_ragged_batch: true" in configs[name] for name in ("frontend", "acoustic", "vocoder"))
    assert "max_queue_size: 64" in configs["frontend"] and "max_queue_size: 256" in configs["acoustic"]
    assert "decoupled: true" in configs["text_to_speech_stream"]
    written = [path for path in (tmp_path / "models").rglob("*") if path.is_file()]
    for path in written:
        content = path.read_bytes()
        assert str(tmp_path).encode() not in content and str(tiny_voice.parent).encode() not in content, path
    assert (tmp_path / "models/text_to_speech/1/.keep").is_file()


def test_options_say_how_the_models_run(run):
    queue = ("--queue-delay", "500", "--queue-size", "9", "--queue-seconds", "2.5")
    configs = run("--device", "cuda", "--instances", "2", "--batch-size", "4", *queue)
    assert "{ count: 2, kind: KIND_GPU }" in configs["vocoder"]
    assert "{ count: 2, kind: KIND_CPU }" in configs["frontend"]
    for entry in ("max_queue_delay_microseconds: 500", "max_queue_size: 9", "microseconds: 2500000"):
        assert entry in configs["frontend"]
    assert "preferred_batch_size: [2]" in configs["frontend"]
    assert '"queue_size", value { string_value: "9" }' in configs["text_to_speech_stream"]
    assert all("max_batch_size: 4" in configs[name] for name in ("acoustic", "text_to_speech"))
    assert "max_batch_size: 0" in configs["text_to_speech_stream"]
    configs = run("--device", "cuda:2,cuda:0", "--workers-per-gpu", "3")
    assert "{ count: 3, kind: KIND_GPU, gpus: [0, 2] }" in configs["vocoder"]
    assert "{ count: 3, kind: KIND_CPU }" in configs["frontend"]
    with pytest.raises(InputError, match="unknown device 'cuda:0,cpu': use auto"):
        run("--device", "cuda:0,cpu")


def read_parameters(folder):
    """Of a model's config."""
    entry = re.compile(r'key: "(\w+)",?\s+value \{\s+string_value: ("(?:[^"\\]|\\.)*")')
    text = (folder / "config.pbtxt").read_text()
    return {key: json.loads(value) for key, value in entry.findall(text)}


def test_each_model_has_the_checkpoints_that_it_runs(trained, tmp_path):
    words = [f"--checkpoint={path}" for path in trained.values()]
    assert write([str(tmp_path / "models"), *words]) == 0
    files = {"acoustic": "fastpitch.safetensors", "vocoder": "hifigan.safetensors"}
    runs = {"frontend": (), "acoustic": ["acoustic"], "vocoder": ["vocoder"], "text_to_speech_stream": files}
    for name, kinds in runs.items():
        version = tmp_path / "models" / name / "1"
        parameters = read_parameters(version.parent)
        assert "voice" not in parameters  # both models are given
        choice = Choice.read(parameters, version)
        assert choice.checkpoints == tuple(f"{kind}={version / files[kind]}" for kind in kinds)
        assert {path.name for path in version.iterdir()} == {"model.py", *(files[kind] for kind in kinds)}
        for kind in kinds:
            model = files[kind].partition(".")[0]
            assert (version / files[kind]).read_bytes() == trained[model].read_bytes()
            assert choice.driver(kind, choice.sources(), "cpu").source.weights == version / files[kind]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The folder of a repository with published checkpoints, which are gone."""
    folder = tmp_path_factory.mktemp("published")
    acoustic = folder / "fastpitch.pt"
    shutil.copy(GOLDEN / "fastpitch" / "checkpoint.pt", acoustic)
    config = HifiganConfig(n_mel_channels=20, upsample_initial_channel=64)
    vocoder = folder / "hifigan.pt"
    torch.save({"generator": HifiganGenerator(config).state_dict(), "config": asdict(config)}, vocoder)
    words = (f"acoustic={acoustic}", f"vocoder={vocoder}")
    options = [word for text in words for word in ("--checkpoint", text)]
    assert write([str(folder / "models"), *options, "--backend", "torch", "--device", "cpu"]) == 0
    stored = Choice(checkpoints=words, backend="torch").sources()
    acoustic.unlink()
    vocoder.unlink()
    return folder / "models", stored


@pytest.mark.parametrize(
    ("name", "make", "files"),
    [
        ("frontend", TextToSymbols, []),
        ("acoustic", SymbolsToMel, ["fastpitch.pt"]),
        ("vocoder", MelToAudio, ["hifigan.pt"]),
        ("text_to_speech_stream", TextToChunks, ["fastpitch.pt", "hifigan.pt"]),
    ],
)
def test_a_model_reads_once_the_weights_that_it_runs(name, make, files, published, monkeypatch):
    folder, stored = published
    read, load = [], torch.load
    monkeypatch.setattr(torch, "load", lambda path, **how: read.append(path) or load(path, **how))
    model = make()
    model.instance = ("CPU", "0")
    model.choose(read_parameters(folder / name), folder / name / "1")
    assert read == []
    model.load()
    try:
        assert read == [folder / name / "1" / file for file in files]
    finally:
        if isinstance(model, TextToChunks):
            model.finalize()
    for kind, source in model.sources.items():
        for field in ("model", "config", "mel", "settings", "frontend", "controls", "speakers"):
            assert getattr(source, field) == getattr(stored[kind], field), (kind, field)
    assert model.choice.limits(model.sources) == Choice(backend="torch").limits(stored)


def test_a_frontend_needs_no_checkpoint(published):
    folder, stored = published
    model = TextToSymbols()
    model.choose(read_parameters(folder / "frontend"), folder / "frontend" / "1")
    model.load()
    wanted = stored["acoustic"].frontend.build()("Hello there.")
    ((made, _),) = model.make([("Hello there.", Controls())])
    np.testing.assert_array_equal(made.utterances[0].ids, wanted.utterances[0].ids)
    with pytest.raises(InputError, match="the control 'sigma' would change nothing"):
        model.controls(SimpleNamespace(parameters=lambda: '{"sigma": 0.5}'))


def test_lexicons_of_the_voice_and_of_the_command_go_with_the_models(tiny_voice, tmp_path):
    voice, lexicon = shutil.copytree(tiny_voice, tmp_path / "own"), tmp_path / "mine.yaml"
    (voice / "lexicon.yaml").write_text("SQL: sequel\nGIF: jiff")
    lexicon.write_text("GIF: gift")
    words = [str(tmp_path / "models"), "--voice", str(voice), "--lexicon", str(lexicon)]
    assert write(words) == 0
    shutil.rmtree(voice)
    lexicon.write_text("GIF: 5")
    folder, model = tmp_path / "models" / "frontend", TextToSymbols()
    model.choose(read_parameters(folder), folder / "1")
    model.load()
    ((made, _),) = model.make([("SQL GIF", Controls())])
    assert made.utterances[0].normalised == "sequel gift"
    with pytest.raises(InputError, match=r"mine\.yaml, line 1: 'GIF' must be text"):
        write(words)


def test_an_override_counts_for_a_described_model(trained, tmp_path):
    stored = Choice(checkpoints=tuple(map(str, trained.values()))).stored_sources()
    described = {kind: describe(source) for kind, source in stored.items()}
    overrides = {"fastpitch": {"mask_padding": False}}
    choice = Choice(described=described, overrides=overrides)
    read = Choice.read(choice.parameters(), tmp_path)
    assert stored["acoustic"].config.mask_padding and not read.sources()["acoustic"].config.mask_padding
    assert read.stored_sources()["acoustic"].config == stored["acoustic"].config


def test_what_a_config_says_is_what_its_model_loads(tmp_path):
    choice = Choice(
        acoustic="fastpitch",
        vocoder="hifigan",
        voice="./voice",
        checkpoints=("acoustic=./a.pt",),
        backend="trt,decoder=onnx",
        threads=2,
        deployments={"hifigan": Deployment(precision="fp16", trt_multi_engine=True,
                                           trt_max_output_seq_len_list=(64, 128))},
        overrides={"fastpitch": {"some_sizes": (1, 2)}},
    )  # fmt: skip
    read = Choice.read(choice.parameters(), tmp_path)
    assert read.voice == f"{tmp_path}/voice" and read.checkpoints == (f"acoustic={tmp_path}/a.pt",)
    for name in ("acoustic", "vocoder", "backend", "threads", "decoder", "deployments", "overrides"):
        assert getattr(read, name) == getattr(choice, name), name


@pytest.mark.parametrize(
    ("kind", "picked", "device"),
    [
        ("GPU", ("cuda", "cuda"), "cuda:3"),
        ("GPU", ("cuda", "cpu"), "auto"),
        ("GPU", ("cpu", "cpu"), "cpu"),
        ("CPU", ("cuda", "cuda"), "cpu"),
    ],
)
def test_an_instance_runs_on_its_own_gpu(monkeypatch, kind, picked, device):
    by_backend = dict(zip(("trt", "onnx"), picked, strict=True))
    monkeypatch.setattr("melforge.common.triton.choice.pick_device", by_backend.__getitem__)
    assert pick_instance_device(("trt", "onnx"), kind, "3") == device


def analysed_for(tts, text, controls=None):
    controls = controls or Controls()
    return speaking.analyse(tts.frontend, tts.acoustic.source, text, controls, tts.acoustic.longest_text)


def symbols_of(analysed, controls=None):
    analysis, gaps = analysed
    ids, kept = [one.ids for one in analysis.utterances], [gap.kept for gap in gaps]
    return speaking.Symbols(ids, controls or Controls(), kept)


def test_batches_give_what_speak_gives_and_errors_stay_with_their_item(tts):
    assert ASKED.keys() == known_controls(tts.acoustic.source, tts.vocoder.source)
    each = [Controls(), *(Controls(**{name: value}) for name, value in ASKED.items())]
    texts = [f"Number {number}, {PAUSES}" for number in range(len(each))]
    analysed = [analysed_for(tts, *both) for both in zip(texts, each, strict=True)]
    items = [symbols_of(*both) for both in zip(analysed, each, strict=True)]
    items.append(speaking.Symbols([np.array([0, 9999])], Controls(), [None]))
    *mels, wrong = speaking.speak(tts.acoustic, tts.frontend.symbols, items)
    assert isinstance(wrong, InputError) and "symbol ids from 0 to 9999" in str(wrong)
    given = [
        speaking.Mels(one, [gap.seconds for gap in gaps], controls)
        for one, (_, gaps), controls in zip(mels, analysed, each, strict=True)
    ]
    given.insert(1, speaking.Mels([np.full_like(mels[0][0], np.nan)], [0.0], Controls()))
    audio = speaking.vocode(tts.vocoder, tts.sampling_rate, given)
    assert isinstance(audio.pop(1), InputError)
    for text, controls, samples in zip(texts, each, audio, strict=True):
        wanted = tts.speak(text, controls).samples
        assert samples.shape == wanted.shape, controls.asked()
        np.testing.assert_allclose(samples, wanted, atol=1e-5)


def test_an_ensemble_refuses_what_symbols_do_not_tell(tts):
    analysis, _ = analysed_for(tts, "<speak>One <break time='2s'/> two.</speak>")
    assert [one.pause for one in analysis.utterances] == [2.0, 0.0]
    for text in ("<speak>One <emphasis>two</emphasis>.</speak>", "[pause:1s] One."):
        with pytest.raises(InputError, match="need text_to_speech_stream"):
            analysed_for(tts, text)


def test_cuda_kernels_get_few_numbers_of_items(tts, monkeypatch):
    items = [symbols_of(analysed_for(tts, text)) for text in ("one", "a b", "c")]
    wanted = speaking.speak(tts.acoustic, tts.frontend.symbols, items)
    given = []

    def synthesise(ids, controls, styles=()):
        given.append(len(ids))
        return original(ids, controls, styles)

    original = tts.acoustic.synthesise
    monkeypatch.setattr(tts.acoustic, "synthesise", synthesise)
    monkeypatch.setattr(type(tts.acoustic), "prefers_batches", True)
    monkeypatch.setattr(tts.acoustic, "padded_batch", lambda number: 1 << (number - 1).bit_length())
    made = speaking.speak(tts.acoustic, tts.frontend.symbols, items, batch_size=8)
    assert given == [4]
    assert len(made) == 3
    for one, other in zip(made, wanted, strict=True):
        np.testing.assert_allclose(one[0], other[0], atol=1e-5)


def test_parameters_are_controls():
    voice = load_voice()
    sources = voice.source("fastpitch"), voice.source("hifigan")
    assert speaking.controls_of({"pace": "1.5", "seed": "3"}, *sources) == Controls(pace=1.5, seed=3)
    for parameters, message in (
        ({"pacce": 1}, "unknown parameter 'pacce'"),
        ({"pace": "fast"}, "pace must be a number from 0.1 to 10, not 'fast'"),
        ({"sigma": 1.0}, "the control 'sigma' would change nothing"),
        ({"pitch_flatten": "yes"}, "pitch_flatten must be true or false"),
        ({"speaker": "ann"}, "the control 'speaker' would change nothing: this voice has one speaker"),
    ):
        with pytest.raises(InputError, match=message):
            speaking.controls_of(parameters, *sources)


def test_a_server_that_is_not_there_is_a_sentence_of_who_watches_it():
    script = Path(speaking.__file__).with_name("watch.py")

    def run(*words):
        ended = subprocess.run([sys.executable, script, *words], capture_output=True, text=True)
        return ended.returncode, ended.stdout, ended.stderr

    assert run("no-server") == (2, "", "error: no-server: No such file or directory\n")
    status, said, _ = run("--help")
    assert status == 0 and "watch.py tritonserver OPTIONS" in said
    assert run("--nope") == run() == (2, "", said)

"""scripts/verify.py and verify_trt: the exit status tells, the report says what, and errors are sentences."""

import json
import re
from pathlib import Path

import onnx
import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "verify.py"
WRONG = "decoder.layers.0.pos_ff.CoreNet.2.weight"


@pytest.fixture
def run(tiny_voice, tmp_path_factory, program, monkeypatch):
    monkeypatch.setenv("MELFORGE_VOICES", str(tiny_voice.parent))
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    return program


@pytest.mark.slow
def test_a_pair_is_compared(run, tmp_path):
    files = {"--json": tmp_path / "r.json", "--plot": tmp_path / "r.png", "-o": tmp_path / "out"}
    words = [word for pair in files.items() for word in pair]
    status, out, errors = run(SCRIPT, "--text", "It works.", "--calls", 2, *words)
    assert status == 0, errors
    assert "fastpitch.decoder: proj " in out and "hifigan.generator -> audio " in out
    assert "tensors are within tolerance" in out.splitlines()[-1]
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["ok"] and report["first_wrong"] is None and report["speech"]["other_durations"] == 0
    assert {row["stage"] for row in report["tensors"]} > {"fastpitch.encoder", "hifigan.generator"}
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"pytorch.wav", "other.wav"}


@pytest.mark.slow
def test_a_wrong_weight_gives_status_1_and_is_named(run):
    words = ("--backend", "onnx", "--text", "It works.", "--perturb", WRONG)
    status, out, _ = run("melforge.fastpitch.verify_trt", *words, "--full", "--plot", "/dev/null")
    assert status == 1
    assert "the first that went wrong: layer decoder.layers.0.pos_ff.CoreNet.2 of fastpitch.decoder" in out
    assert "## fastpitch.encoder: encoder.word_emb" in out and " above 0.001, " in out
    status, out, _ = run("melforge.fastpitch.verify_trt", *words, "--json", "-")
    assert status == 1
    assert json.loads(out)["first_wrong"] == "fastpitch.decoder: decoder.layers.0.pos_ff.CoreNet.2"


@pytest.mark.slow
def test_layers_behind_a_change_of_the_wiring_are_counted(run, voice_copy):
    graph = voice_copy / "fastpitch" / "decoder.onnx"
    model = onnx.load(graph, load_external_data=False)
    weight = next(t.name for t in model.graph.initializer if t.name.startswith("decoder.layers.0.pos_ff"))
    for node in model.graph.node:
        node.input[:] = ["twice" if name == weight else name for name in node.input]
    model.graph.node.insert(0, onnx.helper.make_node("Add", [weight, weight], ["twice"]))
    onnx.save(model, graph)
    words = ("--voice", voice_copy, "--backend", "onnx", "--text", "It works.")
    status, out, _ = run("melforge.fastpitch.verify_trt", *words)
    assert status == 1 and "the first that went wrong: output mel of fastpitch.decoder" in out
    assert re.search(r"\n\d+ of \d+ layers were not found in the graphs in use, being wired otherwise", out)


@pytest.mark.slow
def test_a_weight_that_nothing_uses_is_refused(run):
    """The largest embedding is that of a symbol that this text does not have."""
    words = ("--backend", "onnx", "--text", "It works.", "--perturb", "encoder.word_emb.weight")
    status, _, errors = run("melforge.fastpitch.verify_trt", *words)
    assert status == 2 and len(errors.splitlines()) == 1
    assert "encoder.word_emb.weight: its largest value changes nothing: the stages that speak" in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--layers", "encoder.layer.*"), " layers, such as encoder.layer"),
        (("--perturb", "decoder.layers.0.pos_ff.weight"), "no model here has this weight; decoder.layers.0"),
        (("--backend", "torch"), "PyTorch is what the others are compared with; give onnx, trt or cuda"),
        pytest.param(("--backend", "cuda"), "kernels run on an NVIDIA GPU", marks=pytest.mark.no_gpu),
        (("--precision", "fp16"), "precision fp16 is for the backend trt"),
        (("--text", " "), "the text is empty"),
        (("--set", "use_trtx=true"), "unknown key 'use_trtx'"),
    ],
)
def test_errors_are_sentences(run, words, message):
    status, _, errors = run(SCRIPT, *words)
    assert status == 2 and len(errors.splitlines()) == 1 and message in errors


@pytest.mark.parametrize("model", ["fastpitch", "fastspeech", "tacotron2", "hifigan", "waveglow"])
def test_where_tensorrt_cannot_run_it_says_so(run, model, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    hparam = SCRIPT.parents[1] / "hparams" / model / "trt.yaml"
    monkeypatch.delenv("MELFORGE_VOICES")
    status, _, errors = run(f"{model}.verify_trt", "--hparam", hparam, "--trt_force_build")
    assert status == 2 and len(errors.splitlines()) == 1
    assert "not installed: pip install" in errors or "PyTorch sees none here" in errors


@pytest.mark.parametrize("option", ["--json", "--plot", "--output"])
def test_what_cannot_be_written_is_not_compared(run, option, tmp_path):
    (tmp_path / "file").touch()
    status, out, errors = run(SCRIPT, option, tmp_path / "file" / "it")
    assert (status, out, errors) == (2, "", f"error: {tmp_path / 'file'} is a file: give a folder\n")
    if option != "--output":
        status, out, errors = run(SCRIPT, option, tmp_path)
        assert (status, out, errors) == (2, "", f"error: {tmp_path} is a folder: give a file name\n")


def test_a_plot_is_a_png(run, tmp_path):
    status, _, errors = run(SCRIPT, "--plot", tmp_path / "x.svg")
    assert status == 2 and errors.endswith("x.svg: plots are PNG files: give a name that ends in .png\n")

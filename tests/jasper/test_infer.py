"""Jasper's driver on every backend: batches, buckets, forms; verify, export and engines of its stages."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile

from melforge.common.config.deployment import Deployment
from melforge.common.export.to_onnx import check_source, source_stages, with_graphs
from melforge.common.recognition.loading import make_recogniser
from melforge.common.stages import plan_of
from melforge.common.synthesis.loading import override
from melforge.common.verify.report import conclusion
from melforge.common.verify.stages import Setup, perturb
from melforge.common.verify.verification import verify_recogniser
from melforge.common.weights.published import read_checkpoint
from tests.jasper.test_model import DATA, GOLDEN


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MELFORGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        published = read_checkpoint(GOLDEN / "checkpoint.pt")
        yield with_graphs(published, source_stages(published), 0)


@pytest.fixture(scope="module")
def audios() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    longer = (rng.standard_normal(30000) * 0.05).astype(np.float32)
    rows = zip(DATA["audio"], DATA["audio_lens"], strict=True)
    return [*(audio[:length] for audio, length in rows), longer]


def near(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.abs(one - other).max() <= 1e-3


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_a_batch_is_what_its_items_are_alone(source, audios, backend):
    recogniser = make_recogniser(source, backend, "cpu")
    assert recogniser.batch_safe and recogniser.largest_batch > 8
    for audio, heard in zip(audios, recogniser.hear(audios), strict=True):
        (alone,) = recogniser.hear([audio])
        assert near(heard.log_probs, alone.log_probs) and near(heard.scores, alone.scores)
        assert heard.labels.tolist() == alone.labels.tolist()
        assert len(heard.labels) == recogniser.config.steps(recogniser.config.frames(len(audio)))


def test_backends_agree(source, audios):
    torch, onnx = (make_recogniser(source, backend, "cpu").hear(audios) for backend in ("torch", "onnx"))
    for one, other in zip(torch, onnx, strict=True):
        assert near(one.log_probs, other.log_probs) and (one.labels == other.labels).all()


def test_buckets_give_the_same(source, audios):
    lengths = {"trt_max_output_seq_len_list": (112, 400), "trt_multi_engine": True}
    bucketed = make_recogniser(source, "onnx", "cpu", deployment=Deployment(**lengths))
    whole = make_recogniser(source, "onnx", "cpu")
    for audio in audios:
        (one,), (other,) = bucketed.hear([audio]), whole.hear([audio])
        assert near(one.log_probs, other.log_probs)
    calls = {row["bucket"]: row["calls"] for row in bucketed.engines.report() if "encoder" in row["stage"]}
    assert calls == {"112": 3, "400": 1}
    assert bucketed.longest_samples == 400 * 160 - 1


@pytest.mark.parametrize("pad_align", [0, 8, 16])
def test_engines_of_a_length_take_that_length(source, pad_align):
    """As the benchmark builds them; the longest recording fits, and one sample more does not."""
    config = replace(source.config, pad_align=pad_align)
    for samples in (16_000, 112_000, 266_720, 266_721):
        frames = config.padded_frames(samples)
        longest = config.samples_within(frames)
        assert longest >= samples and config.padded_frames(longest) == frames
        assert config.padded_frames(longest + 1) > frames


def test_without_masks_the_network_attends_to_padding(source, audios):
    unmasked = override(source, {"use_conv_masks": False})
    recogniser = make_recogniser(unmasked, "torch", "cpu")
    assert "encoder" in recogniser.engines and recogniser.largest_batch == 1
    (heard,) = recogniser.hear(audios[2:3])
    assert len(heard.log_probs) == 64 // 2  # with the padding
    (other,) = make_recogniser(source, "onnx", "cpu").hear(audios[2:3])
    assert len(other.log_probs) == 29 and np.abs(heard.log_probs[:29] - other.log_probs).max() > 0.1


@pytest.mark.slow
def test_graphs_agree_with_pytorch_at_all_sizes(source):
    checks = check_source(source)
    assert len(checks) >= 40 and all(check.ok for check in checks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weight", "layer"),
    [
        ("", ""),
        ("encoder.layers.2.conv.4.weight", "encoder.layers.2.conv.4"),
        ("encoder.layers.4.res.1.0.weight", "encoder.layers.4.res.1.0"),
        ("encoder.layers.5.conv.1.running_var", "encoder.layers.5.conv.1"),
    ],
)
def test_verify_finds_a_wrong_weight_where_it_is(source, audios, weight, layer):
    other = perturb(source, weight) if weight else source
    setup = Setup(other, "onnx", "cpu", Deployment(), plan_of("jasper").layers)
    found = verify_recogniser(source, setup, audios[:1])
    if not weight:
        assert found.ok and not found.other_texts and max(found.errors) < 1e-3
        layers = {one.name for one in found.comparisons if one.layer}
        assert {"encoder.layers.1.res.0.0", "encoder.layers.6.conv.1", "decoder.layers.0"} <= layers
        assert "all" in conclusion(found)[-1]
    else:
        assert not found.ok and (found.first_wrong.name, found.first_wrong.layer) == (layer, True)
        assert layer in conclusion(found)[-1]
    assert json.loads(json.dumps(found.report()))["ok"] == found.ok


@pytest.mark.slow
def test_the_commands_of_the_model(monkeypatch, tmp_path, program):
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path / "cache"))
    weights = ("--checkpoint", GOLDEN / "checkpoint.pt")
    status, out, _ = program("melforge.jasper.export_onnx", *weights)
    assert status == 0 and "masked_encoder.onnx" in out
    wav, silent = tmp_path / "it.wav", tmp_path / "silent.wav"
    soundfile.write(wav, DATA["audio"][0], 16000)
    soundfile.write(silent, np.zeros(16000, np.float32), 16000)
    verify = partial(program, "melforge.jasper.verify_trt", *weights, "--backend", "onnx")
    status, out, _ = verify(wav, "--json", "-")
    assert status == 0 and json.loads(out)["ok"]
    for words, why in (
        ((wav, "--json", wav / "report.json"), "it.wav is a file"),
        ((wav, "--json", tmp_path / "no" / "report.json"), "no does not exist"),
        ((silent,), "nothing could be compared"),
    ):
        status, _, errors = verify(*words)
        assert status == 2 and why in errors
    assert program("melforge.jasper.export_onnx", *weights, "-o", tmp_path / "files")[0] == 0
    readme = (tmp_path / "files" / "README.md").read_text()
    assert "A recogniser: audio to features" in readme and "masked_encoder.onnx" in readme


@pytest.mark.slow
@pytest.mark.rtx
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_engines_are_built(monkeypatch, tmp_path, program, precision):
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path / "cache"))
    file = Path("hparams/jasper/trt.yaml").resolve()
    words = ("--checkpoint", GOLDEN / "checkpoint.pt", "--hparam", file, "--precision", precision, "--json")
    place = f"trt_file_path={tmp_path}/it.trt"
    status, out, _ = program("melforge.jasper.build_trt", *words, "--set", place)
    built = {row["engine"] for row in json.loads(out)}
    assert status == 0 and built == {
        f"jasper.{name}" for name in ("masked_features", "masked_encoder", "decoder")
    }


WEIGHTS = ("--checkpoint", GOLDEN / "checkpoint.pt")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("speak", "Hello.", *WEIGHTS), "is a jasper, a recogniser: give an acoustic model or a vocoder"),
        (("speak", "Hello.", "--acoustic", "jasper"), "unknown acoustic model 'jasper'"),
        (("speak", "Hello.", "--hparam", Path("hparams/jasper/infer.yaml").resolve()), "is a file of jasper"),
        (("voice", "make", "./ear", *WEIGHTS), "a recogniser"),
        (("serve", "--port", "0", *WEIGHTS), "is a jasper, not a fastpitch or fastspeech"),
        (("benchmark", "--part", "jasper"), "jasper is a recogniser: use benchmark-recogniser"),
    ],
)
def test_commands_that_speak_refuse_it(melforge, monkeypatch, tmp_path, words, message):
    monkeypatch.setattr("melforge.common.serve.server.set_up_logging", lambda: None)
    monkeypatch.chdir(tmp_path)
    status, _, errors = melforge(*words)
    assert status == 2 and message in errors and not any(tmp_path.iterdir())

"""The published answers through the stages, on every backend and with either form of the decoder."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.engines import WrappedEngine
from melforge.common.engines.backends import make_engine
from melforge.common.engines.onnx_engine import run_bound
from melforge.common.export import to_onnx
from melforge.common.export.examples import examples_of
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import ModelSource
from melforge.tacotron2.config import STOP_CHECK_STEPS
from melforge.tacotron2.decode import NoNoise, SeededNoise, decode, sigmoid
from melforge.tacotron2.examples import firing_threshold
from melforge.tacotron2.model import Tacotron2
from melforge.tacotron2.stages import PLAN, stages
from tests.tacotron2.test_model import TINY as SMALL

pytestmark = pytest.mark.slow  # graphs of published networks are exported
GOLDEN = Path(__file__).parent.parent / "golden" / "tacotron2"
TINY = replace(SMALL, max_decoder_steps=40)
SIZES = {"text": 9, "steps": 30, "mel": 21}


def few_sizes(stage, *_) -> list[dict[str, int]]:
    """Instead of the exporter's own sizes, whose longest take seconds."""
    longest = {name: SIZES[name] for name in stage.dynamic_dims if name != "batch"}
    shortest = dict.fromkeys(longest, 1)
    return [{"batch": 1, **shortest}, {"batch": 1, **longest}, {"batch": 4, **longest}]


def exported(source: ModelSource, folder: Path) -> ModelSource:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(to_onnx, "check_sizes", few_sizes)
        return to_onnx.export_source(source, folder)[0]


def tiny_source(seed: int = 5, **changes) -> ModelSource:
    torch.manual_seed(seed)
    config = replace(TINY, **changes)
    network = Tacotron2(config)
    with torch.no_grad():
        network.decoder.linear_projection.linear_layer.weight.mul_(8)  # so that steps differ
        network.decoder.gate_layer.linear_layer.weight.mul_(8)
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    mel = MelContract(n_mel_channels=config.n_mel_channels)
    return ModelSource("tacotron2", config, Path("weights.safetensors"), mel, given_state=state)


class Rows:
    """Noise that is given, and how much of it was taken."""

    def __init__(self, noise: np.ndarray):
        self.noise, self.taken = noise.astype(np.float32), 0

    def rows(self, steps: int) -> np.ndarray:
        self.taken += steps
        return self.noise[self.taken - steps : self.taken]


@pytest.fixture(scope="module")
def answers():
    with np.load(GOLDEN / "io.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> ModelSource:
    return exported(read_checkpoint(GOLDEN / "checkpoint_ddp.pt"), tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="module", params=[2])
def tiny(request, tmp_path_factory) -> ModelSource:
    """Exported with so many frames a step."""
    return exported(tiny_source(n_frames_per_step=request.param), tmp_path_factory.mktemp("tiny"))


def engines_of(source: ModelSource, backend: str) -> dict:
    return {stage.name: make_engine(stage, source, backend) for stage in stages(source.config)}


def decode_with(engines: dict, form: str, *arguments):
    return decode(engines[{"loop": "decoder_loop", "steps": "decoder_iter"}[form]], *arguments)


def assert_close(actual: np.ndarray, golden: np.ndarray) -> None:
    assert actual.shape == golden.shape
    assert np.abs(actual - golden).max() <= 1e-4 * max(1, np.abs(golden).max())


@pytest.mark.parametrize("form", PLAN.forms)
@pytest.mark.parametrize("backend", ["torch", "onnx"])
@pytest.mark.parametrize("case", "ABCD")
def test_stages_give_the_published_answers(published, answers, backend, form, case):
    symbols, lengths, keep = answers["ids"], answers["lengths"], answers["prenet_keep_masks"]
    if case == "D":  # item 1 alone, with the padding that its row of the batch has
        symbols, lengths, keep = symbols[1:2], lengths[1:2], keep[:, :, 1:2]
    threshold = float(answers["C_gate_threshold"]) if case in "CD" else 1.0
    dropout = 0.0 if case == "B" else 0.5
    engines = engines_of(published, backend)
    encoded = engines["encoder"](symbols=symbols, lengths=lengths)
    encoded = {name: value[:, : lengths.max()] for name, value in encoded.items()}
    limit = published.config.max_decoder_steps
    out = decode_with(
        engines, form, published.config, encoded, lengths, Rows(keep), dropout, threshold, limit
    )
    np.testing.assert_array_equal(out.mel_lengths, answers[f"{case}_mel_lengths"])
    assert_close(engines["postnet"](mel=out.mel)["refined"], answers[f"{case}_mel"])
    assert_close(out.alignment, answers[f"{case}_align"])
    assert out.stopped.dtype == bool and out.stopped.all() == (case in "CD")
    if case == "A":
        assert_close(out.mel, answers["A_mel_before_postnet"])
        assert_close(sigmoid(out.gate), answers["A_gate_sigmoid"].T)


@pytest.mark.parametrize("dropout", [0.5, 0.0])
def test_both_forms_and_backends_stop_items_at_the_same_steps(tiny, dropout):
    config, limit = tiny.config, 30
    rng = np.random.default_rng(3)
    lengths = np.array([9, 2, 6, 1])
    symbols = rng.integers(1, config.n_symbols, (4, 9)) * (np.arange(9) < lengths[:, None])
    both = {backend: engines_of(tiny, backend) for backend in ("torch", "onnx")}
    encoded = both["torch"]["encoder"](symbols=symbols, lengths=lengths)

    def run(backend: str, form: str, threshold: float):
        noise = SeededNoise(range(4), config.prenet_dim) if dropout else NoNoise(4, config.prenet_dim)
        return decode_with(both[backend], form, config, encoded, lengths, noise, dropout, threshold, limit)

    endless = run("torch", "loop", 1.0)
    assert endless.mel.shape == (4, 10, limit * config.n_frames_per_step) and not endless.stopped.any()
    threshold = firing_threshold(endless.gate)
    reference = run("torch", "loop", threshold)
    assert reference.stopped.all() and 1 < reference.gate.shape[1] < limit
    assert reference.mel_lengths.max() == (reference.gate.shape[1] - 1) * config.n_frames_per_step
    for backend, form in (("torch", "steps"), ("onnx", "loop"), ("onnx", "steps")):
        out = run(backend, form, threshold)
        for name in ("mel", "mel_lengths", "gate", "alignment", "stopped"):
            got, wanted = getattr(out, name), getattr(reference, name)
            assert got.dtype == wanted.dtype, name
            np.testing.assert_allclose(got, wanted, atol=1e-4, err_msg=f"{backend} {form} {name}")


@pytest.mark.parametrize("form", PLAN.forms)
@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_items_that_stop_one_by_one(tiny, backend, form):
    """A gate that only some items pass: they stop, the others run into the limit and are told apart."""
    config, limit = tiny.config, 12
    lengths = np.array([4, 4, 4])
    rng = np.random.default_rng(1)
    engines = engines_of(tiny, backend)
    encoded = engines["encoder"](symbols=rng.integers(1, 20, (3, 4)), lengths=lengths)
    arguments = (config, encoded, lengths, NoNoise(3, config.prenet_dim), 0.0)
    gates = sigmoid(decode_with(engines, form, *arguments, 1.0, limit).gate).max(axis=1)
    threshold = float(np.sort(gates)[1:].mean())  # the largest alone is above
    out = decode_with(engines, form, *arguments, threshold, limit)
    np.testing.assert_array_equal(out.stopped, gates > threshold)
    assert (out.mel_lengths[~out.stopped] == limit * config.n_frames_per_step).all()
    assert (out.mel_lengths[out.stopped] < limit * config.n_frames_per_step).all()
    assert out.gate.shape == (3, limit)


def test_stops_are_looked_for_every_few_steps_on_a_gpu(tiny, monkeypatch):
    """What is decided in between is found afterwards; the steps made for nothing are cut off."""
    config, limit = tiny.config, 30
    lengths = np.array([5, 3])
    engines = engines_of(tiny, "torch")
    symbols = np.random.default_rng(2).integers(1, 20, (2, 5))
    encoded = engines["encoder"](symbols=symbols, lengths=lengths)
    arguments = (config, encoded, lengths, NoNoise(2, config.prenet_dim), 0.0)
    threshold = firing_threshold(decode(engines["decoder_iter"], *arguments, 1.0, limit).gate)
    wanted = decode(engines["decoder_iter"], *arguments, threshold, limit)

    class Pretended(WrappedEngine):
        """Says that it is on a GPU, and takes tensors."""

        calls = 0

        def __init__(self):
            super().__init__(engines["decoder_iter"])
            self.device = "meta:gpu"

        def __call__(self, **inputs):
            self.calls += 1
            out = engines["decoder_iter"](**{name: np.asarray(value) for name, value in inputs.items()})
            return {name: torch.from_numpy(value) for name, value in out.items()}

    monkeypatch.setattr("melforge.tacotron2.decode.to_device", lambda array, device: torch.as_tensor(array))
    pretended = Pretended()
    got = decode(pretended, *arguments, threshold, limit)
    for name in ("mel", "mel_lengths", "gate", "alignment", "stopped"):
        np.testing.assert_array_equal(np.asarray(getattr(got, name)), np.asarray(getattr(wanted, name)))
    assert pretended.calls == min(limit, -(-got.gate.shape[1] // STOP_CHECK_STEPS) * STOP_CHECK_STEPS)


def test_without_early_stopping_all_steps_are_made(tmp_path):
    source = tiny_source(decoder_no_early_stopping=True)
    config = source.config
    loop = next(stage for stage in stages(config) if stage.name == "decoder_loop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(to_onnx, "check_sizes", few_sizes)
        source, _ = to_onnx.export_source(source, tmp_path, [loop])
    engines = engines_of(source, "torch")
    lengths = np.array([4])
    encoded = engines["encoder"](symbols=np.ones((1, 4), np.int64), lengths=lengths)
    arguments = (config, encoded, lengths, NoNoise(1, config.prenet_dim), 0.0, 0.0, 7)
    for out in (
        decode(make_engine(loop, source, "onnx"), *arguments),
        decode(engines["decoder_loop"], *arguments),
        decode(engines["decoder_iter"], *arguments),
    ):
        assert out.mel.shape == (1, 10, 7) and out.mel_lengths.tolist() == [0] and out.stopped.all()


def test_the_loop_takes_the_step_limit_from_the_noise(tiny):
    """One graph for every limit, and noise that is not used changes nothing."""
    engines = engines_of(tiny, "onnx")
    lengths = np.array([5])
    encoded = engines["encoder"](symbols=np.arange(1, 6)[None], lengths=lengths)
    for limit in (1, 2, 29):
        noise = SeededNoise([7], tiny.config.prenet_dim)
        out = decode_with(engines, "loop", tiny.config, encoded, lengths, noise, 0.5, 1.0, limit)
        assert out.gate.shape == (1, limit)


def test_the_loop_graph_holds_what_does_not_change_outside(tiny):
    """Weights by name in the outer graph, one loop, and no work in it that is the same in every step."""
    model = onnx.load(tiny.graphs["decoder_loop"], load_external_data=False)
    external = {t.name for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL}
    assert external and external <= set(tiny.state)
    (loop,) = (node for node in model.graph.node if node.op_type == "Loop")
    body = loop.attribute[0].g
    assert not body.initializer
    inside = {value.name for value in body.input} | {name for node in body.node for name in node.output}
    assert not [node.name for node in body.node if inside.isdisjoint(node.input)]
    outside = {name for node in model.graph.node for name in node.output}
    outside |= {value.name for value in (*model.graph.input, *model.graph.initializer)}
    assert inside.isdisjoint(outside)


def test_bound_tensors_give_what_arrays_give(tiny):
    """The path of GPU tensors, on the CPU's memory: counts and bools come back too."""
    stage = next(s for s in stages(tiny.config) if s.name == "decoder_loop")
    engine = make_engine(stage, tiny, "onnx")
    inputs = to_onnx.example_inputs(stage, tiny.config, {"batch": 2, "text": 5, "steps": 6}, seed=0)
    wanted = engine(**inputs)
    tensors = {name: torch.from_numpy(value) for name, value in inputs.items()}
    for (name, value), tensor in zip(
        wanted.items(), run_bound(engine.session, list(wanted), tensors), strict=True
    ):
        np.testing.assert_array_equal(tensor.numpy().astype(value.dtype), value, err_msg=name)


def test_the_check_finds_a_loop_that_stops_elsewhere(tiny, monkeypatch):
    """A graph that takes the gate for open a little longer differs, on inputs at which gates do fire."""
    monkeypatch.setattr(to_onnx, "check_sizes", few_sizes)
    loop = [stage for stage in stages(tiny.config) if stage.name == "decoder_loop"]
    assert all(check.ok for check in to_onnx.check_source(tiny, loop))
    state = dict(tiny.state)
    state["decoder.gate_layer.linear_layer.bias"] = state["decoder.gate_layer.linear_layer.bias"] + 1
    other = replace(tiny, given_state=state, networks={})
    engine = to_onnx.OnnxEngine
    monkeypatch.setattr(to_onnx, "OnnxEngine", lambda stage, source: engine(stage, other))
    checks = to_onnx.check_source(tiny, loop)
    assert checks[1].error == checks[2].error == float("inf")  # other shapes: fewer steps


def test_example_gates_fire_at_steps_of_their_own():
    """Whose gates fall from the first step on lets some items stop there; the others stop all, and later."""
    late = 0
    for seed in range(10):
        source = tiny_source(seed)
        stage = next(s for s in stages(source.config) if s.name == "decoder_loop")
        inputs = to_onnx.example_inputs(stage, source.config, {"batch": 4, "text": 9, "steps": 30}, seed)
        out = make_engine(stage, source, "torch")(
            **examples_of(stage.model).settle_inputs(stage, source, inputs)
        )
        assert out["stopped"].any() and len(set(out["mel_lengths"].tolist())) > 1
        late += out["stopped"].all() and 1 < out["gate"].shape[1] < 30
    assert late >= 5


def test_a_threshold_is_not_made_up_where_gates_do_not_move():
    assert firing_threshold(np.full((2, 5), -3.0, np.float32)) == 1.0

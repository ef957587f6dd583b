"""Tacotron 2's decoder as a kernel: its algebra, what it refuses, and on a GPU against PyTorch."""

import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from melforge.common.audio.contract import MelContract
from melforge.common.cli import run
from melforge.common.config.deployment import Deployment
from melforge.common.engines import Engine
from melforge.common.engines.limits import H200
from melforge.common.registry import load_attribute
from melforge.common.stages import plan_of
from melforge.common.weights.voices import ModelSource, load_voice
from melforge.tacotron2.config import Tacotron2Config
from melforge.tacotron2.model import Tacotron2
from melforge.tacotron2.stages import stages
from melforge.trt_plugins import kernel
from melforge.trt_plugins.tacotron2_decoder.launch import SOURCE, Sizes, needs_of, plan, sizes_of
from melforge.trt_plugins.tacotron2_decoder.weights import arrange, by_block, fold, fragments, products
from tests.trt_plugins.vocoder_kernels import interpreted_error

# Nothing in it is a multiple of what the kernel deals in but of what it asks for.
RAGGED = Tacotron2Config(
    n_mel_channels=7,
    n_symbols=9,
    symbols_embedding_dim=40,
    encoder_embedding_dim=40,
    attention_rnn_dim=72,
    attention_dim=20,
    attention_location_n_filters=5,
    attention_location_kernel_size=7,
    n_frames_per_step=3,
    decoder_rnn_dim=88,
    prenet_dim=24,
)


def seeded_network(config: Tacotron2Config, gate_gain: float = 20.0) -> Tacotron2:
    """Random weights; their gates differ from step to step and from item to item."""
    torch.manual_seed(0)
    network = Tacotron2(config).eval().requires_grad_(False)
    network.decoder.gate_layer.linear_layer.weight *= gate_gain
    return network


def inputs(network: Tacotron2, lengths: list[int], limit: int, dropout: float = 0.5) -> dict:
    generator = torch.Generator().manual_seed(1)
    config, batch = network.config, len(lengths)
    memory = torch.rand(batch, max(lengths), config.encoder_embedding_dim, generator=generator) * 2 - 1
    return {
        "memory": memory,
        "processed_memory": network.decoder.attention_layer.memory_layer(memory),
        "lengths": torch.tensor(lengths),
        "prenet_noise": torch.rand(limit, 2, batch, config.prenet_dim, generator=generator),
        "prenet_dropout": torch.tensor([dropout]),
        "gate_threshold": torch.ones(1),  # never
    }


def test_a_lane_holds_what_the_instruction_takes():
    """Of mma.m16n8k16's first operand: rows g and g + 8, columns 2 c and 2 c + 1, then those 8 behind."""
    matrix = torch.arange(20 * 40).reshape(20, 40).float()
    found = fragments(matrix)
    assert found.shape == (2, 2, 2, 32, 8)
    padded = F.pad(matrix, (0, 24, 0, 12))
    for tile, pair, half, lane in ((0, 0, 0, 0), (0, 1, 0, 7), (1, 0, 1, 14), (0, 0, 1, 31)):
        g, c = divmod(lane, 4)
        first = pair * 32 + c * 8 + half * 4  # where the lane's columns 2 c of this tile are in the vector
        wanted = [
            padded[tile * 16 + g + 8 * row, first + 2 * later + bit]
            for later in range(2)
            for row in range(2)
            for bit in range(2)
        ]
        assert found[tile, pair, half, lane].tolist() == [float(x) for x in wanted]


def test_rows_of_a_block_are_the_gates_of_its_units():
    rows = by_block(torch.arange(4 * 24))
    assert rows[32:64].tolist() == [gate * 24 + 8 + unit for gate in range(4) for unit in range(8)]


def test_products_end_with_the_memory_itself():
    memory, context = torch.randn(2, 5, 40), torch.randn(4 * 8, 40)
    found = products(memory, context)
    assert found.shape == (2, 2 + 3, 1, 2, 32, 8)
    assert torch.equal(found[:, 2:], fragments(memory.mT))
    torch.testing.assert_close(found[:, :2], fragments(context @ memory.mT))


def test_weights_are_arranged_as_the_kernel_counts_them():
    arranged = arrange(fold(seeded_network(RAGGED)), "cpu")
    shapes = {name: list(tensor.shape) for name, tensor in arranged._asdict().items()}
    lane = [2, 32, 8]
    assert shapes == {
        "attention": [18, 1 + 2 + 3, *lane],
        "decoder": [22, 3, *lane],
        "recurrent": [22, 3, *lane],
        "query": [2, 3, *lane],
        "prenet": [2, 1, *lane],
        "out": [3, 3 + 2, *lane],
        "attention_bias": [288],
        "decoder_bias": [352],
        "out_bias": [46],
        "location": [2, 7, 20],
        "energy": [20],
        "context": [352, 40],
    }


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"attention_rnn": 100}, "takes multiples of 8 for attention_rnn_dim, not 100"),
        ({"attention": 30}, "takes multiples of 4 for attention_dim, not 30"),
        ({"attention": 1024}, "takes an attention_dim of at most 512"),
    ],
)
def test_networks_that_do_not_fit_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        needs_of(Sizes()._replace(**sizes))


@pytest.mark.parametrize(
    ("sizes", "limits", "lacking"),
    [
        ({}, {}, []),
        ({}, {"capability": (7, 5)}, ["compute capability 8.0, not 7.5"]),
        ({}, {"cooperative": False}, ["cooperative launches"]),
        ({}, {"multiprocessors": 108}, ["128 multiprocessors, not 108"]),
        ({}, {"shared_bytes": 101376}, ["180 KiB of shared memory a block, not 99"]),
        ({"decoder_rnn": 2048}, {}, ["256 multiprocessors, not 132"]),
        ({"frame": 2000}, {}, ["198 multiprocessors, not 132"]),
    ],
)
def test_what_a_gpu_lacks_is_said(sizes, limits, lacking):
    assert list(needs_of(Sizes()._replace(**sizes)).unmet(H200._replace(**limits))) == lacking


@pytest.mark.parametrize(
    ("batch", "text", "message"),
    [
        (9, 10, "takes batches of 1 to 8, not 9"),
        (1, 513, "takes texts of 1 to 512 symbols, not 513"),
        (8, 512, "split the batch or the text"),
    ],
)
def test_batches_that_do_not_fit_are_refused(batch, text, message):
    with pytest.raises(ValueError, match=message):
        plan(Sizes(), H200, batch, text)


def test_what_fits_is_planned():
    for batch, text in ((1, 128), (8, 128), (1, 512), (6, 512), (8, 352)):
        grid = plan(Sizes(), H200, batch, text).grid
        assert grid.cooperative and grid.blocks == 132 and grid.shared_bytes <= H200.shared_bytes
    assert plan(Sizes(), H200, 1, 128)[1:] == (True, True)
    assert plan(Sizes(), H200, 8, 128)[1:] == (True, False)
    assert plan(Sizes(), H200, 6, 512)[1:] == (False, False)


def test_published_sizes_are_what_the_source_is_written_for():
    assert sizes_of(Tacotron2Config()).macros == ()
    assert dict(sizes_of(RAGGED).macros)["FRAME"] == 21
    text = SOURCE.read_text()
    for name, value in zip(Sizes._fields, Sizes(), strict=True):
        assert f"#define {name.upper()} {value}\n" in text


@pytest.mark.cuda_bindings
def test_other_sizes_are_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path))
    made = []
    monkeypatch.setattr(kernel, "compile_for", lambda *given: made.append(given) or b"image")
    macros = sizes_of(RAGGED).macros
    for _ in range(2):
        assert kernel.compiled_once(SOURCE, "sm_90", macros) == b"image"
    assert made == [(SOURCE, "sm_90", macros)]


def source_of(network: Tacotron2) -> ModelSource:
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    mel = MelContract(n_mel_channels=network.config.n_mel_channels)
    return ModelSource("tacotron2", network.config, Path("seeded"), mel, given_state=state)


def loop_stage(config: Tacotron2Config):
    return next(stage for stage in stages(config) if stage.name == "decoder_loop")


LOOPS = (
    pytest.param("engine:DecoderLoop", marks=pytest.mark.decoder_launch, id="launch"),
    pytest.param("streamed:StreamedDecoderLoop", id="steps"),
)


@pytest.fixture(params=LOOPS)
def loop(request):
    """Makes an engine of a network: all steps in one launch, or some kernels for each."""
    kind = load_attribute(f"melforge.trt_plugins.tacotron2_decoder.{request.param}")

    def loop(network: Tacotron2) -> Engine:
        return kind(loop_stage(network.config), source_of(network), "cuda")

    return loop


def both(loop, network: Tacotron2, given: dict, **changes) -> tuple[dict, dict]:
    """What kernels make, and PyTorch in float32."""
    given = {name: x.cuda() for name, x in (given | changes).items()}
    found = loop(network)(**given)
    wanted = network.cuda().decode_loop(**given)
    network.cpu()
    return found, dict(
        zip((tensor.name for tensor in loop_stage(network.config).outputs), wanted, strict=True)
    )


def assert_close(found: dict, wanted: dict, mel: float, gate: float, alignment: float) -> None:
    for name in ("mel_lengths", "stopped"):
        assert torch.equal(found[name], wanted[name]), name
    for name, tolerance in (("mel", mel), ("gate", gate), ("alignment", alignment)):
        assert found[name].shape == wanted[name].shape and found[name].dtype == wanted[name].dtype
        torch.testing.assert_close(
            found[name], wanted[name], rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [0.5, 0.0])
@pytest.mark.parametrize(
    "lengths", [[128], [100, 128], [17, 90, 61, 33, 4], [40, 1, 128, 77, 128, 9, 33, 64]], ids=len
)
@pytest.mark.parametrize("config", [Tacotron2Config(), RAGGED], ids=["published", "ragged"])
def test_the_kernel_makes_what_pytorch_makes(loop, config, lengths, dropout):
    network = seeded_network(config, gate_gain=1.0)
    found, wanted = both(loop, network, inputs(network, lengths, 50, dropout))
    assert_close(found, wanted, mel=5e-3, gate=5e-3, alignment=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(("batch", "text"), [(1, 512), (3, 500), (4, 512), (8, 300)])
def test_long_texts(loop, batch, text):
    network = seeded_network(Tacotron2Config(), gate_gain=1.0)
    found, wanted = both(loop, network, inputs(network, [text - 7 * i for i in range(batch)], 20))
    assert_close(found, wanted, mel=5e-3, gate=5e-3, alignment=1e-3)


def best_threshold(gates: torch.Tensor) -> tuple[float, list[int]]:
    """A threshold at which all items stop and no gate is near it, and the steps without the stop."""
    values = gates.sigmoid().cpu()
    ordered = values.flatten().sort().values
    best = (0.0, 0.0, [])
    for low, high in pairwise(ordered):
        threshold = float(low + high) / 2
        above = values > threshold
        if above.any(1).all() and len(set(above.int().argmax(1).tolist())) > 1:
            best = max(best, (float(high - low), threshold, above.int().argmax(1).tolist()))
    return best[1], best[2]


@pytest.mark.gpu
@pytest.mark.parametrize("config", [Tacotron2Config(), RAGGED], ids=["published", "ragged"])
def test_items_stop_each_for_itself_and_the_launch_with_the_last(loop, config):
    network = seeded_network(config)
    given = inputs(network, [30, 12, 25], 60)
    never, wanted = both(loop, network, given)
    assert not never["stopped"].any() and (never["mel_lengths"] == 60 * config.n_frames_per_step).all()
    threshold, steps = best_threshold(wanted["gate"])
    found, wanted = both(loop, network, given, gate_threshold=torch.tensor([threshold]))
    assert found["mel_lengths"].tolist() == [step * config.n_frames_per_step for step in steps]
    assert found["gate"].size(1) == max(steps) + 1 and found["stopped"].all()
    assert_close(found, wanted, mel=2e-2, gate=5e-2, alignment=5e-3)
    on = seeded_network(replace(config, decoder_no_early_stopping=True))
    found, wanted = both(loop, on, given, gate_threshold=torch.tensor([threshold]))
    assert found["gate"].size(1) == 60 and torch.equal(found["mel_lengths"], wanted["mel_lengths"])


@pytest.mark.gpu
def test_the_limit_may_be_one_step_and_the_gate_may_fire_at_once(loop):
    network = seeded_network(RAGGED)
    for limit, threshold in ((1, 1.0), (1, 0.0), (2, 1.0), (9, 0.0)):
        given = inputs(network, [5, 9], limit)
        found, wanted = both(loop, network, given, gate_threshold=torch.tensor([threshold]))
        assert_close(found, wanted, mel=1e-2, gate=5e-2, alignment=1e-3)
        assert found["gate"].size(1) == (1 if threshold == 0.0 else limit)


@pytest.mark.gpu
def test_launches_follow_each_other_and_repeat_themselves(loop):
    network = seeded_network(Tacotron2Config())
    engine = loop(network)
    given = {name: x.cuda() for name, x in inputs(network, [64, 30], 200).items()}
    first = engine(**given)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(20):
            again = engine(**given)
            assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.triton
@pytest.mark.parametrize("items", [1, 5])
def test_interpreted_steps_are_near_pytorchs(items):
    """Weights are in half precision. Five items are two groups."""
    assert interpreted_error("tacotron2", str(items)) < 1e-3


@pytest.mark.gpu
@pytest.mark.decoder_launch
@pytest.mark.parametrize("lengths", [[60, 41, 52], [60, 60, 60]], ids=["ragged", "full"])
def test_each_step_of_the_shipped_voice(whole_float32, lengths):
    """From what the kernel made in the steps before. Free-running, rounding grows: 1e-4 of the memory moves
    the mel by up to 0.13 within 60 steps, and PyTorch's own with rounded factors differs by 0.43.
    """
    from melforge.common.engines.torch_engine import build_network
    from melforge.common.verify.stages import ComparedEngine, Setup

    source = load_voice("hazel").source("tacotron2")
    stage = loop_stage(source.config)
    network = build_network(stage, source).cuda()
    torch.manual_seed(2)
    symbols, counts = torch.randint(1, 100, (3, 60)).cuda(), torch.tensor(lengths).cuda()
    memory, processed = network.encode(symbols, counts)
    given = {
        "memory": memory,
        "processed_memory": processed,
        "lengths": counts,
        "prenet_noise": torch.rand(60, 2, 3, source.config.prenet_dim).cuda(),
        "prenet_dropout": torch.tensor([0.5]).cuda(),
        "gate_threshold": torch.ones(1).cuda(),
    }
    how = Deployment(kernels=(stage.name,))
    setup = Setup(source, "cuda", "cuda", how, plan_of("tacotron2").layers, calls=60)
    ComparedEngine(stage, source, setup, None)(**given)
    seen = setup.comparisons.values()
    assert len(seen) == 8 + (lengths == [60] * 3)
    assert all(one.ok and one.calls == 60 for one in seen), [one.row() for one in seen]


def test_a_cpu_is_refused():
    from melforge.trt_plugins.tacotron2_decoder.engine import DecoderLoop

    with pytest.raises(ValueError, match="runs on an NVIDIA GPU"):
        DecoderLoop(loop_stage(RAGGED), source_of(seeded_network(RAGGED)), "cpu")


@pytest.mark.gpu
@pytest.mark.decoder_launch
def test_a_batch_of_nine_is_two():
    from melforge.trt_plugins.tacotron2_decoder.engine import DecoderLoop, items_of

    network = seeded_network(RAGGED)
    engine = DecoderLoop(loop_stage(RAGGED), source_of(network), "cuda")
    assert engine.memory_bytes and engine.memory_owner is engine
    given = {name: x.cuda() for name, x in inputs(network, [4] * 9, 3).items()}
    together = engine(**given)  # in two launches
    for start, count in ((0, 8), (8, 1)):
        alone = engine(**items_of(given, start, count))
        for name, tensor in alone.items():
            whole = together[name][start : start + count]
            assert torch.equal(whole[tuple(slice(size) for size in tensor.shape)], tensor), name


def test_a_stall_is_a_sentence_on_the_command_line(capsys, monkeypatch):
    from melforge.trt_plugins.tacotron2_decoder.engine import steps_made

    assert steps_made(torch.tensor([7, 0], dtype=torch.int32)) == 7
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command replaces
    with pytest.raises(SystemExit) as stopped:
        run.run(lambda: steps_made(torch.tensor([7, 1], dtype=torch.int32)))
    assert stopped.value.code == 2
    assert capsys.readouterr().err == (
        "error: the decoder's kernel stood still at step 7: a block waited in vain for the others; "
        "try again, or leave decoder_loop=cuda out of --backend\n"
    )

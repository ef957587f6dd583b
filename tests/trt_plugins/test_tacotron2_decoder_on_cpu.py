"""The decoder's CUDA source itself on a CPU: its threads are fibers, in any order that a GPU might choose.

This shows what no run on a GPU does: that nothing hangs on which block or warp is faster.
"""

import ctypes
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.config.deployment import Deployment
from melforge.common.engines import WrappedEngine
from melforge.common.engines.layer_outputs import show
from melforge.common.stages import plan_of
from melforge.common.verify import stages as verify_stages
from melforge.common.verify.stages import ComparedEngine, Setup
from melforge.tacotron2.model import Tacotron2
from melforge.trt_plugins.tacotron2_decoder.engine import DecoderOutput, exchanged, layers_of, steps_made
from melforge.trt_plugins.tacotron2_decoder.launch import SOURCE, exchange_bytes, plan, sizes_of
from melforge.trt_plugins.tacotron2_decoder.weights import arrange, fold, products
from tests.common.damage import first_wrong, with_weight
from tests.trt_plugins.test_tacotron2_decoder import (
    H200,
    RAGGED,
    assert_close,
    inputs,
    loop_stage,
    seeded_network,
    source_of,
)

HOST = Path(__file__).with_name("host_cuda")
BLOCKS = 16
MOST_ROUNDS = 1_000_000  # far above what a run takes
# What before.h has in place of instructions.
REPLACED = ("look", "look_word", "show", "to_half", "from_half", "warp_max", "multiply")

pytestmark = pytest.mark.gxx


def host_source() -> str:
    text = SOURCE.read_text()
    for name in REPLACED:
        text = re.sub(rf"__device__ __forceinline__ [\w ]+ {name}\(.*?\n}}\n", "", text, flags=re.S)
    shared = "uint4* const shared = (uint4*)(((uintptr_t)fiber->block->shared.data() + 15) / 16 * 16);"
    text = text.replace("extern __shared__ uint4 shared[];", shared)
    parameters = re.search(r"\bdecode\((.*?)\) \{", text, re.S)[1].split(",")
    types = [parameter.strip().rpartition(" ")[0] for parameter in parameters]
    call = ", ".join(f"({kind})arguments[{i}]" for i, kind in enumerate(types))
    before, after = ((HOST / name).read_text() for name in ("before.h", "after.h"))
    return before + text + after.replace("DECODE;", f"decode({call});")


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("host")
    (folder / "decoder.cpp").write_text(host_source())
    macros = [f"-D{name}={value}" for name, value in sizes_of(RAGGED).macros]
    words = "g++ -O2 -U_FORTIFY_SOURCE -std=c++20 -w -shared -fPIC decoder.cpp -o decoder.so"
    command = [*words.split(), *macros]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return ctypes.CDLL(str(folder / "decoder.so"))


def run(library: ctypes.CDLL, network: Tacotron2, given: dict, order: int = 0) -> dict[str, torch.Tensor]:
    made, steps = launched(library, network, given, order)
    return {
        "mel": made.frames[:, :steps].reshape(len(made.frames), -1, network.config.n_mel_channels).mT,
        "mel_lengths": made.mel_lengths,
        "gate": made.gate[:, :steps],
        "alignment": made.alignment[:, :steps],
        "stopped": made.stopped,
    }


def launched(
    library: ctypes.CDLL, network: Tacotron2, given: dict, order: int = 0
) -> tuple[DecoderOutput, int]:
    """As `engine.DecoderLoop` does it, on a GPU of BLOCKS multiprocessors; and the steps made."""
    config, sizes = network.config, sizes_of(network.config)
    (batch, text, _), limit = given["memory"].shape, len(given["prenet_noise"])
    *weights, context = arrange(fold(network), "cpu")
    made = DecoderOutput(
        torch.zeros(exchange_bytes(sizes), dtype=torch.uint8),
        torch.full((batch, limit, sizes.frame), torch.nan),
        torch.full((batch,), -1),
        torch.full((batch, limit), torch.nan),
        torch.full((batch, limit, text), torch.nan),
        torch.zeros(batch, dtype=torch.bool),
        torch.zeros(2, dtype=torch.int32),
    )
    tensors = (
        *weights,
        products(given["memory"], context),
        *(x.contiguous() for name, x in given.items() if name != "memory"),
        *made,
    )
    grid, *kept = plan(sizes, H200._replace(multiprocessors=BLOCKS), batch, text)
    flags = config.n_frames_per_step, not config.decoder_no_early_stopping, *kept
    values = (*(tensor.data_ptr() for tensor in tensors), batch, text, limit, *map(int, flags))
    arguments = (ctypes.c_longlong * len(values))(*values)
    ended = library.launch(
        grid.blocks, grid.threads, grid.shared_bytes, arguments, order, ctypes.c_long(MOST_ROUNDS)
    )
    assert ended == 0
    return made, steps_made(made.status)


def by_pytorch(network: Tacotron2, given: dict, found: dict) -> dict[str, torch.Tensor]:
    return dict(zip(found, network.decode_loop(**given), strict=True))


def test_the_exchange_is_counted_as_the_source_lays_it_out(library):
    assert library.exchange_bytes() == exchange_bytes(sizes_of(RAGGED))


@pytest.mark.parametrize("lengths", [[9], [17, 90, 33], [40, 1, 28, 77, 12, 9, 33, 64]], ids=len)
def test_the_source_makes_what_pytorch_makes(library, lengths):
    network = seeded_network(RAGGED, gate_gain=1.0)
    for layer in (network.decoder.linear_projection, network.decoder.gate_layer):
        layer.linear_layer.bias.normal_()  # as large as what they are added to
    given = inputs(network, lengths, 5, dropout=0.0 if len(lengths) == 8 else 0.5)
    found = run(library, network, given)
    assert_close(found, by_pytorch(network, given, found), mel=2e-3, gate=2e-3, alignment=2e-4)


@pytest.mark.slow
def test_the_order_of_blocks_and_warps_changes_no_bit(library):
    network = seeded_network(RAGGED, gate_gain=1.0)
    given = inputs(network, [17, 40, 4], 5)
    first = run(library, network, given)
    for order in (1, 2, 3):
        other = run(library, network, given, order)
        assert all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.slow
def test_items_stop_by_themselves_in_any_order(library):
    network = seeded_network(RAGGED)
    given = inputs(network, [30, 12, 25], 9)
    gates = run(library, network, given)["gate"].sigmoid()
    crossed = gates.amax(1).min()  # each item passes what is a little below
    given["gate_threshold"] = crossed[None] - 1e-4
    wanted = by_pytorch(network, given, dict.fromkeys(("mel", "mel_lengths", "gate", "alignment", "stopped")))
    for order in (0, 2):
        found = run(library, network, given, order)
        assert found["stopped"].all()
        assert_close(found, wanted, mel=2e-3, gate=5e-3, alignment=5e-4)
    on = seeded_network(replace(RAGGED, decoder_no_early_stopping=True))
    found = run(library, on, given)
    assert found["gate"].size(1) == 9 and torch.equal(found["mel_lengths"], wanted["mel_lengths"])


class OnHost(WrappedEngine):
    """The engine of the stage decoder_loop, with what each of its steps shows: made once."""

    precision = "half products"

    def __init__(self, library: ctypes.CDLL, network: Tacotron2, given: dict):
        self.told = {}
        for step in range(len(given["prenet_noise"])):
            part = given | {"prenet_noise": given["prenet_noise"][: step + 1]}
            made, _ = launched(library, network, part)
            told = exchanged(sizes_of(network.config), made.exchange, step)
            for name, tensor in layers_of(told, made, step).items():
                self.told[f"{name}#{step + 1}" if step else name] = tensor

    def __call__(self, **inputs):
        for name, tensor in self.told.items():
            show(name, lambda tensor=tensor: tensor)
        return {}


WEIGHTS = {
    "": None,
    "prenet.layers.0.linear_layer": "prenet.layers.1<",
    "prenet.layers.1.linear_layer": "prenet",
    "attention_rnn.weight_ih": "attention_rnn",
    "attention_rnn.weight_hh": "attention_rnn",
    "attention_layer.query_layer.linear_layer": "attention_layer.query_layer",
    "attention_layer.location_layer.location_conv.conv": "attention_layer.v",
    "attention_layer.location_layer.location_dense.linear_layer": "attention_layer.v",
    "attention_layer.v.linear_layer": "attention_layer.v",
    "decoder_rnn.weight_ih": "decoder_rnn",
    "decoder_rnn.weight_hh": "decoder_rnn",
    "linear_projection.linear_layer": "linear_projection",
    "gate_layer.linear_layer": "gate_layer",
}


@pytest.mark.slow
def test_verify_sees_each_step_and_names_what_is_wrong_in_it(library, monkeypatch):
    """The damage is PyTorch's, since the source takes seconds a step here."""
    network = seeded_network(RAGGED, gate_gain=1.0)
    for parameter in network.parameters():
        parameter *= 2  # so that steps differ
    network.decoder.attention_layer.location_layer.location_dense.linear_layer.weight *= 10
    given = inputs(network, [17], 3)
    stage, source = loop_stage(RAGGED), source_of(network)
    engine = OnHost(library, network, given)
    monkeypatch.setattr(verify_stages, "make_engine", lambda *_: engine)
    for weight, layer in WEIGHTS.items():
        damaged = source
        if weight:
            name = next(w for w in source.state if w in (f"decoder.{weight}", f"decoder.{weight}.weight"))
            damaged = with_weight(source, name, source.state[name] * np.float32(1.02))
        how = Deployment(kernels=("decoder_loop",))
        setup = Setup(source, "cuda", "cpu", how, plan_of("tacotron2").layers, threads=1)
        ComparedEngine(stage, damaged, setup, None)(**{name: x.numpy() for name, x in given.items()})
        wrong = first_wrong(list(setup.comparisons.values()))
        assert (wrong and wrong.name) == (layer and f"decoder.{layer}"), weight
        assert all(one.calls == 3 for one in setup.comparisons.values())

"""Runs the kernels of Tacotron 2's steps in Triton's interpreter and prints their largest error.

It is a part of the largest value of an output. Argument: the number of items.
"""

import sys

import triton.language as tl  # noqa: F401 (which a kernel must see)

from melforge.tacotron2.model import DecoderState
from melforge.trt_plugins.tacotron2_decoder.captured import INPUTS
from melforge.trt_plugins.tacotron2_decoder.streamed import StreamedDecoderLoop
from tests.trt_plugins.test_tacotron2_decoder import RAGGED, inputs, loop_stage, seeded_network, source_of

network = seeded_network(RAGGED, gate_gain=1.0)
given = inputs(network, [13 - 2 * item for item in range(int(sys.argv[1]))], 3)
given |= network.initial_state(given["memory"])._asdict()
given = {name: given[name] for name in INPUTS}
wanted = network.decode_steps(*given.values())
engine = StreamedDecoderLoop(loop_stage(RAGGED), source_of(network), "cpu")
made = engine._run(given)
assert len(made) == len(wanted) == 3 + len(DecoderState._fields)
print(max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(made.values(), wanted, strict=True)))

"""The letter-to-sound network as the ONNX graph that `LetterReader` runs, beam search and all."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from melforge.common.text.english.word_parts import Phones

BEAM = 4
Stored = tuple[np.ndarray, ...]  # int8 and a scale that is multiplied with it, or float alone
# Of each step of the beam: the likeliest continuations, the row before that each continues, and its chunk. In
# the first step all rows but one are as unlikely as can be.
_GRAPH = """
<ir_version: 9, opset_import: ["": 18]>
letters (int64[T] symbols) => (int64[L, {beam}] rows, int64[L, {beam}] chunks, float[{beam}] scores)
<int64[1] first = {{0}}, int64[1] second = {{1}}, int64[1] last = {{-1}}, int64[2] flat = {{0, -1}},
 int64[3] joined = {{0, 0, -1}}, int64[2] column = {{{beam}, 1}}, int64[1] beam = {{{beam}}},
 int64 count = {{{chunks}}}, int64[2] state = {{{beam}, {width}}}, float[{beam}] begin = {{0{unlikely}}},
 int64[{beam}] nothing = {{{chunks}{none}}}, int64[2] given_sizes = {{{seen}, {previous}}},
 int64[2] head_sizes = {{{width}, {seen}}}>
{{
    embedded = Gather (embed, symbols)
    x0 = Unsqueeze (embedded, second)
    bias0 = Concat <axis = 1> (bias_ih0, bias_hh0)
    y0 = LSTM <hidden_size = {hidden}, direction = "bidirectional"> (x0, weight_ih0, weight_hh0, bias0)
    t0 = Transpose <perm = [0, 2, 1, 3]> (y0)
    x1 = Reshape (t0, joined)
    bias1 = Concat <axis = 1> (bias_ih1, bias_hh1)
    y1 = LSTM <hidden_size = {hidden}, direction = "bidirectional"> (x1, weight_ih1, weight_hh1, bias1)
    t1 = Transpose <perm = [0, 2, 1, 3]> (y1)
    x2 = Reshape (t1, flat)
    seen = Slice (x2, second, last, first)

    given = Transpose (decoder_ih)
    at_letter, at_chunk = Split <axis = 0> (given, given_sizes)
    of_chunk = MatMul (previous, at_chunk)
    of_letter = MatMul (seen, at_letter)
    bias = Add (decoder_bias_ih, decoder_bias_hh)
    gates = Add (of_letter, bias)
    own = Transpose (decoder_hh)
    turned = Transpose (head)
    head_of_state, head_at_letter = Split <axis = 0> (turned, head_sizes)
    by_letter = MatMul (seen, head_at_letter)
    chances = Add (by_letter, head_bias)
    nought = ConstantOfShape (state)
    h_end, c_end, scores, last_end, rows, chunks = Scan <num_scan_inputs = 2, body = step
        (float[{beam}, {width}] h, float[{beam}, {width}] c, float[{beam}] total, int64[{beam}] chunk,
         float[G] gate, float[C] chance)
        => (float[{beam}, {width}] h_best, float[{beam}, {width}] c_best, float[{beam}] best,
            int64[{beam}] next, int64[{beam}] row, int64[{beam}] read)
    {{
        before = Gather (of_chunk, chunk)
        at = Add (before, gate)
        from_state = MatMul (h, own)
        all = Add (at, from_state)
        i, f, g, o = Split <axis = 1, num_outputs = 4> (all)
        put = Sigmoid (i)
        keep = Sigmoid (f)
        new = Tanh (g)
        give = Sigmoid (o)
        kept = Mul (keep, c)
        added = Mul (put, new)
        c_new = Add (kept, added)
        shown = Tanh (c_new)
        h_new = Mul (give, shown)
        by_state = MatMul (h_new, head_of_state)
        logits = Add (by_state, chance)
        logs = LogSoftmax <axis = 1> (logits)
        so_far = Reshape (total, column)
        ahead = Add (logs, so_far)
        line = Reshape (ahead, last)
        best, place = TopK (line, beam)
        row = Div (place, count)
        next = Mod (place, count)
        read = Identity (next)
        h_best = Gather (h_new, row)
        c_best = Gather (c_new, row)
    }}> (nought, nought, begin, nothing, gates, chances)
}}
"""


def save_letters(weights: Mapping[str, Stored], letters: str, chunks: Sequence[Phones], out: Path) -> None:
    """Writes the graph; the weights are those of `LetterNetwork` by name, matrices with a scale a row."""
    width, hidden = (weights[f"{part}.weight_hh_l0"][0].shape[1] for part in ("decoder", "encoder"))
    given = {
        "embed": weights["embed.weight"],
        "previous": weights["previous.weight"],
        "head": weights["head.weight"],
        "head_bias": weights["head.bias"],
    }
    for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        given[f"decoder_{part.removeprefix('weight_')}"] = weights[f"decoder.{part}_l0"]
        for layer in range(2):
            ways = [weights[f"encoder.{part}_l{layer}{way}"] for way in ("", "_reverse")]
            stacked = (np.stack([*map(_in_onnx_order, both)]) for both in zip(*ways, strict=True))
            given[f"{part}{layer}"] = tuple(stacked)
    text = _GRAPH.format(
        beam=BEAM,
        chunks=len(chunks),
        width=width,
        hidden=hidden,
        seen=2 * hidden,
        previous=weights["previous.weight"][0].shape[1],
        unlikely=", -1e9" * (BEAM - 1),
        none=f", {len(chunks)}" * (BEAM - 1),
    )
    metadata = {"letters": letters, "chunks": ",".join(" ".join(chunk) for chunk in chunks)}
    _save_graph(text, given, metadata, out)


def _save_graph(text: str, weights: Mapping[str, Stored], metadata: Mapping[str, str], path: Path) -> None:
    """`text` is of ONNX's text syntax; ONNX Runtime makes float32 of the weights once, at loading."""
    model = parser.parse_model(text)
    nodes = []
    for name, stored in weights.items():
        parts = [f"{name}.{i}" for i in range(len(stored))]
        for part, value in zip(parts, stored, strict=True):
            value = np.ascontiguousarray(value)
            model.graph.initializer.append(numpy_helper.from_array(value, f"{part}.stored"))
            nodes.append(helper.make_node("Cast", [f"{part}.stored"], [part], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Identity" if len(parts) == 1 else "Mul", parts, [name]))
    nodes += model.graph.node
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model)
    onnx.save(model, path)


def _in_onnx_order(stored: np.ndarray) -> np.ndarray:
    """An LSTM's four gates, i o f c; in PyTorch's order they are i f c o."""
    put, keep, new, give = np.split(stored, 4)
    return np.concatenate([put, give, keep, new])

"""Stages -> ONNX graphs without weights, each checked at once against PyTorch, or taken from the cache.

A graph's large initializers are the network's own weights by name. ONNX Runtime is given them from the
safetensors file that PyTorch reads: the weights stand once on disk, and a graph depends on the sizes only.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError
from onnx import helper
from torch import nn
from torch.export._patches import register_lstm_while_loop_decomposition
from tqdm import tqdm

from melforge.common.arrays import Array
from melforge.common.engines.layer_outputs import method_of
from melforge.common.engines.onnx_engine import OnnxEngine
from melforge.common.engines.rounding import PRECISIONS, Rounding
from melforge.common.engines.torch_engine import TorchEngine, build_network, new_network
from melforge.common.errors import InputError
from melforge.common.export.examples import examples_of
from melforge.common.export.packed import ROWS, packed_graph
from melforge.common.files import config_hash, draft_in, exports_folder, weights_key, write_bytes
from melforge.common.garbage import without_garbage_collection
from melforge.common.registry import load_attribute
from melforge.common.stages import Dim, Stage, stages_of
from melforge.common.weights.ears import list_ears, load_ear
from melforge.common.weights.graph_notes import read_graph_note
from melforge.common.weights.voices import WEIGHTS, ModelSource, list_voices, load_voice, save_weights

OPSET = 20
Sizes = Literal["none", "few", "all"]  # at which a graph is compared with PyTorch
# Part of the cache's key: raise it when an exported graph would come out differently.
EXPORTER_VERSION = 5
# Where a graph says that its weights are, a file that there never is. Other programs then name it in their
# error; a weights.safetensors beside the graph they would take for the weights' raw bytes, and compute NaN.
NO_WEIGHTS = "use melforge export"
TOLERANCE = 1e-4  # times the largest reference value, where that is above 1
ROUNDING = 4.0  # times what rounding alone does, in stages that feed back
BATCHES = (1, 2, 3, 4)
FEW = 5  # steps more than twice the least, where few sizes are checked


@dataclasses.dataclass(frozen=True)
class Check:
    """One comparison of a graph with PyTorch."""

    stage: str
    sizes: dict[str, int]
    error: float
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance  # false for NaN

    def row(self) -> tuple[str, ...]:
        (_, batch), *lengths = self.sizes.items()
        shown = ", ".join(f"{name} {size}" for name, size in lengths)
        errors = f"{self.error:.1e}", f"{self.tolerance:.1e}"
        return self.stage, str(batch), shown, *errors, "ok" if self.ok else "FAILS"


HEADINGS = ("stage", "batch", "lengths", "max abs error", "tolerance", "verdict")


class _StageModule(nn.Module):
    """A network's method as a module whose inputs are the weights too: none of them is a constant to the
    exporter, or disappears in another by its optimisations.
    """

    def __init__(self, network: nn.Module, stage: Stage, weights: Sequence[str]):
        super().__init__()
        self._call = [_Call(network, stage)]  # in a list, since a submodule's own weights would be exported
        self._weights = [f"network.{name}" for name in weights]

    def forward(self, weights: list[torch.Tensor], *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip(self._weights, weights, strict=True))
        return torch.func.functional_call(self._call[0], given, inputs)


class _Call(nn.Module):
    def __init__(self, network: nn.Module, stage: Stage):
        super().__init__()
        self.network, self._stage = network, stage

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        names = (tensor.name for tensor in self._stage.inputs)
        return method_of(self.network, self._stage)(**dict(zip(names, inputs, strict=True)))


def export_source(
    source: ModelSource,
    folder: Path,
    stages: Iterable[Stage] | None = None,
    sizes: Sizes = "all",
    known: Mapping[str, Path] | None = None,
) -> tuple[ModelSource, list[Check]]:
    """Exports the source's stages into `folder` and checks them; the source with its graphs, and the checks.

    A graph that is `known` (`graphs_of_voices`) is taken, and checked at few sizes at most.
    A ValueError where a check fails; then nothing is written.
    """
    stages, known = tuple(stages or source_stages(source)), known or {}
    taken: dict[Stage, bytes] = {}
    for stage in stages:
        if content := stage.name in known and fitted(known[stage.name].read_bytes(), stage, source.config):
            taken[stage] = content
    exported = [stage for stage in stages if stage not in taken]
    with draft_in(folder) as draft:
        for stage, content in taken.items():
            note = read_graph_note(known[stage.name]) | {"config": dataclasses.asdict(source.config)}
            write_graph(draft / f"{stage.name}.onnx", content, note)
        for stage in tqdm(exported, f"exporting {source.model}", unit="graph", leave=False, disable=None):
            tell(f"exporting {stage.full_name}")
            graph, weights = export_stage(stage, source.config)
            note = {
                "stage": stage.full_name,
                "exporter": EXPORTER_VERSION,
                "opset": OPSET,
                "torch": torch.__version__.partition("+")[0],
                "config": dataclasses.asdict(source.config),
                "weights": weights,
            }
            write_graph(draft / f"{stage.name}.onnx", graph, note)
        drafted = dataclasses.replace(source, graphs={s.name: draft / f"{s.name}.onnx" for s in stages})
        checks = check_source(drafted, taken, "none" if sizes == "none" else "few") if taken else []
        checks += check_source(drafted, exported, sizes) if exported else []
        if failed := [check for check in checks if not check.ok]:
            raise ValueError(
                f"the exported graph of {failed[0].stage} differs from PyTorch by {failed[0].error:.1e} "
                f"(tolerance {failed[0].tolerance:.1e}) at {failed[0].sizes}; nothing was written"
            )
        for file in sorted(draft.iterdir(), reverse=True):  # the graph before its note, which is read first
            file.replace(folder / file.name)
    graphs = {**source.graphs, **{s.name: folder / f"{s.name}.onnx" for s in stages}}
    return dataclasses.replace(source, graphs=graphs), checks


def write_graph(path: Path, graph: bytes, note: Mapping[str, Any]) -> None:
    path.write_bytes(graph)
    path.with_suffix(".json").write_text(json.dumps(note, indent=1) + "\n")


def fitted(graph: bytes, stage: Stage, config: Any) -> bytes | None:
    """A graph of other numbers of symbols or speakers with those of this config, or another model's denoiser;
    None where it is damaged, or does not take what the stage does, as one of a single speaker.
    """
    try:
        model = onnx.load_from_string(graph)
    except DecodeError:
        return None
    weights = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    state = new_network(stage, config).state_dict() if weights else {}
    inputs = [tensor.name for tensor in stage.inputs]
    if [value.name for value in model.graph.input] != inputs or not {t.name for t in weights} <= state.keys():
        return None
    model.graph.name = stage.full_name
    for tensor in weights:
        tensor.dims[:] = state[tensor.name].shape
    for value, tensor in zip(model.graph.input, stage.inputs, strict=True):
        for axis, size in zip(value.type.tensor_type.shape.dim, tensor.dims, strict=True):
            if isinstance(size, int):
                axis.dim_value = size
    return model.SerializeToString(deterministic=True)


def graphs_of_voices(source: ModelSource) -> dict[str, Path]:
    """By stage, the graphs of a voice or an ear of these sizes, but for those that `fitted` changes: none
    holds weights.
    """
    homes = (load_voice, list_voices()), (load_ear, list_ears())
    for load, name in ((load, name) for load, names in homes for name in names):
        with contextlib.suppress(InputError):  # a damaged voice has none to give
            other = load(name).models.get(source.model)
            if other and config_hash(other.config, ROWS) == config_hash(source.config, ROWS):
                notes = {stage: read_graph_note(graph) for stage, graph in other.graphs.items()}
                ours = (s for s, n in notes.items() if n.get("exporter") == EXPORTER_VERSION)
                return {stage: other.graphs[stage] for stage in ours}
    return {}


def source_stages(source: ModelSource) -> tuple[Stage, ...]:
    return stages_of(source.model, source.config)


@functools.lru_cache(maxsize=32)
def export_stage(stage: Stage, config: object, opset: int = OPSET) -> tuple[bytes, tuple[str, ...]]:
    """The stage's ONNX graph without weights, and the names of the parameters it takes.

    It depends on the sizes alone: what was made is kept, since one graph may be made of another, and those
    of some published sizes are packed.
    """
    packed = packed_graph(stage, config, EXPORTER_VERSION) if opset == OPSET else None
    packed = packed and fitted(packed, stage, config)
    if packed is None:
        return fresh_graph(stage, config, opset)
    initializers = onnx.load_from_string(packed).graph.initializer
    weights = (t.name for t in initializers if t.data_location == onnx.TensorProto.EXTERNAL)
    return packed, tuple(sorted(weights))


def fresh_graph(stage: Stage, config: object, opset: int) -> tuple[bytes, tuple[str, ...]]:
    """What `export_stage` gives, made by PyTorch's exporter or by the stage's own function."""
    if stage.graph:
        return load_attribute(stage.graph)(stage, config, opset)
    network = new_network(stage, config).eval().requires_grad_(False)
    state = {name: value for name, value in network.state_dict().items() if value.is_floating_point()}
    sizes = {dim.name: dim.typical for dim in stage.dynamic_dims.values()}
    sizes[stage.batch.name] = 2  # a batch of one would be taken for a fixed size
    inputs = example_inputs(stage, config, sizes, seed=0)
    shapes = tuple(
        {axis: torch.export.Dim.DYNAMIC for axis, dim in enumerate(tensor.dims) if isinstance(dim, Dim)}
        for tensor in stage.inputs
    )
    # They say on every call that torchvision is missing, and what they do not fold.
    for name in ("torch.onnx._internal.exporter._registration", "onnxscript.optimizer"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # Without it PyTorch before 2.13 unrolls an LSTM over the example's length.
    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        register_lstm_while_loop_decomposition(),
        without_garbage_collection(),  # looking through millions of objects that stay is a tenth of the time
    ):
        warnings.simplefilter("ignore")  # the exporter's notes to its own developers
        program = torch.onnx.export(
            _StageModule(network, stage, list(state)),
            (list(state.values()), *(torch.from_numpy(inputs[tensor.name]) for tensor in stage.inputs)),
            input_names=[*state, *(tensor.name for tensor in stage.inputs)],
            output_names=[tensor.name for tensor in stage.outputs],
            dynamic_shapes=([{} for _ in state], shapes),
            opset_version=opset,
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # with dynamo
    model = program.model_proto
    weights = refer_to_weights(model, {name: tuple(value.shape) for name, value in state.items()})
    strip_notes(model, stage)
    onnx.checker.check_model(with_weights_as_inputs(model))
    return model.SerializeToString(deterministic=True), weights


def refer_to_weights(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Turns the inputs that are weights into references by their names; the names of those that are used."""
    graph = model.graph
    used = {name for node in graph.node for name in node.input}
    inputs = [value for value in graph.input if value.name not in shapes]
    del graph.input[:]
    graph.input.extend(inputs)
    weights = tuple(sorted(used & set(shapes)))
    for name in weights:
        tensor = graph.initializer.add(name=name, data_type=onnx.TensorProto.FLOAT, dims=shapes[name])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=NO_WEIGHTS)
    return weights


def strip_notes(model: onnx.ModelProto, stage: Stage) -> None:
    """Removes what the exporter noted for debugging, such as stack traces with this machine's paths."""
    for part in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        part.doc_string = ""
        del part.metadata_props[:]
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
    # Sizes that the exporter inferred can claim more than is true; runtimes infer their own.
    del model.graph.value_info[:]
    del model.functions[:]
    model.graph.name = stage.full_name
    model.producer_name, model.producer_version = "melforge", str(EXPORTER_VERSION)


def with_weights_as_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that the checker can read: it would look for the external files, and takes seconds for zeros."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for place, tensor in reversed(list(enumerate(copy.graph.initializer))):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            copy.graph.input.append(value)
            del copy.graph.initializer[place]
    return copy


def check_source(
    source: ModelSource, stages: Iterable[Stage] | None = None, sizes: Sizes = "all"
) -> list[Check]:
    """Compares every graph with PyTorch on the source's weights, at several lengths and batch sizes.

    A published network's longest take minutes on a CPU, "few" sizes seconds.
    """
    if sizes == "none":
        return []
    cases = [(stage, check_sizes(stage, sizes)) for stage in stages or source_stages(source)]
    total = sum(len(each) for _, each in cases)
    tell(f"comparing {source.model} with PyTorch at {total} sizes")
    title = f"checking {source.model}"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TF32 acceleration")  # PyTorch's, of a flag that is set back
        with tqdm(desc=title, total=total, unit="size", leave=False, disable=None) as bar:
            return [check for stage, each in cases for check in check_stage(stage, source, each, bar)]


def tell(line: str) -> None:
    """What takes long is said on stderr where no bar shows it."""
    if not sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)


def check_stage(stage: Stage, source: ModelSource, cases: Sequence[dict[str, int]], bar: tqdm) -> list[Check]:
    checks: list[Check] = []
    reference, engine = TorchEngine(stage, source), OnnxEngine(stage, source)
    for seed, sizes in enumerate(cases):
        bar.update()
        inputs = example_inputs(stage, source.config, sizes, seed)
        inputs = examples_of(source.model).settle_inputs(stage, source, inputs)
        got, wanted = engine(**inputs), reference(**inputs)
        check = compare(stage, sizes, got, wanted)
        if not check.ok and stage.feeds_back:
            check = compare(stage, sizes, got, wanted, rounding(stage, source, inputs, wanted))
        checks.append(check)
    return checks


def rounding(
    stage: Stage, source: ModelSource, inputs: dict[str, np.ndarray], wanted: dict[str, Array]
) -> dict[str, float]:
    """How far float32 takes PyTorch from its answer in float64, for each output: its own, or where that takes
    it further, rounded as ONNX Runtime rounds.

    A loop multiplies the rounding of its first steps: on a text of 500 random symbols, by thousands in 1,000
    steps. Two correct programs then differ by more than `TOLERANCE`, but not by much more than this.
    """
    network = build_network(stage, source)
    given = {name: torch.from_numpy(value) for name, value in inputs.items()}
    wide = {name: value.double() if value.is_floating_point() else value for name, value in given.items()}
    with torch.inference_mode():
        with Rounding(PRECISIONS["onnx", "fp32"], network, ()):
            rounded = getattr(network, stage.method)(**given)
        exact = getattr(network.double(), stage.method)(**wide)
    found = {}
    for tensor, value, other in zip(stage.outputs, exact, rounded, strict=True):
        both = torch.from_numpy(wanted[tensor.name]), other
        errors = [(one.double() - value.double()).abs() for one in both if one.shape == value.shape]
        found[tensor.name] = max((float(error.max()) for error in errors if error.numel()), default=0.0)
    return found


def compare(
    stage: Stage,
    sizes: dict[str, int],
    got: dict[str, Array],
    wanted: dict[str, Array],
    rounded: Mapping[str, float] | None = None,
) -> Check:
    """`rounded` allows outputs the difference that rounding makes (`ROUNDING` times), where that is more."""
    error, tolerance = 0.0, TOLERANCE
    for name, reference in wanted.items():
        if got[name].shape != reference.shape:
            return Check(stage.full_name, sizes, float("inf"), tolerance)
        value, reference = (x.astype(np.float64) for x in (got[name], reference))  # bool has no difference
        scale = max(1.0, float(np.abs(reference).max(initial=0)))
        here = float(np.abs(value - reference).max(initial=0))
        here = here if np.isfinite(here) else float("inf")
        allowed = max(TOLERANCE * scale, ROUNDING * (rounded or {}).get(name, 0.0))
        if here / allowed >= error / tolerance:
            error, tolerance = here, allowed
    return Check(stage.full_name, sizes, error, tolerance)


def check_sizes(stage: Stage, wanted: Sizes = "all") -> list[dict[str, int]]:
    """Lengths from the shortest to the longest and batches from one on, not all of them together.

    A batch of one has the shortest, two odd sizes and the longest; every other has the shortest and one of
    the odd sizes, which take the time. "few" are the shortest alone, and two items that are somewhat longer.
    """
    batch, shortest = stage.batch, sizes_at(stage, lambda d: d.min)
    if wanted == "few":
        longer = sizes_at(stage, lambda d: 2 * d.min + FEW)
        return [{batch.name: batch.min, **shortest}, {batch.name: min(2, batch.max), **longer}]
    odd = sizes_at(stage, lambda d: d.typical // 3 * 2 + 1), sizes_at(stage, lambda d: d.typical + 37)
    longest = sizes_at(stage, lambda d: d.max)
    found: list[dict[str, int]] = []
    for size in BATCHES:
        for case in (shortest, *(odd if size == 1 else [odd[size % 2]]), *([longest] if size == 1 else [])):
            sizes = {batch.name: size, **case}
            if batch.min <= size <= batch.max and sizes not in found:  # of a short stage some are the same
                found.append(sizes)
    return found


def sizes_at(stage: Stage, size_of: Callable[[Dim], int]) -> dict[str, int]:
    """A length for each dynamic dimension but the batch: `size_of` it, within its limits, and of one that
    belongs to another as long as that one says.
    """
    _, *lengths = stage.dynamic_dims.values()
    sizes = {dim.name: min(max(size_of(dim), dim.min), dim.max) for dim in lengths}
    return {
        dim.name: (sizes[dim.of] if dim.of in sizes else sizes[dim.name] // dim.times) * dim.times
        for dim in lengths
    }


def example_inputs(stage: Stage, config: object, sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    """Inputs of these sizes as the stage would meet them, made by the model's own package."""
    return examples_of(stage.model).example_inputs(stage, config, sizes, np.random.default_rng(seed))


def find_cached(source: ModelSource, stages: Iterable[Stage]) -> ModelSource | None:
    """A source with its graphs in the cache, where those of all these stages are there."""
    kept = _in_cache(source)
    return kept if _is_complete(kept, stages) else None


def _is_complete(kept: ModelSource, stages: Iterable[Stage]) -> bool:
    stored = kept.weights.is_file() or _lacks_weights(kept)
    return stored and all(stage.name in kept.graphs for stage in stages)


def _lacks_weights(source: ModelSource) -> bool:
    """Whether the source is for stages that take no weights: its own are not there."""
    return source.given_state == {}


def _in_cache(source: ModelSource) -> ModelSource:
    """The source as it lies in the cache, with the graphs that are there."""
    made_of = source.model, weights_key(source.weights), config_hash(source.config), str(EXPORTER_VERSION)
    folder = exports_folder() / "-".join(made_of)
    files = {stage.name: folder / f"{stage.name}.onnx" for stage in source_stages(source)}
    graphs = {n: f for n, f in files.items() if f.is_file() and f.with_suffix(".json").is_file()}
    given_state = source.given_state if _lacks_weights(source) else None
    in_folder = {"weights": folder / WEIGHTS, "graphs": graphs}
    return dataclasses.replace(source, **in_folder, given_state=given_state, written_state=None)


def cached_source(
    source: ModelSource, stages: Iterable[Stage] | None = None, sizes: Sizes = "few"
) -> tuple[ModelSource, list[Check]]:
    """A source with these stages' graphs in the cache, exported if they are not there yet (then with the
    checks made); without `stages` all of the model's.
    """
    stages = tuple(stages or source_stages(source))
    kept = _in_cache(source)
    if _is_complete(kept, stages):
        return kept, []
    weights, folder = kept.weights, kept.weights.parent
    for stage in {stage.network: stage for stage in stages}.values():
        with torch.device("meta"):  # weights that don't fit the config are refused before the long export
            build_network(stage, source)
    is_new = not weights.is_file() and not _lacks_weights(source)
    if is_new:
        state = {name: np.ascontiguousarray(value) for name, value in source.state.items()}
        save_weights(weights, state)
        kept = dataclasses.replace(kept, written_state=state)
    try:
        lacking = [stage for stage in stages if stage.name not in kept.graphs]
        return export_source(kept, folder, lacking, sizes, graphs_of_voices(source))
    except Exception:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def with_graphs(source: ModelSource, stages: Iterable[Stage], sizes: Sizes = "few") -> ModelSource:
    """The source with a graph of each of these stages. What it lacks comes from the cache, and is exported to
    it if need be: a voice need not have the graphs of every form.
    """
    lacking = [stage for stage in stages if stage.name not in source.graphs]
    if not lacking:
        return source
    kept, _ = cached_source(source, lacking, sizes)
    if not source.graphs:
        return kept
    return dataclasses.replace(source, graphs={**kept.graphs, **source.graphs})


class ExportedGraphs(Mapping[str, Path]):
    """Graphs of a network's stages in a folder; one that is missing is exported when it is asked for."""

    def __init__(self, stages: Mapping[str, Stage], config: Any, folder: Path, opset: int = OPSET):
        self._stages, self._config, self._folder, self._opset = stages, config, folder, opset

    def __getitem__(self, name: str) -> Path:
        stage = self._stages[name]
        graph = self._folder / f"{name}.onnx"
        note = graph.with_suffix(".json")
        if not graph.is_file() or not note.is_file():
            content, weights = export_stage(stage, self._config, self._opset)
            self._folder.mkdir(parents=True, exist_ok=True)
            write_bytes(graph, content)
            write_bytes(note, json.dumps({"weights": weights}).encode())
        return graph

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def __contains__(self, name: object) -> bool:  # without exporting it
        return name in self._stages

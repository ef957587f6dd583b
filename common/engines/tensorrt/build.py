"""Builds TensorRT engines of stages: a file for each, with a JSON beside it that says what it was made of.

The network is strongly typed: the stage's ONNX graph with its weights. TensorRT for RTX needs no GPU
for this; its engines are compiled for a GPU where they first run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from melforge.common.config.deployment import Deployment
from melforge.common.engines.tensorrt.api import ApiObject, TensorRT, make_logger
from melforge.common.engines.tensorrt.engine_file import EngineFile, Shape
from melforge.common.errors import InputError
from melforge.common.files import locked, write_bytes
from melforge.common.stages import Stage
from melforge.common.weights.voices import ModelSource

if TYPE_CHECKING:
    import onnx

GB = 1 << 30
STARTED = time.time_ns()


def stage_model(stage: Stage, source: ModelSource, precision: str = "fp32") -> onnx.ModelProto:
    """The stage's ONNX graph with the source's weights inside, in a precision."""
    from onnx import numpy_helper

    model, weights = stage_graph(stage, source, precision)
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    return model


def stage_graph(
    stage: Stage, source: ModelSource, precision: str = "fp32"
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The stage's ONNX graph in a precision, and the weights that it names, which are not inside."""
    import onnx

    from melforge.common.engines.tensorrt.exact import with_exact_convolutions
    from melforge.common.engines.tensorrt.half import to_half

    model = onnx.load(source.graphs[stage.name], load_external_data=False)
    weights = {}
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            if tensor.name not in source.state:
                raise InputError(f"{source.weights} lacks {tensor.name}, which stage {stage.full_name} takes")
            weights[tensor.name] = source.state[tensor.name]
    if stage.exact:
        return with_exact_convolutions(model, weights)
    return to_half(model, stage.float32_layers, weights) if precision == "fp16" else (model, weights)


def build_engine(
    model: onnx.ModelProto,
    profile: Mapping[str, Sequence[Shape]],
    trt: TensorRT,
    name: str = "the graph",
    workspace: float = Deployment.trt_max_ws_size,
    weights: Mapping[str, np.ndarray] | None = None,
) -> tuple[memoryview, dict[str, object]]:
    """Any ONNX graph -> an engine for the shapes of a profile, and a report.

    `weights` are those that the graph names and that are not inside. `workspace` is in GB. An InputError with
    TensorRT's reason where it refuses the graph.
    """
    api, logger = trt.api, make_logger(trt)
    start = time.perf_counter()
    builder = api.Builder(logger)
    if builder is None:
        raise InputError(f"{trt.title} cannot build here: {logger.reason()}")
    flag = getattr(api.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(0 if flag is None else 1 << int(flag))
    parser = api.OnnxParser(network, logger)
    # TensorRT reads them where they lie, until the engine is built. Inside the graph they would be copied on
    # their way, several times: 8 s for a GB.
    held = {key: np.ascontiguousarray(value) for key, value in (weights or {}).items()}
    taken = parser.load_model_proto(model.SerializeToString()) and all(
        parser.load_initializer(key, value.ctypes.data, value.nbytes) for key, value in held.items()
    )
    if not (taken and parser.parse_model_proto()):
        errors = [parser.get_error(i) for i in range(parser.num_errors)]
        raise InputError(f"{trt.title} does not take {name}: {describe_refusal(errors)}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(api.MemoryPoolType.WORKSPACE, int(workspace * GB))
    config.add_optimization_profile(_trt_profile(builder, network, profile, name))
    layers = Counter(network.get_layer(i).type.name.lower() for i in range(network.num_layers))
    with watched(api, name) as config.progress_monitor:
        plan = builder.build_serialized_network(network, config)
    if plan is None:
        reason = logger.reason()
        more = f"; raise trt_max_ws_size ({workspace:g} GB)" if "OutOfMemory" in reason else ""
        raise InputError(f"{trt.title} could not build {name}: {reason}{more}")
    return memoryview(plan), {
        "seconds": round(time.perf_counter() - start, 2),
        "layers": sum(layers.values()),
        "layer_kinds": dict(layers.most_common()),
        "warnings": logger.warnings(),
    }


def _trt_profile(
    builder: ApiObject, network: ApiObject, profile: Mapping[str, Sequence[Shape]], name: str
) -> ApiObject:
    made = builder.create_optimization_profile()
    for i in range(network.num_inputs):
        tensor = network.get_input(i)
        if tensor.name not in profile:
            raise ValueError(f"{name}: the profile says nothing of the input {tensor.name!r}")
        if -1 in tuple(tensor.shape):
            made.set_shape(tensor.name, *profile[tensor.name])
    return made


def describe_refusal(errors: Sequence[ApiObject]) -> str:
    """A parser's errors in a line: the first one's operator, node and text, and how many more there are."""
    if not errors:
        return "it gives no reason"
    first = errors[0]
    where = f"operator {first.node_operator()} (node {first.node_name()})" if first.node_operator() else ""
    text = " ".join(first.desc().split())[:300].removesuffix("false")  # a failed assertion's whole text
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    return ": ".join(part for part in (where, text) if part) + more


@contextlib.contextmanager
def watched(api: ModuleType, name: str) -> Iterator[ApiObject]:
    """A monitor for a build: a progress bar on a terminal, and Ctrl-C ends the build."""
    from tqdm import tqdm

    bar = tqdm(desc=f"building {name}", unit="step", leave=False, disable=None)

    class Monitor(api.IProgressMonitor):
        def __init__(self) -> None:
            api.IProgressMonitor.__init__(self)
            self.phases: dict[str, int] = {}  # of the build, no parts of others, and their steps
            self.stopped: BaseException | None = None

        def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
            if parent is None:
                self.phases[phase] = steps
                self.show(phase, 0)

        def step_complete(self, phase: str, step: int) -> bool:
            try:
                self.show(phase, step + 1)
            except BaseException as error:  # it must not pass through TensorRT's own frames
                self.stopped = error
            return self.stopped is None

        def phase_finish(self, phase: str) -> None: ...

        def show(self, phase: str, step: int) -> None:
            if phase in self.phases:
                bar.total, bar.n = self.phases[phase], step
                bar.set_postfix_str(phase)

    monitor = Monitor()
    try:
        yield monitor
    finally:
        bar.close()
        if monitor.stopped is not None:
            raise monitor.stopped


def build_or_read(file: EngineFile, source: ModelSource, trt: TensorRT, how: Deployment) -> bytes:
    """The plan of an engine, built where it is missing; a line on stderr says so.

    `how` may ask that it be built anew, which a process does once, or that a missing one be an InputError.
    """
    if not how.no_build:
        start = time.perf_counter()
        if build_stage(file, source, trt, how.trt_force_build and not _is_new(file), how.trt_max_ws_size):
            seconds = time.perf_counter() - start
            print(f"built {file.title} in {seconds:.1f} s: {file.path}", file=sys.stderr)
    return file.read()


def _is_new(file: EngineFile) -> bool:
    """Whether the file was written since this process began to use TensorRT."""
    return file.path.is_file() and file.path.stat().st_mtime_ns > STARTED


def build_stage(file: EngineFile, source: ModelSource, trt: TensorRT, force: bool, workspace: float) -> bool:
    """Builds an engine file unless the right one is there, undamaged; returns whether it was built.

    Another engine in its place is an InputError without `force`. Of two processes that build the same file,
    the second waits and finds it built. `workspace` is in GB.
    """
    file.path.parent.mkdir(parents=True, exist_ok=True)
    asked = time.time_ns()
    with locked(file.path):
        there = file.path.is_file() and file.note.is_file()
        if there and (not force or file.path.stat().st_mtime_ns > asked):
            file.read()
            return False
        model, weights = stage_graph(file.stage, source, file.precision)
        plan, report = build_engine(model, file.profile, trt, file.title, workspace, weights)
        facts = {"bytes": len(plan), "sha256": hashlib.sha256(plan).hexdigest(), "report": report}
        note = {**file.made_of, **facts}
        write_bytes(file.path, plan)
        write_bytes(file.note, json.dumps(note, indent=1).encode() + b"\n")
    return True

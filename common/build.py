"""Stages -> TensorRT engines: a file for each, with a JSON beside it that says what it was made of.

A strongly typed network from the stage's ONNX graph, with the weights inside. TensorRT for RTX needs no GPU
for this; what it makes is compiled for a GPU where it first runs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.audio import write_bytes
from common.cache import engines_folder, sha256_of
from common.deployment import Bucket, Deployment
from common.engines.tensorrt_module import TensorRT, load_tensorrt, make_logger
from common.model_settings import shown
from common.registry import decoder_forms, get_model
from common.stages import Dim, Stage, Tensor
from common.voices import ModelSource

if TYPE_CHECKING:
    import onnx

# Part of what an engine is known by: raise it when the same graph would be built differently.
BUILDER_VERSION = 1
GB = 1 << 30
# Of a deployment, what says nothing about the engines themselves, or is said in another way.
NOT_BUILT = ("kernels", "use_trt", "use_fp16", "engine_memory_limit", "trt_force_build", "trt_cuda_graph")
# Where a deployment says nothing. A vocoder is given one utterance at a time, and long ones.
BATCH_SIZES = {"acoustic": 8, "vocoder": 1}

Shape = tuple[int, ...]
Profile = dict[str, tuple[Shape, Shape, Shape]]  # smallest, typical and largest shape of each input


def profile_of(stage: Stage) -> Profile:
    """The shapes that an engine of the stage is built for; a fixed length is thrice the same."""
    return {
        tensor.name: tuple(
            tuple(dim if isinstance(dim, int) else getattr(dim, which) for dim in tensor.dims)
            for which in ("min", "typical", "max")
        )
        for tensor in stage.inputs
    }


def batch_of(stage: Stage) -> Dim:
    """The batch's dimension: the first of the first input."""
    return stage.inputs[0].dims[0]


def with_batches(stage: Stage, batch_size: int) -> Stage:
    """The stage for batches from 1 to `batch_size`, for which its engine is tuned."""
    batch = batch_of(stage)
    if batch_size > batch.max:
        raise ValueError(f"batch_size {batch_size}: stage {stage.full_name} goes up to {batch.max}")
    narrow = replace(batch, typical=batch_size, max=batch_size)

    def tensors(old: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(replace(t, dims=tuple(narrow if d == batch else d for d in t.dims)) for t in old)

    return replace(stage, inputs=tensors(stage.inputs), outputs=tensors(stage.outputs))


@dataclass(frozen=True, eq=False)
class EngineFile:
    """What an engine must be made of, and where it is. `made_of` is the part of its JSON that must agree."""

    path: Path
    stage: Stage
    precision: str
    profile: Profile
    made_of: Mapping[str, Any]
    command: str  # that builds it

    @property
    def note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    def read(self) -> bytes:
        """The plan, whole and of the wanted kind. A ValueError says what is wrong and which command helps."""
        try:
            plan, note = self.path.read_bytes(), json.loads(self.note.read_text())
        except FileNotFoundError as error:
            raise ValueError(
                f"{error.filename} is missing: build the engine of {self.stage.full_name} with {self.command}"
            ) from None
        except ValueError:
            raise ValueError(f"{self.note} is damaged: {self._again}") from None
        if len(plan) != note.get("bytes") or hashlib.sha256(plan).hexdigest() != note.get("sha256"):
            raise ValueError(f"{self.path} is damaged (it is not what its JSON says): {self._again}")
        difference = self.difference(note)
        if difference:
            raise ValueError(f"{self.path} {difference}: {self._again}")
        return plan

    @property
    def _again(self) -> str:
        return f"build it again with {self.command} --force"

    def difference(self, note: Mapping[str, Any]) -> str:
        """What an engine with this JSON has that is not wanted, in words; nothing: it is the right one."""
        wanted = self.made_of
        for key, value in wanted.items():
            if note.get(key) == value:
                continue
            found = note.get(key)
            return {
                "flavour": f"is of {found}, but this is {value}",
                "version": f"is of version {found} of {wanted['flavour']}, but this is {value}",
                "compute_capability": f"is for GPUs of compute capability {found}, this one has {value}",
                "stage": f"is of stage {found}, not {value}",
                "precision": f"is in {found}, not {value}",
                "profile": f"is for other lengths or batches ({describe_profile(found)}) than wanted "
                f"({describe_profile(value)})",
            }.get(key, "is stale: the weights or the graph have changed since")
        return ""


def describe_profile(profile: Any) -> str:
    """A profile's dimensions that matter, as "symbols 1..128": for messages, so of anything."""
    if not isinstance(profile, dict):
        return "unknown"
    parts = []
    for name, shapes in profile.items():
        low, _, high = shapes
        sizes = (str(a) if a == b else f"{a}..{b}" for a, b in zip(low, high, strict=True))
        parts.append(f"{name} {'x'.join(sizes)}")
    return ", ".join(parts[:2])


def engine_file(
    stage: Stage,
    source: ModelSource,
    deployment: Deployment,
    trt: TensorRT,
    bucket: Bucket | None = None,
) -> EngineFile:
    """The engine of a stage with the source's weights, as a deployment wants it; of a bucket, fixed to it.

    A deployment's path names an engine of a bucket's whole model: each stage's name is added to it.
    """
    precision = "fp16" if deployment.use_fp16 else "fp32"
    stage = with_batches(stage, deployment.batch_size or BATCH_SIZES[get_model(source.model).kind])
    profile = profile_of(stage)
    made_of = {
        "flavour": trt.flavour,
        "version": trt.version,
        **({} if trt.portable else {"compute_capability": compute_capability()}),
        "stage": stage.full_name,
        "precision": precision,
        "profile": {name: [list(shape) for shape in shapes] for name, shapes in profile.items()},
        "made_of": fingerprint(stage, source, precision),
    }
    given = deployment.trt_file_path
    if deployment.trt_multi_engine and bucket and deployment.trt_file_path_list:
        buckets = deployment.buckets(get_model(source.model).kind)
        given = deployment.trt_file_path_list[buckets.index(bucket)]
    if given:
        path = Path(given)
        path = path.with_name(f"{path.stem}.{stage.name}{path.suffix}")
    else:
        key = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:12]
        sizes = f".{bucket}" if bucket else ""
        path = engines_folder() / f"{stage.full_name}.{precision}{sizes}.{key}.trt"
    return EngineFile(path, stage, precision, profile, made_of, build_command(source, deployment, trt, stage))


def needed_stages(
    source: ModelSource,
    deployment: Deployment,
    decoder: str | None = None,
    every: bool = False,
    backend: str = "trt",
) -> tuple[Stage, ...]:
    """What a model runs with as a deployment wants it; with `every`, all forms of its stages."""
    from common.loading import choose_stages, pads_masked

    if every:
        return get_model(source.model).module("stages").stages(source.config)
    buckets = bool(deployment.buckets(get_model(source.model).kind))
    masked, kernels = pads_masked(source, deployment), deployment.kernels
    stages = choose_stages(source, decoder, buckets, masked, backend, kernels)
    return tuple(stage for stage in stages if stage.name not in kernels)


def engine_files(
    stages: Sequence[Stage], source: ModelSource, deployment: Deployment, trt: TensorRT
) -> list[EngineFile]:
    """The engines of these stages, one for each bucket that a deployment has."""
    from common.engines.buckets import fix

    buckets = deployment.buckets(get_model(source.model).kind)
    if not buckets:
        return [engine_file(stage, source, deployment, trt) for stage in stages]
    return [
        engine_file(fix(stage, bucket), source, deployment, trt, bucket)
        for bucket in buckets
        for stage in stages
    ]


def build_command(
    source: ModelSource, deployment: Deployment, trt: TensorRT, stage: Stage | None = None
) -> str:
    """What builds a model's engines as a deployment wants them; `stage` is one of them."""
    words = ["python", "-m", f"{source.model}.build_trt"]
    words += source.words or ("--checkpoint", f"{get_model(source.model).kind}=FILE")
    if deployment.use_fp16:
        words += ["--precision", "fp16"]
    known = {f.name for part in (source.config, source.mel) for f in fields(part)}
    for f in fields(Deployment):
        value = getattr(deployment, f.name)
        if value != f.default and f.name not in NOT_BUILT and f.name not in known:
            words += ["--set", f"{f.name}={shown(value)}"]
    forms = decoder_forms(source.model)
    usual = {one.name for one in needed_stages(source, deployment)} if forms else ()
    if stage and forms and stage.name not in usual:
        words += ["--decoder", next(form for form, names in forms.items() if stage.name in names)]
    return shlex.join([*words, "--tensorrt", trt.flavour])


def require_export(source: ModelSource, deployment: Deployment, stage: Stage) -> None:
    """A ValueError where a stage has no graph yet and so can have no engine: exporting takes a minute."""
    from common.export import find_cached

    if not deployment.trt_force_build and find_cached(source) is None:
        command = build_command(source, deployment, load_tensorrt(), stage)
        raise ValueError(f"{source.weights} has no engines yet: build them with {command}")


def fingerprint(stage: Stage, source: ModelSource, precision: str) -> str:
    """A hash of the stage's graph with its weights in a precision, without making it."""
    from common.half import HALF_VERSION

    graph = source.graphs[stage.name]
    digest = hashlib.sha256(graph.read_bytes())
    if json.loads(graph.with_suffix(".json").read_text())["weights"]:
        digest.update(weights_digest(source).encode())
    rules: list[Any] = [BUILDER_VERSION]
    if precision == "fp16":
        rules += [HALF_VERSION, *stage.float32_layers]
    digest.update(json.dumps(rules).encode())
    return digest.hexdigest()


def weights_digest(source: ModelSource) -> str:
    if source.given_state is None:
        stat = source.weights.stat()
        return _file_digest(source.weights, stat.st_mtime_ns, stat.st_size)
    digest = hashlib.sha256()
    for name in sorted(source.given_state):
        digest.update(name.encode())
        digest.update(source.given_state[name].tobytes())
    return digest.hexdigest()


@functools.lru_cache(maxsize=16)
def _file_digest(path: Path, time_ns: int, size: int) -> str:
    """The file's hash; it is read again when it has changed."""
    return sha256_of(path)


def compute_capability() -> str:
    """The GPU's, as "9.0"."""
    import torch

    if not torch.cuda.is_available():
        raise ValueError("TensorRT builds and runs engines on an NVIDIA GPU, and there is none here")
    return "{}.{}".format(*torch.cuda.get_device_capability())


# Building


def stage_model(stage: Stage, source: ModelSource, precision: str = "fp32") -> onnx.ModelProto:
    """The stage's ONNX graph with the source's weights inside, in a precision."""
    import onnx
    from onnx import numpy_helper

    from common.half import to_half

    model = onnx.load(source.graphs[stage.name], load_external_data=False)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            if tensor.name not in source.state:
                raise ValueError(f"{source.weights} lacks {tensor.name}, which stage {stage.full_name} takes")
            tensor.CopyFrom(numpy_helper.from_array(source.state[tensor.name], tensor.name))
    return to_half(model, stage.float32_layers) if precision == "fp16" else model


@dataclass(frozen=True)
class Built:
    """An engine in memory, and what is worth knowing about its building."""

    plan: bytes
    report: dict[str, Any]


def build_engine(
    model: onnx.ModelProto | bytes,
    profile: Mapping[str, Sequence[Shape]],
    trt: TensorRT,
    name: str = "the graph",
    workspace: float = Deployment.trt_max_ws_size,
) -> Built:
    """Any ONNX graph with its weights inside -> an engine for the shapes of a profile.

    A ValueError in a sentence where TensorRT refuses it.
    """
    api, logger = trt.api, make_logger(trt)
    start = time.perf_counter()
    builder = api.Builder(logger)
    if builder is None:
        raise ValueError(f"{trt.title} cannot build here: {logger.reason()}")
    flag = getattr(api.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(0 if flag is None else 1 << int(flag))
    parser = api.OnnxParser(network, logger)
    if not parser.parse(model if isinstance(model, bytes) else model.SerializeToString()):
        errors = [parser.get_error(i) for i in range(parser.num_errors)]
        raise ValueError(f"{trt.title} does not take {name}: {describe_refusal(errors)}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(api.MemoryPoolType.WORKSPACE, int(workspace * GB))
    config.add_optimization_profile(_trt_profile(builder, network, profile, name))
    layers = Counter(network.get_layer(i).type.name.lower() for i in range(network.num_layers))
    with Progress(api, name) as progress:
        config.progress_monitor = progress.monitor
        plan = builder.build_serialized_network(network, config)
    if plan is None:
        reason = logger.reason()
        more = f"; raise trt_max_ws_size ({workspace:g} GB)" if "OutOfMemory" in reason else ""
        raise ValueError(f"{trt.title} could not build {name}: {reason}{more}")
    content = bytes(memoryview(plan))
    report = {
        "seconds": round(time.perf_counter() - start, 2),
        "layers": sum(layers.values()),
        "layer_kinds": dict(layers.most_common()),
        "warnings": logger.warnings(),
    }
    return Built(content, report)


def _trt_profile(builder: Any, network: Any, profile: Mapping[str, Sequence[Shape]], name: str) -> Any:
    made = builder.create_optimization_profile()
    for i in range(network.num_inputs):
        tensor = network.get_input(i)
        if tensor.name not in profile:
            raise ValueError(f"{name}: the profile says nothing of the input {tensor.name!r}")
        if -1 in tuple(tensor.shape):
            made.set_shape(tensor.name, *profile[tensor.name])
    return made


def describe_refusal(errors: Sequence[Any]) -> str:
    """A parser's errors in a line: the operator of the first of them, its node, and what is said of it."""
    if not errors:
        return "it gives no reason"
    first = errors[0]
    where = f"operator {first.node_operator()} (node {first.node_name()})" if first.node_operator() else ""
    text = " ".join(first.desc().split())[:300].removesuffix("false")  # a failed assertion's whole text
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    return ": ".join(part for part in (where, text) if part) + more


class Progress:
    """A bar on a terminal for what TensorRT does, and a way out of it: Ctrl-C ends the build."""

    def __init__(self, api: Any, name: str):
        from tqdm import tqdm

        outer = self
        self.stopped: BaseException | None = None
        self.bar = tqdm(desc=f"building {name}", unit="step", leave=False, disable=None)

        class Monitor(api.IProgressMonitor):
            def __init__(self) -> None:
                api.IProgressMonitor.__init__(self)

            def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
                if parent is None:
                    outer.show(phase, 0, steps)

            def step_complete(self, phase: str, step: int) -> bool:
                try:
                    outer.show(phase, step + 1, None)
                except BaseException as error:  # it must not go through TensorRT's own frames
                    outer.stopped = error
                return outer.stopped is None

            def phase_finish(self, phase: str) -> None:
                pass

        self.monitor = Monitor()
        self._phases: dict[str, int] = {}

    def show(self, phase: str, step: int, steps: int | None) -> None:
        if steps is not None:
            self._phases[phase] = steps
        if phase in self._phases:
            self.bar.total, self.bar.n = self._phases[phase], step
            self.bar.set_postfix_str(phase)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        self.bar.close()
        if self.stopped is not None:
            raise self.stopped


def build_stage(file: EngineFile, source: ModelSource, trt: TensorRT, force: bool, workspace: float) -> bool:
    """Makes an engine file unless the right one is there, whole; whether it was made.

    One of another kind at its place is a ValueError without `force`. Of two processes that build the same
    file, the second waits and finds it built.
    """
    file.path.parent.mkdir(parents=True, exist_ok=True)
    asked = time.time_ns()
    with locked(file.path):
        there = file.path.is_file() and file.note.is_file()
        if there and (not force or file.path.stat().st_mtime_ns > asked):
            file.read()
            return False
        model = stage_model(file.stage, source, file.precision)
        name = f"{file.stage.full_name} in {file.precision}"
        built = build_engine(model, file.profile, trt, name, workspace)
        note = {
            **file.made_of,
            "bytes": len(built.plan),
            "sha256": hashlib.sha256(built.plan).hexdigest(),
            "report": built.report,
        }
        write_bytes(file.path, built.plan)
        write_bytes(file.note, json.dumps(note, indent=1).encode() + b"\n")
    return True


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits until no other process of this machine builds the same file. A killed one lets go."""
    try:
        import fcntl
    except ImportError:  # Windows: the files still appear whole, whoever is last
        yield
        return
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"melforge-{os.getuid()}-{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that builds {path}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield

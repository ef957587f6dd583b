"""TensorRT engine files: their profile, what they were built from, and whether a file is the right one."""

import functools
import hashlib
import itertools
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.config.hparams import shown
from melforge.common.engines.tensorrt.api import TensorRT
from melforge.common.errors import InputError
from melforge.common.files import engines_folder, sha256_of
from melforge.common.registry import get_model
from melforge.common.stages import Stage, TensorSpec, fix, plan_of, stages_of
from melforge.common.stages.choose import choose_stages, pads_masked
from melforge.common.weights.graph_notes import read_graph_note, require_config
from melforge.common.weights.voices import ModelSource

# Part of an engine's fingerprint: raise it when the same graph would be built differently.
BUILDER_VERSION = 1
# Keys of a deployment that do not change its engines, or that `build_command` gives as other options.
NOT_BUILT = (
    *("kernels", "backend", "precision", "engine_memory_limit", "trt_force_build", "trt_cuda_graph"),
    *("onnx_provider", "no_build"),
)
# Of a deployment without `batch_size`. A vocoder takes one utterance at a time, and long ones.
BATCH_SIZES = {"acoustic": 8, "vocoder": 1, "recogniser": 8}

Shape = tuple[int, ...]
Profile = dict[str, tuple[Shape, Shape, Shape]]  # smallest, typical and largest shape of each input


def profile_of(stage: Stage) -> Profile:
    """The shapes that an engine of the stage is built for; of a fixed length all three are equal."""

    def shape(tensor: TensorSpec, which: str) -> Shape:
        return tuple(dim if isinstance(dim, int) else getattr(dim, which) for dim in tensor.dims)

    return {t.name: (shape(t, "min"), shape(t, "typical"), shape(t, "max")) for t in stage.inputs}


def with_batches(stage: Stage, batch_size: int) -> Stage:
    """The stage for batches from 1 to `batch_size`, for which its engine is tuned."""
    batch = stage.batch
    if batch_size > batch.max:
        raise InputError(f"batch_size {batch_size}: stage {stage.full_name} goes up to {batch.max}")
    narrow = replace(batch, typical=batch_size, max=batch_size)
    return stage.with_dims(lambda dim: narrow if dim == batch else dim)


@dataclass(frozen=True, eq=False)
class EngineFile:
    """A stage's engine: where it is, and what it must be made of: `made_of`, which its JSON repeats."""

    path: Path
    stage: Stage
    precision: str
    profile: Profile
    made_of: Mapping[str, object]
    command: str  # the shell command that builds it
    naming: str = ""  # how a given path became this one, as a sentence

    @property
    def title(self) -> str:
        return f"{self.stage.full_name} in {self.precision}"

    @property
    def note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    def read(self) -> bytes:
        """The plan. An InputError names the file, its fault and the command that helps."""
        try:
            plan, note = self.path.read_bytes(), dict(json.loads(self.note.read_text()))
        except FileNotFoundError as error:
            raise InputError(
                f"{error.filename} is missing: build the engine of {self.stage.full_name} with {self.command}"
                f"{self.naming and f'. {self.naming}'}"
            ) from None
        except (ValueError, TypeError, RecursionError):
            raise InputError(f"{self.note} is damaged: {self._again}") from None
        if len(plan) != note.get("bytes") or hashlib.sha256(plan).hexdigest() != note.get("sha256"):
            raise InputError(f"{self.path} is damaged (it is not what its JSON says): {self._again}")
        if difference := self.difference(note):
            raise InputError(f"{self.path} {difference}: {self._again}")
        return plan

    @property
    def _again(self) -> str:
        return f"build it again with {self.command} --force"

    def difference(self, note: Mapping[str, object]) -> str:
        """How an engine with this JSON first differs from the wanted one, as a phrase; "" if it does not."""
        for key, value in self.made_of.items():
            found = note.get(key)
            if found == value:
                continue
            return {
                "flavour": f"is of {found}, but this is {value}",
                "version": f"is of version {found} of {self.made_of['flavour']}, but this is {value}",
                "compute_capability": f"is for GPUs of compute capability {found}, this one has {value}",
                "stage": f"is of stage {found}, not {value}",
                "precision": f"is in {found}, not {value}",
                "profile": f"is for other lengths or batches ({describe_profile(found)}) than wanted "
                f"({describe_profile(value)})",
            }.get(key, "is stale: the weights or the graph have changed since")
        return ""


def describe_profile(profile: object) -> str:
    """The first two inputs of a profile read from JSON, as "symbols 1..128"; of any value, for messages."""
    if not isinstance(profile, dict):
        return "unknown"
    parts = []
    for name, (low, _, high) in list(profile.items())[:2]:
        sizes = (str(a) if a == b else f"{a}..{b}" for a, b in zip(low, high, strict=True))
        parts.append(f"{name} {'x'.join(sizes)}")
    return ", ".join(parts)


def engine_file(
    stage: Stage, source: ModelSource, deployment: Deployment, trt: TensorRT, bucket: Bucket | None = None
) -> EngineFile:
    """The engine of a stage with the source's weights, for a deployment or for one `bucket` of it.

    A deployment's path is the engine's own where the stage's form has no other stage; else each stage's name
    is added to it. An InputError where one path is given for several buckets, or that of a folder.
    """
    precision = deployment.precision
    stage = with_batches(stage, batch_size_of(source, deployment))
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
    given, naming = given_path(source, deployment, bucket), ""
    if given and has_one_engine(stage):
        path = Path(given)
    elif given:
        path = Path(given)
        path = path.with_name(f"{path.stem}.{stage.name}{path.suffix}")
        naming = (
            f"{source.model} has several engines: {given} stands for {path.name} and one for each other stage"
        )
    else:
        key = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:12]
        sizes = f".{bucket}" if bucket else ""
        path = engines_folder() / f"{stage.full_name}.{precision}{sizes}.{key}.trt"
    command = build_command(source, deployment, trt, stage)
    return EngineFile(path, stage, precision, profile, made_of, command, naming)


def given_path(source: ModelSource, deployment: Deployment, bucket: Bucket | None) -> str:
    """The path that a deployment gives for its engines, or for those of a bucket; "" for the cache's."""
    given = deployment.trt_file_path
    if deployment.trt_multi_engine and bucket:
        buckets = deployment.buckets(get_model(source.model).kind)
        if deployment.trt_file_path_list:
            given = deployment.trt_file_path_list[buckets.index(bucket)]
        elif given and len(buckets) > 1:
            raise InputError(
                f"trt_file_path {given} is one file, but {source.model} has engines for {len(buckets)} "
                "buckets: give trt_file_path_list, a file for each, or leave both out for the cache's"
            )
    if given and (given.endswith("/") or Path(given).is_dir()):
        raise InputError(
            f"the engine file {given} is a folder: name a file in it, such as {source.model}.trt"
        )
    return given


def has_one_engine(stage: Stage) -> bool:
    """Whether the stage is all of its model, in the forms that have it: a path is then its engine's."""
    return all(len(names) == 1 for names in plan_of(stage.model).forms.values() if stage.name in names)


def needed_stages(
    source: ModelSource,
    deployment: Deployment,
    decoder: str | None = None,
    every: bool = False,
    backend: str = "trt",
) -> tuple[Stage, ...]:
    """The stages that a deployment of a model runs on engines; with `every`, all forms of its stages."""
    if every:
        return stages_of(source.model, source.config)
    buckets = bool(deployment.buckets(get_model(source.model).kind))
    how = pads_masked(source, deployment), backend, deployment.kernels
    stages = choose_stages(source, decoder, buckets, *how)
    return tuple(stage for stage in stages if stage.name not in deployment.kernels)


def batch_size_of(source: ModelSource, deployment: Deployment) -> int:
    return deployment.batch_size or BATCH_SIZES[get_model(source.model).kind]


def require_possible(stages: Sequence[Stage], source: ModelSource, deployment: Deployment) -> None:
    """An InputError for lengths, batches and paths that no engine of these stages can have.

    It needs no graphs: what would be refused after a long export is refused before.
    """
    for stage in stages:
        with_batches(stage, batch_size_of(source, deployment))
    buckets = deployment.buckets(get_model(source.model).kind)
    for bucket in buckets or (None,):
        given_path(source, deployment, bucket)
    for bucket, stage in itertools.product(buckets, stages):
        fix(stage, bucket)


def engine_files(
    stages: Sequence[Stage], source: ModelSource, deployment: Deployment, trt: TensorRT
) -> list[EngineFile]:
    """The engines of these stages, one for each bucket that a deployment has."""
    return [
        engine_file(fix(stage, bucket) if bucket else stage, source, deployment, trt, bucket)
        for bucket in deployment.buckets(get_model(source.model).kind) or (None,)
        for stage in stages
    ]


def build_command(
    source: ModelSource, deployment: Deployment, trt: TensorRT, stage: Stage | None = None
) -> str:
    """The shell command that builds a deployment's engines of a model; `stage` is one that it must build."""
    words = ["python", "-m", f"melforge.{source.model}.build_trt"]
    words += source.words or ("--checkpoint", f"{get_model(source.model).kind}=FILE")
    if deployment.precision != "fp32":
        words += ["--precision", deployment.precision]
    known = {f.name for part in (source.config, source.mel) for f in fields(part)}
    for f in fields(Deployment):
        value = getattr(deployment, f.name)
        if value != f.default and f.name not in NOT_BUILT and f.name not in known:
            words += ["--set", f"{f.name}={shown(value)}"]
    forms = plan_of(source.model).forms if get_model(source.model).decoders else {}
    usual = {one.name for one in needed_stages(source, deployment)} if forms else ()
    if stage and forms and stage.name not in usual:
        words += ["--decoder", next(form for form, names in forms.items() if stage.name in names)]
    return shlex.join([*words, "--tensorrt", trt.flavour])


def fingerprint(stage: Stage, source: ModelSource, precision: str) -> str:
    """A hash of the stage's graph, its weights and the rules of its building, without building it."""
    from melforge.common.engines.tensorrt.exact import EXACT_VERSION
    from melforge.common.engines.tensorrt.half import HALF_VERSION

    graph = source.graphs[stage.name]
    digest = hashlib.sha256(graph.read_bytes())
    note = read_graph_note(graph)
    require_config(note, graph, source)
    if note["weights"]:
        digest.update(weights_digest(source).encode())
    rules: list[int | str] = [BUILDER_VERSION]
    if precision == "fp16":
        rules += [HALF_VERSION, *stage.float32_layers]
    if stage.exact:
        rules += ["exact", EXACT_VERSION]
    digest.update(json.dumps(rules).encode())
    return digest.hexdigest()


def weights_digest(source: ModelSource) -> str:
    """A hash of the source's weights: of their file, or of the arrays where they were given."""
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
    """The file's hash, computed anew when its time or size has changed."""
    return sha256_of(path)


def compute_capability() -> str:
    """The GPU's, as "9.0"."""
    import torch

    if not torch.cuda.is_available():
        raise InputError("TensorRT builds and runs engines on an NVIDIA GPU, and there is none here")
    return "{}.{}".format(*torch.cuda.get_device_capability())

"""A stage run by ONNX Runtime from a graph without weights and the safetensors file that holds them."""

from __future__ import annotations

import importlib
import os
from functools import cache
from pathlib import Path

import onnxruntime as ort

from melforge.common.arrays import Array, is_numpy
from melforge.common.engines import Engine, check_inputs
from melforge.common.errors import InputError, counted
from melforge.common.files import engines_folder, what_it_is
from melforge.common.stages import Stage
from melforge.common.weights.graph_notes import AGAIN, read_graph_note, require_config
from melforge.common.weights.voices import ModelSource

ERRORS_ONLY = 3
# Below this size of weights in bytes, stages of small steps run on one thread unless `threads` is given:
# distributing each operation takes longer. On two cores this makes the shipped voice's decoder a fifth to a
# third faster; the published one, of 72 MB, would be a seventh slower.
FEW_WEIGHTS = 32_000_000
# Bytes of the arena's first region, of which the system gives what is used. Large buffers find no place in
# the small regions that it would begin with, and come on top of them.
ARENA = 64 << 20
# Optimizers of ONNX Runtime that put a new node behind all others.
OUT_OF_ORDER = ["GatherSliceToSplitFusion"]
# A deployment's words for ONNX Runtime's providers on a GPU.
PROVIDERS = {"cuda": ("CUDAExecutionProvider", "CUDA"), "tensorrt": ("TensorrtExecutionProvider", "TensorRT")}


def weights_bytes(graph: Path, source: ModelSource) -> int:
    """The size of the weights that a graph takes, as far as the source has them."""
    return sum(
        source.state[name].nbytes for name in read_graph_note(graph)["weights"] if name in source.state
    )


class LoadedGraph:
    """A session and the weights that it reads in place, which must live as long as it does."""

    def __init__(
        self, graph: Path, source: ModelSource, device: str, threads: int | None, provider: str | None = None
    ):
        options, chosen, note = session_options(threads), providers(device, provider), read_graph_note(graph)
        if device == "cpu":
            # Nodes run in the graph's order. By default those that need the mel alone come first, whose
            # outputs wait for the rest: 80 of WaveGlow's 130 MB. Fusions into new nodes would undo it.
            options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        not_wanted = OUT_OF_ORDER if device == "cpu" else None
        require_config(note, graph, source)
        names = note["weights"]
        if missing := [name for name in names if name not in source.state]:
            lacking = f"{counted(len(missing), 'weight')} that {graph.name} takes: {missing[:3]}"
            raise InputError(f"{source.weights} lacks {lacking}")
        self._weights = [ort.OrtValue.ortvalue_from_numpy(source.state[name]) for name in names]
        options.add_external_initializers(names, self._weights)
        self.memory_bytes = graph.stat().st_size + weights_bytes(graph, source)
        try:
            self.session = ort.InferenceSession(
                str(graph), options, providers=chosen, disabled_optimizers=not_wanted
            )
        except Exception as error:  # ONNX Runtime raises its own classes for each status
            what = what_it_is(graph, "graph")
            why = f"it is {what}" if what else " ".join(str(error).split())[:300]
            raise InputError(f"{graph} does not load: {why}") from None
        name, words = PROVIDERS[provider or "cuda"]
        if device != "cpu" and name not in self.session.get_providers():
            raise InputError(f"device {device!r}: ONNX Runtime could not start its {words} provider here")


class OnnxEngine(Engine):
    """One graph in ONNX Runtime. numpy in and out on the CPU, CUDA tensors in and out on a GPU.

    Engines of one stage at several fixed lengths share a session: on a CPU fixed lengths gain no measurable
    time, and every session packs the weights anew, in 1.1 to 1.5 times their size.
    """

    backend = "onnx"

    def __init__(
        self,
        stage: Stage,
        source: ModelSource,
        device: str = "cpu",
        threads: int | None = None,
        provider: str | None = None,
    ):
        self.stage, self.device = stage, device
        graph = source.graphs.get(stage.name)
        if graph is None:
            raise InputError(f"{source.weights} comes without an ONNX graph of stage {stage.full_name}")
        if not graph.is_file():
            raise InputError(f"{graph} is missing: {AGAIN}")
        if threads is None and stage.small_steps and weights_bytes(graph, source) < FEW_WEIGHTS:
            threads = 1
        key = (graph, device, threads, provider)
        loaded = source.networks.get(key) or LoadedGraph(graph, source, device, threads, provider)
        self.session, self.memory_bytes, self.memory_owner = loaded.session, loaded.memory_bytes, loaded
        self.can_be_shared = device == "cpu"  # a session keeps nothing of a run
        self.prefers_pieces = device == "cpu"
        # A step of one item is a product of a vector with all weights: two items read these once.
        self.prefers_batches = device == "cpu" and stage.small_steps
        self._inputs, self._outputs = ([t.name for t in tensors] for tensors in (stage.inputs, stage.outputs))
        for what, names, found in (
            ("takes", self._inputs, [value.name for value in self.session.get_inputs()]),
            ("gives", self._outputs, [value.name for value in self.session.get_outputs()]),
        ):
            if found != names:
                raise InputError(f"{graph} {what} {found}, stage {stage.full_name} declares {names}: {AGAIN}")
        source.networks[key] = loaded

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        check_inputs(self.stage, inputs)
        if all(is_numpy(array) for array in inputs.values()):
            outputs = self.session.run(self._outputs, inputs)
        else:
            outputs = run_bound(self.session, self._outputs, inputs)
        return dict(zip(self._outputs, outputs, strict=True))


def session_options(threads: int | None) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or os.cpu_count() or 1
    options.inter_op_num_threads = 1
    options.log_severity_level = ERRORS_ONLY
    # With memory patterns, a plan is kept for each length, and a vocoder's peak doubles when a length recurs.
    options.enable_mem_pattern = False
    # Without patterns, planning the reuse of buffers saves no memory, and takes 0.25 s for WaveGlow's graph.
    options.enable_mem_reuse = False
    # One arena for the sessions of a process: what one run frees the next one takes, whatever graph it is of.
    share_arena()
    options.add_session_config_entry("session.use_env_allocators", "1")
    # Waiting threads sleep: spinning gains no time here, and occupies cores that other sessions could use.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


@cache
def share_arena() -> None:
    """Registers the process's arena on the CPU, which ONNX Runtime extends by doubling."""
    kind = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = ort.OrtMemoryInfo("Cpu", kind, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(place, ort.OrtArenaCfg({"initial_chunk_size_bytes": ARENA}))


def require_provider(provider: str, device: str) -> None:
    """An InputError where a provider that was asked for is not in this ONNX Runtime, or has no GPU."""
    name, words = PROVIDERS[provider]
    if device == "cpu":
        raise InputError(
            f"onnx_provider {provider}: ONNX Runtime's {words} provider runs on a GPU, not on the CPU"
        )
    if name not in ort.get_available_providers():
        raise InputError(
            f"onnx_provider {provider}: this ONNX Runtime has no {words} provider; leave onnx_provider out, "
            "or install melforge[gpu] on a machine with a GPU"
        )


def providers(device: str, provider: str | None = None) -> list:
    """What a session runs on, by precedence; `provider` is one of `PROVIDERS`, on a GPU (default: cuda)."""
    if provider:
        require_provider(provider, device)
    if device == "cpu":
        return ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise InputError(
            f"device {device!r}: this ONNX Runtime has no CUDA provider; "
            "use the device cpu, or install melforge[gpu] on a machine with a GPU"
        )
    torch = importlib.import_module("torch")
    stream = torch.cuda.current_stream(device).cuda_stream
    return gpu_providers(provider, torch.device(device).index or 0, stream)


def gpu_providers(provider: str | None, index: int, stream: int) -> list:
    """The providers of a GPU, with their options; on the CUDA stream, if it is not the default one (0)."""
    common: dict[str, object] = {"device_id": index}
    if stream:
        common["user_compute_stream"] = str(stream)
    # The default benchmarks every algorithm for each new length, which takes seconds per sentence.
    cuda = {**common, "cudnn_conv_algo_search": "HEURISTIC"}
    chosen: list = [(PROVIDERS["cuda"][0], cuda), "CPUExecutionProvider"]
    if provider == "tensorrt":
        # Engines are not cached: the cache's key is of the graph alone, and a voice's graphs have no weights.
        engines_folder().mkdir(parents=True, exist_ok=True)
        timing = {"trt_timing_cache_enable": True, "trt_timing_cache_path": str(engines_folder())}
        chosen.insert(0, (PROVIDERS[provider][0], {**common, **timing}))
    return chosen


def run_bound(session: ort.InferenceSession, names: list[str], inputs: dict[str, Array]) -> list[Array]:
    """Runs on torch tensors in place; the outputs are tensors on the same device."""
    torch = importlib.import_module("torch")
    binding = session.io_binding()
    held = {name: tensor.contiguous() for name, tensor in inputs.items()}
    device = next(iter(held.values())).device
    for name, tensor in held.items():
        kind = str(tensor.dtype).removeprefix("torch.")
        binding.bind_input(name, device.type, device.index or 0, kind, tuple(tensor.shape), tensor.data_ptr())
    for name in names:
        binding.bind_output(name, device.type, device.index or 0)
    if device.type == "cuda":
        # The session may run on another stream than the one that writes the inputs.
        torch.cuda.current_stream(device).synchronize()
    session.run_with_iobinding(binding)
    return [torch.from_dlpack(value) for value in binding.get_outputs()]

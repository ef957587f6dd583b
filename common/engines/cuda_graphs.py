"""CUDA graphs: the only place that captures them.

What a function launches is captured once for each set of its inputs' shapes and replayed from then on.
TensorRT for RTX launches kernels early (programmatic dependent launch), some of them before what they read is
written; here the edges of a captured graph are made full ones, so that its kernels run in stream order.
"""

import threading
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from melforge.common.cuda_streams import Handle, bindings, checked, current_stream, new_stream, own_stream
from melforge.common.engines import Recent, Run
from melforge.common.garbage import without_garbage_collection

MOST_SHAPES = 512  # whose graphs stay; they share the memory of inputs, outputs and what is between
ALIGNMENT = 256  # bytes
LEAST_BYTES = 1 << 22  # of an arena: what graphs of single texts have there stays where it is
LITTLE = 4  # a share of a GPU's memory
WARM_UPS = 2  # what a first run loads or compiles cannot be captured

# What waits for the whole GPU, as giving memory back does, is an error during a capture, and spoils it.
_one_capture = threading.RLock()

T = TypeVar("T")


def new_pool() -> Handle:
    """Memory for graphs that never replay at the same time."""
    return torch.cuda.graph_pool_handle()


def capture(
    run: Callable[[], T],
    stream: torch.cuda.Stream | None = None,
    *,
    pool: Handle = None,
    error_mode: str = "thread_local",
    keep: bool = False,
) -> tuple[torch.cuda.CUDAGraph, T]:
    """A graph of all that `run` launches, and what `run` gave, which each replay of the graph fills anew.

    It is captured on `stream`, by default a new one. Nothing else may ever be put on that: PyTorch marks the
    streams that used memory of the host when any thread gives it back, and a mark spoils a capture. Graphs
    that take their memory from the same `pool` must be captured on one stream and never replay at the same
    time. With `keep` the graph can be changed, and must be instantiated then. Other threads wait with
    captures of theirs.

    `torch.cuda.graph` would wait for the whole GPU, and give back all memory that PyTorch keeps, which each
    next call had to ask for again: that is done where little is left.
    """
    graph = torch.cuda.CUDAGraph(keep_graph=keep)
    stream = stream or new_stream("cuda")
    # A graph that is collected meanwhile would end the capture.
    with _one_capture, without_garbage_collection():
        free, whole = torch.cuda.mem_get_info(stream.device)
        if free < whole // LITTLE:
            torch.cuda.synchronize(stream.device)
            torch.cuda.empty_cache()
        with torch.cuda.stream(stream):
            graph.capture_begin(*(() if pool is None else (pool,)), capture_error_mode=error_mode)
            try:
                outputs = run()
            finally:
                graph.capture_end()
    return graph, outputs


def record(
    run: Callable[[], T], stream: torch.cuda.Stream | None = None, in_order: bool = True, pool: Handle = None
) -> tuple[Callable[[], None], T]:
    """What launches again all that `run` launches, and what `run` gave, such as outputs, which this fills.

    It is captured as by `capture`. `in_order`: every kernel waits for the end of those before it, however it
    was launched.
    """
    graph, outputs = capture(run, stream, keep=True, pool=pool)
    if in_order:
        put_in_order(graph.raw_cuda_graph())
    graph.instantiate()
    return graph.replay, outputs


def put_in_order(graph: Handle) -> int:
    """Makes programmatic edges of a captured graph, given as the driver's or its address, full ones.

    Each kernel then waits for the end of those before it. Returns how many edges were changed.
    """
    cuda = bindings("driver")
    # CUDA 12 has these under two names; those that know kinds of edges took over the first name in CUDA 13.
    get, remove, add = (
        getattr(cuda, f"{name}_v2", None) or getattr(cuda, name)
        for name in ("cuGraphGetEdges", "cuGraphRemoveDependencies", "cuGraphAddDependencies")
    )
    *_, count = checked(get(graph))
    if not count:
        return 0
    before, after, edges, _ = checked(get(graph, count))
    early = [i for i, edge in enumerate(edges) if edge.type]  # a full one's is 0
    if early:
        ends = [before[i] for i in early], [after[i] for i in early]
        checked(remove(graph, *ends, [edges[i] for i in early], len(early)))
        checked(add(graph, *ends, None, len(early)))
    return len(early)


class Arena:
    """Memory of a GPU that graphs use one after the other: each overwrites what the one before left there."""

    def __init__(self) -> None:
        self._block: Tensor | None = None

    def place(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of the tensors. Where they need more memory than there is, it is new, and what lies in the
        old one stays there.
        """
        sizes = [-(-tensor.nbytes // ALIGNMENT) * ALIGNMENT for tensor in tensors.values()]
        if sizes and (self._block is None or len(self._block) < sum(sizes)):
            device = next(iter(tensors.values())).device
            with torch.inference_mode(False):  # others may write to it outside of that mode
                self._block = torch.empty(max(sum(sizes), LEAST_BYTES), dtype=torch.uint8, device=device)
        placed, start = {}, 0
        for (name, tensor), size in zip(tensors.items(), sizes, strict=True):
            assert self._block is not None
            place = self._block[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            placed[name] = place.copy_(tensor, non_blocking=True)
            start += size
        return placed


class Graph:
    """A run at one set of shapes as a CUDA graph, on tensors that inputs are copied to."""

    def __init__(
        self, run: Run, inputs: Mapping[str, Tensor], stream: torch.cuda.Stream, pool: Handle = None
    ):
        self._run = run  # whose addresses, such as those of a context, the graph has
        self._inputs = dict(inputs)
        self._replay, self._outputs = record(lambda: run(inputs), stream, pool=pool)

    def gives(self, wanted: Mapping[str, Tensor]) -> bool:
        """Whether it fills its outputs with these, bit for bit."""
        for tensor in self._outputs.values():
            tensor.zero_()
        self._replay()
        return all(torch.equal(wanted[name], tensor) for name, tensor in self._outputs.items())

    def __call__(self, inputs: Mapping[str, Tensor], own: bool = False) -> dict[str, Tensor]:
        """The outputs in memory of the caller's, or in its own, which the next call fills anew."""
        for name, tensor in inputs.items():
            if self._inputs[name].data_ptr() != tensor.data_ptr():
                self._inputs[name].copy_(tensor, non_blocking=True)
        self._replay()
        return self._outputs if own else {name: tensor.clone() for name, tensor in self._outputs.items()}


class Captured:
    """A function with a CUDA graph for each set of its inputs' shapes, captured when they come.

    `make` gives the function for inputs of such shapes: what it holds, such as a TensorRT context, is then
    the graph's alone. A graph that does not give bit for bit what the function gives is not used; a warning
    says so, or why there is none. Inputs that are `shared` are read where they are, such as in the memory of
    another graph, and a graph is for these addresses only. With `directly` the function runs without a graph
    when shapes come for the first time: to capture takes longer, and not all come again.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Mapping[str, Tensor]], Run],
        stream: torch.cuda.Stream,
        shared: Collection[str] = (),
        directly: bool = False,
    ):
        self.name = name
        self._directly = directly
        self._met: Recent[tuple, Run] = Recent(MOST_SHAPES)  # by shapes, what ran without a graph
        # By shapes; None where there is no graph.
        self.graphs: Recent[tuple, Graph | None] = Recent(MOST_SHAPES, lambda graph: self.wait())
        self._make, self._stream, self._shared = make, stream, shared
        self._capturing: torch.cuda.Stream | None = None  # see `capture`
        self._inputs, self._outputs = Arena(), Arena()
        self._pool: Handle = None
        self._last: torch.cuda.Stream | None = None  # on which the memory may be in use

    def __call__(self, inputs: Mapping[str, Tensor], own: bool = False) -> dict[str, Tensor] | None:
        """What the function gives, in memory of the caller's, or of the graph's own, which the next call
        fills anew. None where these shapes have no graph.
        """
        key = tuple([(name, tensor.shape) for name, tensor in inputs.items()])
        if self._shared:
            key += tuple([tensor.data_ptr() for name, tensor in inputs.items() if name in self._shared])
        with own_stream(self._stream) as stream:
            if self._last is not None and self._last != stream:
                stream.wait_stream(self._last)
            if self._directly and key not in self.graphs and key not in self._met:
                outputs = self._run_first(key, inputs, stream, own)
            else:
                graph = self.graphs.get_or_make(key, lambda: self._capture(key, inputs, stream))
                outputs = graph(inputs, own) if graph else None
            self._last = stream
            return outputs

    def in_use(self) -> None:
        """Others read its graphs' memory in what the current stream does up to now."""
        self._last = current_stream(self._stream.device_index)

    def wait(self) -> None:
        """Until the last run is over: then its memory may be read on the host, or given away."""
        if self._last is not None:
            self._last.synchronize()

    def _run_first(
        self, key: tuple, inputs: Mapping[str, Tensor], stream: torch.cuda.Stream, own: bool
    ) -> dict[str, Tensor]:
        held = {
            n: t if n in self._shared else t.to(stream.device, non_blocking=True) for n, t in inputs.items()
        }
        with _one_capture:  # what is compiled or loaded may wait for the whole GPU
            made = self._make(held)
            outputs = made(held)
        self._met.get_or_make(key, lambda: made)
        return self._outputs.place(outputs) if own else outputs

    def _capture(self, key: tuple, inputs: Mapping[str, Tensor], stream: torch.cuda.Stream) -> Graph | None:
        with _one_capture:  # what runs for the first time may wait for the whole GPU, too
            return self._warm_and_capture(key, inputs, stream)

    def _warm_and_capture(
        self, key: tuple, inputs: Mapping[str, Tensor], stream: torch.cuda.Stream
    ) -> Graph | None:
        copied = {name: t.to(stream.device) for name, t in inputs.items() if name not in self._shared}
        held = {**inputs, **self._inputs.place(copied)}
        warm = self._met.pop(key, None)
        made = warm or self._make(held)
        for _ in range(1 if warm else WARM_UPS):
            outputs = made(held)
        wanted = {name: tensor.clone() for name, tensor in outputs.items()}
        place = self._outputs.place
        place(outputs)  # which allocates nothing any more when it is captured

        def run(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return place(made(given))

        stream.synchronize()
        reason = "it gave other numbers"
        try:
            self._pool = self._pool or new_pool()
            self._capturing = self._capturing or new_stream(stream.device)
            graph = Graph(run, held, self._capturing, self._pool)
        except (RuntimeError, ValueError) as error:
            graph, reason = None, str(error)
            self._pool = None  # a capture that failed leaves it unusable
        if graph and graph.gives(wanted):
            return graph
        warnings.warn(f"{self.name} runs without a CUDA graph: {reason}", stacklevel=7)
        return None


class InOrder:
    """Runs what is launched on a stream in order: as a graph, captured at each call and updated in place.

    For what changes its launches at every call, as TensorRT's contexts do with their tensors' addresses.
    """

    def __init__(self) -> None:
        self._executable: Handle = None
        self._capturing: torch.cuda.Stream | None = None  # see `capture`
        self._warm = False

    def begin_anew(self) -> None:
        """What is launched next may load or compile kernels, which cannot be captured."""
        self._warm = False

    def __call__(self, launch: Callable[[torch.cuda.Stream], None], stream: torch.cuda.Stream) -> None:
        """Runs on `stream` what `launch` puts on the stream that it is given."""
        driver = bindings("driver")
        if not self._warm:
            launch(stream)  # what it gives is overwritten
            self._warm = True
        self._capturing = self._capturing or new_stream(stream.device)
        with _one_capture:
            graph = self._capture(launch, self._capturing)
        try:
            put_in_order(graph)
            if self._executable is None or driver.cuGraphExecUpdate(self._executable, graph)[0] != 0:
                self._executable, old = None, self._executable
                if old is not None:
                    checked(driver.cuGraphExecDestroy(old))
                self._executable = checked(driver.cuGraphInstantiate(graph, 0))
            checked(driver.cuGraphLaunch(self._executable, stream.cuda_stream))
        finally:
            checked(driver.cuGraphDestroy(graph))

    def _capture(self, launch: Callable[[torch.cuda.Stream], None], stream: torch.cuda.Stream) -> Handle:
        driver, address = bindings("driver"), stream.cuda_stream
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        checked(driver.cuStreamBeginCapture(address, mode))
        try:
            launch(stream)
        except BaseException:
            driver.cuStreamEndCapture(address)  # whose status must not hide the reason
            raise
        return checked(driver.cuStreamEndCapture(address))

    def __del__(self) -> None:
        if self._executable is not None:
            bindings("driver").cuGraphExecDestroy(self._executable)

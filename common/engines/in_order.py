"""Kernels of a stream put in order where they were launched to overlap.

TensorRT for RTX lets a kernel begin before the one before it has ended (programmatic dependent launch, CUDA
Programming Guide). It must then wait by itself for what it reads, and some do not (docs/tensorrt.md). A graph
that is captured has such a dependency as an edge of its own kind, which can be made a full one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from common.cuda_driver import bindings, checked


def put_in_order(graph: Any) -> int:
    """Makes a captured graph's kernels wait until those before them have ended: how many did not.

    `graph` is the driver's, or its address.
    """
    driver = bindings("driver")
    # CUDA 12 has these under two names; the ones that know of kinds of edges took over the first in CUDA 13.
    get, remove, add = (
        getattr(driver, f"{name}_v2", None) or getattr(driver, name)
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


class InOrder:
    """Runs what is launched on a stream in order: as a graph, captured at each call and updated in place."""

    def __init__(self) -> None:
        self._executable: Any = None
        self._warm = False

    def begin_anew(self) -> None:
        """What is launched next may load or compile kernels, which cannot be captured."""
        self._warm = False

    def __call__(self, launch: Callable[[], None], stream: int) -> None:
        """`stream` is the one that `launch` puts its work on, as PyTorch's `cuda_stream`."""
        driver = bindings("driver")
        if not self._warm:
            launch()  # what it gives is overwritten
            self._warm = True
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        checked(driver.cuStreamBeginCapture(stream, mode))
        try:
            launch()
        except BaseException:
            driver.cuStreamEndCapture(stream)  # whose status must not hide the reason
            raise
        graph = checked(driver.cuStreamEndCapture(stream))
        try:
            put_in_order(graph)
            if self._executable is None or driver.cuGraphExecUpdate(self._executable, graph)[0] != 0:
                self._executable, old = None, self._executable
                if old is not None:
                    checked(driver.cuGraphExecDestroy(old))
                self._executable = checked(driver.cuGraphInstantiate(graph, 0))
            checked(driver.cuGraphLaunch(self._executable, stream))
        finally:
            checked(driver.cuGraphDestroy(graph))

    def __del__(self) -> None:
        if self._executable is not None:
            bindings("driver").cuGraphExecDestroy(self._executable)

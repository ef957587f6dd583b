"""What is captured: once for each set of shapes, proved equal, or left alone with a reason.

Without a GPU, what stands in for a CUDA graph runs the function again, on the memory of the recording.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from melforge.common.cuda_streams import new_stream
from melforge.common.engines import cuda_graphs
from melforge.common.engines.cuda_graphs import LEAST_BYTES, MOST_SHAPES, WARM_UPS, Arena, Captured


class Stream:
    """One on which everything is done at once."""

    device = torch.device("cpu")

    waited = 0

    def synchronize(self) -> None:
        self.waited += 1

    def wait_event(self, event) -> None:
        pass

    def record_event(self) -> Stream:
        return self


class Function:
    """Twice x, and how often it ran; `made` counts those that `make` gave."""

    def __init__(self):
        self.made, self.runs = 0, 0

    def make(self, inputs):
        self.made += 1

        def run(given):
            assert given is inputs or set(given) == set(inputs)
            self.runs += 1
            return {"twice": given["x"] * 2, "sum": given["x"].sum()[None]}

        return run


@pytest.fixture
def replays(monkeypatch):
    """Counts launches of what was recorded."""
    launched = []

    def record(run, stream, pool):
        outputs = run()

        def replay() -> None:
            launched.append(None)
            for name, tensor in run().items():
                outputs[name].copy_(tensor)

        return replay, outputs

    monkeypatch.setattr(cuda_graphs, "own_stream", contextlib.nullcontext)
    monkeypatch.setattr(cuda_graphs, "record", record)
    monkeypatch.setattr(cuda_graphs, "new_pool", object)
    monkeypatch.setattr(cuda_graphs, "new_stream", lambda device: Stream())
    return launched


def test_each_set_of_shapes_is_captured_once_and_takes_other_numbers(replays):
    function, stream = Function(), Stream()
    call = Captured("tiny", function.make, stream)
    for size in (3, 5, 3, 5):
        x = torch.randn(size)
        assert torch.equal(call({"x": x})["twice"], x * 2)
    assert function.made == len(call.graphs) == 2
    assert len(replays) == 2 + 4  # each proved once
    assert stream.waited == 2  # the host, when it captured


def test_what_comes_once_is_not_captured(replays):
    function = Function()
    call = Captured("tiny", function.make, Stream(), directly=True)
    for size, captured in ((5, 0), (4, 0), (5, 1), (5, 1), (4, 2)):
        x = torch.randn(size)
        assert torch.equal(call({"x": x})["twice"], x * 2)
        assert len(call.graphs) == captured
    assert function.made == 2  # what ran is captured
    kept = call({"x": torch.ones(9)}, own=True)["twice"]
    call({"x": torch.zeros(7)}, own=True)
    assert not kept[:7].any()  # both lie in the graphs' memory, which the next one reads


def test_what_it_gives_is_the_callers_and_what_it_takes_stays_as_it_is(replays):
    call = Captured("tiny", Function().make, Stream())
    x = torch.ones(4)
    first = call({"x": x})
    second = call({"x": torch.full((4,), 5.0)})
    assert first["twice"].tolist() == [2.0] * 4 and second["twice"].tolist() == [10.0] * 4
    assert x.tolist() == [1.0] * 4


def test_inputs_that_do_not_lie_in_one_piece(replays):
    call = Captured("tiny", Function().make, Stream())
    x = torch.arange(12.0).reshape(3, 4).T
    for given in (x, x + 1):
        assert torch.equal(call({"x": given})["twice"], given * 2)


def test_a_graph_that_gives_other_numbers_is_not_used(replays, monkeypatch):
    recorded = cuda_graphs.record

    def wrong(run, stream, pool):
        replay, outputs = recorded(run, stream, pool)

        def off() -> None:
            replay()
            outputs["twice"][0] += 1e-6

        return off, outputs

    monkeypatch.setattr(cuda_graphs, "record", wrong)
    call = Captured("tiny", Function().make, Stream())
    with pytest.warns(UserWarning, match="tiny runs without a CUDA graph: it gave other numbers"):
        assert call({"x": torch.ones(2)}) is None
    assert call({"x": torch.zeros(2)}) is None  # said once, and not tried again
    assert list(call.graphs.values()) == [None]


@pytest.mark.parametrize("error", [RuntimeError, ValueError])
def test_what_cannot_be_captured_says_why(replays, monkeypatch, error):
    def refuse(run, stream, pool):
        raise error("operation not permitted when stream is capturing")

    monkeypatch.setattr(cuda_graphs, "record", refuse)
    function = Function()
    call = Captured("tiny", function.make, Stream())
    with pytest.warns(UserWarning, match="without a CUDA graph: operation not permitted"):
        assert call({"x": torch.ones(2)}) is None
    assert call({"x": torch.ones(2)}) is None
    assert function.runs == WARM_UPS


def test_what_fails_by_itself_is_no_matter_of_capturing(replays):
    def make(inputs):
        raise ValueError("not built for x of shape [2]")

    call = Captured("tiny", make, Stream())
    for _ in range(2):
        with pytest.raises(ValueError, match="not built for x"):
            call({"x": torch.ones(2)})


def test_the_shapes_that_were_used_last_stay(replays):
    function = Function()
    call = Captured("tiny", function.make, Stream())
    for size in range(1, MOST_SHAPES + 1):
        call({"x": torch.ones(size)})
    call({"x": torch.ones(1)})
    call({"x": torch.ones(MOST_SHAPES + 1)})
    assert len(call.graphs) == MOST_SHAPES
    made = function.made
    call({"x": torch.ones(1)})
    assert function.made == made
    call({"x": torch.ones(2)})
    assert function.made == made + 1


@pytest.fixture
def stream():
    return new_stream("cuda")


@pytest.mark.gpu
def test_streams_are_nobody_elses_and_are_used_again():
    streams = [new_stream("cuda") for _ in range(40)]
    assert len({stream.cuda_stream for stream in streams}) == 40
    given_back = streams.pop().cuda_stream
    assert new_stream("cuda").cuda_stream == given_back


@pytest.mark.gpu
def test_threads_capture_one_after_the_other():
    """Each has its engine; what the others launch, capture and wait for meanwhile spoils nothing."""
    weight = torch.randn(256, 256, device="cuda")

    def work(thread: int) -> int:
        call = Captured(
            f"thread {thread}",
            lambda inputs: lambda given: {"y": (given["x"] @ weight).relu()},
            new_stream("cuda"),
        )
        right = 0
        for size in range(1, 41):
            x = torch.full((size, 256), float(thread), device="cuda")
            right += torch.equal(call({"x": x})["y"], call({"x": x})["y"])
        return right * all(call.graphs.values())

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(work, range(16))) == [40] * 16


@pytest.mark.gpu
def test_memory_of_the_host_that_is_given_back_spoils_no_capture(stream):
    """PyTorch marks the streams that used it, and asks for the marks when it gives memory next."""
    x = torch.ones(4, device="cuda")
    with torch.cuda.stream(stream):
        read = [torch.empty(4, pin_memory=True).copy_(x, non_blocking=True)]

    def run(given):
        if torch.cuda.is_current_stream_capturing():
            read.clear()
        return {"twice": given["x"] * 2}

    call = Captured("tiny", lambda inputs: run, stream)
    assert call({"x": x})["twice"].tolist() == [2.0] * 4
    assert all(call.graphs.values()) and not read
    assert torch.empty(4, pin_memory=True).is_pinned()


@pytest.mark.gpu
def test_a_cuda_graph_takes_other_numbers_on_any_stream(stream):
    weight = torch.randn(64, 64, device="cuda")

    def make(inputs):
        return lambda given: {"product": torch.relu(given["x"] @ weight)}

    call = Captured("tiny", make, stream)
    for size in (3, 5, 3, 5):
        x = torch.randn(size, 64, device="cuda")
        wanted = torch.relu(x @ weight)
        here = call({"x": x})["product"]
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            there = call({"x": x})["product"]
            torch.cuda.current_stream().synchronize()
        torch.testing.assert_close(here, wanted)
        assert torch.equal(here, there)
    assert len(call.graphs) == 2 and all(call.graphs.values())


@pytest.mark.gpu
def test_what_refuses_to_be_captured_harms_no_other(stream):
    def make(inputs):
        def run(given):
            if torch.cuda.is_current_stream_capturing() and len(given["x"]) == 3:
                raise ValueError("the length of an output is known only when it has run")
            return {"twice": given["x"] * 2}

        return run

    call = Captured("tiny", make, stream)
    with pytest.warns(UserWarning, match="without a CUDA graph: the length of an output"):
        assert call({"x": torch.ones(3, device="cuda")}) is None
    for number in (1.0, 4.0):
        given = torch.full((5,), number, device="cuda")
        assert torch.equal(call({"x": given})["twice"], given * 2)


def test_an_arena_is_used_by_one_set_of_tensors_after_the_other():
    arena = Arena()
    first = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7), "c": torch.tensor([True, False])}
    placed = arena.place(first)
    assert all(torch.equal(placed[name], tensor) for name, tensor in first.items())
    assert all(placed[name].dtype == tensor.dtype for name, tensor in first.items())
    other = arena.place({"x": torch.full((3, 2), 5.0)})["x"]
    assert other.data_ptr() == placed["a"].data_ptr() and placed["a"].tolist() == [[5.0] * 3] * 2
    larger = arena.place({"x": torch.zeros(LEAST_BYTES)})["x"]
    assert larger.data_ptr() != other.data_ptr() and other.tolist() == [[5.0, 5.0]] * 3
    assert arena.place({}) == {}

"""The kernels on a GPU against the decompositions in PyTorch, in every way they can be launched.

Each test runs with what NVRTC compiles, and again with what `make` compiles where nvcc is.
"""

import subprocess
import threading
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from melforge.common.engines.cuda_graphs import capture
from melforge.common.engines.tensorrt.api import load_tensorrt
from melforge.fastspeech.config import FastSpeechConfig
from melforge.fastspeech.model import FastSpeech
from melforge.fastspeech.operations import DECOMPOSED, Operations
from melforge.trt_plugins import kernel
from melforge.trt_plugins.operations import ADD_POS_ENC, KERNELS, REPEAT

pytestmark = pytest.mark.gpu
FLOATS = (torch.float32, torch.float16)
# batch, steps, frames, channels: whole words, odd rows, one of each, more steps than a block sums at a time
SIZES = [(1, 128, 640, 384), (3, 50, 77, 384), (2, 7, 33, 6), (4, 9, 17, 5), (1, 1, 1, 1), (2, 700, 301, 3)]


@pytest.fixture(scope="module", autouse=True, params=["nvrtc", pytest.param("make", marks=pytest.mark.nvcc)])
def compiler(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    if request.param == "make":
        command = ["make", "-C", str(Path(kernel.__file__).parent), f"BUILD={folder}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "BINARIES", folder)
        for cache in (kernel._load, kernel._load_module):
            cache.cache_clear()
        yield request.param


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(shape, device="cuda") * 100).to(dtype)


def durations(batch: int, steps: int) -> torch.Tensor:
    """Some of 0, a whole item of 0 in a batch of three."""
    counts = torch.randint(0, 9, (batch, steps), device="cuda")
    if batch == 3:
        counts[1] = 0
    return counts


def assert_same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.cuda.synchronize()
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_repeat_is_exact(sizes, dtype):
    torch.manual_seed(1)
    batch, steps, frames, channels = sizes
    x, counts = numbers(batch, steps, channels, dtype=dtype), durations(batch, steps)
    for length in (frames, 1, int(counts.sum(1).max()) + 3):  # the last one pads every item
        given = x, counts, torch.arange(length, device="cuda")
        assert_same(KERNELS.repeat(*given), DECOMPOSED.repeat(*given))


def test_repeat_shows_the_frames_it_is_asked_for():
    x, counts = numbers(2, 5, 8), durations(2, 5)
    for frames in (torch.arange(4, 9), torch.tensor([-3, 0, 7, 7, 2, 1000, 2**40])):
        given = x, counts, frames.cuda()
        assert_same(KERNELS.repeat(*given), DECOMPOSED.repeat(*given))


def test_counts_that_no_network_gives_stay_within_memory():
    x, frames = numbers(1, 5, 8), torch.arange(30, device="cuda")
    below = torch.tensor([[-(2**63), 2, -7, 3, 2**31]], device="cuda")
    assert_same(KERNELS.repeat(x, below, frames), DECOMPOSED.repeat(x, below.clamp(min=0), frames))
    above = torch.full((1, 5), 2**62, device="cuda")  # PyTorch's sums overflow here
    assert_same(KERNELS.repeat(x, above, frames), x[:, :1].expand(1, 30, 8))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_add_pos_enc_is_exact(sizes, dtype):
    torch.manual_seed(2)
    batch, _, frames, channels = sizes
    x, table = numbers(batch, frames, channels, dtype=dtype), numbers(frames + 5, channels, dtype=dtype)
    for lengths in (
        torch.randint(0, frames + 1, (batch,)),
        torch.full((batch,), frames + 99),
        -torch.ones(batch),
    ):
        given = x, lengths.long().cuda(), table
        assert_same(KERNELS.add_pos_enc(*given), DECOMPOSED.add_pos_enc(*given))


def test_halves_are_added_as_pytorch_adds_them_up_to_infinity():
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.float16)
    every, lengths = every[~every.isnan()].cuda(), torch.ones(1, dtype=torch.int64, device="cuda")
    for shift, count in product((0, 1, 777, 31744), (len(every), len(every) // 8 * 8)):  # either width
        x = every[:count].reshape(1, 1, -1)
        table = torch.stack([x[0, 0], x[0, 0].roll(shift)])
        wanted = DECOMPOSED.add_pos_enc(x, lengths, table)
        found = KERNELS.add_pos_enc(x, lengths, table)
        assert torch.equal(found.isnan(), wanted.isnan())
        assert_same(found.nan_to_num(0, 1, -1), wanted.nan_to_num(0, 1, -1))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_memory_that_begins_within_a_word_and_what_lies_around_the_result(dtype):
    x = numbers(1 + 2 * 5 * 8, dtype=dtype)[1:].view(2, 5, 8)
    counts, frames = durations(2, 5), torch.arange(7, device="cuda")
    around = torch.full((3 + 2 * 7 * 8 + 3,), 9, dtype=dtype, device="cuda")
    out = around[3:-3].view(2, 7, 8)
    stream = torch.cuda.current_stream().cuda_stream
    REPEAT.bind(x, counts, frames, out)(stream)
    assert_same(out, DECOMPOSED.repeat(x, counts, frames))
    lengths, table = torch.tensor([7, 4], device="cuda"), numbers(8, 8, dtype=dtype)
    repeated = out.clone()
    ADD_POS_ENC.bind(repeated, lengths, table, out)(stream)
    assert_same(out, DECOMPOSED.add_pos_enc(repeated, lengths, table))
    assert torch.equal(torch.cat([around[:3], around[-3:]]), torch.full((6,), 9, dtype=dtype, device="cuda"))


def test_nothing_to_make():
    frames, none = torch.arange(4, device="cuda"), torch.arange(0, device="cuda")
    assert KERNELS.repeat(numbers(0, 3, 8), durations(0, 3), frames).shape == (0, 4, 8)
    assert KERNELS.repeat(numbers(2, 3, 8), durations(2, 3), none).shape == (2, 0, 8)
    assert KERNELS.repeat(numbers(2, 3, 0), durations(2, 3), frames).shape == (2, 4, 0)
    assert KERNELS.add_pos_enc(numbers(2, 0, 8), none.new_ones(2), numbers(1, 8)).shape == (2, 0, 8)


def test_what_does_not_fit_is_refused():
    x, counts, frames = numbers(2, 5, 8), durations(2, 5), torch.arange(7, device="cuda")
    lengths, table = torch.ones(2, dtype=torch.int64, device="cuda"), numbers(6, 8)
    for given, message in (
        ((x, counts.int(), frames), "counts is int32; the kernel takes int64"),
        ((x, counts[:, :4], frames), r"counts is \[2, 4\]; it must be \[2, 5\]"),
        ((x, counts.cpu(), frames), "counts is on cpu; x is on cuda:0"),
        ((x.double(), counts, frames), "x is float64"),
        ((x.clone().requires_grad_(), counts, frames), "x wants a gradient"),
    ):
        with pytest.raises(ValueError, match=message):
            KERNELS.repeat(*given)
    for given, message in (
        ((x.half(), lengths, table), "table is float32; the kernel takes float16"),
        ((x, lengths, table[:5]), "positions up to 4, and x has 5"),
        ((x, lengths, table[:, :4]), r"table is \[6, 4\]; it must be \[any, 8\]"),
    ):
        with pytest.raises(ValueError, match=message):
            KERNELS.add_pos_enc(*given)
    with pytest.raises(ValueError, match="x must be contiguous"):
        REPEAT.bind(x.transpose(1, 2), numbers(2, 8).long(), frames, numbers(2, 7, 5))


def test_other_streams_and_threads():
    x, counts, frames = numbers(2, 50, 384), durations(2, 50), torch.arange(99, device="cuda")
    wanted, found = DECOMPOSED.repeat(x, counts, frames), []
    torch.cuda.synchronize()

    def run(stream: torch.cuda.Stream) -> None:
        out = torch.empty_like(wanted)
        REPEAT.bind(x, counts, frames, out)(stream.cuda_stream)
        stream.synchronize()
        found.append(out)

    threads = [threading.Thread(target=run, args=(torch.cuda.Stream(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    for out in found:
        assert_same(out, wanted)


def test_between_two_networks_in_one_cuda_graph():
    """Network -> both kernels -> network, captured once and replayed on other numbers in the same memory."""
    torch.manual_seed(3)
    before, after = (
        nn.Linear(24, 32).cuda().requires_grad_(False),
        nn.Linear(32, 10).cuda().requires_grad_(False),
    )
    x, counts, frames = numbers(2, 12, 24), durations(2, 12), torch.arange(40, device="cuda")
    lengths, table = counts.sum(1).clamp(max=40), numbers(41, 32)
    encoded, repeated, placed = numbers(2, 12, 32), numbers(2, 40, 32), numbers(2, 40, 32)
    first = REPEAT.bind(encoded, counts, frames, repeated)
    second = ADD_POS_ENC.bind(repeated, lengths, table, placed)

    def run() -> torch.Tensor:
        stream = torch.cuda.current_stream().cuda_stream
        encoded.copy_(before(x))
        first(stream)
        second(stream)
        return after(placed)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # the libraries' first run is not captured
        run()
    side.synchronize()
    graph, mel = capture(run, side, error_mode="global")
    for _ in range(3):
        x.copy_(numbers(2, 12, 24))
        counts.copy_(durations(2, 12))
        lengths.copy_(counts.sum(1).clamp(max=40))
        graph.replay()
        torch.testing.assert_close(encoded, before(x), rtol=1e-4, atol=1e-2)
        made = DECOMPOSED.repeat(encoded, counts, frames)
        assert_same(placed, DECOMPOSED.add_pos_enc(made, lengths, table))
        torch.testing.assert_close(mel, after(placed), rtol=1e-4, atol=1e-2)


def test_a_bound_launch_allocates_nothing():
    x, counts, frames = numbers(2, 12, 24), durations(2, 12), torch.arange(40, device="cuda")
    launch = REPEAT.bind(x, counts, frames, numbers(2, 40, 24))
    stream = torch.cuda.current_stream().cuda_stream
    launch(stream)
    torch.cuda.synchronize()

    def state() -> tuple[int, int]:
        allocations = torch.cuda.memory_stats()["allocation.all.allocated"]
        return allocations, torch.cuda.mem_get_info()[0]

    before = state()
    for _ in range(100):
        launch(stream)
    torch.cuda.synchronize()
    assert state() == before


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float16, 5e-3)], ids=str)
def test_a_network_of_kernels_makes_the_same_mel(dtype, tolerance):
    config = FastSpeechConfig(mask_padding=True, phoneme_side_n_layer=2, mel_side_n_layer=2)

    def build(operations: Operations) -> FastSpeech:
        torch.manual_seed(4)
        network = FastSpeech(config, operations).eval().requires_grad_(False)
        network.length_regulator.duration_predictor.linear_layer.bias += 1.5  # a few frames a symbol
        return network.to("cuda", dtype)

    lengths = torch.tensor([41, 30, 1], device="cuda")
    symbols = torch.randint(1, config.n_symbols, (3, 41), device="cuda")
    symbols *= torch.arange(41, device="cuda") < lengths[:, None]
    alpha = torch.ones(1, dtype=dtype, device="cuda")
    for frames in (400, 60):  # with room behind the mel, and cropped
        given = symbols, lengths, alpha, torch.arange(frames, device="cuda")
        found, wanted = (build(each).synthesise(*given) for each in (KERNELS, DECOMPOSED))
        assert found[0].abs().max() > 0.1 and int(found[1].max()) > 40
        for value, expected in zip(found, wanted, strict=True):
            torch.testing.assert_close(value, expected, atol=tolerance, rtol=0)


@pytest.mark.trt
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
def test_enqueue_of_the_plugins_that_the_registry_makes(dtype):
    trt = load_tensorrt().api
    from melforge.trt_plugins.registry import register

    register()
    types = {torch.float32: "FLOAT", torch.float16: "HALF", torch.int32: "INT32", torch.int64: "INT64"}

    def describe(tensor: torch.Tensor):
        described = trt.PluginTensorDesc()
        described.type, described.dims = (
            getattr(trt.DataType, types[tensor.dtype]),
            trt.Dims(tuple(tensor.shape)),
        )
        described.format = trt.TensorFormat.LINEAR
        return described

    def run(name: str, inputs: list[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
        creator = trt.get_plugin_registry().get_creator(name, "1", "melforge")
        made = creator.create_plugin(name, trt.PluginFieldCollection([]), trt.TensorRTPhase.RUNTIME)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        pointers = [tensor.data_ptr() for tensor in inputs]
        described = [describe(tensor) for tensor in inputs]
        made.enqueue(described, [describe(out)], pointers, [out.data_ptr()], 0, stream.cuda_stream)
        stream.synchronize()
        return out

    x, counts, frames = numbers(3, 50, 24, dtype=dtype), durations(3, 50), torch.arange(300, device="cuda")
    repeated = run("Repeat", [x, counts, frames], numbers(3, 300, 24, dtype=dtype))
    assert_same(repeated, DECOMPOSED.repeat(x, counts, frames))
    if dtype.is_floating_point:
        lengths, table = counts.sum(1).clamp(max=300), numbers(301, 24, dtype=dtype)
        found = run("AddPosEnc", [repeated, lengths, table], numbers(3, 300, 24, dtype=dtype))
        assert_same(found, DECOMPOSED.add_pos_enc(repeated, lengths, table))


@pytest.mark.trt
def test_between_two_engines_in_one_cuda_graph():
    """What stands in for a plugin where TensorRT takes none: engine -> kernels -> engine on one stream."""
    trt = load_tensorrt().api
    torch.manual_seed(6)
    stream = torch.cuda.Stream()

    class Engine:
        """A product with a matrix, from `source` into `result`."""

        def __init__(self, source: torch.Tensor, weight: torch.Tensor, result: torch.Tensor):
            helper, kind = onnx.helper, onnx.TensorProto.FLOAT
            graph = helper.make_graph(
                [helper.make_node("MatMul", ["x", "w"], ["y"])],
                "product",
                [helper.make_tensor_value_info("x", kind, list(source.shape))],
                [helper.make_tensor_value_info("y", kind, list(result.shape))],
                [onnx.numpy_helper.from_array(weight.cpu().numpy().astype(np.float32), "w")],
            )
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
            self.logger = trt.Logger(trt.Logger.ERROR)
            builder = trt.Builder(self.logger)
            strongly_typed = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
            network = builder.create_network(0 if strongly_typed is None else 1 << int(strongly_typed))
            parser = trt.OnnxParser(network, self.logger)
            assert parser.parse(model.SerializeToString()), parser.get_error(0).desc()
            plan = builder.build_serialized_network(network, builder.create_builder_config())
            self.runtime = trt.Runtime(self.logger)
            self.engine = self.runtime.deserialize_cuda_engine(bytes(memoryview(plan)))
            self.context = self.engine.create_execution_context()
            self.context.set_tensor_address("x", source.data_ptr())
            self.context.set_tensor_address("y", result.data_ptr())

        def __call__(self) -> None:
            assert self.context.execute_async_v3(stream.cuda_stream)

    x, counts, frames = (
        torch.randn(2, 12, 24, device="cuda"),
        durations(2, 12),
        torch.arange(40, device="cuda"),
    )
    lengths, table = counts.sum(1).clamp(max=40), torch.randn(41, 32, device="cuda")
    encoded, mel = torch.empty(2, 12, 32, device="cuda"), torch.empty(2, 40, 10, device="cuda")
    repeated, placed = torch.empty(2, 40, 32, device="cuda"), torch.empty(2, 40, 32, device="cuda")
    into, out_of = torch.randn(24, 32, device="cuda"), torch.randn(32, 10, device="cuda")
    before, after = Engine(x, into, encoded), Engine(placed, out_of, mel)
    first = REPEAT.bind(encoded, counts, frames, repeated)
    second = ADD_POS_ENC.bind(repeated, lengths, table, placed)

    def run() -> None:
        before()
        first(stream.cuda_stream)
        second(stream.cuda_stream)
        after()

    torch.cuda.synchronize()
    run()  # TensorRT for RTX compiles when an engine first runs
    stream.synchronize()
    graph, _ = capture(run, stream, error_mode="global")
    for _ in range(3):
        x.normal_()
        counts.copy_(durations(2, 12))
        lengths.copy_(counts.sum(1).clamp(max=40))
        mel.zero_()
        graph.replay()
        torch.cuda.synchronize()
        made = DECOMPOSED.add_pos_enc(DECOMPOSED.repeat(x @ into, counts, frames), lengths, table)
        wanted = made @ out_of
        torch.testing.assert_close(mel, wanted, atol=5e-3 * float(wanted.abs().max()), rtol=0)  # TF32

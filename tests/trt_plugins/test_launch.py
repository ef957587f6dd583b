"""What the kernels are launched with, and that they compile. test_gpu.py runs them."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from melforge.common.cuda_streams import bindings
from melforge.fastspeech.operations import DECOMPOSED
from melforge.trt_plugins import kernel, operations
from melforge.trt_plugins.operations import ADD_POS_ENC, KERNELS, NUMBER_BYTES, REPEAT
from melforge.trt_plugins.tacotron2_decoder import launch as tacotron2_decoder
from melforge.trt_plugins.triton_setup import KeptKey, set_up

FOLDER = Path(kernel.__file__).parent
SOURCES = [REPEAT.source, ADD_POS_ENC.source, tacotron2_decoder.SOURCE]
ENTRIES = {
    REPEAT.source: [f"repeat_{word}" for word in (16, 8, 4, 2)],
    ADD_POS_ENC.source: [f"add_pos_enc_{word}" for word in ("float_16", "float_4", "half_16", "half_2")],
    tacotron2_decoder.SOURCE: ["decode"],
}


def repeat(dtype: str, sizes: tuple[int, int, int, int], x: int = 16, out: int = 16) -> None:
    """Launches it for sizes B, N, T, C and addresses of x and of the output."""
    batch, steps, frames, channels = sizes
    REPEAT.launch(0, dtype, [(batch, steps, channels), (batch, steps), (frames,)], (x, 16, 16, out))


def add_pos_enc(dtype: str, sizes: tuple[int, int, int, int]) -> None:
    """Launches it for sizes B, T, C and rows of the table."""
    batch, frames, channels, rows = sizes
    ADD_POS_ENC.launch(0, dtype, [(batch, frames, channels), (batch,), (rows, channels)], (16, 16, 16, 16))


@pytest.fixture
def launched(monkeypatch) -> list[tuple]:
    """What would be launched: the entry, the number of blocks and the arguments."""
    found = []
    monkeypatch.setattr(
        operations,
        "Launch",
        lambda _, entry, __, blocks, arguments, keep: found.append((entry, blocks, arguments)),
    )
    return found


@pytest.mark.parametrize(
    ("dtype", "channels", "offset", "word"),
    [
        ("float32", 384, 0, 16),
        ("float32", 6, 0, 8),
        ("float32", 5, 0, 4),
        ("float16", 384, 0, 16),
        ("float16", 6, 0, 4),
        ("float16", 5, 0, 2),
        ("int32", 384, 8, 8),  # memory that begins in the middle of a word
    ],
)
def test_repeat_moves_rows_in_the_widest_words_that_fit(launched, dtype, channels, offset, word):
    repeat(dtype, (2, 7, 9, channels), 4096 + offset, 8192)
    ((entry, blocks, arguments),) = launched
    assert entry == f"repeat_{word}" and entry in ENTRIES[REPEAT.source]
    assert blocks == 4  # nine frames of an item are a warp each, in two blocks of eight
    assert arguments[4:] == (7, 9, channels * NUMBER_BYTES[dtype] // word)


@pytest.mark.parametrize(
    ("dtype", "channels", "entry"),
    [
        ("float32", 8, "add_pos_enc_float_16"),
        ("float32", 6, "add_pos_enc_float_4"),
        ("float16", 8, "add_pos_enc_half_16"),
        ("float16", 6, "add_pos_enc_half_2"),
    ],
)
def test_add_pos_enc_adds_in_words_of_16_bytes_where_rows_fit_them(launched, dtype, channels, entry):
    add_pos_enc(dtype, (3, 5, channels, 6))
    assert launched[0][:2] == (entry, 2) and entry in ENTRIES[ADD_POS_ENC.source]


def test_nothing_to_make_launches_nothing(launched):
    for sizes in ((0, 5, 7, 4), (2, 5, 0, 4), (2, 5, 7, 0)):
        repeat("float32", sizes)
    for sizes in ((0, 5, 4, 9), (2, 0, 4, 9), (2, 5, 0, 9)):
        add_pos_enc("float32", sizes)
    assert [blocks for _, blocks, _ in launched] == [0] * 6


def test_more_than_a_launch_can_make_is_refused():
    with pytest.raises(ValueError, match="more than one launch can have"):
        repeat("float32", (2**17, 5, 2**17, 4))


def given(**changes) -> dict[str, torch.Tensor]:
    tensors = {
        "x": torch.zeros(2, 3, 4),
        "counts": torch.ones(2, 3, dtype=torch.int64),
        "frames": torch.arange(5),
        "out": torch.zeros(2, 5, 4),
    }
    return tensors | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "the kernel runs on a GPU"),
        ({"x": torch.zeros(2, 3, 4, dtype=torch.float64)}, "x is float64; the kernel takes float32, float16"),
        ({"x": torch.zeros(3, 4)}, r"x is \[3, 4\]; it must be \[any, any, any\]"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        REPEAT.bind(*given(**changes).values())
    with pytest.raises(ValueError, match="runs on a GPU"):
        KERNELS.repeat(*list(given().values())[:3])


def test_a_plugins_sizes_are_checked_before_its_addresses_are_used():
    with pytest.raises(ValueError, match="at least one step"):
        repeat("float32", (1, 0, 5, 4))
    with pytest.raises(ValueError, match="positions up to 5, and x has 6: it needs 7 rows"):
        add_pos_enc("float32", (1, 6, 4, 6))


def test_the_kernels_offer_what_the_decompositions_do():
    assert KERNELS._fields == DECOMPOSED._fields


def test_a_stale_binary_is_not_loaded(tmp_path, monkeypatch):
    source, binary = tmp_path / "repeat.cu", tmp_path / "repeat.fatbin"
    source.write_text("")
    monkeypatch.setattr(kernel, "BINARIES", tmp_path)
    assert kernel.compiled(source) is None
    binary.write_bytes(b"new")
    os.utime(source, (1000, 1000))
    assert kernel.compiled(source) == b"new"
    os.utime(binary, (999, 999))
    assert kernel.compiled(source) is None


@pytest.mark.nvcc
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_nvcc_compiles_every_entry_without_a_warning(tmp_path, source):
    cubin = tmp_path / "kernel.cubin"
    words = "nvcc -cubin -arch=sm_90 -std=c++17 -Werror=all-warnings"
    subprocess.run([*words.split(), source, "-o", cubin], check=True)
    assert all(f".text.{entry}\0".encode() in cubin.read_bytes() for entry in ENTRIES[source])


@pytest.mark.nvrtc
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_nvrtc_compiles_every_entry_without_headers(source):
    image = kernel.compile_for(source, "sm_90")
    assert all(f".text.{entry}\0".encode() in image for entry in ENTRIES[source])


@pytest.mark.nvrtc
def test_nvrtc_says_what_it_does_not_understand(tmp_path):
    wrong = tmp_path / "wrong.cu"
    wrong.write_text("__global__ void broken() { nonsense; }")
    with pytest.raises(RuntimeError, match=r"wrong.cu does not compile for sm_90: .*nonsense"):
        kernel.compile_for(wrong, "sm_90")


def test_without_cuda_bindings_the_message_says_what_to_install():
    with pytest.raises(ValueError, match="pip install cuda-bindings"):
        bindings("no_such_module")


def test_the_makefile_compiles_every_kernel_there_is():
    made = subprocess.run(
        ["make", "-n", "-B", "-C", str(FOLDER)], check=True, capture_output=True, text=True
    ).stdout
    assert all(f"-fatbin {source.relative_to(FOLDER)}" in made for source in SOURCES)
    assert set(FOLDER.glob("*/*.cu")) == set(SOURCES)


def test_what_triton_calls_its_compiler_is_kept_beside_the_kernels(tmp_path, monkeypatch):
    """Threads wait for the one that has begun; a second process only reads it."""
    naming = pytest.importorskip("triton.runtime.cache")
    set_up()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made = []

    def make() -> str:
        made.append(naming.triton_key())
        return made[0]

    for _ in range(2):
        key = KeptKey(make)
        with ThreadPoolExecutor(2) as threads:
            assert {future.result() for future in (threads.submit(key), threads.submit(key))} == set(made)
    assert len(made) == 1

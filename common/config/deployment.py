"""How a model is run: the keys that NVIDIA's hparams files have for engines, and a few of ours.

The `trt_` keys keep NVIDIA's names, but their lengths hold for every backend: a bucket is a length that an
engine is made for, whatever runs it.
"""

from __future__ import annotations

from dataclasses import dataclass

from melforge.common.errors import InputError, unknown

PRECISIONS = ("fp32", "fp16")
MOST_THREADS = 1024  # of an engine or a server; of its processes too
ONNX_PROVIDERS = ("cuda", "tensorrt")  # what ONNX Runtime runs on a GPU with


@dataclass(frozen=True, order=True)
class Bucket:
    """Lengths that one engine covers: symbols of text (0 but for acoustic models) and frames of mel."""

    text: int
    mel: int

    def __str__(self) -> str:
        return f"{self.text}x{self.mel}" if self.text else str(self.mel)


@dataclass(frozen=True)
class Deployment:
    """One model's engines. The defaults ask for nothing: dynamic lengths, the weights' own precision.

    With `trt_multi_engine` the three lists count, else the three single values. Lengths are symbols (input)
    and mel frames (output); the bucket of a vocoder or recogniser is its mel's length, the output's, and
    needs no input length.
    """

    batch_size: int | None = None  # utterances at a time; None: the runner decides
    mask_padding: bool | None = None  # of a vocoder's buckets; None: not those of published weights
    backend: str | None = None  # what a command runs it on; None: as --backend says
    precision: str = "fp32"  # of engines on the backend trt
    trt_file_path: str = ""
    trt_max_input_seq_len: int | None = None
    trt_max_output_seq_len: int | None = None
    trt_max_ws_size: float = 8.0  # GB that building an engine may take
    trt_force_build: bool = False  # engines that a process loads are built anew by it
    no_build: bool = False  # an engine that is missing is an error where it is loaded, and not built
    trt_cuda_graph: bool = False  # a CUDA graph for each shape, where it gives the same bits as a plain run
    trt_multi_engine: bool = False
    trt_file_path_list: tuple[str, ...] = ()
    trt_max_input_seq_len_list: tuple[int, ...] = ()
    trt_max_output_seq_len_list: tuple[int, ...] = ()
    kernels: tuple[str, ...] = ()  # stages that run on a CUDA kernel of ours, whatever runs the others
    batch_frames: int = 4096  # that a vocoder's CUDA kernels compute at a time: memory grows with them
    engine_memory_limit: int | None = None  # MB of a model's engines that stay loaded; None: all of them
    onnx_provider: str | None = None  # of the backend onnx on a GPU; None: cuda

    def __post_init__(self) -> None:
        counts = "batch_size trt_max_input_seq_len trt_max_output_seq_len batch_frames engine_memory_limit"
        for name in counts.split():
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}")
        if self.precision not in PRECISIONS:
            raise InputError(unknown("precision", self.precision, PRECISIONS))
        if self.onnx_provider not in (None, *ONNX_PROVIDERS):
            raise InputError(unknown("onnx_provider", self.onnx_provider, ONNX_PROVIDERS))
        if self.no_build and self.trt_force_build:
            raise InputError("no_build and trt_force_build contradict each other: leave one of them out")
        if not 0 < self.trt_max_ws_size < float("inf"):
            raise InputError(f"trt_max_ws_size must be a number of GB above 0, not {self.trt_max_ws_size}")
        lists = {
            name: getattr(self, name)
            for name in ("trt_max_input_seq_len_list", "trt_max_output_seq_len_list", "trt_file_path_list")
        }
        for name, values in list(lists.items())[:2]:
            if any(value < 1 for value in values):
                raise InputError(f"{name} {list(values)}: a length must be at least 1")
            if list(values) != sorted(set(values)):
                raise InputError(f"{name} {list(values)} must ascend, without a value twice")
        sizes = {name: len(values) for name, values in lists.items() if values}
        if len(set(sizes.values())) > 1:
            counts = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            raise InputError(f"the buckets' lists contradict each other: {counts}; one of each for a bucket")
        if len(set(self.trt_file_path_list)) < len(self.trt_file_path_list):
            raise InputError("trt_file_path_list names a file twice: each bucket has an engine of its own")
        if self.trt_multi_engine and not self.trt_max_output_seq_len_list:
            raise InputError("trt_multi_engine needs trt_max_output_seq_len_list (and that of the input)")

    def buckets(self, kind: str) -> tuple[Bucket, ...]:
        """The buckets in ascending order, of a kind of models; none: dynamic lengths."""
        if self.trt_multi_engine:
            texts, mels = self.trt_max_input_seq_len_list, self.trt_max_output_seq_len_list
        else:
            texts, mels = (
                () if value is None else (value,)
                for value in (self.trt_max_input_seq_len, self.trt_max_output_seq_len)
            )
        if kind != "acoustic":
            return tuple(Bucket(0, mel) for mel in mels)
        if bool(texts) != bool(mels):
            have, lack = ("output", "input") if mels else ("input", "output")
            raise InputError(
                f"buckets with a maximal {have} length, but without trt_max_{lack}_seq_len"
                f"{'_list' if self.trt_multi_engine else ''}: an acoustic model needs both"
            )
        return tuple(Bucket(text, mel) for text, mel in zip(texts, mels, strict=True))

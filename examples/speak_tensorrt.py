"""Speaks a sentence with TensorRT engines and without PyTorch, FastPitch -> HiFi-GAN: for deployment.

Needs numpy, pycuda, a TensorRT (`tensorrt`, or TensorRT for RTX as `tensorrt_rtx_bindings`), and the engines
of both models, in either precision, as scripts/build.py builds them for any length:

    python scripts/build.py --acoustic fastpitch --vocoder hifigan --precision fp16 \\
        --set fastpitch.trt_file_path=engines/fastpitch.trt --set hifigan.trt_file_path=engines/hifigan.trt

Symbol ids are made wherever Melforge is installed; they are all that the target machine needs of a text:

    python examples/speak_tensorrt.py --write-ids ids.npy --text "Hello there."
    python examples/speak_tensorrt.py --ids ids.npy --engines engines -o speech.wav

It speaks with a vocoder of either kind, with a harmonic source or without. On an H200 it gave the runner's
samples but for the file's rounding, with one without (docs/tensorrt.md); with a source it was not run there.
Without a GPU its logic is tested with stand-ins for pycuda and TensorRT, for both kinds.
What common/runner.py does beside this: several utterances, pauses, fades, denoising, CUDA graphs, buckets.
"""

import argparse
import importlib
import math
import re
import wave
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

DTYPES = {"FLOAT": np.float32, "HALF": np.float16, "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_}
LONGEST_SYMBOL = 75  # frames; what is longer is an error of the network
RATE, HOP = 22050, 256  # samples a second, samples a mel frame
SEED = 0  # of the noise, as where the runner is given none


class DeviceArray:
    """An array in the GPU's memory; the memory goes with it."""

    def __init__(self, cuda: Any, shape: tuple[int, ...], dtype: Any):
        self.cuda, self.shape, self.dtype = cuda, shape, np.dtype(dtype)
        self.memory = cuda.mem_alloc(max(1, math.prod(shape) * self.dtype.itemsize))

    def to_numpy(self, stream: Any) -> np.ndarray:
        host = self.cuda.pagelocked_empty(self.shape, self.dtype)
        self.cuda.memcpy_dtoh_async(host, self.memory, stream)
        stream.synchronize()
        return np.array(host)


class Engine:
    """One engine file. It takes numpy's arrays or another engine's outputs, and leaves its own on the GPU."""

    def __init__(self, path: Path, trt: Any, cuda: Any, stream: Any, gpu: str):
        self.path, self.cuda, self.stream = path, cuda, stream
        self.logger = trt.Logger(trt.Logger.ERROR)
        self.runtime = trt.Runtime(self.logger)
        self.engine = self.runtime.deserialize_cuda_engine(path.read_bytes())
        if self.engine is None:
            raise SystemExit(
                f"{path} does not load: it is of another TensorRT than {trt.__version__}, or damaged"
            )
        config = self.engine.create_runtime_config()
        self.cache = None
        if hasattr(config, "create_runtime_cache"):  # TensorRT for RTX compiles here, once for each GPU
            words = re.sub(r"[^A-Za-z0-9]+", "-", gpu).strip("-")
            self.cache_file = path.with_name(f"{path.name}.{words}.tensorrt_rtx-{trt.__version__}.cache")
            self.cache = config.create_runtime_cache()
            if self.cache_file.is_file():
                self.cache.deserialize(self.cache_file.read_bytes())
            config.set_runtime_cache(self.cache)
        self.context = self.engine.create_execution_context(config)
        names = [self.engine.get_tensor_name(i) for i in range(self.engine.num_io_tensors)]
        self.outputs = [n for n in names if self.engine.get_tensor_mode(n) != trt.TensorIOMode.INPUT]
        self.inputs = {n: tuple(self.engine.get_tensor_shape(n)) for n in names if n not in self.outputs}

    def __call__(self, **inputs: np.ndarray | DeviceArray) -> dict[str, DeviceArray]:
        held = []
        for name, value in inputs.items():
            if not self.context.set_input_shape(name, tuple(value.shape)):
                raise SystemExit(f"{self.path} is not built for {name} of shape {list(value.shape)}")
            if isinstance(value, np.ndarray):
                host = np.ascontiguousarray(value)
                value = DeviceArray(self.cuda, host.shape, host.dtype)
                self.cuda.memcpy_htod_async(value.memory, host, self.stream)
                held.append(host)  # until it is copied
            self.context.set_tensor_address(name, int(value.memory))
            held.append(value)
        made = {}
        for name in self.outputs:
            dtype = DTYPES[self.engine.get_tensor_dtype(name).name]
            made[name] = DeviceArray(self.cuda, tuple(self.context.get_tensor_shape(name)), dtype)
            self.context.set_tensor_address(name, int(made[name].memory))
        if not self.context.execute_async_v3(self.stream.handle):
            raise SystemExit(f"{self.path} failed")
        self.stream.synchronize()  # before what is held goes
        return made

    def save_cache(self) -> None:
        if self.cache is not None:
            self.cache_file.write_bytes(bytes(memoryview(self.cache.serialize())))


def frames_of(duration: np.ndarray, pace: float = 1.0) -> np.ndarray:
    """Predicted frames float32 [T_text] -> whole ones, half up; what would vanish gets one each."""
    frames = (duration.clip(0, LONGEST_SYMBOL) / pace + 0.5).astype(np.int64)
    return frames if frames.any() else np.ones_like(frames)


def regulate(frames: np.ndarray) -> np.ndarray:
    """Frames of each symbol int64 [T_text] -> the symbol of each frame int64 [1, T_mel]."""
    return np.repeat(np.arange(len(frames), dtype=np.int64), frames)[None]


@cache
def normal_values() -> np.ndarray:
    """What 16 random bits stand for, float32 [65536]: quantiles, scaled to a variance of 1."""
    shares = (np.arange(1 << 15, 1 << 16) + 0.5) / (1 << 16)
    upper = np.array([NormalDist().inv_cdf(share) for share in shares.tolist()])
    upper /= np.sqrt(np.mean(upper**2))
    return np.concatenate([-upper[::-1], upper]).astype(np.float32)


def normal_noise(seed: int, count: int) -> np.ndarray:
    """The first numbers of a seed, float32 [count], as common/noise.py draws them."""
    words = np.random.Philox(key=seed, counter=0).random_raw(-(-count // 4))
    return normal_values()[words.astype("<u8").view("<u2")[:count]]


def source_of(pitch: np.ndarray, channels: int) -> np.ndarray:
    """Pitch at the frames' centres, cycles a sample [1, T_mel] -> the input `source` [1, channels, T_mel].

    The phase there in cycles, less the whole ones, the pitch, and noise.
    """
    exact, frames = pitch[0].astype(np.float64), pitch.shape[1]
    phase = np.concatenate([[0], np.cumsum(0.5 * HOP * (exact[1:] + exact[:-1]))])
    noise = normal_noise(SEED, frames * (channels - 2)).reshape(frames, channels - 2)
    return np.stack([phase - np.floor(phase), exact, *noise.T])[None].astype(np.float32)


def speak(engines: dict[str, Engine], ids: np.ndarray, stream: Any, pace: float = 1.0) -> np.ndarray:
    """Symbol ids int64 [T_text] -> samples float32 [S]."""
    lengths = np.array([len(ids)], np.int64)
    encoded = engines["encoder"](symbols=ids[None].astype(np.int64), lengths=lengths)
    index = regulate(frames_of(encoded["duration"].to_numpy(stream)[0], pace))
    decoded = engines["decoder"](
        encoded=encoded["encoded"],
        lengths=lengths,
        pitch=encoded["pitch"],
        repeat_index=index,
        mel_lengths=np.array([index.shape[1]], np.int64),
    )
    inputs = {"mel": decoded["mel"]}
    if "pitch" in engines:
        pitch = engines["pitch"](mel=decoded["mel"])["pitch"].to_numpy(stream)
        inputs["source"] = source_of(pitch, engines["generator"].inputs["source"][1])
    return engines["generator"](**inputs)["audio"].to_numpy(stream)[0]


def write_wav(path: Path, samples: np.ndarray, rate: int = RATE) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples.clip(-1, 1) * 32767).round().astype("<i2").tobytes())


def write_ids(path: Path, text: str, voice: str | None) -> None:
    """The ids of a text's first utterance, by the voice's own frontend: Melforge, but no PyTorch."""
    from melforge.common.weights.voices import load_voice

    frontend = load_voice(voice).source("fastpitch").frontend.build()
    np.save(path, frontend(text).utterances[0].ids)


def import_tensorrt() -> Any:
    for name in ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings"):
        try:
            trt = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(trt, "Runtime"):
            return trt
    raise SystemExit("no TensorRT is installed: pip install tensorrt")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ids", type=Path, metavar="FILE", help="symbol ids (.npy)")
    parser.add_argument(
        "--engines", type=Path, default=Path("engines"), metavar="FOLDER", help="of the engines"
    )
    parser.add_argument("--pace", type=float, default=1.0, help="speed, 2 is twice as fast (default: 1)")
    parser.add_argument("-o", "--output", type=Path, default=Path("speech.wav"), metavar="FILE")
    parser.add_argument("--write-ids", type=Path, metavar="FILE", help="write the ids of --text, and stop")
    parser.add_argument("--text", help="for --write-ids")
    parser.add_argument("--voice", help="for --write-ids (default: the shipped one)")
    args = parser.parse_args()
    if args.write_ids:
        write_ids(args.write_ids, args.text or parser.error("--write-ids needs --text"), args.voice)
        return
    if not args.ids:
        parser.error("give --ids")

    def existing(path: Path) -> Path:
        return path if path.is_file() else parser.error(f"{path} not found: --help says how it is made")

    ids = existing(args.ids)
    stages = {"encoder": "fastpitch", "decoder": "fastpitch", "generator": "hifigan"}
    files = {stage: existing(args.engines / f"{model}.{stage}.trt") for stage, model in stages.items()}
    try:
        import pycuda.driver as cuda
    except ImportError as error:  # of a library of the driver, too
        raise SystemExit(f"pycuda cannot be used here ({error}): pip install pycuda, beside a GPU") from None

    trt = import_tensorrt()
    cuda.init()
    device = cuda.Device(0)
    current = device.retain_primary_context()  # the one that TensorRT works in
    current.push()
    try:
        stream = cuda.Stream()
        engines = {stage: Engine(path, trt, cuda, stream, device.name()) for stage, path in files.items()}
        if "source" in engines["generator"].inputs:
            path = existing(args.engines / "hifigan.pitch.trt")
            engines["pitch"] = Engine(path, trt, cuda, stream, device.name())
        samples = speak(engines, np.load(ids), stream, args.pace)
        for engine in engines.values():
            engine.save_cache()
        write_wav(args.output, samples)
        print(f"{args.output}: {len(samples) / RATE:.2f} s")
        del engines, stream
    finally:
        current.pop()


if __name__ == "__main__":
    main()

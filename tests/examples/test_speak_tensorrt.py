"""examples/speak_tensorrt.py with stand-ins: pycuda's memory is the host's, and ONNX Runtime is TensorRT."""

import ctypes
import subprocess
import sys
import wave
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from examples import speak_tensorrt
from melforge.common.arrays import repeat_index, to_numpy
from melforge.common.config.deployment import Deployment
from melforge.common.engines.backends import make_engine
from melforge.common.noise import draw
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.stages.choose import choose_stages
from melforge.common.weights.voices import load_voice
from melforge.fastpitch.infer import round_durations

NAMES = {"float32": "FLOAT", "int64": "INT64"}


class Memory:
    def __init__(self, size: int):
        self.content = np.zeros(size, np.uint8)

    def __int__(self) -> int:
        return self.content.ctypes.data


def view(address: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype).reshape(shape)


def copy(to, source, stream) -> None:
    host, memory = (to, source) if isinstance(source, Memory) else (source, to)
    there = memory.content[: host.nbytes].view(host.dtype).reshape(host.shape)
    if host is to:
        host[...] = there
    else:
        there[...] = host


CUDA = SimpleNamespace(
    mem_alloc=Memory,
    memcpy_htod_async=copy,
    memcpy_dtoh_async=copy,
    pagelocked_empty=np.empty,
    init=lambda: None,
    Device=lambda number: SimpleNamespace(
        name=lambda: "No GPU 1",
        retain_primary_context=lambda: SimpleNamespace(push=lambda: None, pop=lambda: None),
    ),
    Stream=lambda: SimpleNamespace(handle=1, synchronize=lambda: None),
)


class Context:
    def __init__(self, engine):
        self.engine, self.shapes, self.addresses = engine, {}, {}
        self.set_tensor_address = self.addresses.__setitem__

    def set_input_shape(self, name, shape) -> bool:
        self.shapes[name] = shape
        return max(shape) < 1000

    def get_tensor_shape(self, name):
        self.made = self.made if hasattr(self, "made") and self.key == self.shapes else self.run()
        self.key = dict(self.shapes)
        return self.made[name].shape

    def run(self):
        return self.engine.run(
            **{
                t.name: view(self.addresses[t.name], self.shapes[t.name], t.dtype).copy()
                for t in self.engine.run.stage.inputs
            }
        )

    def execute_async_v3(self, stream) -> bool:
        for name, value in self.run().items():
            view(self.addresses[name], value.shape, value.dtype)[...] = value
        return stream == 1


class FakeEngine:
    """What the program asks of an engine, over one of ONNX Runtime."""

    def __init__(self, run):
        self.run = run
        self.tensors = {t.name: t for t in (*run.stage.inputs, *run.stage.outputs)}
        self.num_io_tensors = len(self.tensors)
        self.create_execution_context = lambda config: Context(self)

    def create_runtime_config(self):
        cache = SimpleNamespace(deserialize=lambda content: True, serialize=lambda: b"compiled")
        return SimpleNamespace(create_runtime_cache=lambda: cache, set_runtime_cache=lambda cache: None)

    def get_tensor_name(self, i):
        return list(self.tensors)[i]

    def get_tensor_mode(self, name):
        return "INPUT" if name in [t.name for t in self.run.stage.inputs] else "OUTPUT"

    def get_tensor_shape(self, name):
        return [dim if isinstance(dim, int) else -1 for dim in self.tensors[name].dims]

    def get_tensor_dtype(self, name):
        return SimpleNamespace(name=NAMES[self.tensors[name].dtype])


@pytest.fixture(scope="module", params=["tiny_voice", "voice_with_source"])
def voice(request) -> Path:
    """With a vocoder of either kind."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def stand_ins(tiny_voice, tmp_path, monkeypatch) -> Path:
    return make_stand_ins(tiny_voice, tmp_path, monkeypatch)


def make_stand_ins(folder: Path, tmp_path: Path, monkeypatch) -> Path:
    """A folder of "engines", which are their stages' names."""
    voice = load_voice(folder)
    engines = {}
    for model in ("fastpitch", "hifigan"):
        source = voice.source(model)
        for stage in choose_stages(source, None):
            engines[stage.full_name.encode()] = FakeEngine(make_engine(stage, source))
            (tmp_path / f"{stage.full_name}.trt").write_bytes(stage.full_name.encode())
    trt = SimpleNamespace(
        __version__="0.0",
        Logger=type("Logger", (), {"ERROR": 1, "__init__": lambda self, severity: None}),
        Runtime=lambda logger: SimpleNamespace(deserialize_cuda_engine=engines.get),
        TensorIOMode=SimpleNamespace(INPUT="INPUT"),
    )
    monkeypatch.setitem(sys.modules, "tensorrt", trt)
    monkeypatch.setitem(sys.modules, "pycuda", SimpleNamespace(driver=CUDA))
    monkeypatch.setitem(sys.modules, "pycuda.driver", CUDA)
    return tmp_path


def test_it_speaks_what_the_runner_speaks(voice, tmp_path, monkeypatch, capsys):
    tts = TextToSpeech.load(voice=voice, device="cpu")
    stand_ins = make_stand_ins(voice, tmp_path, monkeypatch)
    ids, wav = stand_ins / "ids.npy", stand_ins / "out.wav"
    speak_tensorrt.write_ids(ids, "Hello there.", str(voice))
    words = ["speak_tensorrt.py", "--ids", ids, "--engines", stand_ins, "--pace", 0.8, "-o", wav]
    monkeypatch.setattr("sys.argv", list(map(str, words)))
    speak_tensorrt.main()
    output = tts.acoustic.synthesise([np.load(ids)], Controls(pace=0.8))
    (wanted,) = tts.vocoder.vocode(output.mel, output.mel_lengths, Controls(denoising_strength=0))
    with wave.open(str(wav)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32767
    assert np.abs(samples - wanted).max() < 1e-3 and np.abs(wanted).max() > 0.01
    assert capsys.readouterr().out == f"{wav}: {len(wanted) / 22050:.2f} s\n"
    cache = stand_ins / "hifigan.generator.trt.No-GPU-1.tensorrt_rtx-0.0.cache"
    assert cache.read_bytes() == b"compiled"


def test_what_is_missing_is_said_in_a_sentence(stand_ins, tiny_voice, monkeypatch, capsys):
    ids = stand_ins / "ids.npy"
    speak_tensorrt.write_ids(ids, "Hello there.", str(tiny_voice))
    monkeypatch.setattr("sys.argv", ["speak_tensorrt.py", "--ids", str(ids), "--engines", "nowhere"])
    with pytest.raises(SystemExit):
        speak_tensorrt.main()
    assert "nowhere/fastpitch.encoder.trt not found: --help says how" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["speak_tensorrt.py", "--ids", str(ids), "--engines", str(stand_ins)])
    for name in ("pycuda", "pycuda.driver"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit, match=r"^pycuda cannot be used here \(.*\): pip install pycuda"):
        speak_tensorrt.main()


def test_noise_is_the_runners():
    assert (speak_tensorrt.normal_noise(5, 1003) == draw("normal", [5], 0, 1003)[0]).all()


def test_the_length_regulator_is_the_runners():
    durations = np.random.default_rng(0).uniform(-1, 90, 40).astype(np.float32)
    for duration in (durations, np.zeros(5, np.float32)):
        repeats = round_durations(duration[None], np.array([len(duration)]), 1.3)
        frames = speak_tensorrt.frames_of(duration, 1.3)
        assert frames.tolist() == repeats[0].tolist()
        assert speak_tensorrt.regulate(frames).tolist() == repeat_index(repeats)[0].tolist()


def test_an_engine_that_does_not_load_is_named(stand_ins):
    path = Path(stand_ins / "other.trt")
    path.write_bytes(b"something else")
    with pytest.raises(SystemExit, match=r"other\.trt does not load: it is of another TensorRT than 0\.0"):
        speak_tensorrt.Engine(path, sys.modules["tensorrt"], CUDA, None, "x")


@pytest.mark.gpu
@pytest.mark.pycuda
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_on_a_gpu_it_speaks_as_the_runner_does(tmp_path, precision):
    """A process of its own, without PyTorch, and the runner with the same engines; the wav has 16 bits."""
    models = ("fastpitch", "hifigan")
    sets = [f"precision={precision}", "backend=trt"]
    sets += [f"{model}.trt_file_path={tmp_path}/{model}.trt" for model in models]
    pair = ["--acoustic", "fastpitch", "--vocoder", "hifigan"]

    def run(*words: str) -> None:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    run("scripts/build.py", *pair, *(word for value in sets for word in ("--set", value)))
    run("examples/speak_tensorrt.py", "--write-ids", f"{tmp_path}/ids.npy", "--text", "It just works.")
    how = ("--ids", f"{tmp_path}/ids.npy", "--engines", str(tmp_path), "-o", f"{tmp_path}/speech.wav")
    run("examples/speak_tensorrt.py", *how)
    got, _ = soundfile.read(tmp_path / "speech.wav", dtype="float32")
    files = {
        model: Deployment(trt_file_path=f"{tmp_path}/{model}.trt", precision=precision) for model in models
    }
    tts = TextToSpeech.load(*models, backend="trt", device="cuda", deployments=files)
    made = tts.acoustic.synthesise([np.load(tmp_path / "ids.npy")])
    plain = Controls(denoising_strength=0.0)
    (wanted,) = tts.vocoder.vocode(made.mel, np.asarray(to_numpy(made.mel_lengths)), plain)
    assert len(got) == len(wanted) and np.abs(got - wanted.clip(-1, 1)).max() < 1e-4

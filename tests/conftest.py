"""What tests need of the machine, and voices of random weights, tiny enough for every test to speak with."""

import dataclasses
import functools
import hashlib
import importlib
import io
import json
import os
import pickle
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

# The networks are tiny, and a thread that waits by spinning would take a core from other tests.
os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
os.environ["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "passive")

import numpy as np
import pytest
import yaml

from melforge.common.files import locked, write_bytes

ROOT = Path(__file__).parent.parent
SYMBOL_FRAMES = 3.0
LIKE_SPEECH = -4.0  # of a mel, so that a vocoder does not answer with silence


# Markers: what a test needs of the machine. One that lacks it skips the test, here and nowhere else.


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def has_no_gpu() -> bool:
    return not has_gpu()


def has_two_gpus() -> bool:
    import torch

    return torch.cuda.device_count() > 1


def has_tensorrt(portable: bool = False) -> bool:
    from melforge.common.engines.tensorrt.api import load_tensorrt

    try:
        return load_tensorrt().portable or not portable
    except ValueError:
        return False


def has_portable_tensorrt() -> bool:
    return has_tensorrt(portable=True)


def has_module(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def hears_multicast() -> bool:
    """Whether what is sent to the address of mDNS arrives on this machine."""
    group = socket.inet_aton("224.0.0.251")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("", 0))
            one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + bytes(4))
            one.settimeout(5.0)
            one.sendto(b"heard?", ("224.0.0.251", one.getsockname()[1]))
            return one.recv(6) == b"heard?"
        except OSError:
            return False


def has_openai_js() -> bool:
    folder = os.environ.get("MELFORGE_NODE_MODULES")
    return folder is not None and Path(folder, "openai").is_dir()


def is_checkout() -> bool:
    return subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True).returncode == 0


def has_nvrtc() -> bool:
    from cuda.bindings import nvrtc

    try:
        nvrtc.nvrtcVersion()
    except RuntimeError:  # the library is not there
        return False
    return True


def has_half_on_host() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        command = ["g++", "-std=c++20", "-x", "c++", "-c", "-", "-o", f"{folder}/half.o"]
        return subprocess.run(command, input=b"_Float16 half;", capture_output=True).returncode == 0


def onnxruntime_headers() -> Path | None:
    """The folder of the headers of ONNX Runtime's C++ API."""
    given = os.environ.get("ONNXRUNTIME_INCLUDE")
    folders = [given] if given else ["/usr/include/onnxruntime", "/usr/local/include/onnxruntime"]
    return next((Path(f) for f in folders if Path(f, "onnxruntime_cxx_api.h").is_file()), None)


def has_in_its_python(variable: str, package: str) -> bool:
    """Whether another environment, whose Python this variable names, has the package."""
    python = os.environ.get(variable)
    command = [python, "-c", f"import {package}"]
    return bool(python) and subprocess.run(command, capture_output=True).returncode == 0


def has_the_exporter() -> bool:
    """Whether graphs come out as those that are packed."""
    from melforge.common.export.packed import MADE_WITH
    from recipes.pack_graphs import versions

    return json.loads(MADE_WITH.read_text()) == versions()


def has_products() -> bool:
    from melforge.common.engines.limits import PRODUCTS

    return has_gpu() and PRODUCTS.lacking("cuda") is None


def has_room_for_decoder() -> bool:
    """Whether Tacotron 2's decoder of the published sizes, the largest, is one launch."""
    from melforge.trt_plugins.tacotron2_decoder.launch import Sizes, needs_of

    return has_gpu() and needs_of(Sizes()).lacking("cuda") is None


def has_azurite() -> bool:
    return shutil.which(os.environ.get("MELFORGE_AZURITE", "azurite-blob")) is not None


def has_postgres() -> bool:
    return any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


class Need(NamedTuple):
    """A row of needs.yaml."""

    what: str
    get: str = ""
    modules: str = ""
    programs: str = ""
    files: str = ""
    python: str = ""
    check: str = ""

    def is_met(self) -> bool:
        return (
            all(map(has_module, self.modules.split()))
            and all(map(shutil.which, self.programs.split()))
            and all(map(os.path.exists, self.files.split()))
            and (not self.python or has_in_its_python(*self.python.split()))
            and (not self.check or bool(globals()[self.check]()))
        )


NEEDS = {
    marker: Need(**row)
    for marker, row in yaml.safe_load((Path(__file__).parent / "needs.yaml").read_text()).items()
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", dest="all_tests", help="also the tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    if other := os.environ.get("MELFORGE_TEST_AS"):
        stand_for(other)
    for marker, need in NEEDS.items():
        config.addinivalue_line("markers", f"{marker}: needs {need.what}")
    config.pluginmanager.register(Outcome(), "outcome")


def stand_for(other: str) -> None:
    """Has kernels chosen and compiled for another GPU, as in "sm_86:46", which run on the one at hand.

    Triton makes for it what it then assembles for this one. Blocks get no more shared memory than there, and
    grids are of so many multiprocessors.
    """
    from triton.compiler import compiler

    from melforge.common.engines import limits

    (found,) = limits.limits_like(other)
    os.environ["TRITON_OVERRIDE_ARCH"] = f"sm{found.architecture}"
    compiler.max_shared_mem = lambda device: found.shared_bytes
    here = limits.device_limits
    limits.device_limits = lambda device: found

    from melforge.trt_plugins import kernel

    compiled_once = kernel.compiled_once
    # What is CUDA C++ has no other form.
    kernel.compiled_once = lambda source, architecture, macros=(): compiled_once(
        source, f"sm_{here(0).architecture}", macros
    )


@functools.cache
def lacks(marker: str) -> bool:
    return not NEEDS[marker].is_met()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, need in NEEDS.items():
        if item.get_closest_marker(marker) and lacks(marker):
            pytest.skip(f"{need.what}: {need.get}" if need.get else need.what)


# What runs, and what is said of what does not


class Outcome:
    """Leaves slow tests out, and says in one line what each thing that is missing leaves out."""

    slow = 0
    status = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Slow tests wait for --all, for -m, or to be named."""
        slow_files = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow_files)  # at the end no process waits long
        named = any("::" in argument for argument in config.args)
        if config.option.all_tests or config.option.markexpr or named:
            return
        slow = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        self.slow = len(slow)
        if hasattr(config, "workeroutput"):
            config.workeroutput["slow"] = len(slow)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids) -> None:
        if node.gateway.id == "gw0":
            print(f"\n{len(ids)} tests in {len(node.nodemanager.specs)} processes")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error) -> None:
        self.slow = max(self.slow, getattr(node, "workeroutput", {}).get("slow", 0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport, config: pytest.Config):
        return ("skipped", "", "SKIPPED") if report.skipped else None

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter, config: pytest.Config) -> None:
        skipped = terminalreporter.stats.get("skipped", [])
        reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
        for reason, count in reasons.most_common():
            tests = "test needs" if count == 1 else "tests need"
            terminalreporter.write_line(f"{count:5d} {tests} {reason}")
        if self.slow:
            terminalreporter.write_line(f"{self.slow:5d} slow tests: pytest --all")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """A thread that a test left hanging would keep the process from ending."""
        left = [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
        if left and not hasattr(config, "workeroutput"):
            sys.stdout.flush()
            os._exit(self.status)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self.status = int(exitstatus)


# Running in parallel


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What "-n auto" means: one for named files or beside a GPU; for the whole suite one more than there are
    cores, up to four, since many tests wait for servers and timeouts.
    """
    whole = config.args_source is not pytest.Config.ArgsSource.ARGS
    return min(4, 1 + (os.cpu_count() or 1)) if whole and not Path("/dev/nvidiactl").exists() else 0


@pytest.fixture
def not_under_nohup() -> Iterator[None]:
    """SIGHUP has its usual effect, also on what is begun meanwhile."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session", autouse=True)
def exported_once(tmp_path_factory):
    """A graph is exported once in a run, by whichever process needs it first: an export takes seconds."""
    if "melforge.common.export.to_onnx" not in sys.modules:  # no test that was collected exports
        yield
        return
    from melforge.common.export.to_onnx import OPSET, export_stage

    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "exported"
    folder.mkdir(exist_ok=True)

    @functools.cache
    def exported(stage, config, opset=OPSET):
        file = folder / hashlib.sha256(repr((stage, config, opset)).encode()).hexdigest()
        with redirect_stderr(io.StringIO()), locked(file):  # who waits says so, into what a test may read
            if not file.is_file():
                write_bytes(file, pickle.dumps(export_stage(stage, config, opset)))
        return pickle.loads(file.read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("melforge.common.export.to_onnx.export_stage", exported)
        patch.setattr("melforge.common.verify.graphs.export_stage", exported)
        yield


@pytest.fixture(autouse=True)
def one_thread():
    """PyTorch's engines set the threads of the whole process; the next test is not to inherit them."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


# Voices


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable:
    """Runs a module, or a script of a path, in this process: its status, stdout and stderr."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.syspath_prepend(ROOT / "scripts")

    def run(name: Path | str, *words: object):
        monkeypatch.setattr(sys, "argv", [str(name), *map(str, words)])
        run_as = runpy.run_path if str(name).endswith(".py") else runpy.run_module
        status: object = 0
        try:
            run_as(str(name), run_name="__main__")
        except SystemExit as stopped:
            status = stopped.code or 0
        out, errors = capsys.readouterr()
        if status == 2 and name == "melforge":
            require_own_options(errors, words)
        return status, out, errors

    def require_own_options(errors: str, words: Sequence[object]) -> None:
        """An error advises no option that the command lacks, but where it names another command."""
        option = re.compile(r"(?<![\w-])--[a-z][\w-]*")
        typed = {found for word in words for found in option.findall(str(word))}
        if named := {*option.findall(re.sub(r"melforge [a-z].*", "", errors))} - typed:
            _, known, _ = run("melforge", *words[: 2 if words[0] == "voice" else 1], "--help")
            assert named <= {*option.findall(known)}, errors

    return run


@pytest.fixture
def melforge(program) -> Callable:
    """Runs a `melforge` command in this process."""
    return functools.partial(program, "melforge")


def save_trained(path: Path, network, config, **info) -> Path:
    """Weights as a training run writes them."""
    from safetensors.torch import save_file

    from melforge.common.audio.contract import MelContract

    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {
        "config": json.dumps(dataclasses.asdict(config)),
        "info": json.dumps({"mel": dataclasses.asdict(MelContract()), **info}),
    }
    state = {name: value for name, value in network.state_dict().items() if not name.startswith("attention.")}
    save_file({name: value.contiguous() for name, value in state.items()}, path, metadata=metadata)
    return path


def spoken_audio(samples: np.ndarray, **fields: Any):
    """What was spoken, of which only these fields say something."""
    from melforge.common.speech import Audio, Timings

    nothing = dict.fromkeys(("utterances", "unspoken", "mels", "durations", "notes", "problems"), ())
    nothing |= {"text": "x", "starts": (0.0,), "pitches": None, "alignments": None, "timings": Timings()}
    return Audio(**nothing | {"samples": samples, "sampling_rate": 22050, "hop_length": 256} | fields)


@pytest.fixture
def save_pt(tmp_path) -> Callable:
    """Writes a published file of this content."""

    def save(content: Any, **options) -> Path:
        import torch

        torch.save(content, tmp_path / "checkpoint.pt", **options)
        return tmp_path / "checkpoint.pt"

    return save


def tiny(model: str, seed: int, **sizes):
    """A network of random weights, and its configuration."""
    import torch

    from melforge.common.registry import get_model
    from tests.networks import make_network

    torch.manual_seed(seed)
    config = get_model(model).config_class(**sizes)
    return make_network(model, config), config


def tiny_fastpitch(seed: int = 0, n_speakers: int = 1):
    import torch

    sides = {
        f"{side}_fft_{name}": size
        for side in ("in", "out")
        for name, size in {
            "n_layers": 1,
            "n_heads": 2,
            "d_head": 16,
            "conv1d_filter_size": 48,
            "output_size": 32,
        }.items()
    }
    predictors = {f"{name}_predictor_filter_size": 16 for name in ("dur", "pitch", "energy")}
    predictors |= {f"{name}_predictor_n_layers": 1 for name in ("dur", "pitch", "energy")}
    network, config = tiny(
        "fastpitch",
        seed,
        n_speakers=n_speakers,
        symbols_embedding_dim=32,
        mask_padding=True,
        **sides,
        **predictors,
    )
    with torch.no_grad():
        network.duration_predictor.fc.bias.fill_(torch.log(torch.tensor(1 + SYMBOL_FRAMES)))
        network.duration_predictor.fc.weight.mul_(0.3)
        network.pitch_mean.fill_(200.0)
        network.pitch_std.fill_(50.0)
        network.proj.bias.fill_(LIKE_SPEECH)
    return network, config


def tiny_fastspeech(seed: int = 0):
    import torch

    sides = {
        f"{side}_side_{name}": size
        for side in ("phoneme", "mel")
        for name, size in {"n_layer": 1, "conv1d_filter_size": 48, "output_size": 32}.items()
    }
    sizes = {"d_model": 32, "duration_predictor_filter_size": 16, "n_symbols": 148}
    network, config = tiny("fastspeech", seed, mask_padding=True, **sizes, **sides)
    with torch.no_grad():
        predictor = network.length_regulator.duration_predictor
        predictor.linear_layer.weight.mul_(0.1)
        predictor.linear_layer.bias.fill_(np.log(1 + SYMBOL_FRAMES))
    return network, config


def tiny_hifigan(seed: int = 0):
    import torch

    network, config = tiny(
        "hifigan",
        seed,
        upsample_rates=(8, 8, 4),
        upsample_kernel_sizes=(16, 16, 8),
        upsample_initial_channel=32,
        resblock="2",
        resblock_kernel_sizes=(3, 5),
        resblock_dilation_sizes=((1, 2), (2, 3)),
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    return network, config


def tiny_source_filter(seed: int = 0):
    """HiFi-GAN with a harmonic source."""
    import torch

    network, config = tiny(
        "hifigan",
        seed,
        upsample_rates=(),
        upsample_kernel_sizes=(),
        upsample_initial_channel=24,
        resblock="2",
        resblock_kernel_sizes=(3,),
        resblock_dilation_sizes=((1, 2, 4),),
        istft_n_fft=1024,
        istft_hop_length=256,
        source=True,
        pitch_channels=16,
        pitch_bins=32,
    )
    for value in network.parameters():  # not what training begins with: every part is heard
        torch.nn.init.normal_(value, std=0.5 / max(1.0, value[0].numel() ** 0.5 if value.dim() > 1 else 8.0))
    return network, config


def tiny_tacotron2(seed: int = 0, gate_bias: float = 0.0):
    """Its attention is spread over the whole text. With a bias of 0 the gate ends it for some seeds only."""
    import torch

    network, config = tiny(
        "tacotron2",
        seed,
        **dict.fromkeys(("symbols_embedding_dim", "encoder_embedding_dim"), 16),
        **dict.fromkeys(("attention_rnn_dim", "decoder_rnn_dim"), 16),
        **dict.fromkeys(("attention_dim", "prenet_dim", "postnet_embedding_dim"), 8),
        encoder_kernel_size=3,
        encoder_n_convolutions=1,
        attention_location_n_filters=4,
        attention_location_kernel_size=7,
        max_decoder_steps=60,
        postnet_kernel_size=3,
        postnet_n_convolutions=2,
        mask_text_padding=True,
    )
    decoder = network.decoder
    with torch.no_grad():
        # As wide as this, what the dropout leaves moves the gate: some seeds end, and others never.
        for layer, factor in ((decoder.prenet, 4), (decoder.attention_rnn, 3), (decoder.decoder_rnn, 3)):
            for parameter in layer.parameters():
                parameter.mul_(factor)
        decoder.gate_layer.linear_layer.weight.mul_(15)
        decoder.gate_layer.linear_layer.bias.fill_(gate_bias)
        decoder.linear_projection.linear_layer.bias.fill_(LIKE_SPEECH)
    return network, config


def tiny_waveglow(seed: int = 0):
    import torch

    sizes = {"n_flows": 2, "n_early_every": 1, "wn_layers": 2, "wn_channels": 8, "cond_channels": 6}
    network, config = tiny("waveglow", seed, upsample_groups=80, **sizes)
    with torch.no_grad():
        for net in network.WN:
            for parameter in net.end.parameters():  # zeros before training: the mel would change nothing
                parameter.normal_(0, 0.05)
    return network, config


def quick_for_the_voice(rows) -> list:
    """Parameters that begin with a model. Only the tiny voice's are quick: it has their graphs already."""
    rows = [row if isinstance(row, tuple) else (row,) for row in rows]
    quick = ("fastpitch", "hifigan")
    return [pytest.param(*row, marks=[] if row[0] in quick else pytest.mark.slow) for row in rows]


TINY = {
    **{"fastpitch": tiny_fastpitch, "fastspeech": tiny_fastspeech, "tacotron2": tiny_tacotron2},
    **{"hifigan": tiny_hifigan, "waveglow": tiny_waveglow},
}


class ByModel(dict):
    """What is made for a model when it is first asked for."""

    def __init__(self, make: Callable[[str], Any]):
        super().__init__()
        self.make = make

    def __missing__(self, model: str) -> Any:
        self[model] = self.make(model)
        return self[model]


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory) -> dict[str, Path]:
    """Weights of tiny networks as the recipes leave them, by model."""
    folder = tmp_path_factory.mktemp("trained")
    return ByModel(lambda model: save_trained(folder / model / "weights.safetensors", *TINY[model]()))


@pytest.fixture(scope="session")
def tiny_sources(tiny_weights, tmp_path_factory) -> dict[str, Any]:
    """Tiny networks with all their graphs, by model; that these are right is tested elsewhere."""
    from melforge.common.export import to_onnx
    from melforge.common.weights.published import read_checkpoint

    folder = tmp_path_factory.mktemp("exported")

    def make(model: str):
        return to_onnx.export_source(read_checkpoint(tiny_weights[model]), folder / model, sizes="none")[0]

    return ByModel(make)


@pytest.fixture(scope="session")
def trained(tiny_weights) -> dict[str, Path]:
    """The weights of the tiny voice."""
    return {model: tiny_weights[model] for model in ("fastpitch", "hifigan")}


@pytest.fixture(scope="session")
def tiny_voice(trained, tmp_path_factory) -> Path:
    """The folder of a voice made of them, with graphs; its parent serves as MELFORGE_VOICES."""
    return write_tiny_voice(tmp_path_factory.mktemp("voices") / "tiny", trained.values())


@pytest.fixture(scope="session")
def voice_with_source(trained, tmp_path_factory) -> Path:
    """The same with a vocoder that has a harmonic source."""
    folder = tmp_path_factory.mktemp("voices") / "with_source"
    vocoder = save_trained(folder.parent / "weights.safetensors", *tiny_source_filter())
    return write_tiny_voice(folder, (trained["fastpitch"], vocoder))


def write_tiny_voice(folder: Path, weights: Iterable[Path]) -> Path:
    from melforge.common.export import to_onnx
    from melforge.common.training.voice import write_voice
    from melforge.common.weights.published import read_checkpoint

    sources = [read_checkpoint(path) for path in weights]
    stages = [(stage, source.config) for source in sources for stage in to_onnx.source_stages(source)]
    if os.environ.get("PYTEST_XDIST_WORKER") in ("gw1", "gw3"):  # two at a time meet in the middle
        stages.reverse()
    for stage, config in stages:
        to_onnx.export_stage(stage, config)
    with pytest.MonkeyPatch.context() as patch:
        check_at_small_sizes(patch)
        write_voice(folder, sources, about={"licence": "test"})
    return folder


def check_at_small_sizes(patch: pytest.MonkeyPatch) -> None:
    """Of exported graphs: the longest sizes are checked in one test, not in each run."""
    sizes = [
        {"batch": 1, "text": 3, "mel": 9, "inner": 9, "samples": 2304},
        {"batch": 3, "text": 30, "mel": 70, "inner": 70, "samples": 8960},
    ]
    patch.setattr(
        "melforge.common.export.to_onnx.check_sizes",
        lambda stage, *_: [{name: size[name] for name in stage.dynamic_dims} for size in sizes],
    )


@pytest.fixture(scope="session")
def tts(tiny_voice):
    from melforge.common.runner import TextToSpeech

    return TextToSpeech.load(voice=tiny_voice, device="cpu")


@pytest.fixture
def voice_copy(tiny_voice, tmp_path) -> Path:
    """A copy of the tiny voice that a test may damage."""
    return Path(shutil.copytree(tiny_voice, tmp_path / "voices" / "tiny"))


@pytest.fixture(scope="session")
def small_ear(tmp_path_factory) -> Path:
    """The recogniser of the goldens, whose weights are random, as an ear."""
    from melforge.common.training.ear import write_ear
    from melforge.common.weights.published import read_checkpoint

    folder = tmp_path_factory.mktemp("ears") / "small"
    checkpoint = Path(__file__).parent / "golden" / "jasper" / "checkpoint.pt"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("melforge.common.export.to_onnx.check_sizes", lambda *_: [])
        write_ear(folder, read_checkpoint(checkpoint), {"language": "en", "licence": "test"})
    return folder


@pytest.fixture
def whole_float32() -> Iterator[None]:
    """PyTorch's products and convolutions on a GPU without TF32, in which a phase is off by up to a tenth."""
    from melforge.common.verify.stages import exact_products

    with exact_products():
        yield

"""The vocoder: published answers from both engines, seeds, chunks, batches, voices, and what is refused."""

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch import nn

from melforge.common.audio.denoiser import OVERLAP
from melforge.common.engines import WrappedEngine
from melforge.common.engines.backends import make_engine
from melforge.common.export import to_onnx
from melforge.common.export.to_onnx import export_source, source_stages
from melforge.common.speech import Controls
from melforge.common.synthesis.chunks import ChunkSizes
from melforge.common.synthesis.loading import make_driver
from melforge.common.training.voice import write_voice
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import load_voice
from melforge.waveglow.config import WaveglowConfig, WaveglowSettings, receptive_field
from melforge.waveglow.infer import SIGMA, WaveglowVocoder
from melforge.waveglow.model import Waveglow
from melforge.waveglow.noise import draw_noise, scale_noise
from melforge.waveglow.stages import stages
from tests import conftest
from tests.conftest import save_trained

pytestmark = pytest.mark.slow  # graphs of published networks are exported
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
IO = np.load(GOLDEN / "waveglow" / "io.npz")
BACKENDS = ("torch", "onnx")
_, TINY = conftest.tiny_waveglow()
REACHES = {
    "tiny": TINY,
    "published upsampling": WaveglowConfig(n_mel_channels=4, n_flows=3, wn_layers=4, wn_channels=4),
    "short hop, long nets": WaveglowConfig(
        n_mel_channels=3,
        n_flows=2,
        n_group=4,
        n_early_every=2,
        wn_layers=5,
        wn_kernel_size=5,
        wn_channels=4,
        upsample_kernel_size=50,
        hop_length=16,
    ),
    "kernel of one hop": WaveglowConfig(
        n_mel_channels=3, n_flows=2, wn_layers=2, wn_channels=4, upsample_kernel_size=256
    ),
}


def tiny_waveglow(config: WaveglowConfig = TINY) -> Waveglow:
    torch.manual_seed(0)
    network = Waveglow(config).eval()
    for net in network.WN:
        nn.init.normal_(net.end.weight, std=0.05)
    return network


def few_sizes(stage, *_) -> list[dict[str, int]]:
    sizes = {"batch": 2, "text": 9, "mel": 9, "steps": 9 * 32, "samples": 9 * 256}
    return [{name: sizes[name] for name in stage.dynamic_dims}]


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    """As a training run leaves them."""
    path = tmp_path_factory.mktemp("waveglow") / "weights.safetensors"
    return save_trained(path, tiny_waveglow().remove_weight_norm(), TINY)


@pytest.fixture(scope="module")
def voice(weights, trained, tmp_path_factory) -> Path:
    """A voice with both vocoders, of which WaveGlow comes first."""
    folder = tmp_path_factory.mktemp("voices") / "flowing"
    sources = [read_checkpoint(path) for path in (trained["fastpitch"], weights, trained["hifigan"])]
    sources[1] = dataclasses.replace(sources[1], settings=WaveglowSettings(0.1, 0.5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(to_onnx, "check_sizes", few_sizes)
        write_voice(folder, sources)
    return folder


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The small published WaveGlow, with graphs."""
    source = read_checkpoint(GOLDEN / "waveglow" / "checkpoint.pt")
    return export_source(source, tmp_path_factory.mktemp("graphs"), sizes="few")[0]


@pytest.fixture(scope="module", params=BACKENDS)
def vocoder(request, voice) -> WaveglowVocoder:
    return make_driver(load_voice(voice).source("waveglow"), request.param, "cpu")


def some_mel(frames: int, bands: int = 80, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, bands, frames), np.float32) * 2 - 5


def speak(vocoder, frames: int = 12, **controls) -> np.ndarray:
    return vocoder.vocode(some_mel(frames), np.array([frames]), Controls(**controls))[0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("name", "sigma"),
    [("audio_sigma0", 0.0), ("audio_sigma06", 0.6), ("audio_sigma09", 0.9), ("audio_sigma1", 1.0)],
)
def test_golden_audio_on_every_backend(published, backend, name, sigma):
    stage = source_stages(published)[0]
    engine = make_engine(stage, published, backend)
    z = np.concatenate([IO[f"z{i}"] for i in range(3)], axis=1)
    audio = engine(mel=IO["mel"], z=scale_noise(z, sigma))["audio"]
    tolerance = 1e-4 * max(1, np.abs(IO[name]).max())
    np.testing.assert_allclose(audio, IO[name], rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", REACHES)
@torch.no_grad()
def test_receptive_field_is_exactly_what_a_frame_reaches(name):
    config = REACHES[name]
    reach, steps = receptive_field(config), config.noise_length(1)
    mel = torch.zeros(1, config.n_mel_channels, 2 * reach + 3)
    z = torch.zeros(1, config.n_group, mel.shape[2] * steps)
    centre = reach + 1
    mel[:, :, centre] = torch.nan  # spreads to every sample that depends on this frame
    z[:, :, centre * steps : (centre + 1) * steps] = torch.nan
    reached = tiny_waveglow(config).generate(mel, z)[0][0].isnan().nonzero()[:, 0] // config.hop_length
    assert max(centre - int(reached.min()), int(reached.max()) - centre) == reach


@pytest.mark.parametrize(
    "frames, first, chunk", [(1, 1, 1), (7, 3, 3), (60, 24, 24), (61, 1, 17), (150, 24, 64)]
)
@pytest.mark.parametrize("strength", [0.0, 0.5])
def test_chunks_join_to_the_whole(vocoder, frames, first, chunk, strength):
    mel, controls = some_mel(frames, seed=frames), Controls(seed=3, denoising_strength=strength)
    (whole,) = vocoder.vocode(mel, np.array([frames]), controls)
    chunks = list(vocoder.vocode_chunks(mel, ChunkSizes(first, chunk), controls))
    assert whole.shape == (frames * 256,) and len(chunks[0]) == min(first, frames) * 256
    np.testing.assert_allclose(np.concatenate(chunks), whole, rtol=0, atol=1e-4)
    if not strength:
        z = scale_noise(draw_noise(vocoder.config, 0, frames, 3), 0.5)
        np.testing.assert_allclose(vocoder.generator(mel=mel, z=z)["audio"][0], whole, rtol=0, atol=1e-4)


def test_a_mel_longer_than_the_stage_is_vocoded_in_pieces(vocoder):
    mel = some_mel(100)
    whole = np.concatenate(list(vocoder.vocode_chunks(mel, ChunkSizes(1000, 1000))))
    short = make_driver(vocoder.source, vocoder.generator.backend, "cpu")
    short.longest_mel = 40
    assert short.longest_chunk == 40 - 2 * (receptive_field(TINY) + 4) > 0
    np.testing.assert_allclose(short.vocode(mel, np.array([100]))[0], whole, rtol=0, atol=1e-4)


def test_memory_is_bounded_for_mels_of_any_length(vocoder):
    seen = []

    class Generator(WrappedEngine):
        def __call__(self, mel, z):
            seen.append(mel.shape[2])
            return {"audio": np.zeros((1, mel.shape[2] * 256), np.float32)}

    other = make_driver(vocoder.source, vocoder.generator.backend, "cpu")
    other.generator = Generator(other.generator)
    (audio,) = other.vocode(some_mel(1000), np.array([1000]))
    assert audio.shape == (256_000,) and max(seen) <= 256 + 2 * (other.context + OVERLAP)


def test_a_seed_gives_the_same_audio_on_both_backends_and_another_seed_another(voice):
    source = load_voice(voice).source("waveglow")
    first, second = (make_driver(source, backend, "cpu") for backend in BACKENDS)
    np.testing.assert_array_equal(speak(first, seed=1), speak(first, seed=1))
    np.testing.assert_allclose(speak(first, seed=1), speak(second, seed=1), rtol=0, atol=1e-4)
    assert np.abs(speak(first, seed=1) - speak(first, seed=2)).max() > 0.1


def test_without_noise_the_seed_says_nothing(vocoder):
    np.testing.assert_array_equal(speak(vocoder, sigma=0.0, seed=1), speak(vocoder, sigma=0.0, seed=2))


def test_the_voice_says_how_wide_the_noise_is_and_controls_overrule_it(vocoder):
    np.testing.assert_array_equal(speak(vocoder), speak(vocoder, sigma=0.5))
    assert np.abs(speak(vocoder) - speak(vocoder, sigma=0.6)).max() > 1e-3
    silent = dataclasses.replace(vocoder.source, settings=WaveglowSettings())
    plain = WaveglowVocoder(silent, vocoder.engines)
    expected = speak(vocoder, sigma=SIGMA, denoising_strength=0.0)
    np.testing.assert_array_equal(speak(plain), expected)


def test_a_shorter_mel_has_the_beginning_of_a_longer_ones_noise():
    long, short, middle = (draw_noise(TINY, *frames, 5) for frames in ((0, 20), (0, 7), (7, 11)))
    assert long.shape == (1, 8, 640) and long.dtype == np.float32
    np.testing.assert_array_equal(long[:, :, : 7 * 32], short)
    np.testing.assert_array_equal(long[:, :, 7 * 32 : 11 * 32], middle)
    assert abs(float(long.std()) - 1) < 0.05


def test_graphs_equal_pytorch_from_one_frame_to_the_longest(weights, tmp_path):
    source, checks = export_source(read_checkpoint(weights), tmp_path)
    assert {check.sizes["batch"] for check in checks} == {1, 2, 3, 4}
    mels = {check.sizes["mel"] for check in checks if check.stage == "waveglow.generator"}
    assert {1, 1024} < mels
    assert all(c.sizes["steps"] == 32 * c.sizes["mel"] for c in checks if "mel" in c.sizes)
    assert all(check.ok for check in checks)
    for graph in source.graphs.values():
        assert graph.stat().st_size < 140_000


def test_weight_norm_is_folded_and_matrices_inverted_in_the_voice(voice):
    from safetensors.numpy import load_file

    state = load_file(voice / "waveglow" / "weights.safetensors")
    assert not any("original" in name or "weight_g" in name for name in state)
    assert state["convinv.0.inverse"].dtype == np.float32
    assert state["WN.0.start.weight"].dtype == np.float16
    exact = tiny_waveglow().remove_weight_norm().convinv[0].inverse.numpy()
    np.testing.assert_array_equal(state["convinv.0.inverse"], exact)


@pytest.mark.parametrize("backend", BACKENDS)
def test_noise_of_another_length_is_refused(published, backend):
    engine = make_engine(source_stages(published)[0], published, backend)
    z = np.zeros((2, 8, 287), np.float32)
    with pytest.raises(ValueError, match=r"'z' has steps = 287, but 'mel' has mel = 9: .* must be 288"):
        engine(mel=IO["mel"], z=z)
    with pytest.raises(ValueError, match=r"'z' has shape \(2, 6, 288\), declared"):
        engine(mel=IO["mel"], z=np.zeros((2, 6, 288), np.float32))


def test_frames_without_whole_groups_are_refused():
    with pytest.raises(ValueError, match="hop_length 50 must be a multiple of n_group 8"):
        stages(WaveglowConfig(hop_length=50))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """The published layout: weight norm, `module.`, the sizes as NVIDIA's program states them."""
    config = dataclasses.replace(TINY, cond_channels=0, upsample_groups=1)
    network = tiny_waveglow(config)
    state = {
        f"module.{name}".replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): value
        for name, value in network.state_dict().items()
    }
    stated = {key: getattr(config, key) for key in ("n_mel_channels", "n_flows", "n_group", "n_early_every")}
    stated["n_early_size"] = config.n_early_size
    stated["WN_config"] = {"n_layers": config.wn_layers, "kernel_size": 3, "n_channels": 8}
    path = tmp_path_factory.mktemp("published") / "nvidia_waveglow.pt"
    torch.save({"state_dict": state, "config": stated, "epoch": 7}, path)
    return path


@pytest.fixture
def infer(voice, tmp_path, monkeypatch, program):
    """Runs scripts/infer.py in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path / "cache"))
    return partial(program, ROOT / "scripts" / "infer.py", "--voice", voice)


def test_a_published_file_speaks_on_both_backends(checkpoint, infer, tmp_path):
    spoken = []
    for backend in BACKENDS:
        status, _, errors = infer(
            *("--vocoder", "waveglow", "--checkpoint", checkpoint, "--backend", backend, "--seed", "5"),
            *("--sigma", "0.6", "--denoising-strength", "0.1", "--text", "Hello.", "-o", f"{backend}.wav"),
        )
        assert status == 0, errors
        spoken.append(soundfile.read(tmp_path / f"{backend}.wav")[0])
    assert len(spoken[0]) > 2000 and np.abs(spoken[0]).max() > 0.01
    np.testing.assert_allclose(spoken[0], spoken[1], rtol=0, atol=1e-3)


def test_arrays_stay_on_the_device_between_the_stages(voice):
    """The path of a GPU's tensors, on the CPU's memory: only the audio's samples come back as numpy."""
    source = load_voice(voice).source("waveglow")
    vocoder = make_driver(source, "onnx", "cpu")
    expected = speak(vocoder, frames=40)

    class Bound(WrappedEngine):
        def __init__(self, engine):
            super().__init__(engine)
            self.device = "cpu:0"

        def __call__(self, **inputs):
            assert all(isinstance(value, torch.Tensor) for value in inputs.values())
            return self.inner(**inputs)

    bound = make_driver(source, "onnx", "cpu", watch=Bound)
    np.testing.assert_allclose(speak(bound, frames=40), expected, rtol=0, atol=1e-6)

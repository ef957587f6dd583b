"""A generator with a source: pulses, masks, chunks and batches; every backend agrees."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.audio.pitch import source_of
from melforge.common.config.deployment import Deployment
from melforge.common.errors import InputError
from melforge.common.export.to_onnx import source_stages, with_graphs
from melforge.common.speech import Controls
from melforge.common.synthesis.chunks import ChunkSizes
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import ModelSource, save_weights
from melforge.hifigan.config import EDGE, receptive_field
from melforge.hifigan.source_filter import SourceFilterGenerator, pulses
from melforge.hifigan.train import with_noise
from tests.conftest import tiny_source_filter

_, CONFIG = tiny_source_filter()


@pytest.fixture(scope="module")
def network() -> SourceFilterGenerator:
    return tiny_source_filter()[0].eval()


@pytest.fixture(scope="module")
def mel() -> torch.Tensor:
    return torch.randn(1, 80, 200, generator=torch.Generator().manual_seed(1)) * 2 - 5


def source_for(network: SourceFilterGenerator, mel: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return with_noise(source_of(network.find_pitch(mel)[0], CONFIG.hop_length), network)


def test_pulses_are_all_harmonics_of_a_pitch_that_glides():
    frames, hop = 40, 256
    pitch = torch.linspace(0.008, 0.012, frames)[None]
    made = pulses(source_of(pitch, hop), hop)[0].double()
    at = (np.arange(frames * hop) - hop // 2) / hop
    rate = np.interp(at, np.arange(frames), pitch[0].double().numpy())
    phase = np.concatenate(([0.0], np.cumsum(0.5 * (rate[1:] + rate[:-1]))))
    phase -= np.interp(0.0, at, phase)
    inside = slice(hop, -hop)
    count = np.floor(0.499 / rate.astype(np.float32))
    wanted = sum(np.where(h <= count, np.cos(2 * np.pi * h * phase), 0) for h in range(1, 64))
    assert np.abs(made.numpy() - wanted)[inside].max() < 0.02 * count.max()


def test_a_masked_item_is_what_it_is_alone(network, mel):
    source = source_for(network, mel)
    lengths = torch.tensor([200, 90])
    mels, sources = mel.repeat(2, 1, 1), source.repeat(2, 1, 1)
    sources[1, :, 90:] = 0  # as chunks of several mels are padded
    with torch.no_grad():
        (both,) = network.generate(mels, sources, lengths)
        (alone,) = network.generate(mel[:, :, :90], source[:, :, :90])
        (whole,) = network.generate(mel, source)
    assert (both[0] - whole[0]).abs().max() < 1e-5 * whole.abs().max()
    assert (both[1, : 90 * 256] - alone[0]).abs().max() < 1e-5 * alone.abs().max()
    assert both[1, 90 * 256 :].abs().max() == 0
    (pitch,) = network.find_pitch(mels, lengths)
    assert torch.allclose(pitch[1, :90], network.find_pitch(mel[:, :, :90])[0][0], rtol=1e-5)


def test_the_context_is_all_that_a_frame_depends_on(network, mel):
    source, reach = source_for(network, mel), receptive_field(CONFIG)
    part = slice(80 - reach, 120 + reach)
    with torch.no_grad():
        (whole,) = network.generate(mel, source)
        (cut,) = network.generate(mel[:, :, part], source[:, :, part])
    near = cut[:, reach * 256 : -reach * 256] - whole[:, 80 * 256 : 120 * 256]
    assert near.abs().max() < 2e-6 * whole.abs().max() + 1e-6
    with torch.no_grad():
        short = slice(80 - reach + 1, 120 + reach - 1)
        (less,) = network.generate(mel[:, :, short], source[:, :, short])
    far = less[:, (reach - 1) * 256 : -(reach - 1) * 256] - whole[:, 80 * 256 : 120 * 256]
    assert far.abs().max() > near.abs().max()


@pytest.mark.parametrize(("first", "end"), [(0, 40), (70, 110), (100, 160)])
def test_inner_frames_sound_as_in_the_whole(network, mel, first, end):
    source, frames = source_for(network, mel), mel.shape[2]
    with torch.no_grad():
        (whole,) = network.generate(mel, source)
        (inner,) = network.generate_inner(mel, source, torch.arange(first, end))
    assert inner.shape[1] == (end - first) * 256
    off = (inner - whole[:, first * 256 : end * 256]).abs()[0].reshape(-1, 256).amax(1)
    right = slice(EDGE if first else 0, len(off) - EDGE if end < frames else None)
    assert off[right].max() == 0 and off.max() > 0


@pytest.fixture(scope="module")
def published(network, tmp_path_factory) -> ModelSource:
    folder = tmp_path_factory.mktemp("voice")
    arrays = {name: value.detach().numpy() for name, value in network.named_parameters()}
    info = {"mel": asdict(MelContract())}
    metadata = {"config": json.dumps(asdict(CONFIG)), "info": json.dumps(info)}
    save_weights(folder / "weights.safetensors", arrays, metadata)
    return read_checkpoint(folder / "weights.safetensors")


@pytest.fixture(scope="module")
def exported(published, tmp_path_factory) -> ModelSource:
    """The same with its graphs, checked at all sizes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MELFORGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield with_graphs(published, source_stages(published), 0)


@pytest.mark.parametrize(
    ("backend", "source"), [("torch", "published"), pytest.param("onnx", "exported", marks=pytest.mark.slow)]
)
def test_chunks_join_to_the_whole(backend, source, mel, request):
    driver = make_driver(request.getfixturevalue(source), backend, "cpu")
    (whole,) = driver.vocode_each([mel[0].numpy()])
    chunks = list(driver.vocode_chunks(mel.numpy(), ChunkSizes(24, 64)))
    assert len(chunks) > 2 and np.abs(np.concatenate(chunks) - whole).max() < 1e-5 * np.abs(whole).max()


@pytest.mark.slow
def test_on_a_cpu_a_chunk_computes_its_own_frames_last(exported, mel):
    driver = make_driver(exported, "onnx", "cpu")
    graphs = {name: graph for name, graph in exported.graphs.items() if name != "inner_generator"}
    older = make_driver(replace(exported, graphs=graphs), "onnx", "cpu")  # of before there was such a stage
    assert [one.generator.stage.name for one in (driver, older)] == ["inner_generator", "generator"]
    chunks, others = ([*one.vocode_chunks(mel.numpy(), ChunkSizes(40, 64))] for one in (driver, older))
    assert len(chunks) == 4 and all(map(np.array_equal, chunks, others))


@pytest.mark.slow
def test_a_first_chunk_waits_for_the_first_piece_of_the_pitch(exported, mel):
    driver = make_driver(exported, "onnx", "cpu")
    first, rest = driver.pitch.pieces(mel.numpy())
    assert first.shape[1] < 100 and first.shape[1] + rest.shape[1] == mel.shape[2]
    assert np.allclose(np.concatenate([first, rest], 1), driver.pitch._engine(mel=mel.numpy())["pitch"], 1e-5)


def test_a_mel_of_any_length_has_one_phase(published, mel):
    driver = make_driver(published, "torch", "cpu")
    long = np.tile(mel.numpy(), (1, 1, 21))  # longer than the stages take
    assert long.shape[2] > driver.longest_mel
    pitch = driver.pitch.of_whole(long)
    with torch.no_grad():
        (wanted,) = driver.generator.network.find_pitch(torch.from_numpy(long))
    assert np.allclose(pitch, wanted.numpy(), rtol=1e-4)
    (audio,) = driver.vocode_each([long[0]])
    assert len(audio) == long.shape[2] * 256 and np.isfinite(audio).all()


def test_noise_depends_on_the_seed_and_the_frame(published, mel):
    driver = make_driver(published, "torch", "cpu")
    one, again, other = (driver.vocode_each([mel[0].numpy()], Controls(seed=seed))[0] for seed in (1, 1, 2))
    assert (one == again).all() and np.abs(one - other).max() > 1e-3 * np.abs(one).max()


@pytest.mark.slow
def test_buckets_mask_what_they_pad(exported, mel):
    lengths = {"trt_max_output_seq_len_list": (160, 400), "trt_multi_engine": True}
    bucketed = make_driver(exported, "onnx", "cpu", deployment=Deployment(**lengths))
    whole = make_driver(exported, "onnx", "cpu")
    for frames in (90, 200):
        (got,), (wanted,) = (one.vocode_each([mel[0, :, :frames].numpy()]) for one in (bucketed, whole))
        # The pitch's rounding adds up in the phase.
        assert np.abs(got - wanted).max() < 1e-2 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": False}, "upsample_rates is empty"),
        ({"upsample_rates": (2,), "upsample_kernel_sizes": (4,)}, "upsample_rates must be empty"),
        ({"resblock": "1"}, 'upsample_rates must be empty, and resblock "2"'),
        ({"istft_n_fft": 512}, "must be 4 times istft_hop_length 256"),
        ({"istft_n_fft": 28, "istft_hop_length": 7}, "4 times istft_hop_length 7, which must be even"),
        ({"shortest_period": 300}, "300 and longest_period 276 must be in order"),
        ({"shortest_period": 2}, "must be in order, and above 2 samples"),
        ({"pitch_bins": 1}, "pitch_bins 1: the two limits of the pitch need one each"),
    ],
)
def test_sizes_that_no_source_has_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        replace(CONFIG, **change)

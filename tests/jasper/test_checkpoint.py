"""Published layouts of Jasper and QuartzNet, and NVIDIA's configurations."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.config.hparams import load_hparams
from melforge.common.weights.published import read_checkpoint
from melforge.jasper.checkpoint import build_config, infer_sizes, load_checkpoint, read_config
from melforge.jasper.config import JasperConfig
from melforge.jasper.model import Jasper
from tests.jasper.test_model import GOLDEN, tiny

PUBLISHED_PARAMETERS = {"base": 332_632_349, "quartznet15x5": 18_924_381, "compact": 2_944_861}
CONFIG = """
labels: [" ", a, b]
input_val:
  audio_dataset: &data {sample_rate: &rate 16000}
  filterbank_features: &features
    {normalize: per_feature, sample_rate: *rate, window_size: 0.02, window_stride: 0.01, n_filt: &bands 32,
     n_fft: 512, dither: 0.0, pad_align: 8, frame_splicing: 1}
input_train:
  filterbank_features: {<<: *features, max_duration: 16.7}
quartznet:
  encoder:
    in_feats: *bands
    use_conv_masks: true
    blocks:
    - &B1 {filters: 8, repeat: 2, kernel_size: [11], separable: true, residual: true, residual_dense: true}
    - *B1
    - {filters: 16, repeat: 1, kernel_size: [5], dilation: [2], residual: false, dropout: 0.4}
"""


def hparams(name: str) -> JasperConfig:
    return load_hparams(f"hparams/jasper/{name}.yaml", JasperConfig, MelContract)[0]


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_a_state_dict_of_full_size_shows_its_sizes(name):
    config = hparams(name)
    with torch.device("meta"):
        network = Jasper(config)
    assert sum(value.numel() for value in network.parameters()) == PUBLISHED_PARAMETERS[name]
    found = infer_sizes(network.state_dict(), "it")
    assert replace(found, dropouts=config.dropouts) == config


def test_the_files_are_the_defaults_and_the_mel_contract():
    config, contract = load_hparams("hparams/jasper/base.yaml", JasperConfig, MelContract)
    assert config == JasperConfig()
    assert config.mel == replace(contract, mel_clamp=1e-20)


def test_the_published_layout_has_these_names():
    with torch.device("meta"):
        shapes = {name: tuple(value.shape) for name, value in Jasper(JasperConfig()).state_dict().items()}
    assert len(shapes) == 650
    assert shapes["encoder.layers.0.conv.0.weight"] == (256, 64, 11)
    assert shapes["encoder.layers.10.conv.17.running_var"] == (768,)
    assert [shapes[f"encoder.layers.10.res.{pane}.0.weight"][1] for pane in range(10)] == [
        *(256, 256, 256, 384, 384, 512, 512, 640, 640, 768)
    ]
    assert shapes["encoder.layers.11.conv.0.weight"] == (896, 768, 29)
    assert shapes["decoder.layers.0.weight"] == (29, 1024, 1)


def test_nvidias_configuration_beside_a_file_counts(tmp_path):
    config = load_checkpoint(GOLDEN / "checkpoint.pt").config
    assert config == read_config(GOLDEN / "config.yaml")
    alone = tmp_path / "jasper.pt"
    alone.write_bytes((GOLDEN / "checkpoint.pt").read_bytes())
    inferred = load_checkpoint(alone).config
    dropouts = config.dropouts
    assert replace(inferred, dropouts=dropouts, mel_fmax=None) == config
    (tmp_path / "jasper.yaml").write_text(
        (GOLDEN / "config.yaml").read_text().replace("use_conv_masks: true", "use_conv_masks: false")
    )
    assert not load_checkpoint(alone).config.use_conv_masks
    assert load_checkpoint(alone, config=GOLDEN / "config.yaml").config == config
    with pytest.raises(FileNotFoundError, match=r"none\.yaml not found"):
        load_checkpoint(alone, config=tmp_path / "none.yaml")


def test_quartznets_files_are_read(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    config = read_config(path)
    assert config.separable == (True, True, False) and config.dilations == (1, 1, 2)
    assert config.residual_dense == (True, True, False) and config.dropouts == (0.2, 0.2, 0.4)
    assert (config.labels, config.n_mel_channels, config.pad_align) == (" ab", 32, 8)
    network = Jasper(config)
    state = {
        name.replace(".conv.", ".mconv.").replace(".out.", ".mout."): value
        for name, value in network.state_dict().items()
    }
    torch.save({"state_dict": state, "ema_state_dict": None, "epoch": 7}, tmp_path / "quartznet.pt")
    found = load_checkpoint(tmp_path / "quartznet.pt")
    assert found.config == config and found.info["epoch"] == 7 and not found.info["ema_available"]
    with pytest.raises(ValueError, match="holds no averaged weights"):
        load_checkpoint(tmp_path / "quartznet.pt", ema=True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("n_fft: 512", "window: hamming", "the window 'hamming' is not known"),
        ("filters: 16", "heads: 2", "block 2 has 'heads', which is not known"),
        ("filters: 16, ", "", "block 2 has no filters"),
        ("filters: 16", "filters: sixteen", "filters must be a whole number"),
        ("dilation: [2]", "groups: 4", "block 2 has groups 4; only 1 is known"),
        ("    blocks:", "    other:", "it has no jasper.encoder.blocks"),
        ("    in_feats:", "    frame_splicing: 3\n    in_feats:", "frame_splicing 3 is not known"),
        ("kernel_size: [5]", "kernel_size: [4]", "kernel_sizes 4 must be odd"),
        ('" ", a', '" ", ab', "labels must be single characters"),
        ("quartznet:", "quartznet: [", "not readable as YAML"),
    ],
)
def test_what_is_wrong_in_a_configuration_is_said(tmp_path, old, new, message):
    assert old in CONFIG
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.replace(old, new))
    with pytest.raises(ValueError, match=message) as caught:
        read_config(path)
    assert str(path) in str(caught.value)


def test_a_configuration_of_other_sizes_is_refused(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text((GOLDEN / "config.yaml").read_text().replace("filters: 20", "filters: 24"))
    with pytest.raises(ValueError, match="tensors have other sizes"):
        load_checkpoint(GOLDEN / "checkpoint.pt", config=path)


def test_labels_that_nobody_names_are_refused(tmp_path):
    torch.save(Jasper(tiny(labels="abc")).state_dict(), tmp_path / "it.pt")
    with pytest.raises(ValueError, match=r"has 3 labels, but no configuration .* put NVIDIA's config\.yaml"):
        load_checkpoint(tmp_path / "it.pt")


@pytest.fixture
def first_generation(tmp_path) -> Path:
    """NVIDIA's file with the names of its first programs, and the format of PyTorch's files then."""
    names = {
        "encoder.layers.": "jasper_encoder.encoder.",
        "decoder.layers.": "jasper_decoder.decoder_layers.",
    }
    state = {"audio_preprocessor.featurizer.window": torch.zeros(4), "acoustic_model.dummy": torch.zeros(1)}
    for name, value in torch.load(GOLDEN / "checkpoint.pt", weights_only=True)["state_dict"].items():
        (new,) = (new for new in names if name.startswith(new))
        state[names[new] + name.removeprefix(new)] = value
    path = tmp_path / "first.pt"
    torch.save({"epoch": 1, "state_dict": state}, path, _use_new_zipfile_serialization=False)
    shutil.copy(GOLDEN / "config.yaml", tmp_path)
    return path


def test_the_first_generation_is_the_same_network(first_generation):
    found, current = load_checkpoint(first_generation), load_checkpoint(GOLDEN / "checkpoint.pt")
    assert found.config == current.config and found.state.keys() == current.state.keys()
    assert all(torch.equal(value, current.state[name]) for name, value in found.state.items())


def test_files_are_recognised_in_either_layout(first_generation):
    for path in (GOLDEN / "checkpoint.pt", first_generation):
        source = read_checkpoint(path)
        assert (source.model, source.mel.sampling_rate, source.mel.n_mel_channels) == ("jasper", 16000, 64)
    with pytest.raises(ValueError, match=r"is a jasper \(recogniser\), not a vocoder"):
        read_checkpoint(GOLDEN / "checkpoint.pt", "vocoder")
    with pytest.raises(ValueError, match=r"is a jasper \(recogniser\), not an acoustic model$"):
        read_checkpoint(GOLDEN / "checkpoint.pt", "acoustic")


def test_a_config_in_the_file_counts():
    content = {"jasper": {"encoder": {"blocks": [{"filters": 4, "residual": False}]}}}
    assert build_config(content, "it").filters == (4,)

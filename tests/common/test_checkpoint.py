"""Published files of every model load however they were wrapped; damaged and foreign files are refused."""

import gzip
import os
import shutil
import zipfile
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
import pytest
import soundfile
import torch

from melforge.common.config.hparams import load_hparams
from melforge.common.errors import InputError
from melforge.common.registry import MODELS
from melforge.common.weights.checkpoint import read_pt
from melforge.common.weights.published import read_checkpoint
from tests.networks import load_network, make_network

GOLDEN = Path(__file__).parents[1] / "golden"
VOICE = Path(__file__).parents[2] / "voices" / "hazel"
FILES = {  # model -> its file, the key of its weights, a layer of which two tensors remain after reading
    "fastpitch": ("checkpoint.pt", "state_dict", "energy_emb"),
    "fastspeech": ("checkpoint_320000.pt", "model", "mel_linear"),
    "tacotron2": ("checkpoint_ddp.pt", "state_dict", "decoder.gate_layer.linear_layer"),
    "hifigan": ("checkpoint.pt", "generator", "conv_post"),
    "waveglow": ("checkpoint.pt", "state_dict", "WN.1.start"),
    "jasper": ("checkpoint.pt", "state_dict", "decoder.layers.0"),
}


class Published(NamedTuple):
    """A file's content, with its weights under plain names."""

    load: Callable
    content: dict[str, Any]
    key: str
    layer: str

    @property
    def state(self) -> dict[str, Any]:
        return self.content[self.key]


@pytest.fixture(params=FILES)
def published(request) -> Published:
    name, key, layer = FILES[request.param]
    content = torch.load(GOLDEN / request.param / name, weights_only=True)
    content[key] = {tensor.removeprefix("module."): value for tensor, value in content[key].items()}
    return Published(MODELS[request.param].module("checkpoint").load_checkpoint, content, key, layer)


def refuse(published: Published, path: Path, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        published.load(path)
    assert str(path) in str(caught.value) and str(caught.value).count("\n") <= 1


@pytest.mark.parametrize("prefix", ["", "module.1.", "module.module.", "_orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("old_format", [True, False])
def test_wrapped_half_precision_and_old_files_load(published, save_pt, prefix, old_format):
    expected = published.load(save_pt(published.content))
    state = {
        f"{prefix}{name.replace('.', '._orig_mod.', '_orig' in prefix)}": value.half()
        if value.is_floating_point()
        else value
        for name, value in published.state.items()
    }
    content = {**published.content, published.key: state, "amp": {}}
    found = published.load(save_pt(content, _use_new_zipfile_serialization=not old_format))
    assert found.config == expected.config and found.state.keys() == expected.state.keys()
    for name, value in expected.state.items():
        assert found.state[name].dtype == value.dtype
        if not name.endswith("inverse"):  # a matrix near a singular one has another inverse once rounded
            torch.testing.assert_close(found.state[name], value, rtol=5e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        ("fastpitch", {"n_symbols": 200}, r"encoder.word_emb.weight \(148, 32\) instead of \(200, 32\)"),
        ("fastpitch", {"in_fft_conv1d_filter_size": -3}, "no network has the sizes"),
        ("tacotron2", {"n_symbols": 200}, r"embedding.weight \(148, 32\) instead of \(200, 32\)"),
        ("tacotron2", {"n_symbols": "many"}, "n_symbols: 'many', which is no int"),
        ("tacotron2", {"encoder_kernel_size": 4}, "no network has the sizes in its config .*must be odd"),
        ("tacotron2", {"prenet_dim": -3}, "no network has the sizes"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(save_pt, model, change, message):
    content = torch.load(GOLDEN / model / FILES[model][0], weights_only=True)
    with pytest.raises(ValueError, match=message):
        load_network(model, save_pt({**content, "config": {**content["config"], **change}}))


@pytest.mark.parametrize("model", ["fastpitch", "tacotron2"])
def test_averaged_weights_that_are_not_there_are_refused(model):
    with pytest.raises(ValueError, match="no averaged weights"):
        load_network(model, GOLDEN / model / FILES[model][0], True)


# The published file of FastSpeech holds its table of 2,049 positions of 384 twice.
SIZES = {"fastpitch": 46_266_420, "fastspeech": 47_032_273 - 2049 * 384, "tacotron2": 28_193_153}


@pytest.mark.parametrize("model", SIZES)
def test_published_sizes_have_the_published_number_of_parameters(model):
    kind = MODELS[model].config_class
    assert load_hparams(GOLDEN.parents[1] / "hparams" / model / "base.yaml", kind) == (kind(),)
    with torch.device("meta"):
        assert sum(p.numel() for p in make_network(model, kind()).parameters()) == SIZES[model]


def rename(state: dict, layer: str) -> None:
    for name in [name for name in state if name.startswith(f"{layer}.")]:
        state[name.replace(layer, "other")] = state.pop(name)


def of_another_model(state: dict, layer: str) -> None:
    state.clear()
    state["w"] = torch.zeros(1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state, layer: state.pop(f"{layer}.bias"), r"1 missing: {layer}\.bias"),
        (rename, r"2 missing: {layer}\.\w+, {layer}\.\w+; 2 unexpected: other\.\w+, other\.\w+"),
        (lambda state, _: state.update({1: torch.zeros(1)}), "a tensor is called 1, which is no name"),
        (lambda state, _: state.update(step=3), "'step' is a int, not a tensor"),
        (of_another_model, r"missing: .* 1 unexpected: w|is no .*: its weights have other names \(w\)"),
        (lambda state, _: state.clear(), "it is empty"),
    ],
)
def test_damaged_weights_are_refused(published, save_pt, damage, message):
    damage(published.state, published.layer)
    refuse(published, save_pt(published.content), message.replace("{layer}", published.layer))


def ending_in(value: float) -> Callable:
    return lambda bias: torch.cat([bias[:-1], torch.tensor([value])])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda bias: torch.ones(3), r"{bias} \(3,\) instead of \(\d+,\)"),
        (ending_in(torch.nan), "{bias} holds 1 NaN or infinite"),
        (ending_in(torch.inf), "{bias} holds 1 NaN or infinite"),
        (lambda bias: torch.full_like(bias, 3e38, dtype=torch.float32), r"{bias} holds 3e\+38; the weights"),
        (lambda bias: bias.to_sparse(), "the tensor {bias} is sparse_coo, not dense"),
        (
            lambda bias: torch.nested.nested_tensor([bias], layout=torch.strided),
            "the tensor {bias} is nested, not dense",
        ),
        (lambda bias: bias.to("meta"), "the tensor {bias} was saved without its values"),
        (
            lambda bias: torch.zeros(1).expand(10**6, 10**6),
            r"more than its \d+ bytes hold: {bias} \[1000000, 1000000\]",
        ),
    ],
)
def test_a_damaged_tensor_is_refused_by_name(published, save_pt, damage, message):
    name = f"{published.layer}.bias"
    published.state[name] = damage(published.state[name])
    refuse(published, save_pt(published.content), message.replace("{bias}", name.replace(".", r"\.")))


@pytest.mark.parametrize("kind", [torch.complex64, torch.int64, torch.bool], ids=str)
def test_tensors_that_are_no_floating_point_numbers_are_named(published, save_pt, kind):
    name = next(name for name in published.state if name.startswith(f"{published.layer}.weight"))
    published.state[name] = published.state[name].to(kind)
    message = f"the tensor {name} is {str(kind).removeprefix('torch.')}; weights are floating-point numbers"
    refuse(published, save_pt(published.content), message)


def test_parameters_in_double_precision_are_read_in_single(published, save_pt):
    double = {
        name: torch.nn.Parameter(value.double()) if value.is_floating_point() else value
        for name, value in published.state.items()
    }
    found = published.load(save_pt({**published.content, published.key: double}))
    assert {value.dtype for value in found.numpy_state().values() if value.ndim} == {np.dtype(np.float32)}


def test_files_without_the_weights_are_refused(published, save_pt):
    del published.content[published.key]
    refuse(published, save_pt({"others": {}}), f"is no .*: it has no '{published.key}' but others")
    refuse(published, save_pt(published.content), f"is no .*: it has no '{published.key}' but ")
    refuse(published, save_pt({}), "it is empty")
    refuse(published, save_pt([1, 2]), "holds a list")


def test_a_config_that_is_a_list_is_refused(published, save_pt):
    refuse(
        published,
        save_pt({**published.content, "config": [8, 8]}),
        "its config(, or .*,)? is (a list|no map)",
    )


@pytest.mark.parametrize("numpy_1", [False, True])
def test_plain_data_beside_the_weights_passes(published, save_pt, numpy_1):
    data = {
        **{"learning_rate": np.float64(1e-3), "epoch": np.int64(3), "mean": np.arange(6.0).reshape(2, 3)},
        **{
            "dtype": np.dtype("float16"),
            "args": Namespace(root=Path("runs"), lr=np.float32(1)),
            **{"t": np.str_("x"), "at": datetime(2026, 1, 2), "of": frozenset("a")},
            "best": defaultdict(int, loss=3),
        },
    }
    path = save_pt({**published.content, **data})
    if numpy_1:  # which calls the module that holds them otherwise
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(path.with_suffix(".old"), "w") as new:
            for entry in old.infolist():
                new.writestr(entry, old.read(entry).replace(b"cnumpy._core.", b"cnumpy.core."))
        path = path.with_suffix(".old")
    content, found = read_pt(path), published.load(path)
    assert found.state.keys() == published.load(save_pt(published.content)).state.keys()
    assert (
        content["best"] == {"loss": 3}
        and type(content["epoch"]) is int
        and content["args"] == {"root": PurePath("runs"), "lr": 1.0}
    )


def zipped(path: Path, **how) -> None:
    with zipfile.ZipFile(path, "w", **how) as archive:
        archive.writestr("model/a.onnx", bytes(10**6))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"),
            "Git LFS pointer: fetch",
        ),
        (lambda path: path.touch(), "is an empty file|but an empty file"),
        (lambda path: path.write_bytes(b"\n<!DOCTYPE html><html>"), "is a web page: download the file, not"),
        (lambda path: shutil.make_archive(str(path), "tar", GOLDEN / "jasper"), "is an archive, as NeMo's"),
        (lambda path: path.write_bytes(gzip.compress(b"weights")), "is an archive, as NeMo's .nemo is one"),
        (
            lambda path: shutil.copy(VOICE / "hifigan" / "generator.onnx", path),
            "is an ONNX graph: give the checkpoint",
        ),
        (
            lambda path: shutil.copy(VOICE / "hifigan" / "weights.safetensors", path),
            "is a safetensors file: its",
        ),
        (lambda path: soundfile.write(path, np.zeros(9), 16000, format="WAV"), "is a sound file"),
        (lambda path: zipped(path), "is a zip archive, to be unpacked first: model/a.onnx"),
        (
            lambda path: zipped(path, compression=zipfile.ZIP_DEFLATED),
            r"would take 1e\+06 bytes once unpacked",
        ),
        (lambda path: torch.save({"a": 1}, path, pickle_protocol=4), "cannot be read: Unsupported operand"),
    ],
)
def test_a_file_of_another_kind_is_called_what_it_is(tmp_path, write, message):
    write(path := tmp_path / "a.pt")
    if not path.exists():
        path.with_name("a.pt.tar").rename(path)
    with pytest.raises(InputError, match=message) as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value)
    if "safetensors" not in message:
        path = path.rename(tmp_path / "a.safetensors")
        with pytest.raises(InputError, match="whole safetensors file"):
            read_checkpoint(path)


@pytest.mark.parametrize(
    ("model", "key"), [("fastpitch", "in_fft_n_layers"), ("tacotron2", "postnet_n_convolutions")]
)
@pytest.mark.parametrize("value", [3 * 10**9, 2**70])
def test_a_config_of_other_layers_than_its_weights_is_refused(save_pt, model, key, value):
    content = torch.load(GOLDEN / model / FILES[model][0], weights_only=True)
    content["config"] = {**content.get("config", {}), key: value}
    with pytest.raises(InputError, match=rf"config says {key}: {value}, but its weights have \d"):
        MODELS[model].module("checkpoint").load_checkpoint(save_pt(content))


class RunsCode:
    def __reduce__(self):
        return os.mkdir, ("made_by_a_checkpoint",)


def test_files_that_run_code_are_refused(published, save_pt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuse(published, save_pt({**published.content, "extra": RunsCode()}), "holds posix.mkdir, no plain data")
    assert not Path("made_by_a_checkpoint").exists()
    refuse(
        published,
        save_pt({"model": torch.nn.Linear(2, 2)}),
        "holds torch.nn.modules.linear.Linear, no plain data",
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_refused(published, tmp_path):
    path = tmp_path / "program.pt"
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)), path)
    refuse(published, path, "TorchScript program")


@pytest.mark.parametrize("kept", [1, 1000, -100])
def test_truncated_files_are_refused(published, save_pt, kept):
    path = save_pt(published.content)
    path.write_bytes(path.read_bytes()[:kept])
    refuse(published, path, "not a complete PyTorch file")


def test_missing_file_and_folder_are_named(published, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.pt not found"):
        published.load(tmp_path / "nothing.pt")
    refuse(published, tmp_path, "is a folder")

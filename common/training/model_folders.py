"""The folders of models in a voice or an ear: half precision, ONNX graphs, checks, put in place together."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from melforge.common.arrays import to_numpy
from melforge.common.errors import InputError
from melforge.common.registry import get_model
from melforge.common.speech import MelTooLong
from melforge.common.synthesis.acoustic import AcousticModel
from melforge.common.synthesis.loading import make_driver
from melforge.common.synthesis.vocoder import Vocoder
from melforge.common.weights.voices import SCALE, WEIGHTS, ModelSource, save_weights

if TYPE_CHECKING:
    from melforge.common.export.to_onnx import Check
    from melforge.common.stages import Stage

# Of a log mel: in float32 sums in another order differ by some 1e-5, an unmasked layer by 0.01 and more.
PADDING_TOLERANCE = 1e-3
LARGE = 4096  # numbers: smaller tensors would hardly save anything


def write_model(
    draft: Path, source: ModelSource, stages: Sequence[Stage] | None = None, in_int8: bool = False
) -> tuple[dict[str, Any], list[Check]]:
    """Writes weights and graphs into a folder of the model in `draft`, large weights in int8 where asked.

    Returns the model's entry in voice.yaml or ear.yaml, and the checks of its graphs.
    """
    from melforge.common.export.to_onnx import export_source, graphs_of_voices

    weights = draft / source.model / WEIGHTS
    halved = halve(source)
    save_weights(weights, quarter(halved) if in_int8 else halved)
    stored = {"weights": weights, "graphs": {}, "given_state": None, "written_state": None}
    kept = dataclasses.replace(source, **stored, networks={})
    exported, checks = export_source(kept, weights.parent, stages, known=graphs_of_voices(kept))
    if get_model(source.model).kind == "vocoder":
        require_even_chunks(exported)
    elif get_model(source.model).kind == "acoustic":
        require_items_alone(exported)
    return entry_of(exported, draft), checks


def entry_of(source: ModelSource, folder: Path) -> dict[str, Any]:
    """Of a model whose files are in this folder, what the folder's YAML file says."""
    extra = set_by_voice(source)
    return {
        "config": dataclasses.asdict(source.config),
        "weights": source.weights.relative_to(folder).as_posix(),
        "graphs": {name: graph.relative_to(folder).as_posix() for name, graph in source.graphs.items()},
        **({"extra": extra} if extra else {}),
    }


def require_even_chunks(source: ModelSource) -> None:
    """An InputError where a vocoder's chunks do not join to the audio of the whole: a stream would click."""
    from melforge.common.synthesis.chunk_check import CHUNK_TOLERANCE, chunk_error

    vocoder = make_driver(source, "onnx", "cpu", threads=1)
    assert isinstance(vocoder, Vocoder)
    mel = np.random.default_rng(0).uniform(-8, 0, (1, source.mel.n_mel_channels, 64)).astype(np.float32)
    if (error := chunk_error(vocoder, mel)) > CHUNK_TOLERANCE:
        raise InputError(
            f"{source.model}: a mel in chunks sounds other than the whole, by {error:.1e} of the peak: "
            f"its receptive_field ({vocoder.context} frames) is too short"
        )


def require_items_alone(source: ModelSource) -> None:
    """An InputError where an acoustic model that calls itself `batch_safe` says other things of a text in a
    batch: padding that is not masked is seen by neither side of a comparison with PyTorch.
    """
    acoustic = make_driver(source, "onnx", "cpu", threads=1)
    assert isinstance(acoustic, AcousticModel)
    if not acoustic.batch_safe:
        return
    random = np.random.default_rng(0)
    texts = [random.integers(1, source.config.n_symbols, length) for length in (24, 40)]
    try:
        alone, both = (acoustic.synthesise(some) for some in (texts[:1], texts))
    except MelTooLong:  # of such a text, which says nothing
        return
    # A duration on the edge may be rounded otherwise.
    if np.array_equal(alone.durations[0], both.durations[0, : len(texts[0])]):
        shared = to_numpy(both.mel)[0, :, : alone.mel.shape[2]]
        if (error := float(np.abs(shared - to_numpy(alone.mel)[0]).max(initial=0))) > PADDING_TOLERANCE:
            raise InputError(
                f"{source.model}: the mel of a text in a batch differs from that of the text alone, by "
                f"{error:.1e}: its padding is not masked everywhere, or it is not batch_safe"
            )


def require_place(folder: Path, file: str, what: str) -> None:
    """An InputError where `folder` holds something and not what it is to be: models' folders go in it."""
    if folder.is_dir() and not (folder / file).is_file() and any(folder.iterdir()):
        raise InputError(f"{folder} is no {what} and not empty: give the folder of one, or a new one")


def put_in_place(
    draft: Path, folder: Path, models: Iterable[str], file: str, content: Mapping[str, Any]
) -> None:
    """Moves the models' folders in `draft` to `folder`, and writes the YAML file that names them last."""
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    (draft / file).write_text(text, encoding="utf-8")
    folder.mkdir(exist_ok=True)
    for model in models:
        shutil.rmtree(folder / model, ignore_errors=True)
        (draft / model).rename(folder / model)
    (draft / file).replace(folder / file)


def print_size(folder: Path) -> None:
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")


def set_by_voice(source: ModelSource) -> dict[str, Any]:
    """The settings that are not the model's defaults."""
    values, fields = dataclasses.asdict(source.settings), dataclasses.fields(source.settings)
    return {field.name: values[field.name] for field in fields if values[field.name] != field.default}


def halve(source: ModelSource) -> dict[str, np.ndarray]:
    """Parameters in half precision. Buffers are constants, such as angular frequencies, that would suffer."""
    from melforge.common.engines.torch_engine import new_network
    from melforge.common.export.to_onnx import source_stages

    network = new_network(source_stages(source)[0], source.config)
    buffers = {name for name, _ in network.named_buffers()}
    unused = get_model(source.model).training_only
    halved = {}
    for name, value in source.state.items():
        if name.startswith(unused):
            continue
        narrow = name not in buffers and value.dtype.kind == "f"
        halved[name] = value.astype(np.float16) if narrow else value
        if narrow and not np.isfinite(halved[name]).all():
            raise InputError(f"{source.weights}: {name} has values beyond half precision")
    return halved


def quarter(halved: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Large matrices and kernels in int8, with a scale for each row of the first axis; the rest as it is."""
    stored = {}
    for name, value in halved.items():
        if value.dtype == np.float16 and value.ndim > 1 and value.size >= LARGE:
            rows = value.reshape(len(value), -1).astype(np.float32)
            scale = (np.abs(rows).max(1) / 127).astype(np.float16)
            scale[scale == 0] = 1  # a row of zeros
            stored[name + SCALE] = scale
            value = np.rint(rows / scale[:, None].astype(np.float32)).clip(-127, 127)
            value = value.astype(np.int8).reshape(halved[name].shape)
        stored[name] = value
    return stored

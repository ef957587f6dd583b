"""Writes a model repository: a folder for each model with its config.pbtxt, its code and what warms it up."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from melforge.common.files import weights_key, write_bytes
from melforge.common.serve.pairs import FIRST_WORDS
from melforge.common.stages import stages_of
from melforge.common.stages.choose import KINDS
from melforge.common.triton import tensors
from melforge.common.triton.choice import LAID_IN, EarChoice, ModelChoice, describe
from melforge.common.triton.config import TYPES, Word, tensor_entry, to_text
from melforge.common.triton.tensors import (
    ACOUSTIC,
    DECODER,
    FEATURES,
    FRONTEND,
    STREAM,
    VOCODER,
    WHOLE,
    Signature,
    ensemble_name,
    recogniser_name,
    recogniser_signatures,
    signatures,
)
from melforge.common.weights.ears import list_ears, load_ear
from melforge.common.weights.published import parse_checkpoint
from melforge.common.weights.voices import ModelSource, list_voices, load_voice

VERSION = "1"
PROBE = Path(__file__).parent / "probe.py"
ON_GPU = {"FORCE_CPU_ONLY_INPUT_TENSORS": "no"}  # the Python backend's own: else mels come by the host
PYTHON, ENSEMBLE = {"backend": "python"}, {"platform": "ensemble"}  # how Triton runs a model
INSTANCE_KINDS = {"auto": "KIND_AUTO", "cpu": "KIND_CPU", "cuda": "KIND_GPU"}
WARM_UP_FRAMES, WARM_UP_ROWS = 64, 32  # of a mel or of features; of probabilities
CLASSES = {  # modules of this package and their classes
    FRONTEND: ("backend", "Frontend"),
    ACOUSTIC: ("backend", "Acoustic"),
    VOCODER: ("backend", "MelToAudio"),
    STREAM: ("streaming", "TextToChunks"),
}
CODE = '''"""Written by `melforge triton`. Melforge must be installed in the Python that Triton takes."""

from melforge.common.triton.{} import {} as TritonPythonModel  # noqa: F401
'''
KINDS_OF = {FRONTEND: (), ACOUSTIC: ("acoustic",), VOCODER: ("vocoder",), STREAM: KINDS}  # kinds of models
HEAD = "# Written by `melforge triton`; docs/triton.md says what may be changed.\n"


@dataclass(frozen=True)
class Layout:
    """How Triton runs the models: on what, so many instances of each, so many texts at a time."""

    device: str = "auto"  # auto, cpu or cuda
    instances: int = 1
    batch_size: int | None = None  # None: as many as the stages take
    queue_delay: int = 0  # microseconds that a request waits for others


def write_repository(folder: Path, choice: ModelChoice, layout: Layout) -> list[str]:
    """Writes all models, over those that are there, and gives their names."""
    stored = choice.stored_sources()
    sources = choice.overridden(stored)
    longest, batch = choice.limits(sources)
    mel = sources["acoustic"].mel
    batch_size = min(layout.batch_size or batch, batch)
    named = replace(choice, acoustic=sources["acoustic"].model, vocoder=sources["vocoder"].model)
    warm_up = warm_ups(sources, longest, mel.n_mel_channels)
    for name, signature in signatures(mel.n_mel_channels).items():
        version = folder / name / VERSION
        version.mkdir(parents=True, exist_ok=True)
        parameters = {"sampling_rate": str(mel.sampling_rate)}
        if name != WHOLE:
            parameters |= lay_in(named, version, stored, KINDS_OF[name]).parameters()
        if name == VOCODER and layout.device != "cpu":
            parameters |= ON_GPU
        config = model_config(name, signature, batch_size, layout)
        if name in warm_up:
            config["model_warmup"] = [write_warm_up(folder / name / "warmup", signature, warm_up[name])]
        write_model(version, config, parameters, CLASSES.get(name))
    write_bytes(folder / PROBE.name, PROBE.read_bytes())
    return list(signatures())


def write_model(
    version: Path, config: Mapping[str, Any], parameters: Mapping[str, str], code: tuple[str, str] | None
) -> None:
    """Writes a model around the folder of its version, which is there.

    `code` is a module of this package and a class in it; an ensemble has none.
    """
    entries = [{"key": key, "value": {"string_value": text}} for key, text in parameters.items()]
    text = HEAD + to_text({**config, "parameters": entries})
    write_bytes(version.parent / "config.pbtxt", text.encode())
    if code:
        write_bytes(version / "model.py", CODE.format(*code).encode())
    else:  # a version must be there, and object stores have no empty folders
        write_bytes(version / ".keep", b"")


def model_config(name: str, signature: Signature, batch_size: int, layout: Layout) -> dict[str, Any]:
    """The config of a model that speaks, without parameters and warm-up."""
    if name == WHOLE:
        return ensemble_config(name, signatures(), (FRONTEND, ACOUSTIC, VOCODER), signature, batch_size)
    if name == STREAM:
        config = first_entries(name, PYTHON, signature, 0)
        config["model_transaction_policy"] = {"decoupled": True}
    else:
        config = first_entries(name, PYTHON, signature, batch_size, ragged=True)
        config["dynamic_batching"] = batching(layout)
    config["instance_group"] = instances(replace(layout, device="cpu") if name == FRONTEND else layout)
    return config


def first_entries(
    name: str, runs_as: Mapping[str, str], signature: Signature, batch_size: int, ragged: bool = False
) -> dict[str, Any]:
    """What every config begins with."""
    return {
        "name": name,
        **runs_as,
        "max_batch_size": batch_size,
        "input": [tensor_entry(tensor, ragged) for tensor in signature.inputs],
        "output": [tensor_entry(tensor) for tensor in signature.outputs],
    }


def ensemble_config(
    name: str, of: Mapping[str, Signature], order: Sequence[str], signature: Signature, batch_size: int
) -> dict[str, Any]:
    """The config of an ensemble of these models, which run in this order."""
    config = first_entries(name, ENSEMBLE, signature, batch_size)
    return {**config, "ensemble_scheduling": {"step": steps(of, order)}}


def batching(layout: Layout) -> dict[str, Any]:
    """The entry `dynamic_batching`."""
    return {"max_queue_delay_microseconds": layout.queue_delay} if layout.queue_delay else {}


def instances(layout: Layout) -> list[dict[str, Any]]:
    """The entry `instance_group`."""
    return [{"count": layout.instances, "kind": Word(INSTANCE_KINDS[layout.device])}]


def steps(of: Mapping[str, Signature], order: Sequence[str]) -> list[dict[str, Any]]:
    """An ensemble's, of these models: tensors of the same name are the same tensor."""
    found = []
    for name in order:
        signature = of[name]
        maps = {
            f"{way}_map": [{"key": tensor.name, "value": tensor.name} for tensor in given]
            for way, given in (("input", signature.inputs), ("output", signature.outputs))
        }
        found.append({"model_name": name, "model_version": -1, **maps})
    return found


def write_recogniser(folder: Path, choice: EarChoice, layout: Layout, backends: Sequence[str]) -> list[str]:
    """Writes the models around a recogniser, with one of its own and an ensemble for each backend."""
    stored = choice.stored_source()
    source = choice.overridden(stored)
    stages = stages_of(source.model, source.config)
    batch = min(stage.batch.max for stage in stages)
    n_mels, labels = source.config.n_mel_channels, len(source.config.labels) + 1
    found = recogniser_signatures(source.model, backends, n_mels, labels)
    about = {"sampling_rate": str(source.mel.sampling_rate), "labels": source.config.labels}
    warm_up = recogniser_warm_ups(source.mel.sampling_rate, n_mels, labels)
    by_name = {recogniser_name(source.model, backend): backend for backend in backends}
    ensembles = {ensemble_name(source.model, b): recogniser_name(source.model, b) for b in backends}
    batch_size = min(layout.batch_size or batch, batch)
    for name, signature in found.items():
        version = folder / name / VERSION
        version.mkdir(parents=True, exist_ok=True)
        if name in ensembles:
            order = (FEATURES, ensembles[name], DECODER)
            config = ensemble_config(name, found, order, signature, batch_size)
            write_model(version, config, about, None)
            continue
        kind = {FEATURES: "Features", DECODER: "Decoder"}.get(name, "Encoder")
        with_backend = replace(choice, backend=by_name.get(name, backends[0]))
        parameters = about | lay_in_ear(with_backend, version, stored, kind == "Encoder").parameters()
        if name != FEATURES and layout.device != "cpu":
            parameters |= ON_GPU
        config = first_entries(name, PYTHON, signature, batch_size, ragged=True)
        config |= {"dynamic_batching": batching(layout), "instance_group": instances(layout)}
        config["model_warmup"] = [write_warm_up(folder / name / "warmup", signature, warm_up[kind])]
        write_model(version, config, parameters, ("recogniser_models", kind))
    return list(found)


def recogniser_warm_ups(rate: int, n_mels: int, outputs: int) -> dict[str, dict[str, np.ndarray]]:
    """What each class of models is run on before Triton says that it is ready."""
    noise = 0.1 * np.random.default_rng(0).standard_normal(rate)
    return {
        "Features": {
            tensors.AUDIO_SIGNAL.name: noise.astype(np.float32),
            tensors.NUM_SAMPLES.name: np.array([rate], np.int32),
        },
        "Encoder": {
            tensors.AUDIO_FEATURES.name: np.zeros((n_mels, WARM_UP_FRAMES), np.float32),
            tensors.NUM_FEATURES.name: np.array([WARM_UP_FRAMES], np.int32),
        },
        "Decoder": {
            tensors.CHARACTER_PROBABILITIES.name: np.zeros((WARM_UP_ROWS, outputs), np.float32),
            tensors.NUM_OUTPUTS.name: np.array([WARM_UP_ROWS], np.int32),
        },
    }


def lay_in_ear(choice: EarChoice, version: Path, stored: ModelSource, takes_weights: bool) -> EarChoice:
    """The choice with its files copied into a model's version: no path of this machine is left.

    To a model that takes none of its weights a checkpoint is described, as it is `stored`.
    """
    if choice.checkpoints and not takes_weights:
        described = {**describe(stored), "weights_key": weights_key(stored.weights)}
        return replace(choice, checkpoints=(), described={"recogniser": described})
    if choice.checkpoints:
        name = f"{stored.model}{stored.weights.suffix}"
        shutil.copyfile(stored.weights, version / name)
        beside = version / f"{stored.model}.yaml"
        beside.unlink(missing_ok=True)  # an earlier checkpoint's
        if stored.config_file:
            shutil.copyfile(stored.config_file, beside)
        return replace(choice, checkpoints=(f"recogniser={LAID_IN}{name}",))
    found = load_ear(choice.ear)
    if choice.ear is None or choice.ear in list_ears():
        return replace(choice, ear=found.name)
    shutil.copytree(found.folder, version / "ear", dirs_exist_ok=True)
    return replace(choice, ear=f"{LAID_IN}ear")


def lay_in(
    choice: ModelChoice, version: Path, stored: Mapping[str, ModelSource], kinds: Sequence[str]
) -> ModelChoice:
    """The choice with its files copied into a model's version: no path of this machine is left.

    Of checkpoints those of the `kinds` that it runs are copied; all are described, as they are `stored`.
    """
    paths = {path for _, path in map(parse_checkpoint, choice.checkpoints)}
    given = {kind: source for kind, source in stored.items() if source.weights in paths}
    checkpoints, voice = [], None
    for kind in kinds:
        if kind in given:
            path = given[kind].weights
            name = f"{given[kind].model}{path.suffix}"  # training runs give all their files the same name
            shutil.copyfile(path, version / name)
            checkpoints.append(f"{kind}={LAID_IN}{name}")
    if len(given) < len(KINDS):
        found = load_voice(choice.voice)
        voice = found.name
        if choice.voice is not None and choice.voice not in list_voices():
            shutil.copytree(found.folder, version / "voice", dirs_exist_ok=True)
            voice = f"{LAID_IN}voice"
    described = {kind: describe(source) for kind, source in given.items()}
    return replace(choice, checkpoints=tuple(checkpoints), voice=voice, described=described)


def warm_ups(sources: Mapping[str, Any], longest: int, n_mels: int) -> dict[str, dict[str, np.ndarray]]:
    """What each model with a batcher is run on before Triton says that it is ready."""
    from melforge.common.triton.speaking import analyse

    first = analyse(sources["acoustic"].frontend.build(), FIRST_WORDS, longest).utterances[0]
    return {
        FRONTEND: {tensors.TEXT.name: np.array([FIRST_WORDS.encode()], object)},
        ACOUSTIC: {tensors.SYMBOLS.name: first.ids, tensors.LENGTHS.name: np.array([len(first.ids)])},
        VOCODER: {
            tensors.MEL.name: np.zeros((n_mels, WARM_UP_FRAMES), np.float32),
            tensors.MEL_LENGTHS.name: np.array([WARM_UP_FRAMES]),
            tensors.PAUSES.name: np.zeros(1),
        },
    }


def write_warm_up(folder: Path, signature: Signature, given: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Writes the inputs and gives the config's entry."""
    folder.mkdir(exist_ok=True)
    inputs = []
    for tensor in signature.inputs:
        array = given[tensor.name]
        write_bytes(folder / tensor.name, to_bytes(array))
        value = {"data_type": Word(TYPES[tensor.dtype]), "dims": list(array.shape)}
        inputs.append({"key": tensor.name, "value": {**value, "input_data_file": tensor.name}})
    return {"name": "first words", "batch_size": 1, "inputs": inputs}


def to_bytes(array: np.ndarray) -> bytes:
    """As Triton has tensors on the wire: little-endian; before each string its length."""
    if array.dtype != object:
        return array.astype(array.dtype.newbyteorder("<")).tobytes()
    return b"".join(len(text).to_bytes(4, "little") + text for text in array.ravel())

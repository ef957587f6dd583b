"""Writes a model repository: a folder for each model with its config.pbtxt, its code and its files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from melforge.common.files import write_bytes
from melforge.common.stages import stages_of
from melforge.common.stages.choose import KINDS
from melforge.common.triton.choice import HEARING, LAID_IN, Choice, describe
from melforge.common.triton.config import Constant, input_entry, tensor_entry, to_text
from melforge.common.triton.tensors import (
    ACOUSTIC,
    DECODER,
    FEATURES,
    FRONTEND,
    QUEUE_SIZE,
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
from melforge.common.weights.voices import LEXICON_FILE, ModelSource, list_voices, load_voice

VERSION = "1"
SCRIPTS = [Path(__file__).parent / name for name in ("probe.py", "watch.py")]
ON_GPU = {"FORCE_CPU_ONLY_INPUT_TENSORS": "no"}  # of the Python backend: else tensors go through the host
INSTANCE_KINDS = {"auto": "KIND_AUTO", "cpu": "KIND_CPU", "cuda": "KIND_GPU"}
CODE = '''"""Written by `melforge triton`. Melforge must be installed in the Python that Triton takes."""

from melforge.common.triton.{} import {} as TritonPythonModel  # noqa: F401
'''
HEAD = "# Written by `melforge triton`; docs/triton.md says what may be changed.\n"


@dataclass(frozen=True)
class Code:
    """A Python model: its class, in a module of this package, and how it runs."""

    module: str
    name: str
    kinds: tuple[str, ...] = ()  # of the models whose weights it takes
    on_cpu: bool = False  # whatever the others run on
    takes_gpu_tensors: bool = False
    streams: bool = False
    first: bool = False  # of an ensemble


MODELS = {
    FRONTEND: Code("backend", "TextToSymbols", on_cpu=True, first=True),
    ACOUSTIC: Code("backend", "SymbolsToMel", ("acoustic",)),
    VOCODER: Code("backend", "MelToAudio", ("vocoder",), takes_gpu_tensors=True),
    STREAM: Code("streaming", "TextToChunks", KINDS, streams=True),
    FEATURES: Code("recogniser_models", "AudioToFeatures", first=True),
    DECODER: Code("recogniser_models", "CharactersToText", on_cpu=True),
}
NETWORK = Code("recogniser_models", "FeaturesToCharacters", HEARING, takes_gpu_tensors=True)


@dataclass(frozen=True)
class Layout:
    """How Triton runs the models: device, instances of each, and batches."""

    device: str = "auto"  # auto, cpu or cuda
    instances: int = 1
    batch_size: int | None = None  # None: as many as the stages take
    queue_delay: int = 0  # microseconds that a request waits for others
    queue_size: int = 64  # requests that wait, and as many that are under way; further ones are refused
    queue_seconds: float = 8.0  # after which a request that waits at a model is refused
    gpus: tuple[int, ...] = ()  # which of them; none: all that Triton has


def write_repository(folder: Path, choice: Choice, layout: Layout) -> list[str]:
    """Writes the models that speak, replacing existing ones, and returns their names."""
    stored = choice.stored_sources()
    sources = choice.overridden(stored)
    _, batch = choice.limits(sources)
    mel = sources["acoustic"].mel
    named = replace(choice, acoustic=sources["acoustic"].model, vocoder=sources["vocoder"].model)
    found = signatures(mel.n_mel_channels)
    write = ModelWriter(folder, found, layout, batch, {"sampling_rate": str(mel.sampling_rate)})
    for name in found:
        if name == WHOLE:
            write.ensemble(name, (FRONTEND, ACOUSTIC, VOCODER))
        else:
            write.model(name, MODELS[name], named, stored)
    write.scripts()
    return list(found)


def write_recogniser(
    folder: Path, choice: Choice, layout: Layout, backends: Sequence[str], jasper_client: bool = False
) -> list[str]:
    """Writes a recogniser's models; its network and an ensemble around it once for each backend."""
    stored = choice.stored_sources()
    source = choice.overridden(stored)["recogniser"]
    batch = min(stage.batch.max for stage in stages_of(source.model, source.config))
    n_mels, labels = source.config.n_mel_channels, source.config.labels
    found = recogniser_signatures(source.model, backends, n_mels, len(labels) + 1, jasper_client)
    about = {"sampling_rate": str(source.mel.sampling_rate), "labels": labels}
    write = ModelWriter(folder, found, layout, batch, about)
    write.model(FEATURES, MODELS[FEATURES], replace(choice, backend=backends[0]), stored)
    write.model(DECODER, MODELS[DECODER], None, stored)
    for backend in backends:
        name = recogniser_name(source.model, backend, jasper_client)
        write.model(name, NETWORK, replace(choice, backend=backend), stored)
        write.ensemble(ensemble_name(name), (FEATURES, name, DECODER))
    write.scripts()
    return list(found)


@dataclass(frozen=True)
class ModelWriter:
    """Writes models into a repository; `batch` is the most that stages take, `about` parameters of all."""

    folder: Path
    signatures: Mapping[str, Signature]
    layout: Layout
    batch: int
    about: Mapping[str, str]

    def model(self, name: str, code: Code, choice: Choice | None, stored: Mapping[str, ModelSource]) -> None:
        """Writes a model of the Python backend and its files; without a choice it needs none."""
        version = self._version(name)
        layout = replace(self.layout, device="cpu") if code.on_cpu else self.layout
        parameters = {**self.about, QUEUE_SIZE: str(self.layout.queue_size)}
        if choice:
            parameters |= lay_in(choice, version, stored, code.kinds).parameters()
        if code.takes_gpu_tensors and layout.device != "cpu":
            parameters |= ON_GPU
        config = self._first_entries(name, {"backend": "python"}, batches=not code.streams, ragged=True)
        if code.streams:
            config["model_transaction_policy"] = {"decoupled": True}
        else:
            config["dynamic_batching"] = step_batching(layout, code.first, config["max_batch_size"])
        config["instance_group"] = instances(layout)
        write_config(version.parent, config, parameters)
        write_bytes(version / "model.py", CODE.format(code.module, code.name).encode())

    def ensemble(self, name: str, order: Sequence[str]) -> None:
        """Writes an ensemble that runs these models in this order."""
        version = self._version(name)
        config = self._first_entries(name, {"platform": "ensemble"})
        config["ensemble_scheduling"] = {"step": steps(self.signatures, name, order)}
        write_config(version.parent, config, self.about)
        write_bytes(version / ".keep", b"")  # object stores have no empty folders

    def scripts(self) -> None:
        """Writes what asks the server whether it speaks or hears, and what ends it when a model has died."""
        for script in SCRIPTS:
            write_bytes(self.folder / script.name, script.read_bytes())

    def _version(self, name: str) -> Path:
        version = self.folder / name / VERSION
        version.mkdir(parents=True, exist_ok=True)
        return version

    def _first_entries(
        self, name: str, runs_as: Mapping[str, str], batches: bool = True, ragged: bool = False
    ) -> dict[str, Any]:
        """What every config begins with."""
        signature = self.signatures[name]
        return {
            "name": name,
            **runs_as,
            "max_batch_size": min(self.layout.batch_size or self.batch, self.batch) if batches else 0,
            "input": [input_entry(tensor, ragged and batches) for tensor in signature.inputs],
            "output": [tensor_entry(tensor) for tensor in signature.outputs],
        }


def write_config(folder: Path, config: Mapping[str, Any], parameters: Mapping[str, str]) -> None:
    entries = [{"key": key, "value": {"string_value": text}} for key, text in parameters.items()]
    write_bytes(folder / "config.pbtxt", (HEAD + to_text({**config, "parameters": entries})).encode())


def step_batching(layout: Layout, first: bool, most: int) -> dict[str, Any]:
    """The entry `dynamic_batching` of a model that is a step of an ensemble.

    The first one waits for room for a whole batch (under_way.py): its batches are small, so that the others
    have work meanwhile. Those have longer queues: what was let through is not refused.
    """
    if first:
        size = min(max(1, layout.queue_size // 4), most)
        return {"preferred_batch_size": [size], **batching(layout)}
    return batching(replace(layout, queue_size=4 * layout.queue_size))


def batching(layout: Layout) -> dict[str, Any]:
    """The entry `dynamic_batching`. The probe's priority is 1; each has a queue of its own."""
    policy = {
        "timeout_action": Constant("REJECT"),
        "default_timeout_microseconds": round(layout.queue_seconds * 1e6),
        "allow_timeout_override": True,
        "max_queue_size": layout.queue_size,
    }
    delay = {"max_queue_delay_microseconds": layout.queue_delay} if layout.queue_delay else {}
    return {**delay, "priority_levels": 2, "default_priority_level": 2, "default_queue_policy": policy}


def instances(layout: Layout) -> list[dict[str, Any]]:
    """The entry `instance_group`."""
    group = {"count": layout.instances, "kind": Constant(INSTANCE_KINDS[layout.device])}
    return [{**group, "gpus": layout.gpus} if layout.gpus and layout.device == "cuda" else group]


def steps(of: Mapping[str, Signature], ensemble: str, order: Sequence[str]) -> list[dict[str, Any]]:
    """The steps of an ensemble: tensors of the same name are the same tensor; Triton refuses unused ones."""
    used = {one.name for name in order for one in of[name].inputs} | {
        one.name for one in of[ensemble].outputs
    }
    found = []
    for name in order:
        signature = of[name]
        maps = {
            f"{way}_map": [{"key": one.name, "value": one.name} for one in given if one.name in used]
            for way, given in (("input", signature.inputs), ("output", signature.outputs))
        }
        found.append({"model_name": name, "model_version": -1, **maps})
    return found


def lay_in(choice: Choice, version: Path, stored: Mapping[str, ModelSource], kinds: Sequence[str]) -> Choice:
    """The choice after its files are copied into a model's version, so that it holds no path of this machine.

    Checkpoints are copied for the `kinds` whose weights the model takes; all are described, as `stored`.
    """
    paths = {path for _, path in map(parse_checkpoint, choice.checkpoints)}
    given = {kind: source for kind, source in stored.items() if source.weights in paths}
    checkpoints = []
    for kind in kinds:
        if source := given.get(kind):
            name = f"{source.model}{source.weights.suffix}"  # training runs give their files the same name
            shutil.copyfile(source.weights, version / name)
            beside = version / f"{source.model}.yaml"
            beside.unlink(missing_ok=True)  # an earlier checkpoint's
            if source.config_file:
                shutil.copyfile(source.config_file, beside)
            checkpoints.append(f"{kind}={LAID_IN}{name}")
    described = {kind: describe(source) for kind, source in given.items()}
    if choice.lexicon:
        shutil.copyfile(choice.lexicon, version / LEXICON_FILE)
        choice = replace(choice, lexicon=f"{LAID_IN}{LEXICON_FILE}")
    laid_in = replace(choice, checkpoints=tuple(checkpoints), described=described, voice=None, ear=None)
    if len(given) == len(stored):
        return laid_in
    word = "ear" if choice.kinds == HEARING else "voice"
    asked, known, load = (
        (choice.ear, list_ears, load_ear) if word == "ear" else (choice.voice, list_voices, load_voice)
    )
    found = load(asked)
    if asked is None or asked in known():
        return replace(laid_in, **{word: found.name})
    shutil.copytree(found.folder, version / word, dirs_exist_ok=True)
    return replace(laid_in, **{word: f"{LAID_IN}{word}"})

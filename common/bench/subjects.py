"""What a row runs: a pair, a model or a stage on its engines, or a function of the user's.

Its output is as long in every run: durations that a row gives take the place of the predicted ones, which are
predicted all the same, and Tacotron 2 makes so many steps.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from common.arrays import Array, as_float32, to_device, to_numpy, valid
from common.audio.contract import MelContract, require_same_contract
from common.bench.cases import Case, form_of, has_decoders
from common.bench.clocks import EngineClock
from common.config.deployment import Bucket, Deployment
from common.engines import Engine
from common.engines.buckets import root
from common.errors import unknown
from common.registry import get_model
from common.runner import FIRST_CHUNK, LARGEST_CHUNK, TextToSpeech
from common.speech import Controls
from common.stages.choose import KINDS, deployment_of, parse_backends
from common.synthesis.loading import choose_sources, make_driver
from common.weights.voices import ModelSource

FRAMES_PER_SYMBOL = 5  # 128 symbols: 640 frames
STEPS = 600  # of Tacotron 2's decoder
SENTENCES = (
    "The examination and testimony of the experts enabled the commission to conclude "
    "that five shots may have been fired.",
    "In being comparatively modern, the art has neither the charm of age nor the weight of a long tradition, "
    "and for that reason it is often passed over by those who write about older crafts.",
    "The earliest book printed with movable types is a work of great beauty.",
    "It was made in the middle of the fifteenth century, and it has never been surpassed.",
    "Printers of later times took less care, and what they made was cheaper, and looked it.",
    "Only in our own day have some of them gone back to the first models, with great success.",
)


@dataclass(frozen=True)
class Made:
    """What one run made of a batch."""

    frames: Sequence[int] = ()  # of each item; none where no mel is made
    samples: Sequence[int] = ()  # as much audio as that is, of each item


@dataclass(frozen=True)
class Subject:
    """What a row measures."""

    run: Callable[[], Made]
    first_audio: Callable[[], Any] | None = None  # up to the first samples on the host
    clock: EngineClock | None = None  # of the engines that run
    sampling_rate: int = 22050


class FixedDurations:
    """An acoustic model's encoder with durations that are given: its own are predicted, and not used."""

    def __init__(self, engine: Engine, frames: int):
        self._engine, self._frames = engine, frames

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        return self._given(inputs, self._engine(**inputs))

    def alone(self, bucket: Bucket | None = None) -> Callable[[dict[str, Array]], dict[str, Array]]:
        run = self._engine.alone(bucket)
        return lambda inputs: self._given(inputs, run(inputs))

    def _given(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> dict[str, Array]:
        inside = valid(inputs["lengths"], outputs["duration"].shape[1])
        return {**outputs, "duration": as_float32(inside) * self._frames}


class Remembered:
    """An engine that runs once for each shape and gives the same from then on: others are measured."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self._outputs: dict[tuple, dict[str, Array]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        key = tuple(tuple(value.shape) for value in inputs.values())
        if key not in self._outputs:
            self._outputs[key] = self._engine(**inputs)
        return self._outputs[key]


@functools.cache
def seeded_source(model: str, graphs: Any, sizes: tuple[tuple[str, Any], ...]) -> ModelSource:
    from common.seeded import random_source

    return random_source(model, graphs, dict(sizes))


def sources_of(case: Case) -> dict[str, ModelSource]:
    """The source of each of the case's models, with networks of its own: a precision is theirs."""
    if case.weights == "published":
        found = {
            kind: seeded_source(model, case.graphs, tuple(case.overrides.get(model, {}).items()))
            for kind, model in case.models.items()
        }
    else:
        wanted = {kind: case.models.get(kind) for kind in KINDS}
        found = choose_sources(wanted, case.voice, case.checkpoints, case.overrides)
    return {kind: replace(found[kind], networks=WeakValueDictionary()) for kind in case.models}


class Loaded:
    """The case's models on their engines, which are watched."""

    def __init__(self, case: Case):
        self.case = case
        self.fixed = bool(case.symbols)
        self.engines: list[Engine] = []
        sources = sources_of(case)
        self.clock = EngineClock({source.model: source.config for source in sources.values()})
        if len(sources) == len(KINDS):
            first, second = (sources[kind] for kind in KINDS)
            require_same_contract(first.mel, second.mel, (first.model, second.model))
        backends = parse_backends(case.plain_backend, case.models)
        decoder = case.decoder
        # A graph is captured, and compiled code made, for one step: the loop looks at its gates.
        if decoder is None and case.modes.get("torch"):
            decoder = "steps"
        self.drivers = {}
        for kind, source in sources.items():
            how = deployment_of(source.model, case.deployments, case.plain_backend)
            if backends[kind] == "trt":
                if how.batch_size is None and kind == "acoustic":
                    how = replace(how, batch_size=max(case.batches))
                build_engines(source, how, form_of(source.model, decoder))
            form = form_of(source.model, decoder)
            self.drivers[kind] = make_driver(
                source, backends[kind], case.device, case.threads, form, self._watch, how
            )
            captured = getattr(self.drivers[kind], "captured", None)
            if hasattr(captured, "decode"):
                self.clock.watch_halves(captured)
        first = next(iter(sources.values()))
        self.sampling_rate, self.hop = first.mel.sampling_rate, first.mel.hop_length
        frontend = first.frontend.build() if first.frontend and not self.fixed else None
        self.tts = TextToSpeech(
            frontend, self.drivers.get("acoustic"), self.drivers.get("vocoder"), self.sampling_rate
        )

    def _watch(self, engine: Engine) -> Engine:
        self.engines.append(engine)
        stage = engine.stage
        if engine.backend == "torch" and (self.case.modes.get("torch") or self.case.precision == "fp16"):
            from common.bench.torch_modes import in_mode

            engine = in_mode(engine, self.case.modes.get("torch"), self.case.precision == "fp16")
        if self._decoder_alone and not stage.name.startswith("decoder"):
            return Remembered(engine)
        if self.fixed and any(tensor.name == "duration" for tensor in stage.outputs):
            if stage.name != "encoder":
                raise ValueError(
                    f"{stage.full_name} makes durations of its own, so that lengths cannot be fixed: "
                    "leave --symbols out, or run the model without buckets"
                )
            engine = FixedDurations(engine, FRAMES_PER_SYMBOL)
        return self.clock.watch(engine)

    @property
    def _decoder_alone(self) -> bool:
        """Whether the case is all steps of Tacotron 2's decoder, whichever stage makes them."""
        model, _, stage = self.case.part.partition(".")
        return stage == "decoder" and has_decoders(model)

    def subject(self, batch: int, symbols: int | None) -> Subject:
        model, _, stage = self.case.part.partition(".")
        if stage and not self._decoder_alone:
            return self._stage(model, stage, batch, symbols or 128)
        if "acoustic" not in self.drivers:
            return self._vocoder(batch, symbols or 128)
        ids, controls = self.ids(batch, symbols), self.controls()
        if not self.case.vocoder:
            return Subject(lambda: self._acoustic(ids, controls), None, self.clock, self.sampling_rate)

        def first_audio() -> np.ndarray:
            said = self.tts.acoustic.synthesise(ids[:1], controls)
            mel = said.mel[:1, :, : int(said.mel_lengths[0])]
            return next(self.tts.vocoder.vocode_chunks(mel, FIRST_CHUNK, LARGEST_CHUNK, controls))

        return Subject(
            lambda: self._speak(ids, controls),
            first_audio if batch == 1 and "compile" not in self.case.modes.values() else None,
            self.clock,
            self.sampling_rate,
        )

    def ids(self, batch: int, symbols: int | None) -> list[np.ndarray]:
        driver = self.tts.acoustic
        if batch > driver.largest_batch:
            raise ValueError(f"batch size {batch}: {driver.source.model} goes up to {driver.largest_batch}")
        return ids_of(self.tts.frontend, driver.config.n_symbols, batch, symbols)

    def controls(self) -> Controls:
        """With fixed lengths Tacotron 2's gate never ends it."""
        if self.fixed and self.case.acoustic and has_decoders(self.case.acoustic):
            return Controls(gate_threshold=1.0, step_limit=STEPS)
        return Controls()

    def _acoustic(self, ids: Sequence[np.ndarray], controls: Controls) -> Made:
        lengths = self.tts.acoustic.synthesise(ids, controls).mel_lengths.tolist()
        return Made(lengths, [length * self.hop for length in lengths])

    def _speak(self, ids: Sequence[np.ndarray], controls: Controls) -> Made:
        said = self.tts.acoustic.synthesise(ids, controls)
        audio = self.tts.vocoder.vocode(said.mel, said.mel_lengths, controls)
        return Made(said.mel_lengths.tolist(), [len(samples) for samples in audio])

    def _vocoder(self, batch: int, symbols: int) -> Subject:
        driver, frames = self.tts.vocoder, symbols * FRAMES_PER_SYMBOL
        rng = np.random.default_rng(0)
        mel = rng.standard_normal((batch, driver.config.n_mel_channels, frames), np.float32) * 2 - 5
        mel, lengths = to_device(mel, driver.generator.device), np.full(batch, frames)

        def run() -> Made:
            return Made([frames] * batch, [len(audio) for audio in driver.vocode(mel, lengths)])

        return Subject(run, None, self.clock, self.sampling_rate)

    def _stage(self, model: str, name: str, batch: int, symbols: int) -> Subject:
        (driver,) = self.drivers.values()
        if name not in driver.engines:
            more = ["decoder"] if has_decoders(model) else []
            raise ValueError(unknown(f"stage of {model} as it runs here", name, [*driver.engines, *more]))
        engine = driver.engines[name]
        stage = engine.stage
        frames = symbols * FRAMES_PER_SYMBOL
        if has_decoders(model):
            frames = STEPS * driver.config.n_frames_per_step
        lengths = {"text": symbols, "mel": frames, "steps": STEPS, "batch": batch}
        lengths["samples"] = frames * self.hop
        sizes = {
            dim.name: lengths[root(dim)] * dim.times if root(dim) in lengths else dim.typical
            for dim in stage.dynamic_dims.values()
        }
        examples = get_model(model).module("examples")
        inputs = examples.example_inputs(stage, driver.source.config, sizes, np.random.default_rng(0))
        if "gate_threshold" in inputs:
            inputs["gate_threshold"] = np.ones(1, np.float32)
        inputs = {key: to_device(value, engine.device) for key, value in inputs.items()}
        makes_frames = not {"text", "batch"} >= set(sizes)
        made = Made([frames] * batch, [frames * self.hop] * batch) if makes_frames else Made()

        def run() -> Made:
            engine(**inputs)
            return made

        return Subject(run, None, self.clock, self.sampling_rate)


def build_engines(source: ModelSource, deployment: Deployment, decoder: str | None) -> None:
    """The engines that TensorRT will run, where they are not built yet."""
    from common.engines.tensorrt.api import load_tensorrt
    from common.engines.tensorrt.build import build_stage
    from common.engines.tensorrt.engine_file import engine_files, needed_stages
    from common.export.graph_store import with_graphs

    trt = load_tensorrt()
    stages = needed_stages(source, deployment, decoder)
    source = with_graphs(source, stages)
    for file in engine_files(stages, source, deployment, trt):
        build_stage(file, source, trt, False, deployment.trt_max_ws_size)


class Peer:
    """A user's "module:function": a list of int64 arrays of ids -> the audio of each, in one array or a list.

    It gets the ids that the case's acoustic model gets.
    """

    engines: Sequence[Engine] = ()

    def __init__(self, case: Case):
        self._function = load_peer(case.peer)
        model = case.acoustic
        if case.weights == "published":
            config, self._mel, frontend = config_of(case, model), MelContract(), None
        else:
            source = choose_sources(
                {kind: case.models.get(kind) for kind in KINDS}, case.voice, case.checkpoints
            )
            source = source["acoustic"]
            config, self._mel, frontend = source.config, source.mel, source.frontend
        self._symbols = config.n_symbols
        self._frontend = frontend.build() if frontend and not case.symbols else None

    def subject(self, batch: int, symbols: int | None) -> Subject:
        ids = ids_of(self._frontend, self._symbols, batch, symbols)

        def run() -> Made:
            samples = [len(samples) for samples in audio_of(self._function(list(ids)))]
            if len(samples) != batch:
                raise ValueError(f"the peer gave audio of {len(samples)} items for {batch}")
            return Made([count // self._mel.hop_length for count in samples], samples)

        return Subject(run, None, None, self._mel.sampling_rate)


def ids_of(frontend: Any, n_symbols: int, batch: int, symbols: int | None) -> list[np.ndarray]:
    """Random symbols, or those of sentences: int64 [T_text] for each item."""
    if symbols is None:
        return [frontend(SENTENCES[i % len(SENTENCES)]).utterances[0].ids for i in range(batch)]
    rng = np.random.default_rng(0)
    return [rng.integers(1, n_symbols, symbols) for _ in range(batch)]


def config_of(case: Case, model: str) -> Any:
    """The sizes of the case's model."""
    if case.weights == "published":
        return replace(get_model(model).config_class(), **case.overrides.get(model, {}))
    wanted = {kind: case.models.get(kind) for kind in KINDS}
    sources = choose_sources(wanted, case.voice, case.checkpoints, case.overrides)
    return sources[get_model(model).kind].config


def load_peer(path: str) -> Callable[[list[np.ndarray]], Any]:
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise ValueError(f"--peer must be module:function, such as my_baseline:speak, not {path!r}")
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise ValueError(f"--peer {path}: {error}; it must be importable, as with PYTHONPATH") from None
    if not callable(function):
        raise ValueError(f"--peer {path}: module {module} has no function {name!r}")
    return function


def audio_of(answer: Any) -> Iterator[np.ndarray]:
    """The audio of each item that a peer gave."""
    for samples in answer:
        samples = to_numpy(samples)
        if samples.ndim != 1:
            raise ValueError(
                f"the peer's audio of an item has the shape {list(samples.shape)}, not samples in a row"
            )
        yield samples

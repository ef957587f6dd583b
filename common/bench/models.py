"""The calls that a row times: of a pair, a model or a stage on its engines, with outputs of fixed length."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from melforge.common.arrays import Array, as_float32, length_mask, to_device
from melforge.common.audio.contract import require_same_contract
from melforge.common.bench.timer import StageTimer, WatchedEngine
from melforge.common.bench.workload import Workload, form_of, has_decoders
from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.engines import Engine, Run, WrappedEngine, as_capturable
from melforge.common.errors import InputError, unknown
from melforge.common.export.examples import examples_of
from melforge.common.registry import get_model
from melforge.common.runner import ChunkSizes, TextToSpeech, start_text_processes
from melforge.common.speech import AcousticOutput, Controls, controls_of_each
from melforge.common.stages import root, stages_of
from melforge.common.stages.choose import KINDS, deployment_of, parse_backends
from melforge.common.synthesis.acoustic import AcousticModel
from melforge.common.synthesis.loading import choose_sources, make_driver
from melforge.common.synthesis.parallel import ParallelModel
from melforge.common.synthesis.vocoder import Vocoder
from melforge.common.weights.voices import FrontendSpec, ModelSource

SYMBOLS = 128  # where a stage or a vocoder is given none
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
class Output:
    """How much one run made of each item of a batch."""

    frames: Sequence[int] = ()  # none where no mel is made
    samples: Sequence[int] = ()  # as much audio as that is


@dataclass(frozen=True)
class TimedCall:
    """What a row times."""

    run: Callable[[], Any]  # of fixed lengths it gives an Output
    first_audio: Callable[[], Any] | None = None  # up to the first samples on the host
    timer: StageTimer | None = None  # of the engines that run
    sampling_rate: int = 22050


class FixedDurations(WrappedEngine):
    """An acoustic model's encoder with durations that are given: its own are predicted, and not used."""

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        return self._fixed(inputs, self.inner(**inputs))

    def capturable(self, bucket: Bucket | None = None) -> Run:
        run = as_capturable(self.inner).capturable(bucket)
        return lambda inputs: self._fixed(inputs, run(inputs))

    def _fixed(self, inputs: Mapping[str, Array], outputs: dict[str, Array]) -> dict[str, Array]:
        inside = length_mask(inputs["lengths"], outputs["duration"].shape[1])
        return {**outputs, "duration": as_float32(inside) * FRAMES_PER_SYMBOL}


def endless(synthesise: Callable[..., AcousticOutput]) -> Callable[..., AcousticOutput]:
    """An autoregressive model's `synthesise` whose gate never ends it: so many frames for each symbol.

    Steps go on for the longest item of a batch; each item's mel is as long as its own text asks for.
    """

    def run(
        ids: Sequence[np.ndarray], controls: Controls | Sequence[Controls] | None = None, *styles: Any
    ) -> AcousticOutput:
        steps = np.array([len(row) * FRAMES_PER_SYMBOL for row in ids], np.int64)
        no_end = {"gate_threshold": 1.0, "step_limit": int(steps.max())}
        each = [replace(one, **no_end) for one in controls_of_each(controls, len(ids))]
        made = synthesise(ids, each, *styles)
        per_step = made.mel_lengths.max() // steps.max()
        return replace(made, mel_lengths=steps * per_step, alignment_lengths=steps)

    return run


def sources_of(workload: Workload) -> dict[str, ModelSource]:
    """The source of each of the workload's models, with networks of its own: a precision is theirs."""
    models, how = workload.subject.models, workload.loading
    if workload.published:
        from melforge.common.bench.random_weights import random_source

        found = {
            kind: random_source(model, how.graphs, how.overrides.get(model)) for kind, model in models.items()
        }
    else:
        wanted = {kind: models.get(kind) for kind in KINDS}
        found = choose_sources(wanted, how.voice, how.checkpoints, how.overrides)
    return {kind: replace(found[kind], networks=WeakValueDictionary()) for kind in models}


def config_of(workload: Workload, model: str) -> Any:
    """The sizes of one of the workload's models."""
    if workload.published:
        return replace(get_model(model).config_class(), **workload.loading.overrides.get(model, {}))
    return sources_of(workload)[get_model(model).kind].config


def run_as(engine: Engine, mode: str | None, half: bool) -> Engine:
    """What runs in the place of an engine: PyTorch's in a mode, or in half precision."""
    if engine.backend != "torch" or not (mode or half):
        return engine
    from melforge.common.bench.torch_modes import in_mode

    return in_mode(engine, mode, half)


class LoadedModels:
    """The workload's models on their engines, which are watched."""

    def __init__(self, workload: Workload):
        self.workload, self.fixed = workload, workload.fixes_lengths
        self.engines: list[Engine] = []
        self.timer = StageTimer()
        sources = sources_of(workload)
        if len(sources) == len(KINDS):
            first, second = (sources[kind] for kind in KINDS)
            require_same_contract(first.mel, second.mel, (first.model, second.model))
        self.drivers = {kind: self._driver(source) for kind, source in sources.items()}
        first = next(iter(sources.values()))
        self.sampling_rate, self.hop = first.mel.sampling_rate, first.mel.hop_length
        spec = None if self.fixed else first.frontend
        if workload.texts and workload.published:
            spec = FrontendSpec(first.model)  # the published one, of the model's name
        # What the subject does not have is None, and not asked for.
        parts: list[Any] = [spec.build() if spec else None, *map(self.drivers.get, KINDS)]
        readers = start_text_processes(spec, workload.texts.processes if workload.texts else 0)
        self.tts = TextToSpeech(*parts, sampling_rate=self.sampling_rate, text_processes=readers)

    def _driver(self, source: ModelSource) -> Any:
        workload, loading, kind = self.workload, self.workload.loading, get_model(source.model).kind
        backend = parse_backends(workload.plain_backend, workload.subject.models)[kind]
        # A graph is captured, and compiled code made, for one step: the loop looks at its gates.
        steps = "steps" if workload.modes.get("torch") else None
        form = form_of(source.model, loading.decoder or steps)
        how = deployment_of(source.model, loading.deployments, workload.plain_backend)
        if backend == "trt":
            if how.batch_size is None and kind == "acoustic":
                how = replace(how, batch_size=self._batch_size(source))
            build_engines(source, how, form)
        driver = make_driver(source, backend, workload.device, loading.threads, form, self._watch, how)
        model = source.model
        if isinstance(driver, ParallelModel) and driver.two_graphs:
            self.timer.watch_graphs(driver.two_graphs)
        elif isinstance(driver, AcousticModel) and self.fixed and workload.texts and has_decoders(model):
            driver.synthesise = endless(driver.synthesise)
        elif isinstance(driver, Vocoder) and driver.one_graph:
            self.timer.watch_graph(driver.one_graph)
        return driver

    def _batch_size(self, source: ModelSource) -> int | None:
        """What engines are built for. With texts as users have them, unless larger batches are measured."""
        from melforge.common.engines.tensorrt.engine_file import BATCH_SIZES

        most = min(stage.batch.max for stage in stages_of(source.model, source.config))
        wanted = min(max(self.workload.batches), most)
        return None if self.workload.texts and wanted <= BATCH_SIZES["acoustic"] else wanted

    def _watch(self, engine: Engine) -> Engine:
        self.engines.append(engine)
        stage = engine.stage
        engine = run_as(engine, self.workload.modes.get("torch"), self.workload.precision == "fp16")
        if self.fixed and any(tensor.name == "duration" for tensor in stage.outputs):
            if stage.name != "encoder":
                raise InputError(
                    f"{stage.full_name} makes durations of its own, so that lengths cannot be fixed: "
                    "leave --symbols or --weights published out, or run the model without buckets"
                )
            engine = FixedDurations(engine)
        return WatchedEngine(engine, self.timer)

    def call_of(self, batch: int, symbols: int | None) -> TimedCall:
        model, _, stage = self.workload.subject.part.partition(".")
        first_audio = None
        if stage:
            run = self._stage(model, stage, batch, symbols or SYMBOLS)
        elif "acoustic" not in self.drivers:
            run = self._vocoder(batch, symbols or SYMBOLS)
        else:
            driver = self.tts.acoustic
            if batch > (most := driver.largest_batch):
                raise InputError(f"batch size {batch}: {driver.source.model} goes up to {most}")
            ids = ids_of(self.tts.frontend, driver.config.n_symbols, batch, symbols)
            # With fixed lengths Tacotron 2's gate never ends it.
            no_end = self.fixed and has_decoders(self.workload.subject.acoustic)
            controls = Controls(gate_threshold=1.0, step_limit=STEPS) if no_end else Controls()
            run = functools.partial(self._speak, ids, controls)
            if self.tts.vocoder and batch == 1 and "compile" not in self.workload.modes.values():
                first_audio = functools.partial(self._first_audio, ids, controls)
        return TimedCall(run, first_audio, self.timer, self.sampling_rate)

    def _speak(self, ids: Sequence[np.ndarray], controls: Controls) -> Output:
        """By an acoustic model, and a vocoder where there is one."""
        spoken = self.tts.acoustic.synthesise(ids, controls)
        frames = spoken.mel_lengths.tolist()
        if not self.tts.vocoder:
            return Output(frames, [length * self.hop for length in frames])
        audio = self.tts.vocoder.vocode(spoken.mel, spoken.mel_lengths, controls)
        return Output(frames, [len(samples) for samples in audio])

    def _first_audio(self, ids: Sequence[np.ndarray], controls: Controls) -> np.ndarray:
        spoken = self.tts.acoustic.synthesise(ids, controls)
        mel = spoken.mel[:1, :, : int(spoken.mel_lengths[0])]
        return next(self.tts.vocoder.vocode_chunks(mel, ChunkSizes(), controls))

    def _vocoder(self, batch: int, symbols: int) -> Callable[[], Output]:
        driver, frames = self.tts.vocoder, symbols * FRAMES_PER_SYMBOL
        rng = np.random.default_rng(0)
        drawn = rng.standard_normal((batch, driver.config.n_mel_channels, frames), np.float32) * 2 - 5
        mel, lengths = to_device(drawn, driver.generator.device), np.full(batch, frames)

        def run() -> Output:
            audio = driver.vocode(mel, lengths)
            return Output([frames] * batch, [len(samples) for samples in audio])

        return run

    def _stage(self, model: str, name: str, batch: int, symbols: int) -> Callable[[], Output]:
        (driver,) = self.drivers.values()
        if name not in driver.engines:
            raise InputError(unknown(f"stage of {model} as it runs here", name, driver.engines))
        engine, stage = driver.engines[name], driver.engines[name].stage
        by_steps = has_decoders(model)
        frames = STEPS * driver.config.n_frames_per_step if by_steps else symbols * FRAMES_PER_SYMBOL
        samples = frames * self.hop
        lengths = {"text": symbols, "mel": frames, "steps": STEPS, "batch": batch, "samples": samples}
        sizes = {
            dim.name: lengths[root(dim)] * dim.times if root(dim) in lengths else dim.typical
            for dim in stage.dynamic_dims.values()
        }
        inputs = example_inputs(driver.source, stage, sizes, engine.device)
        if "gate_threshold" in inputs:
            inputs["gate_threshold"] = to_device(np.ones(1, np.float32), engine.device)
        makes_frames = not {"text", "batch"} >= set(sizes)
        output = Output([frames] * batch, [samples] * batch) if makes_frames else Output()

        def run() -> Output:
            engine(**inputs)
            return output

        return run


def example_inputs(source: ModelSource, stage: Any, sizes: dict[str, int], device: str) -> dict[str, Any]:
    """Random inputs of a stage, the same each time, on a device."""
    rng = np.random.default_rng(0)
    inputs = examples_of(source.model).example_inputs(stage, source.config, sizes, rng)
    return {name: to_device(value, device) for name, value in inputs.items()}


def build_engines(source: ModelSource, deployment: Deployment, decoder: str | None) -> None:
    """The engines that TensorRT will run, where they are not built yet: building them is not timed."""
    from melforge.common.engines.tensorrt.api import load_tensorrt
    from melforge.common.engines.tensorrt.build import build_or_read
    from melforge.common.engines.tensorrt.engine_file import engine_files, needed_stages, require_possible
    from melforge.common.export.to_onnx import with_graphs

    if deployment.no_build:
        return
    trt = load_tensorrt()
    stages = needed_stages(source, deployment, decoder)
    require_possible(stages, source, deployment)
    source = with_graphs(source, stages)
    for file in engine_files(stages, source, deployment, trt):
        build_or_read(file, source, trt, deployment)


def ids_of(frontend: Any, n_symbols: int, batch: int, symbols: int | None) -> list[np.ndarray]:
    """Random symbols, or those of sentences: int64 [T_text] for each item."""
    if symbols is None:
        return [frontend(SENTENCES[i % len(SENTENCES)]).utterances[0].ids for i in range(batch)]
    rng = np.random.default_rng(0)
    return [rng.integers(1, n_symbols, symbols) for _ in range(batch)]

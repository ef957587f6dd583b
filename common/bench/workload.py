"""Workloads: which models are measured, how they are run, and with how much text; suites of them."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from melforge.common.bench.report import Row
from melforge.common.config.deployment import Deployment
from melforge.common.config.hparams import backend_texts, shown
from melforge.common.errors import InputError, unknown
from melforge.common.files import read_text, text_lines
from melforge.common.registry import KIND_WORDS, MODELS, get_model
from melforge.common.stages import stages_of
from melforge.common.stages.choose import KERNELS, KINDS, kernels_of, parse_backends
from melforge.common.synthesis.loading import choose_sources, pick_device
from melforge.common.weights.voices import load_voice

WEIGHTS = ("voice", "published")
# How a file's texts are spoken: one by one, whole or as a stream of chunks, or in batches.
SPEAK, STREAM, SPEAK_MANY = "speak", "stream", "speak_many"
MEASURED_TEXTS = 200  # of a file that has them: what it has beyond that may go to the warm-up
LONGEST_TEXT_WARM_UP = 60.0  # seconds
GRAPHS = Path("build/graphs")  # of published sizes, exported if missing
PRECISIONS = ("fp32", "tf32", "fp16")
SUITES = Path(__file__).with_name("suites.yaml")
# ONNX Runtime's options, each beside those that the engine sets, as the word behind "onnx-": attributes of
# the session's options, or with a dot in the name its config entries.
ONNX_OPTIONS: dict[str, dict[str, Any]] = {
    "one-thread": {"intra_op_num_threads": 1},
    "level-none": {"graph_optimization_level": "ORT_DISABLE_ALL"},
    "level-basic": {"graph_optimization_level": "ORT_ENABLE_BASIC"},
    "level-extended": {"graph_optimization_level": "ORT_ENABLE_EXTENDED"},
    "no-arena": {"enable_cpu_mem_arena": False},
    "memory-plan": {"enable_mem_pattern": True, "enable_mem_reuse": True},
    "memory-reuse": {"enable_mem_reuse": True},
    "spinning": {"session.intra_op.allow_spinning": "1"},
    "denormals-zero": {"session.set_denormal_as_zero": "1"},
}
# How a backend is run, as the word behind it says: "torch-compile", "trt-graph".
MODES = {"torch": ("compile", "graph"), "trt": ("graph",), "onnx": tuple(ONNX_OPTIONS)}


@dataclass(frozen=True)
class Subject:
    """What is measured: a pair, or with `part` one model ("fastpitch") or one stage ("hifigan.generator")."""

    acoustic: str | None
    vocoder: str | None
    part: str = ""

    @property
    def models(self) -> dict[str, str]:
        """The models that run, by kind."""
        return {kind: model for kind in KINDS if (model := getattr(self, kind))}

    @property
    def name(self) -> str:
        return self.part or f"{self.acoustic} -> {self.vocoder}"

    @property
    def is_pair(self) -> bool:
        return bool(self.acoustic and self.vocoder)

    @classmethod
    def of(cls, text: str) -> Subject:
        """Of a pair's names ("fastpitch hifigan"), a model's name, or "model.stage"."""
        first, _, second = text.partition(" ")
        if second:
            return cls(first, second)
        model, _, stage = text.partition(".")
        found = get_model(model)
        if found.kind not in KINDS:
            raise InputError(
                f"--part {text}: {model} is a {KIND_WORDS[found.kind]}: use benchmark-recogniser"
            )
        known = [one.name for one in stages_of(model, found.config_class())]
        if stage and stage not in known:
            raise InputError(unknown(f"stage of {model}", stage, known))
        return cls(**{one: model if found.kind == one else None for one in KINDS}, part=text)


@dataclass(frozen=True)
class Texts:
    """New texts, how they are spoken: those that are measured, each once, and others for a warm-up."""

    name: str  # of their file
    measured: tuple[str, ...]
    warm_up: tuple[str, ...]
    call: str = SPEAK  # of `TextToSpeech`
    longest_warm_up: float = LONGEST_TEXT_WARM_UP  # seconds
    processes: int = 0  # that analyse texts, for `speak_many`

    @classmethod
    def read(cls, path: Path, **how: Any) -> Texts:
        """A text a line, in the file's order; empty lines and comments are left out.

        The warm-up's texts are taken from the whole file at equal distances, a quarter of it at most.
        """
        texts = [line.strip() for _, line in text_lines(read_text(path))]
        if len(texts) < 2:
            raise InputError(f"{path} needs at least two texts, a line each: one of them is for the warm-up")
        beyond = len(texts) - MEASURED_TEXTS
        count = min(beyond, len(texts) // 4) if beyond > 0 else max(1, len(texts) // 10)
        chosen = {i * len(texts) // count for i in range(count)}
        measured = tuple(text for i, text in enumerate(texts) if i not in chosen)
        return cls(path.name, measured, tuple(texts[i] for i in sorted(chosen)), **how)


@dataclass(frozen=True)
class Loading:
    """Which weights the models have, and how they are loaded: as `TextToSpeech.load` takes it."""

    weights: str = "voice"  # or published: seeded random ones in the published sizes
    voice: str | None = None
    checkpoints: Sequence[str] = ()
    threads: int | None = None
    decoder: str | None = None
    deployments: Mapping[str, Deployment] = field(default_factory=dict)  # by model
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    graphs: Path = GRAPHS


@dataclass(frozen=True)
class Workload:
    """One way to run one subject, with a row for each batch size and text length."""

    subject: Subject
    backend: str = "onnx"  # as the runner takes it, but for the modes behind its words
    precision: str = "fp32"
    device: str = "cpu"
    loading: Loading = field(default_factory=Loading)
    peer: str = ""  # "module:function" of the user's, run instead of the subject
    batches: Sequence[int] = (1,)
    symbols: Sequence[int] = ()  # text lengths; without any, sentences are spoken
    texts: Texts | None = None  # spoken through `TextToSpeech`, in place of one length again and again
    runs: int = 10
    warm_up: bool = False  # run every engine first, and say on stderr what that took
    profile: Path | None = None  # a folder for what a profiler sees of one more run

    @property
    def clock_device(self) -> str:
        """The device whose work is waited for."""
        return "cuda" if self.device == "auto" else self.device

    @property
    def plain_backend(self) -> str:
        return split_modes(self.backend)[0]

    @property
    def modes(self) -> dict[str, str]:
        return split_modes(self.backend)[1]

    @property
    def published(self) -> bool:
        return self.loading.weights == "published"

    @property
    def streams(self) -> bool:
        """Whether texts are spoken as users do: a voice's pair, without modes, which fit one length."""
        whole = self.subject.is_pair and not self.peer and self.texts is None
        return whole and not self.published and not self.symbols and not self.modes

    @property
    def fixes_lengths(self) -> bool:
        """Whether lengths follow from the number of symbols: random weights would predict any."""
        return bool(self.symbols) or (self.texts is not None and self.published)

    def rows(self) -> Iterator[Row]:
        """The labels of each of its rows."""
        row = {"name": self.subject.name, "backend": self.peer or self.backend, "precision": self.precision}
        row |= {"device": self.device, "weights": self.loading.weights}
        if self.texts:
            row |= {"texts": self.texts.name, "call": self.texts.call}
            row |= {"text_processes": self.texts.processes} if self.texts.call == SPEAK_MANY else {}
        for symbols, batch in itertools.product(self.symbols or (None,), self.batches):
            yield {**row, "symbols": symbols, "batch": batch}

    @property
    def arguments(self) -> list[str]:
        """The same for `melforge speak`, which speaks with a voice."""
        loading = self.loading
        given = {
            "--acoustic": self.subject.acoustic,
            "--vocoder": self.subject.vocoder,
            "--backend": self.plain_backend,
            "--voice": loading.voice,
            "--threads": loading.threads and str(loading.threads),
            "--device": self.device,
            # Only where there is one to choose: with the other acoustic models it is an error.
            "--decoder": form_of(self.subject.acoustic, loading.decoder),
        }
        words = [word for name, value in given.items() if value for word in (name, value)]
        words += [word for file in loading.checkpoints for word in ("--checkpoint", file)]
        for model in self.subject.models.values():
            deployment = asdict(loading.deployments.get(model, Deployment()))
            changed = {key: value for key, value in deployment.items() if value != getattr(Deployment, key)}
            for key, value in (changed | dict(loading.overrides.get(model, {}))).items():
                words += ["--set", f"{model}.{key}={shown(value)}"]
        return words


def split_modes(text: str) -> tuple[str, dict[str, str]]:
    """ "acoustic=trt-graph,vocoder=torch" -> ("acoustic=trt,vocoder=torch", {"trt": "graph"})."""
    modes: dict[str, str] = {}
    parts = []
    for part in text.split(","):
        head, equals, word = part.rpartition("=")
        backend, dash, mode = word.strip().partition("-")
        if dash:
            known = [f"{backend}-{one}" for one in MODES.get(backend, ())]
            if word.strip() not in known:
                raise InputError(unknown("backend", word.strip(), known or ("onnx", "torch", "trt")))
            modes[backend] = mode
        parts.append(f"{head}{equals}{backend}" if dash else part)
    return ",".join(parts), modes


def make_workloads(
    subjects: Iterable[Subject],
    backends: Iterable[str],
    loading: Loading,
    precisions: Sequence[str] = (),
    device: str | None = None,
    **how: Any,
) -> list[Workload]:
    """A workload for each subject, backend and precision of that backend; without precisions, the
    deployments' (`precision`), else float32. `how` are further fields of them.
    """
    texts = [one for text in backends for one in backend_texts(text)]
    made = []
    for subject, text in itertools.product(subjects, texts):
        models = subject.models
        here = backend_of(text, models.values())
        plain, modes = split_modes(here)
        chosen = parse_backends(plain, models)
        where = place_of(chosen, device)
        given = {name: one for name, one in loading.deployments.items() if name in models.values()}
        half = any(one.precision == "fp16" for one in given.values()) or set(chosen.values()) == {KERNELS}
        possible = precisions_of(plain, where)
        for precision in [one for one in precisions if one in possible] or (
            [] if precisions else ["fp16" if half else "fp32"]
        ):
            deployments = {}
            for kind, model in models.items():
                one = given.get(model, Deployment())
                if chosen[kind] == "trt":
                    graph = one.trt_cuda_graph or modes.get("trt") == "graph"
                    wanted = precision if precisions else one.precision
                    one = replace(one, backend=None, precision=wanted, trt_cuda_graph=graph)
                else:
                    one = replace(one, backend=None, precision="fp32")
                if one != Deployment() or model in given:
                    deployments[model] = one
            overrides = {name: one for name, one in loading.overrides.items() if name in models.values()}
            own = replace(loading, deployments=deployments, overrides=overrides)
            made.append(Workload(subject, here, precision, where, own, **how))
    if not made:
        raise InputError(
            f"no backend of {', '.join(texts)} has precision {', '.join(precisions)} on {device or 'cpu'}: "
            "fp16 is for trt, and for torch on a GPU; tf32 for torch on a GPU"
        )
    return made


def with_peers(workloads: Sequence[Workload], peers: Sequence[str]) -> list[Workload]:
    """The workloads, and behind those of each pair the user's functions."""
    made: list[Workload] = []
    for subject, group in itertools.groupby(workloads, lambda workload: workload.subject):
        found = list(group)
        if subject.is_pair:
            found += [replace(found[0], peer=peer, backend="", precision="") for peer in peers]
        made += found
    if peers and not any(workload.peer for workload in made):
        raise InputError("--peer is for pairs: it makes audio of ids, as no model or stage alone does")
    return made


def with_texts(
    workloads: Iterable[Workload], texts: Texts, batch_sizes: Sequence[int] = ()
) -> list[Workload]:
    """The workloads with these texts: whole and as streams, or with batch sizes in batches alone."""
    ways = [(SPEAK_MANY, batch_sizes)] if batch_sizes else [(SPEAK, (1,)), (STREAM, (1,))]
    return [
        replace(workload, texts=replace(texts, call=call), symbols=(), batches=tuple(batches))
        for workload in workloads
        for call, batches in ways
    ]


def suite_workloads(
    name: str, loading: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[list[Workload], float | None]:
    """The workloads of a suite, and the seconds that all of them may take."""
    suites = yaml.safe_load(SUITES.read_text())
    if name not in suites:
        raise InputError(unknown("suite", name, suites))
    suite, made = suites[name], []
    for table in suite["tables"]:
        how = {**suite["defaults"], **table, **loading, **given}
        backends = [one for word in how.pop("backends") for one in _each_mode(word)]
        own = Loading(**{key: how.pop(key) for key in Loading.__dataclass_fields__ if key in how})
        made += make_workloads([Subject.of(how.pop("of"))], backends, own, **how)
    return made, suite.get("budget")


def _each_mode(word: str) -> list[str]:
    """ "onnx-*" is each of that backend's modes."""
    backend = word.removesuffix("-*")
    return [word] if backend == word else [f"{backend}-{mode}" for mode in MODES[backend]]


def default_backends(deployments: Mapping[str, Deployment]) -> list[str]:
    """Without --backend: those of the hparams, else all that need no GPU."""
    if any(how.backend for how in deployments.values()):
        return [",".join(f"{model}={how.backend or 'onnx'}" for model, how in deployments.items())]
    return ["onnx", "torch"] if importlib.util.find_spec("torch") else ["onnx"]


def place_of(backends: Mapping[str, str], device: str | None) -> str:
    """The device: the CPU by default; "auto" with TensorRT, where each model runs on its backend's."""
    if {"trt", KERNELS} & set(backends.values()) and device in (None, "auto"):
        return "auto"
    return pick_device(next(iter(backends.values()))) if device == "auto" else device or "cpu"


def precisions_of(backend: str, device: str) -> set[str]:
    """The precisions of a backend. ONNX Runtime runs the graphs as they are exported, in float32; kernels
    compute in half precision.
    """
    words = {part.rpartition("=")[2].strip() for part in backend.split(",")}
    if words == {KERNELS}:
        return {"fp16"}
    on_gpu = {"fp16", "tf32"} if "torch" in words and device != "cpu" else set()
    return {"fp32", *on_gpu, *(["fp16"] if "trt" in words else [])}


def backend_of(text: str, models: Iterable[str]) -> str:
    """The part of the backends' text that applies to these models."""
    models = list(models)
    mine = {*models, *(get_model(model).kind for model in models), *kernels_of(*models)}
    others = {*MODELS, *KINDS, *kernels_of(*MODELS)} - mine
    parts = [part for part in text.split(",") if part.partition("=")[0].strip() not in others]
    return ",".join(parts) or "onnx"


def has_decoders(model: str | None) -> bool:
    """Whether the model has a decoder that goes step by step, or all steps at once."""
    return model is not None and "steps" in get_model(model).decoders


def form_of(model: str | None, decoder: str | None) -> str | None:
    """The value of `--decoder` where it is a form of this model."""
    return decoder if model is not None and decoder in get_model(model).decoders else None


def choose_models(words: str | None, kind: str, loading: Loading) -> list[str]:
    """ "fastpitch,tacotron2", "all" of the voice's, or None: the voice's own or the checkpoint's."""
    published = [name for name, model in MODELS.items() if model.kind == kind]
    if words and words != "all":
        return [get_model(word.strip(), kind).name for word in words.split(",")]
    if loading.weights == "published":
        return published if words else published[:1]
    if words:
        return load_voice(loading.voice).models_of(kind)
    return [choose_sources(dict.fromkeys(KINDS), loading.voice, loading.checkpoints)[kind].model]


def choices(text: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    """ "fp32,fp16" -> ("fp32", "fp16"), each of them known."""
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        if word not in known:
            raise InputError(unknown(what, word, known))
    return words

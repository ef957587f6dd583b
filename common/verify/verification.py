"""Verifies models against PyTorch: their layers and stages, and what both sides speak or hear."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from melforge.common.audio.contract import MelContract, require_same_contract
from melforge.common.errors import InputError
from melforge.common.export.to_onnx import source_stages
from melforge.common.recognition.loading import form_of, make_recogniser
from melforge.common.recognition.long_recordings import hear_pieces
from melforge.common.recognition.transcript import greedy_text
from melforge.common.registry import get_model
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.stages import plan_of
from melforge.common.stages.choose import KINDS
from melforge.common.synthesis.chunk_check import CHUNK_TOLERANCE, chunk_error
from melforge.common.synthesis.loading import make_driver
from melforge.common.synthesis.vocoder import Vocoder
from melforge.common.verify.compare import (
    MEL_TOLERANCES,
    Comparison,
    SpeechComparison,
    for_json,
    shared_frames,
)
from melforge.common.verify.stages import ComparedEngines, Setup, exact_products
from melforge.common.weights.voices import ModelSource

LIKELY = -10.0  # log-probabilities below this decide nothing


@dataclass(eq=False)
class Verification:
    """What was compared, in the order of execution."""

    setups: list[Setup]

    @property
    def comparisons(self) -> list[Comparison]:
        return [one for setup in self.setups for one in setup.comparisons.values()]

    @property
    def first_wrong(self) -> Comparison | None:
        return next((one for one in self.comparisons if not one.ok), None)

    @property
    def ok(self) -> bool:
        return self.first_wrong is None

    def report(self) -> dict[str, Any]:
        first = self.first_wrong
        return {
            "models": [setup.report() for setup in self.setups],
            "tensors": [one.row() for one in self.comparisons],
            "first_wrong": first and first.full_name,
            "ok": self.ok,
        }


@dataclass(eq=False)
class SpeechVerification(Verification):
    """Of models that speak: also the sentence `text`, and where a vocoder is compared its chunks."""

    text: str
    speech: SpeechComparison
    contract: MelContract
    chunk_error: float | None  # `chunk_check.chunk_error`, on PyTorch

    @property
    def chunks_ok(self) -> bool:
        return self.chunk_error is None or self.chunk_error <= CHUNK_TOLERANCE

    @property
    def ok(self) -> bool:
        return self.first_wrong is None and self.chunks_ok and self.speech.report(self.contract)["ok"]

    def report(self) -> dict[str, Any]:
        chunks = {"error": self.chunk_error, "tolerance": CHUNK_TOLERANCE, "ok": self.chunks_ok}
        return super().report() | {
            "text": self.text,
            "speech": for_json(self.speech.report(self.contract)),
            "chunks": None if self.chunk_error is None else for_json(chunks),
        }


@dataclass(eq=False)
class RecogniserVerification(Verification):
    """Of a recogniser: also what both sides heard in each piece of the recordings."""

    texts: list[tuple[str, str]]  # PyTorch's, the other's
    errors: list[float]  # largest difference of log-probabilities that matter, of each piece

    @property
    def other_texts(self) -> int:
        return sum(wanted != got for wanted, got in self.texts)

    @property
    def ok(self) -> bool:
        """Texts may differ by a label that rounding decides; in single precision none does."""
        exact = self.setups[0].precision == "fp32"
        return self.first_wrong is None and not (exact and self.other_texts)

    def report(self) -> dict[str, Any]:
        heard = [
            {"pytorch": wanted, "other": got, "max_log_prob_error": error}
            for (wanted, got), error in zip(self.texts, self.errors, strict=True)
        ]
        return super().report() | {"heard": heard}


def verify(
    text: str,
    sources: Mapping[str, ModelSource],
    setups: Mapping[str, Setup],
    decoder: str | None = None,
    controls: Controls | None = None,
) -> SpeechVerification:
    """Speaks `text` by both sides. `sources` are PyTorch's, by kind; `setups` the other side of some of them.

    A model without one runs on PyTorch on both sides.
    """
    first, second = (sources[kind] for kind in KINDS)
    require_same_contract(first.mel, second.mel, (first.model, second.model))
    device = next(iter(setups.values())).device
    frontend = first.build_frontend()
    with exact_products():
        references: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for kind, source in sources.items():
            form = decoder if kind == "acoustic" else None
            setup = setups.get(kind)
            if setup is None:
                references[kind] = others[kind] = make_driver(source, "torch", device)
                continue
            engines, driver_class = ComparedEngines(setup, source, form), get_model(source.model).driver_class
            stepwise = stepwise_form(setup, source, engines) if kind == "acoustic" else None
            if stepwise:  # the loop's body, each step from PyTorch's state, before the whole loop
                loop = next(s for s in source_stages(source) if s.graph and s.name in engines)
                names = plan_of(source.model).forms[stepwise]
                bodies = replace(setup, loops={name: loop for name in names if name not in engines})
                driver = driver_class(source, ComparedEngines(bodies, source, stepwise))
                for utterance in frontend(text).utterances:
                    driver.synthesise([utterance.ids], controls)
            references[kind] = driver_class(source, engines)
        rate = first.mel.sampling_rate
        wanted = TextToSpeech(frontend, **references, sampling_rate=rate).speak(text, controls)
        for kind, setup in setups.items():
            if setup.perturbed and not setup.changed:
                raise InputError(
                    f"--perturb {setup.perturbed}: its largest value changes nothing: the stages that speak "
                    "this text do not use it; give another weight or --text"
                )
            for pattern in setup.patterns if setup.asked else ():
                if pattern not in setup.ran:
                    raise InputError(f"--layers {pattern!r}: no such layer runs in the stages that speak")
            form = decoder if kind == "acoustic" else None
            how = (setup.backend, setup.device, setup.threads, form, None, setup.deployment)
            others[kind] = make_driver(setup.source, *how)
        got = TextToSpeech(frontend, **others, sampling_rate=rate).speak(text, controls)
        error = None
        if "vocoder" in setups:
            setups["vocoder"].tell("chunks")
            vocoder = make_driver(sources["vocoder"], "torch", device, setups["vocoder"].threads)
            error = chunk_error(cast(Vocoder, vocoder), wanted.mel[None])
    ordered = [setups[kind] for kind in KINDS if kind in setups]
    autoregressive = any(stage.feeds_back for setup in ordered for stage in source_stages(setup.source))
    tolerance = max(MEL_TOLERANCES[setup.backend][setup.precision] for setup in ordered)
    reach, other, symbols = shared_frames(wanted, got)
    speech = SpeechComparison(wanted, got, tolerance, not autoregressive, reach, other, symbols)
    return SpeechVerification(ordered, text, speech, first.mel, error)


def stepwise_form(setup: Setup, source: ModelSource, engines: ComparedEngines) -> str | None:
    """The form that runs single steps, where one of the engines is a loop of all steps, and not a kernel."""
    loops = {stage.name for stage in source_stages(source) if stage.graph}
    if loops.isdisjoint(engines) or not loops.isdisjoint(setup.deployment.kernels):
        return None
    return next(form for form, names in plan_of(source.model).forms.items() if loops.isdisjoint(names))


def verify_recogniser(
    source: ModelSource, setup: Setup, audios: Sequence[np.ndarray]
) -> RecogniserVerification:
    """Audio [S] at the recogniser's rate, heard by both sides. `source` is PyTorch's, `setup` the other's."""
    with exact_products():
        engines = ComparedEngines(setup, source, form_of(source))
        reference = get_model(source.model).driver_class(source, engines)
        how = (setup.backend, setup.device, setup.threads, setup.deployment)
        wanted = list(hear_pieces(reference, audios))
        got = list(hear_pieces(make_recogniser(setup.source, *how), audios))
    labels = reference.labels
    texts, errors = [], []
    for (_, one), (_, other) in zip(wanted, got, strict=True):
        texts.append((greedy_text(one.labels, labels), greedy_text(other.labels, labels)))
        likely = one.log_probs > LIKELY
        errors.append(float(np.abs(one.log_probs - other.log_probs)[likely].max(initial=0)))
    return RecogniserVerification([setup], texts, errors)

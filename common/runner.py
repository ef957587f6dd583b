"""Text to speech with any acoustic model and any vocoder, each on any backend."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.arrays import to_numpy
from common.audio.contract import require_same_contract
from common.config.deployment import Bucket, Deployment
from common.engines import Engine
from common.errors import InputError
from common.registry import MODELS
from common.speech import Audio, Controls, Problem, Timings
from common.stages.choose import KINDS, deployment_of, parse_backends
from common.synthesis.finish import finish, round_off, settled
from common.synthesis.loading import choose_sources, make_driver
from common.synthesis.utterances import ADVICE, ADVICE_AFTER_RETRIES, Said, fit, say
from common.text import Analysis, Frontend, Utterance

if TYPE_CHECKING:
    from common.synthesis.warm_up import Warmed

# A stream's chunks in mel frames: the first is small, to leave at once; they double up to the largest.
FIRST_CHUNK, LARGEST_CHUNK = 24, 192
BATCH_SIZE = 8
# So many batches of texts are sorted by length at a time: answers leave early and memory stays bounded.
SORTED_BATCHES = 8
# What the runner does itself. Every model honours a seed: one that draws no noise speaks the same for all.
OWN_CONTROLS = frozenset({"volume", "seed"})


@dataclass(frozen=True, eq=False)
class _Part:
    """One utterance, spoken."""

    samples: np.ndarray
    said: Said  # its mel is numpy's


@dataclass(eq=False)
class _Job:
    """One text on its way; its utterances may be spoken in any order."""

    number: int
    text: str
    analysis: Analysis
    clock: Timings
    parts: dict[int, _Part] = field(default_factory=dict)


class TextToSpeech:
    """A text frontend, an acoustic model and a vocoder that fit together."""

    def __init__(self, frontend: Frontend, acoustic: Any, vocoder: Any, sampling_rate: int):
        self.frontend = frontend
        self.acoustic = acoustic
        self.vocoder = vocoder
        self.sampling_rate = sampling_rate
        self.batch_size: int | None = None  # where a call says nothing; None: as many as the models allow
        self.load_timings = Timings()

    @classmethod
    def load(
        cls,
        acoustic: str | None = None,
        vocoder: str | None = None,
        voice: str | Path | None = None,
        checkpoints: Sequence[str] = (),
        backend: str = "onnx",
        device: str = "auto",
        threads: int | None = None,
        decoder: str | None = None,
        watch: Callable[[Engine], Engine] | None = None,
        deployments: Mapping[str, Deployment] | None = None,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> TextToSpeech:
        """Models by name (default: the voice's own) from a voice, or from `checkpoints` ("acoustic=FILE").

        `backend` is one word, or one for each: "acoustic=onnx,vocoder=torch". Both mel contracts must agree.
        `decoder` picks the form of an acoustic model's decoder where it has several (default: the model's).
        `watch` gives what runs in an engine's place, such as one that measures it. `deployments` says by
        model how its engines are run: in buckets, for one. `overrides` are, by model too, values of its
        config or mel contract that count instead of those stored with the weights.
        """
        deployments = {} if deployments is None else deployments
        clock = Timings()
        with clock.stage("voice"):
            wanted = {"acoustic": acoustic, "vocoder": vocoder}
            sources = choose_sources(wanted, voice, checkpoints, overrides)
            first, second = (sources[kind] for kind in KINDS)
            require_same_contract(first.mel, second.mel, (first.model, second.model))
            backends = parse_backends(backend, {kind: source.model for kind, source in sources.items()})
        with clock.stage("frontend"):
            frontend = first.frontend.build()
        drivers = {}
        for kind, source in sources.items():
            with clock.stage(kind):
                form = decoder if kind == "acoustic" else None
                how = deployment_of(source.model, deployments, backend)
                drivers[kind] = make_driver(source, backends[kind], device, threads, form, watch, how)
        tts = cls(frontend, **drivers, sampling_rate=first.mel.sampling_rate)
        if first.model in deployments:
            tts.batch_size = deployments[first.model].batch_size
        tts.load_timings = clock
        return tts

    def analyse(self, text: str) -> Analysis:
        """The frontend's utterances, cut where the acoustic model takes no longer ones.

        An InputError where there is nothing to speak.
        """
        analysis = self.frontend(text)
        if not analysis.utterances:
            why = f"nothing in {text.strip()[:40]!r} can be spoken" if text.strip() else "the text is empty"
            raise InputError(f"no audio made: {why}")
        longest = self.acoustic.longest_text
        if max(len(utterance.ids) for utterance in analysis.utterances) <= longest:
            return analysis
        pieces = [p for u in analysis.utterances for p in fit(u, longest, self.frontend.symbols)]
        return replace(analysis, utterances=tuple(pieces))

    def warm_up(self, batch_size: int | None = None) -> Iterator[Warmed]:
        """Runs every engine once, for every bucket, and says what that took; it goes on as it is read.

        Speaking waits for nothing then, as far as buckets go: TensorRT compiles for each new shape.
        """
        from common.synthesis.warm_up import warm_up

        return warm_up(self, batch_size)

    def bucket_report(self) -> list[dict[str, Any]]:
        """A row for each bucket of each stage that ran: what it was used for, and what of it was padding."""
        return [
            {**row, "masked": driver.batch_safe or ".masked_" in row["stage"]}
            for driver in (self.acoustic, self.vocoder)
            for row in driver.engines.report()
        ]

    def require_controls(self, controls: Controls) -> None:
        """An InputError where neither model knows a control that was asked for: it would change nothing."""
        drivers = (self.acoustic, self.vocoder)
        known = OWN_CONTROLS.union(*(driver.controls for driver in drivers))
        for name in controls.asked():
            if name not in known:
                with_it = [m.name for m in MODELS.values() if name in m.driver_class.controls]
                raise InputError(
                    f"the control {name!r} would change nothing: {' and '.join(with_it)} "
                    f"{'have' if len(with_it) > 1 else 'has'} it, "
                    f"not {' or '.join(driver.source.model for driver in drivers)}"
                )

    def speak(self, text: str, controls: Controls | None = None, retries: int = 0) -> Audio:
        """Speaks one text of any length.

        An utterance that the acoustic model reports a problem with is spoken again with `retries` further
        seeds, then in smaller pieces; what is still wrong stands in the answer's `problems`.
        """
        return next(self.speak_each([text], controls, batch_size=1, retries=retries))[1]

    def speak_many(
        self,
        texts: Iterable[str],
        controls: Controls | None = None,
        batch_size: int | None = None,
        retries: int = 0,
    ) -> list[Audio]:
        """Speaks texts in batches of similar length; answers in the order asked."""
        answers = dict(self.speak_each(texts, controls, batch_size, retries))
        return [answers[number] for number in sorted(answers)]

    def speak_each(
        self,
        texts: Iterable[str],
        controls: Controls | None = None,
        batch_size: int | None = None,
        retries: int = 0,
    ) -> Iterator[tuple[int, Audio]]:
        """As speak_many, but each answer leaves with its text's number as soon as it is ready."""
        controls = controls or Controls()
        self.require_controls(controls)
        batch_size = self.choose_batch_size(batch_size)
        numbered = enumerate(texts)
        while window := list(itertools.islice(numbered, batch_size * SORTED_BATCHES)):
            jobs = [self._job(number, text) for number, text in window]
            yield from self._speak_jobs(jobs, controls, batch_size, _require_retries(retries))

    def stream(self, text: str, controls: Controls | None = None, retries: int = 0) -> Stream:
        """Speaks one text in chunks that join to what `speak` gives; the first leaves as early as it can."""
        controls = controls or Controls()
        self.require_controls(controls)
        return Stream(self, self._job(0, text), controls, _require_retries(retries))

    def choose_batch_size(self, batch_size: int | None) -> int:
        """Utterances at a time, where a call asks for so many, or leaves it open."""
        largest = self.acoustic.largest_batch
        batch_size = self.batch_size if batch_size is None else batch_size
        if batch_size is None:
            # Where padding changes its neighbours (the published FastPitch), only on request.
            return min(BATCH_SIZE, largest) if self.acoustic.batch_safe else 1
        if not 1 <= batch_size <= largest:
            raise InputError(f"batch size must be from 1 to {largest}, not {batch_size}")
        return batch_size

    def _job(self, number: int, text: str) -> _Job:
        clock = Timings()
        with clock.stage("text"):
            analysis = self.analyse(text)
        return _Job(number, text, analysis, clock)

    def _speak_jobs(
        self, jobs: list[_Job], controls: Controls, batch_size: int, retries: int
    ) -> Iterator[tuple[int, Audio]]:
        queue = [(job, i) for job in jobs for i in range(len(job.analysis.utterances))]
        if batch_size > 1:
            queue.sort(key=lambda entry: len(entry[0].analysis.utterances[entry[1]].ids))
        for batch in self._batches(queue, batch_size):
            utterances = [job.analysis.utterances[i] for job, i in batch]
            clock = Timings()
            parts = self._speak_batch(utterances, controls, retries, clock)
            work = sum(len(part.samples) for part in parts)
            for (job, i), part in zip(batch, parts, strict=True):
                job.parts[i] = part
                job.clock.add(clock, len(part.samples) / work if work else 1 / len(parts))
                if len(job.parts) == len(job.analysis.utterances):
                    yield job.number, self._join(job, controls, retries)

    def _batches(self, queue: list[tuple[_Job, int]], batch_size: int) -> Iterator[list[tuple[_Job, int]]]:
        """The queue in order, so many at a time, and together only what the same bucket covers."""

        def bucket_of(entry: tuple[_Job, int]) -> Bucket | None:
            job, i = entry
            return self.acoustic.engines.covering(len(job.analysis.utterances[i].ids))

        for _, entries in itertools.groupby(queue, bucket_of):
            while batch := list(itertools.islice(entries, batch_size)):
                yield batch

    def _speak_batch(
        self, utterances: Sequence[Utterance], controls: Controls, retries: int, clock: Timings
    ) -> list[_Part]:
        with clock.stage("acoustic"):
            said = say(self.acoustic, self.frontend, utterances, controls, retries)
        with clock.stage("vocoder"):
            audio = [self._vocode(one, controls) for one in said]
        return [
            _Part(_finite(samples), replace(one, mel=to_numpy(one.mel)))
            for samples, one in zip(audio, said, strict=True)
        ]

    def _vocode(self, said: Said, controls: Controls) -> np.ndarray:
        """One utterance's samples; without frames there is no sound."""
        frames = said.mel.shape[1]
        if not frames:
            return np.zeros(0, np.float32)
        return self.vocoder.vocode(said.mel[None], np.array([frames]), controls)[0]

    def _join(self, job: _Job, controls: Controls, retries: int) -> Audio:
        """The utterances' audio in order, with their pauses."""
        parts = [job.parts.pop(i) for i in range(len(job.parts))]
        utterances = job.analysis.utterances
        starts, pieces, position = [], [], 0
        with job.clock.stage("join"):
            for utterance, part in zip(utterances, parts, strict=True):
                piece = finish(part.samples, self.sampling_rate, controls.volume, pause=utterance.pause)
                piece = round_off(piece)
                starts.append(position / self.sampling_rate)
                pieces.append(piece)
                position += len(piece)
            samples = np.concatenate(pieces)
        job.clock.audio = len(samples) / self.sampling_rate
        job.clock.first_audio = job.clock.total
        said = [part.said for part in parts]
        return Audio(
            text=job.text,
            samples=samples,
            sampling_rate=self.sampling_rate,
            hop_length=self.vocoder.hop,
            utterances=utterances,
            unspoken=job.analysis.unspoken,
            starts=tuple(starts),
            mels=tuple(one.mel for one in said),
            durations=tuple(one.durations for one in said),
            pitches=None if said[0].pitch is None else tuple(one.pitch for one in said),
            alignments=None if said[0].alignment is None else tuple(one.alignment for one in said),
            notes=tuple(one.note for one in said),
            problems=tuple(
                describe_problem(number, utterance, one, retries)
                for number, (utterance, one) in enumerate(zip(utterances, said, strict=True))
                if one.problem
            ),
            timings=job.clock,
        )


class Stream:
    """An iterator of float32 chunks of one text's audio.

    `timings`, `notes` and `problems` grow while it is read.
    """

    def __init__(self, tts: TextToSpeech, job: _Job, controls: Controls, retries: int):
        self.sampling_rate = tts.sampling_rate
        self.analysis = job.analysis
        self.timings = job.clock
        self.notes: list[str] = []  # of each utterance so far, "" for most
        self.problems: list[Problem] = []
        self._chunks = self._run(tts, job.analysis.utterances, controls, retries)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> np.ndarray:
        samples = next(self._chunks)
        self.timings.audio += len(samples) / self.sampling_rate
        if not self.timings.first_audio:
            self.timings.first_audio = self.timings.total
        return samples

    def _run(
        self, tts: TextToSpeech, utterances: Sequence[Utterance], controls: Controls, retries: int
    ) -> Iterator[np.ndarray]:
        first_chunk = FIRST_CHUNK
        for number, utterance in enumerate(utterances):
            with self.timings.stage("acoustic"):
                (said,) = say(tts.acoustic, tts.frontend, [utterance], controls, retries)
            self.notes.append(said.note)
            if said.problem:
                self.problems.append(describe_problem(number, utterance, said, retries))
            left = said.mel.shape[1] * tts.vocoder.hop
            if not left:  # no sound, as in `speak`
                yield finish(np.zeros(0, np.float32), self.sampling_rate, pause=utterance.pause)
                continue
            chunks = tts.vocoder.vocode_chunks(said.mel[None], first_chunk, LARGEST_CHUNK, controls)
            first_chunk = LARGEST_CHUNK
            is_first = True
            held = np.zeros(0, np.float32)
            while left:
                with self.timings.stage("vocoder"):
                    samples = _finite(next(chunks))
                left -= len(samples)
                pause = None if left else utterance.pause
                samples = finish(samples, self.sampling_rate, controls.volume, starts=is_first, pause=pause)
                samples = np.concatenate([held, samples])
                # An excursion that goes on waits for its other half; none outlasts the fade at the end.
                samples, held = np.split(samples, [settled(samples)])
                if len(samples):
                    yield round_off(samples)
                is_first = False


def describe_problem(number: int, utterance: Utterance, said: Said, retries: int) -> Problem:
    advice = ADVICE_AFTER_RETRIES if retries else ADVICE
    return Problem(number, utterance.text, said.problem, advice)


def _require_retries(retries: int) -> int:
    if retries < 0:
        raise InputError(f"retries must be at least 0, not {retries}")
    return retries


def _finite(samples: np.ndarray) -> np.ndarray:
    if not np.isfinite(samples).all():
        raise InputError("the models gave NaN instead of audio: their weights or their precision do not hold")
    return samples

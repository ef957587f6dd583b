"""Text to speech with any acoustic model and any vocoder, each on any backend."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.arrays import read_later, to_numpy
from common.audio.contract import require_same_contract
from common.config.deployment import Bucket, Deployment
from common.engines import Engine
from common.errors import InputError
from common.registry import MODELS
from common.speech import Audio, Controls, Problem, Timings, controls_of_each
from common.stages.choose import KINDS, deployment_of, parse_backends
from common.synthesis.admission import Admission
from common.synthesis.finish import complete_peaks, finish, require_finite, soft_clip
from common.synthesis.loading import choose_sources, make_driver
from common.synthesis.segments import fit
from common.synthesis.utterances import ADVICE, ADVICE_AFTER_RETRIES, SpokenUtterance, speak_utterances
from common.text import Analysis, Frontend, Utterance

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from common.synthesis.acoustic import AcousticModel
    from common.synthesis.vocoder import Vocoder
    from common.synthesis.warm_up import Warmed

# A stream's chunks in mel frames: the first is small, to leave at once; they double up to the largest.
FIRST_CHUNK, LARGEST_CHUNK = 24, 192
BATCH_SIZE = 8
# So many batches of texts are sorted by length at a time: answers leave early and memory stays bounded.
SORTED_BATCHES = 8
# What the runner does itself. Every model honours a seed: one that draws no noise speaks the same for all.
OWN_CONTROLS = frozenset({"volume", "seed"})


@dataclass(frozen=True)
class ChunkSizes:
    """Mel frames of a stream's chunks, as `Vocoder.vocode_chunks` takes them."""

    first: int = FIRST_CHUNK
    largest: int = LARGEST_CHUNK
    growth: int = 2
    even: bool = False


@dataclass(frozen=True)
class AnalysedText(Analysis):
    """A text with what the frontend made of it, cut where the acoustic model takes no longer utterances."""

    text: str = ""
    seconds: float = 0.0  # that it took


@dataclass(frozen=True, eq=False)
class _SpokenPart:
    """One utterance with its samples; the mel is numpy's."""

    samples: np.ndarray
    spoken: SpokenUtterance


@dataclass(eq=False)
class _Job:
    """One text on its way; its utterances may be spoken in any order."""

    number: int
    text: AnalysedText
    controls: Controls
    clock: Timings
    parts: dict[int, _SpokenPart] = field(default_factory=dict)


class TextToSpeech:
    """A text frontend, an acoustic model and a vocoder that fit together.

    It may be called from several threads: each gets what it would get alone. Calls take turns at the models,
    a batch of utterances or a stream's chunk at a time, so that they add up to the throughput of one thread.
    `models_turn` is what they hold meanwhile (default: a lock of this object). Several objects that share
    drivers need one lock, or none (`nullcontext()`) where all engines say `can_be_shared`.
    """

    def __init__(
        self,
        frontend: Frontend,
        acoustic: AcousticModel,
        vocoder: Vocoder,
        sampling_rate: int,
        models_turn: AbstractContextManager[Any] | None = None,
    ):
        self.frontend = frontend
        self.acoustic = acoustic
        self.vocoder = vocoder
        self.sampling_rate = sampling_rate
        self.batch_size: int | None = None  # where a call says nothing; None: as many as the models allow
        self.load_timings = Timings()
        # Engines keep buffers, contexts and CUDA graphs between calls: one thread at a time.
        self._models_turn = threading.RLock() if models_turn is None else models_turn
        self._frontend_turn = threading.Lock()

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
            assert first.frontend is not None  # every acoustic model has one
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

    def analyse(self, text: str) -> AnalysedText:
        """The frontend's utterances, cut where the acoustic model takes no longer ones.

        An InputError where there is nothing to speak.
        """
        with self._frontend_turn:
            start = time.perf_counter()
            analysis = self.frontend(text)
            utterances = analysis.utterances
            if not utterances:
                why = (
                    f"nothing in {text.strip()[:40]!r} can be spoken" if text.strip() else "the text is empty"
                )
                raise InputError(f"no audio made: {why}")
            longest = self.acoustic.longest_text
            if max(len(utterance.ids) for utterance in utterances) > longest:
                utterances = tuple(p for u in utterances for p in fit(u, longest, self.frontend.symbols))
            return AnalysedText(utterances, analysis.unspoken, text, time.perf_counter() - start)

    def warm_up(self, *batch_sizes: int) -> Iterator[Warmed]:
        """Runs every engine once, for every bucket, and says what that took; it goes on as it is read.

        Speaking waits for nothing then, as far as buckets go: TensorRT compiles for each new shape. Batches
        of `batch_sizes` run too, of the deployment's size where none is given.
        """
        from common.synthesis.warm_up import warm_up

        return warm_up(self, batch_sizes)

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
                with_it = [m.name for m in MODELS.values() if name in m.controls]
                raise InputError(
                    f"the control {name!r} would change nothing: {' and '.join(with_it)} "
                    f"{'have' if len(with_it) > 1 else 'has'} it, "
                    f"not {' or '.join(driver.source.model for driver in drivers)}"
                )

    def speak(self, text: str | AnalysedText, controls: Controls | None = None, retries: int = 0) -> Audio:
        """Speaks one text of any length.

        An utterance that the acoustic model reports a problem with is spoken again with `retries` further
        seeds, then in smaller pieces; what is still wrong stands in the answer's `problems`.
        """
        return next(self.speak_each([text], controls, batch_size=1, retries=retries))[1]

    def speak_many(
        self,
        texts: Iterable[str | AnalysedText],
        controls: Controls | Sequence[Controls] | None = None,
        batch_size: int | None = None,
        retries: int = 0,
    ) -> list[Audio]:
        """Speaks texts in batches of similar length; answers in the order asked.

        `controls` are one for all texts, or a sequence with one for each (an InputError where there
        are more or fewer). Texts whose controls differ in what the acoustic model takes once for a batch (its
        `batch_key`) come into different batches.
        """
        answers = dict(self.speak_each(list(texts), controls, batch_size, retries))
        return [answers[number] for number in sorted(answers)]

    def speak_each(
        self,
        texts: Iterable[str | AnalysedText],
        controls: Controls | Sequence[Controls] | None = None,
        batch_size: int | None = None,
        retries: int = 0,
    ) -> Iterator[tuple[int, Audio]]:
        """As speak_many, but each answer leaves with its text's number as soon as it is ready.

        A generator of texts is read as they come, by a thread of its own: the first is spoken while the
        second is not there yet. With batches, which texts share one then depends on when they came. Whether
        its texts are as many as the controls is known only when one has no controls, or at its end.
        """
        one_each = isinstance(controls, Sequence)
        given = list(controls) if one_each else controls_of_each(controls, 1)
        for one in dict.fromkeys(given):
            self.require_controls(one)
        if isinstance(texts, Sized):
            controls_of_each(controls, len(texts))
        batch_size = self.choose_batch_size(batch_size)
        retries = _require_retries(retries)
        count = 0
        for admitted in Admission(texts, batch_size * SORTED_BATCHES).rounds():
            count += len(admitted)
            if one_each and count > len(given):
                controls_of_each(given, count)
            jobs = [self._job(number, text, given[number if one_each else 0]) for number, text in admitted]
            yield from self._speak_jobs(jobs, batch_size, retries)
        controls_of_each(controls, count)

    def stream(
        self,
        text: str | AnalysedText,
        controls: Controls | None = None,
        retries: int = 0,
        sizes: ChunkSizes | None = None,
    ) -> Stream:
        """Speaks one text in chunks that join to what `speak` gives; the first leaves as early as it can."""
        controls = controls or Controls()
        self.require_controls(controls)
        return Stream(self, self._job(0, text, controls), _require_retries(retries), sizes or ChunkSizes())

    def speak_ahead(self, streams: Iterable[Stream]) -> None:
        """The acoustic step of several streams' next chunks, as many together as the models allow.

        Each stream gets what it would have made itself; one that needs no mel stays as it is, and so does one
        in whose batch an utterance cannot be spoken: its error is raised where its own chunk is asked for.
        Nobody reads these streams meanwhile.
        """
        waiting = [stream for stream in streams if stream.needs_mel]
        for retries in sorted({stream._retries for stream in waiting}):
            by_job = {stream._job: stream for stream in waiting if stream._retries == retries}
            queue = [(job, stream.spoken) for job, stream in by_job.items()]
            for batch in self._batches(queue, self.choose_batch_size(None)):
                utterances = [job.text.utterances[i] for job, i in batch]
                clock = Timings()
                try:
                    with self._models_turn, clock.stage("acoustic"):
                        spoken = self._speak_utterances(
                            utterances, [job.controls for job, _ in batch], retries
                        )
                except ValueError:
                    continue
                work = sum(one.mel.shape[1] for one in spoken)
                for (job, _), one in zip(batch, spoken, strict=True):
                    by_job[job]._ahead = one
                    job.clock.add(clock, one.mel.shape[1] / work if work else 1 / len(batch))

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

    def _job(self, number: int, text: str | AnalysedText, controls: Controls) -> _Job:
        analysed = text if isinstance(text, AnalysedText) else self.analyse(text)
        return _Job(number, analysed, controls, Timings({"text": analysed.seconds}))

    def _speak_jobs(self, jobs: list[_Job], batch_size: int, retries: int) -> Iterator[tuple[int, Audio]]:
        queue = [(job, i) for job in jobs for i in range(len(job.text.utterances))]
        for batch in self._batches(queue, batch_size):
            utterances = [job.text.utterances[i] for job, i in batch]
            clock = Timings()
            parts = self._speak_batch(utterances, [job.controls for job, _ in batch], retries, clock)
            work = sum(len(part.samples) for part in parts)
            for (job, i), part in zip(batch, parts, strict=True):
                job.parts[i] = part
                job.clock.add(clock, len(part.samples) / work if work else 1 / len(parts))
                if len(job.parts) == len(job.text.utterances):
                    yield job.number, self._join(job, retries)

    def _batches(self, queue: list[tuple[_Job, int]], batch_size: int) -> Iterator[list[tuple[_Job, int]]]:
        """The queue, so many of similar length at a time; together only what the same bucket covers and has
        the same `batch_key`. One by one it keeps its order.
        """

        def key_of(entry: tuple[_Job, int]) -> Hashable:
            return self.acoustic.batch_key(entry[0].controls)

        def length_of(entry: tuple[_Job, int]) -> int:
            job, i = entry
            return len(job.text.utterances[i].ids)

        def in_common(entry: tuple[_Job, int]) -> tuple[Hashable, Bucket | None]:
            return key_of(entry), self.acoustic.engines.covering(length_of(entry))

        if batch_size > 1:
            keys = list(dict.fromkeys(map(key_of, queue)))
            queue = sorted(queue, key=lambda entry: (keys.index(key_of(entry)), length_of(entry)))
        for _, entries in itertools.groupby(queue, in_common):
            while batch := list(itertools.islice(entries, batch_size)):
                yield batch

    def _speak_batch(
        self, utterances: Sequence[Utterance], controls: Sequence[Controls], retries: int, clock: Timings
    ) -> list[_SpokenPart]:
        with self._models_turn:
            with clock.stage("acoustic"):
                spoken = self._speak_utterances(utterances, controls, retries)
                mels = [read_later(one.mel) for one in spoken]
            with clock.stage("vocoder"):
                audio = self._vocode(spoken, controls)
            # Copies, since what was read from a GPU is in memory that is scarce.
            return [
                _SpokenPart(require_finite(samples), replace(one, mel=np.array(mel())))
                for samples, one, mel in zip(audio, spoken, mels, strict=True)
            ]

    def _speak_utterances(
        self, utterances: Sequence[Utterance], controls: Sequence[Controls], retries: int
    ) -> list[SpokenUtterance]:
        return speak_utterances(self.acoustic, self.frontend.symbols, utterances, controls, retries)

    def _vocode(self, spoken: Sequence[SpokenUtterance], controls: Sequence[Controls]) -> list[np.ndarray]:
        """Each utterance's samples; without frames there is no sound."""
        audio = [np.zeros(0, np.float32)] * len(spoken)
        heard = [i for i, one in enumerate(spoken) if one.mel.shape[1]]
        mels, theirs = [spoken[i].mel for i in heard], [controls[i] for i in heard]
        for i, samples in zip(heard, self.vocoder.vocode_each(mels, theirs), strict=True):
            audio[i] = samples
        return audio

    def _join(self, job: _Job, retries: int) -> Audio:
        """The utterances' audio in order, with their pauses."""
        parts = [job.parts.pop(i) for i in range(len(job.parts))]
        utterances, volume = job.text.utterances, job.controls.volume
        starts, finished, position = [], [], 0
        with job.clock.stage("join"):
            for utterance, part in zip(utterances, parts, strict=True):
                samples = finish(part.samples, self.sampling_rate, volume, pause=utterance.pause)
                starts.append(position / self.sampling_rate)
                finished.append(soft_clip(samples))
                position += len(samples)
            joined = np.concatenate(finished) if len(finished) > 1 else finished[0]
        job.clock.audio = len(joined) / self.sampling_rate
        job.clock.first_audio = job.clock.total
        spoken = [part.spoken for part in parts]
        return Audio(
            text=job.text.text,
            samples=joined,
            sampling_rate=self.sampling_rate,
            hop_length=self.vocoder.hop,
            utterances=utterances,
            unspoken=job.text.unspoken,
            starts=tuple(starts),
            mels=tuple(to_numpy(one.mel) for one in spoken),
            durations=tuple(one.durations for one in spoken),
            pitches=_all([one.pitch for one in spoken]),
            alignments=_all([one.alignment for one in spoken]),
            notes=tuple(one.note for one in spoken),
            problems=tuple(
                describe_problem(number, utterance, one, retries)
                for number, (utterance, one) in enumerate(zip(utterances, spoken, strict=True))
                if one.problem
            ),
            timings=job.clock,
        )


def _all(arrays: Sequence[np.ndarray | None]) -> tuple[np.ndarray, ...] | None:
    """The utterances' arrays; None where the acoustic model makes none."""
    found = tuple(array for array in arrays if array is not None)
    return found if len(found) == len(arrays) else None


class Stream:
    """An iterator of float32 chunks of one text's audio.

    `timings`, `notes`, `problems`, `starts` and `durations` grow while it is read, the last two before their
    utterance's first chunk leaves: `common.synthesis.timestamps` takes a stream as it takes `Audio`.
    `alignments` grow too where the caller has set a list: those of a book are too large to be kept unasked.
    `TextToSpeech.speak_ahead` makes the acoustic step of several streams together.
    """

    def __init__(self, tts: TextToSpeech, job: _Job, retries: int, sizes: ChunkSizes):
        self._job, self._retries = job, retries
        self._ahead: SpokenUtterance | None = None  # the next utterance, where `speak_ahead` has spoken it
        self._within = False  # an utterance of which there are chunks to come
        self.sampling_rate = tts.sampling_rate
        self.analysis = job.text
        self.utterances = job.text.utterances
        self.frame_seconds = tts.vocoder.hop / tts.sampling_rate
        self.timings = job.clock
        self.starts: list[float] = []  # seconds at which each utterance begins
        self.durations: list[np.ndarray] = []  # int64 [T_text], frames
        # float32 [decoder steps, T_text] of each utterance, None where the acoustic model has no attention.
        self.alignments: list[np.ndarray | None] | None = None
        self.notes: list[str] = []  # of each utterance so far, "" for most
        self.problems: list[Problem] = []
        self._chunks = self._run(tts, sizes)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> np.ndarray:
        samples = next(self._chunks)
        self.timings.audio += len(samples) / self.sampling_rate
        if not self.timings.first_audio:
            self.timings.first_audio = self.timings.total
        return samples

    @property
    def spoken(self) -> int:
        """Utterances whose mels were taken so far."""
        return len(self.starts)

    @property
    def needs_mel(self) -> bool:
        """Whether the next chunk begins with the acoustic step."""
        return self._ahead is None and not self._within and self.spoken < len(self.utterances)

    def close(self) -> None:
        """Ends it; not while another thread reads it."""
        self._chunks.close()

    def _speak(self, tts: TextToSpeech, utterance: Utterance) -> SpokenUtterance:
        spoken, self._ahead = self._ahead, None
        if spoken is None:
            with tts._models_turn, self.timings.stage("acoustic"):
                (spoken,) = tts._speak_utterances([utterance], [self._job.controls], self._retries)
        return spoken

    def _run(self, tts: TextToSpeech, sizes: ChunkSizes) -> Generator[np.ndarray, None, None]:
        first_chunk, position, controls = sizes.first, 0, self._job.controls
        for number, utterance in enumerate(self.utterances):
            spoken = self._speak(tts, utterance)
            if self.alignments is not None:
                self.alignments.append(spoken.alignment)
            self.notes.append(spoken.note)
            self.starts.append(position / self.sampling_rate)
            self.durations.append(spoken.durations)
            if spoken.problem:
                self.problems.append(describe_problem(number, utterance, spoken, self._retries))
            left = spoken.mel.shape[1] * tts.vocoder.hop
            position += left + round(utterance.pause * self.sampling_rate)
            if not left:  # no sound, as in `speak`
                yield finish(np.zeros(0, np.float32), self.sampling_rate, pause=utterance.pause)
                continue
            how = {"growth": sizes.growth, "even": sizes.even}
            chunks = tts.vocoder.vocode_chunks(spoken.mel[None], first_chunk, sizes.largest, controls, **how)
            first_chunk = sizes.largest
            is_first = True
            held = np.zeros(0, np.float32)
            while left:
                with tts._models_turn, self.timings.stage("vocoder"):
                    samples = require_finite(next(chunks))
                left -= len(samples)
                self._within = left > 0
                pause = None if left else utterance.pause
                samples = finish(samples, self.sampling_rate, controls.volume, starts=is_first, pause=pause)
                samples = np.concatenate([held, samples])
                # A peak waits for its end in the next chunk; the fade ends the last one.
                samples, held = np.split(samples, [complete_peaks(samples)])
                if len(samples):
                    yield soft_clip(samples)
                is_first = False


def describe_problem(number: int, utterance: Utterance, spoken: SpokenUtterance, retries: int) -> Problem:
    advice = ADVICE_AFTER_RETRIES if retries else ADVICE
    return Problem(number, utterance.text, spoken.problem, advice)


def _require_retries(retries: int) -> int:
    if retries < 0:
        raise InputError(f"retries must be at least 0, not {retries}")
    return retries

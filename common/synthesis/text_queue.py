"""Texts through the models in batches of similar length, and their utterances joined to answers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from melforge.common.arrays import ReadEach, read_together
from melforge.common.errors import InputError
from melforge.common.speech import Audio, Controls, Timings
from melforge.common.synthesis.finish import join_utterances
from melforge.common.synthesis.jobs import (
    AnalysedText,
    Job,
    JobUtterance,
    Models,
    SpokenPart,
    alike_jobs,
    make_job,
    speak_jobs,
    turn_of,
)
from melforge.common.synthesis.utterances import SpokenUtterance, describe_problem

if TYPE_CHECKING:
    from concurrent.futures import Executor

FINISHING_THREADS = 4  # for the answers of a batch, where a GPU makes them
# A text with its number and controls.
Numbered = tuple[int, str | AnalysedText, Controls]


@dataclass(frozen=True, eq=False)
class SpokenBatch:
    """Utterances that the models were given; a GPU may still be at work on them."""

    entries: Sequence[JobUtterance]
    spoken: Sequence[SpokenUtterance]
    read_audio: ReadEach
    read_mels: ReadEach
    clock: Timings


class TextQueue:
    """Speaks texts, `batch_size` utterances at a time; answers leave as soon as they are ready.

    `progress` is told how many further utterances are spoken.
    """

    def __init__(self, models: Models, batch_size: int, retries: int, progress: Callable[[int], object]):
        self.models, self.batch_size, self.retries, self.progress = models, batch_size, retries, progress

    def answers(self, texts: Sequence[Numbered]) -> Iterator[tuple[int, Audio]]:
        """Each text's answer with its number.

        A GPU is at work on a batch while the next one's texts are analysed, and while the answers of the one
        before are read; a CPU's answers leave at once.
        """
        batches = (
            entries
            for queue in self._queues(texts)
            for entries in alike_jobs(self.models.acoustic, queue, self.batch_size)
        )
        launched: SpokenBatch | None = None
        while True:
            try:
                entries = next(batches, None)
                batch = self._speak(entries) if entries else None
            except Exception:
                if launched:  # whose answers are not lost
                    yield from self._finished(launched)
                raise
            if launched:
                yield from self._finished(launched)
            if batch is None:
                return
            launched = batch if self.models.vocoder.prefers_batches else None
            if not launched:
                yield from self._finished(batch)

    def _queues(self, texts: Sequence[Numbered]) -> Iterator[list[JobUtterance]]:
        """The utterances of as many texts as make a batch: analysed when asked for.

        These have one `batch_key`, and similar numbers of letters. One by one texts keep their order.
        """

        def key_of(entry: Numbered) -> Hashable:
            return self.models.acoustic.batch_key(entry[2])

        if self.batch_size > 1:
            keys = list(dict.fromkeys(map(key_of, texts)))
            texts = sorted(texts, key=lambda entry: (keys.index(key_of(entry)), _letters(entry[1])))
        for _, alike in itertools.groupby(self._analysed(texts), lambda entry: key_of(entry[0])):
            while queue := [
                (job, i)
                for (number, _, controls), text in itertools.islice(alike, self.batch_size)
                for job in [make_job(self.models, number, text, controls)]
                for i in range(len(text.utterances))
            ]:
                yield queue

    def _analysed(self, texts: Sequence[Numbered]) -> Iterator[tuple[Numbered, AnalysedText]]:
        """Each text with what the frontend makes of it; of several an error names the one at fault."""
        written, speakers = [text for _, text, _ in texts], [controls.speaker for *_, controls in texts]
        analysed = iter(self.models.analyse_each(written, speakers))
        for entry in texts:
            try:
                made = next(analysed)
            except InputError as error:
                if entry[0] or len(texts) > 1:
                    raise InputError(f"text {entry[0] + 1}: {error}") from None
                raise
            yield entry, made

    def _speak(self, entries: Sequence[JobUtterance]) -> SpokenBatch:
        clock = Timings()
        with turn_of(self.models):
            with clock.stage("acoustic"):
                spoken = speak_jobs(self.models, entries, self.retries)
            with clock.stage("vocoder"):
                read_audio = self._vocode(spoken, [job.controls for job, _ in entries])
                read_mels = read_together([one.mel for one in spoken])  # while a GPU makes audio
        return SpokenBatch(entries, spoken, read_audio, read_mels, clock)

    def _vocode(self, spoken: Sequence[SpokenUtterance], controls: Sequence[Controls]) -> ReadEach:
        """A function that reads each utterance's samples; without frames there is no sound."""
        heard = [i for i, one in enumerate(spoken) if one.mel.shape[1]]
        mels, theirs = [spoken[i].mel for i in heard], [controls[i] for i in heard]
        read_heard = self.models.vocoder.vocode_later(mels, theirs)

        def read() -> list[np.ndarray]:
            audio = dict(zip(heard, read_heard(), strict=True))
            return [audio.get(i, np.zeros(0, np.float32)) for i in range(len(spoken))]

        return read

    def _finished(self, batch: SpokenBatch) -> Iterator[tuple[int, Audio]]:
        """The answers of those texts that have all their utterances now."""
        with batch.clock.stage("vocoder"):
            audio, mels = batch.read_audio(), batch.read_mels()
        self.progress(len(audio))
        work = sum(map(len, audio))
        whole = []
        for (job, i), spoken, samples, mel in zip(batch.entries, batch.spoken, audio, mels, strict=True):
            job.parts[i] = SpokenPart(samples, replace(spoken, mel=mel))
            job.clock.add(batch.clock, len(samples) / work if work else 1 / len(audio))
            if len(job.parts) == len(job.text.utterances):
                whole.append(job)
        # Threads side by side: numpy leaves them the interpreter while it goes through the samples.
        several = len(whole) > 1 and self.models.vocoder.prefers_batches
        joined = (finishing_threads().map if several else map)(self._join, whole)
        for job, answer in zip(whole, joined, strict=True):
            yield job.number, answer

    def _join(self, job: Job) -> Audio:
        """The utterances' audio in order, with their pauses."""
        parts = [job.parts.pop(i) for i in range(len(job.parts))]
        rate, utterances = self.models.sampling_rate, job.text.utterances
        samples, spoken = [part.samples for part in parts], [part.spoken for part in parts]
        del parts  # the samples go while they are joined
        with job.clock.stage("join"):
            volumes = [job.volumes(i, one.durations) for i, one in enumerate(spoken)]
            pauses = [gap.seconds for gap in job.gaps]
            joined, starts = join_utterances(samples, pauses[1:], rate, volumes, lead=pauses[0])
        job.clock.audio = len(joined) / rate
        job.clock.first_audio = job.clock.total
        return Audio(
            text=job.text.text,
            samples=joined,
            sampling_rate=rate,
            hop_length=self.models.vocoder.hop,
            utterances=utterances,
            unspoken=job.text.unspoken,
            starts=tuple(start / rate for start in starts),
            mels=tuple(np.array(one.mel) for one in spoken),  # what was read from a GPU is in scarce memory
            durations=tuple(one.durations for one in spoken),
            pitches=_all([one.pitch for one in spoken]),
            alignments=_all([one.alignment for one in spoken]),
            notes=tuple(one.note for one in spoken),
            problems=tuple(
                describe_problem(number, utterance, one, self.retries)
                for number, (utterance, one) in enumerate(zip(utterances, spoken, strict=True))
                if one.problem
            ),
            timings=job.clock,
            warnings=job.text.warnings,
        )


@functools.cache
def finishing_threads() -> Executor:
    from concurrent.futures import ThreadPoolExecutor  # a cold start needs none

    return ThreadPoolExecutor(FINISHING_THREADS, "finish")


def _letters(text: str | AnalysedText) -> int:
    return len(text if isinstance(text, str) else text.text)


def _all(arrays: Sequence[np.ndarray | None]) -> tuple[np.ndarray, ...] | None:
    """The utterances' arrays; None where the acoustic model makes none."""
    there = tuple(array for array in arrays if array is not None)
    return there if len(there) == len(arrays) else None

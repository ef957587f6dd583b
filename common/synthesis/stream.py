"""One text's audio in chunks, as it is made, and the next chunks of several texts together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np

from melforge.common.arrays import to_numpy
from melforge.common.audio.mel import mel_levels
from melforge.common.speech import Problem, Timings
from melforge.common.synthesis.chunks import Chunks, ChunkSizes
from melforge.common.synthesis.finish import complete_peaks, finish, require_finite, soft_clip
from melforge.common.synthesis.jobs import Job, Models, alike_jobs, speak_jobs, turn_of
from melforge.common.synthesis.utterances import SpokenUtterance, describe_problem, run_each


class Stream:
    """An iterator of float32 chunks of one text's audio.

    `timings`, `notes`, `problems`, `starts` and `durations` grow while it is read, the last two before their
    utterance's first chunk leaves: `melforge.common.synthesis.timestamps` takes a stream as it takes `Audio`.
    `alignments` and `mels` grow too where the caller has set a list of the former: those of a book are too
    large to be kept unasked.
    `TextToSpeech.speak_ahead` runs the models for several streams together.
    """

    def __init__(self, tts: Models, job: Job, retries: int, sizes: ChunkSizes):
        self.tts = tts
        self.job, self.retries, self._sizes = job, retries, sizes
        # The utterance of which there are chunks to come, and these.
        self._speaking: tuple[SpokenUtterance, Iterator[np.ndarray]] | None = None
        self._asked = 0  # frames of the next chunk
        self.sampling_rate = tts.sampling_rate
        self.analysis = job.text
        self.utterances = job.text.utterances
        self.frame_seconds = tts.vocoder.hop / tts.sampling_rate
        self.timings = job.clock
        self.starts: list[float] = []  # seconds at which each utterance begins
        self.durations: list[np.ndarray] = []  # int64 [T_text], frames
        # float32 [decoder steps, T_text] of each utterance, None where the acoustic model has no attention.
        self.alignments: list[np.ndarray | None] | None = None
        self.mels: list[np.ndarray] = []  # uint8 [T_mel, n_mels] of each (`mel_levels`), as far as alignments
        self.notes: list[str] = []  # of each utterance so far, "" for most
        self.problems: list[Problem] = []
        self._samples = self._run()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> np.ndarray:
        samples = next(self._samples)
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
        return self._speaking is None and self.spoken < len(self.utterances)

    @property
    def ended(self) -> bool:
        """Whether there are no chunks to come."""
        return self._speaking is None and self.spoken == len(self.utterances)

    @property
    def mel_chunks(self) -> Chunks | None:
        """Those to come of the utterance whose mel is there."""
        return self._speaking[1] if self._speaking and isinstance(self._speaking[1], Chunks) else None

    @property
    def batch_key(self) -> Hashable | None:
        """The same for streams whose next chunks `speak_ahead` makes in less time together.

        None where there is nothing to gain.
        """
        if self.tts.vocoder.prefers_batches:
            return self.tts
        if self.needs_mel and self.tts.acoustic.prefers_batches:
            return self.tts, self.tts.acoustic.batch_key(self.job.controls), self.retries
        return None

    def close(self) -> None:
        """Ends it; not while another thread reads it."""
        self._samples.close()
        self._speaking = None

    def begin(self, spoken: SpokenUtterance) -> None:
        """The next utterance is spoken: its chunks are next. In the models' turn."""
        mel, vocoder = spoken.mel[None], self.tts.vocoder
        with self.timings.stage("vocoder"):
            self._speaking = spoken, vocoder.vocode_chunks(mel, self._sizes, self.job.controls, at_once=True)
        self._stretch()

    def stretch(self, seconds: Callable[[], float]) -> None:
        """Asks for so many seconds of audio in the next chunk, where it has less and its sizes allow it."""
        if self._sizes.stretched:
            self._asked = int(seconds() / self.frame_seconds)
            self._stretch()

    def _stretch(self) -> None:
        if chunks := self.mel_chunks:
            chunks.stretch(self._asked)

    def _speak(self) -> tuple[SpokenUtterance, Iterator[np.ndarray]]:
        """In one turn, where that of another would come between mel and audio."""
        if self._speaking is None:
            with turn_of(self.tts):
                with self.timings.stage("acoustic"):
                    (spoken,) = speak_jobs(self.tts, [(self.job, self.spoken)], self.retries)
                self.begin(spoken)
                if chunks := self.mel_chunks:
                    with self.timings.stage("vocoder"):
                        chunks.compute()
        assert self._speaking
        return self._speaking

    def _turn(self) -> AbstractContextManager[None]:
        """The models', unless the next chunk was made ahead: then it is only waited for."""
        chunks = self.mel_chunks
        return nullcontext() if chunks and not chunks.needs_run else turn_of(self.tts)

    def _run(self) -> Generator[np.ndarray, None, None]:
        before, *gaps = self.job.gaps
        position = round(before.seconds * self.sampling_rate)
        for number, (utterance, gap) in enumerate(zip(self.utterances, gaps, strict=True)):
            spoken, chunks = self._speak()
            volumes = self.job.volumes(number, spoken.durations)
            if self.alignments is not None:
                self.alignments.append(spoken.alignment)
                self.mels.append(mel_levels(to_numpy(spoken.mel)))
            self.notes.append(spoken.note)
            self.starts.append(position / self.sampling_rate)
            self.durations.append(spoken.durations)
            if spoken.problem:
                self.problems.append(describe_problem(number, utterance, spoken, self.retries))
            left = spoken.mel.shape[1] * self.tts.vocoder.hop
            if position and not number:
                yield np.zeros(position, np.float32)
            position += left + round(gap.seconds * self.sampling_rate)
            if not left:  # no sound, as in `speak`
                self._speaking = None
                yield finish(np.zeros(0, np.float32), self.sampling_rate, pause=gap.seconds)
                continue
            self._sizes = replace(self._sizes, first=self._sizes.largest)  # of the next utterance
            is_first = True
            held = np.zeros(0, np.float32)
            while left:
                with self._turn(), self.timings.stage("vocoder"):
                    samples = next(chunks)
                if isinstance(volumes, np.ndarray):
                    volume = volumes[len(volumes) - left :][: len(samples)]
                else:
                    volume = volumes
                left -= len(samples)
                if not left:
                    self._speaking = None
                pause = None if left else gap.seconds
                samples = finish(samples, self.sampling_rate, volume, starts=is_first, pause=pause)
                if len(held):
                    samples = np.concatenate([held, samples])
                # A peak waits for its end in the next chunk; the fade ends the last one.
                complete = complete_peaks(samples)
                held, made = require_finite(samples[complete:].copy()), [soft_clip(samples[:complete])]
                is_first = False
                del samples  # many streams wait here
                if complete:
                    yield made.pop()


def speak_ahead(tts: Models, streams: Sequence[Stream]) -> None:
    """As `TextToSpeech.speak_ahead`."""
    _mels_ahead(tts, [stream for stream in streams if stream.needs_mel])
    _chunks_ahead(tts, [(stream, chunks) for stream in streams if (chunks := stream.mel_chunks)])


def _mels_ahead(tts: Models, streams: Sequence[Stream]) -> None:
    largest = tts.acoustic.largest_batch
    size = min(tts.batch_size or largest, largest)
    for retries in sorted({stream.retries for stream in streams}):
        by_job = {stream.job: stream for stream in streams if stream.retries == retries}
        queue = [(job, stream.spoken) for job, stream in by_job.items()]
        speak = functools.partial(_speak_padded, tts, largest=size, retries=retries)
        for batch in alike_jobs(tts.acoustic, queue, size if tts.acoustic.prefers_batches else 1):
            made = run_each(speak, batch)
            with turn_of(tts):
                for (job, _), spoken in zip(batch, made, strict=True):
                    if not isinstance(spoken, Exception):
                        by_job[job].begin(spoken)


def _speak_padded(
    tts: Models, batch: Sequence[tuple[Job, int]], largest: int, retries: int
) -> list[SpokenUtterance]:
    """A batch of one of the sizes that the acoustic model is to run: with its first utterance, the
    shortest, several times.
    """
    spare = min(tts.acoustic.padded_batch(len(batch)), largest) - len(batch)
    padded = [batch[0]] * spare + [*batch]
    clock = Timings()
    with turn_of(tts), clock.stage("acoustic"):
        spoken = speak_jobs(tts, padded, retries)[spare:]
    work = sum(one.mel.shape[1] for one in spoken)
    for (job, _), one in zip(batch, spoken, strict=True):
        job.clock.add(clock, one.mel.shape[1] / work if work else 1 / len(batch))
    return spoken


def _chunks_ahead(tts: Models, waiting: Sequence[tuple[Stream, Chunks]]) -> None:
    clock = Timings()
    with turn_of(tts), clock.stage("vocoder"):
        tts.vocoder.make_ahead([chunks for _, chunks in waiting])
    frames = [chunks.window.frames if chunks.window else 0 for _, chunks in waiting]
    for (stream, _), count in zip(waiting, frames, strict=True):
        stream.timings.add(clock, count / sum(frames) if count else 0.0)

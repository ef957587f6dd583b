"""Text to speech with any acoustic model and any vocoder, each on any backend."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from melforge.common.arguments import checked
from melforge.common.audio.contract import require_same_contract
from melforge.common.config.deployment import MOST_THREADS, Deployment
from melforge.common.engines import Engine
from melforge.common.errors import InputError
from melforge.common.garbage import without_garbage_collection
from melforge.common.registry import MODELS
from melforge.common.speech import (
    Audio,
    Controls,
    Timings,
    require_as_many,
    shown,
    speaker_name,
    speaker_shares,
    usual_controls,
)
from melforge.common.stages.choose import KINDS, deployment_of, parse_backends
from melforge.common.synthesis.admission import Admission
from melforge.common.synthesis.chunks import ChunkSizes
from melforge.common.synthesis.jobs import AnalysedText, fitting_utterances, make_job, possible_utterances
from melforge.common.synthesis.loading import choose_sources, make_driver
from melforge.common.synthesis.stream import Stream, speak_ahead
from melforge.common.synthesis.text_queue import TextQueue
from melforge.common.text import Analysis, Frontend, OwnWords, markup, spoken_by, with_own_words

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from melforge.common.synthesis.acoustic import AcousticModel
    from melforge.common.synthesis.vocoder import Vocoder
    from melforge.common.synthesis.warm_up import IdleWarmUp, Warmed
    from melforge.common.text.processes import TextProcesses
    from melforge.common.weights.voices import FrontendSpec, ModelSource

BATCH_SIZE, GPU_BATCH = 8, 32  # utterances at a time: in general, and on CUDA kernels
# So many batches of texts are sorted by length at a time: answers leave early and memory stays bounded.
SORTED_BATCHES = 8
# What the runner does itself. Every model honours a seed: one that draws no noise speaks the same for all.
OWN_CONTROLS = frozenset(
    {"volume", "seed", "pause_factor", "clause_pause", "sentence_pause", "paragraph_pause"}
)


def known_controls(*sources: ModelSource) -> frozenset[str]:
    """The names of the controls that change what these models speak."""
    return OWN_CONTROLS.union(*(source.controls for source in sources))


def require_controls(controls: Controls, *sources: ModelSource) -> None:
    """An InputError where these models do not know a control that was asked for, or have no such speaker."""
    known = known_controls(*sources)
    for name in controls.asked():
        if name not in known:
            with_it = [m.name for m in MODELS.values() if name in m.controls]
            models = [source.model for source in sources]
            have = "have" if len(with_it) > 1 else "has"
            why = f"{' and '.join(with_it)} {have} it, not {' or '.join(models)}"
            if not set(models).isdisjoint(with_it):
                why = "this voice has one speaker, others have more (melforge list)"
            raise InputError(f"the control {name!r} would change nothing: {why}")
    for source in sources:
        if "speaker" in source.controls:
            speaker_shares(controls.speaker, source.speakers)


class TextToSpeech:
    """A text frontend, an acoustic model and a vocoder that fit together.

    It may be called from several threads: each gets what it would get alone. Calls take turns at the models,
    a batch of utterances or a stream's chunk at a time, so that they add up to the throughput of one thread.
    `models_turn` is what they hold meanwhile (default: a lock of this object); who runs `acoustic` or
    `vocoder` directly holds it too, since a warm-up in the background may run them. Several objects that
    share drivers need one lock, or none (`nullcontext()`) where all engines say `can_be_shared`.
    """

    def __init__(
        self,
        frontend: Frontend,
        acoustic: AcousticModel,
        vocoder: Vocoder,
        sampling_rate: int,
        models_turn: AbstractContextManager[Any] | None = None,
        text_processes: TextProcesses | None = None,
    ):
        self.frontend = frontend
        self.acoustic = acoustic
        self.vocoder = vocoder
        self.sampling_rate = sampling_rate
        self.batch_size: int | None = None  # where a call says nothing; None: as many as the models allow
        self.load_timings = Timings()
        # Engines keep buffers, contexts and CUDA graphs between calls: one thread at a time.
        own_turn: AbstractContextManager[Any] = threading.RLock()
        self.models_turn = own_turn if models_turn is None else models_turn
        self._frontend_turn = threading.Lock()
        self._text_processes = text_processes
        self._idle_warm_up: IdleWarmUp | None = None

    @classmethod
    @checked
    @without_garbage_collection()
    def load(
        cls,
        acoustic: str | None = None,
        vocoder: str | None = None,
        voice: str | Path | None = None,
        checkpoints: str | Path | Sequence[str | Path] = (),
        backend: str = "onnx",
        device: str = "auto",
        threads: int | None = None,
        decoder: str | None = None,
        watch: Callable[[Engine], Engine] | None = None,
        deployments: Mapping[str, Deployment] | None = None,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        text_processes: int = 0,
        lexicon: str | Path | None = None,
    ) -> TextToSpeech:
        """Models by name (default: the voice's own) from a voice, or from `checkpoints` ("acoustic=FILE").

        `backend` is one word, or one for each: "acoustic=onnx,vocoder=torch". Both mel contracts must agree.
        `decoder` picks the form of an acoustic model's decoder where it has several (default: the model's).
        `watch` gives what runs in an engine's place, such as one that measures it. `deployments` says by
        model how its engines are run: in buckets, for one. `overrides` are, by model too, values of its
        config or mel contract that count instead of those stored with the weights. `text_processes` analyse
        the texts of `speak_many` and `speak_each` side by side (`melforge.common.text.processes`). `lexicon`
        is a file of own words (docs/reading.md), which count before the voice's. On CUDA kernels the object
        warms itself up in the background, as `warm_up_when_idle` says.
        """
        if threads is not None and not 1 <= threads <= MOST_THREADS:
            raise InputError(f"threads must be from 1 to {MOST_THREADS}, not {threads}")
        deployments = {} if deployments is None else deployments
        clock = Timings()
        with clock.stage("voice"):
            wanted = {"acoustic": acoustic, "vocoder": vocoder}
            sources = choose_sources(wanted, voice, checkpoints, overrides, lexicon)
            first, second = (sources[kind] for kind in KINDS)
            require_same_contract(first.mel, second.mel, (first.model, second.model))
            backends = parse_backends(backend, {kind: source.model for kind, source in sources.items()})
        drivers = {}
        for kind, source in sources.items():
            with clock.stage(kind):
                form = decoder if kind == "acoustic" else None
                how = deployment_of(source.model, deployments, backend)
                drivers[kind] = make_driver(source, backends[kind], device, threads, form, watch, how)
        with clock.stage("frontend"):
            frontend = first.build_frontend()
            processes = start_text_processes(first.frontend, text_processes)
        tts = cls(frontend, **drivers, sampling_rate=first.mel.sampling_rate, text_processes=processes)
        if first.model in deployments:
            tts.batch_size = deployments[first.model].batch_size
        tts.load_timings = clock
        if watch is None:
            tts.warm_up_when_idle()
        return tts

    def __reduce__(self) -> NoReturn:
        raise TypeError("a TextToSpeech cannot be pickled or copied: load one in each process")

    @checked
    def analyse(self, text: str, own_words: OwnWords | None = None, speaker: int | str = 0) -> AnalysedText:
        """The frontend's utterances, cut where the acoustic model takes no longer ones.

        `own_words` come before those of the frontend. `speaker`, as of `Controls`, tells the accent where the
        voice has several. An InputError where there is nothing to speak.
        """
        *_, analysed = self.analysing(text, own_words, speaker)
        assert analysed
        return analysed

    @checked
    def analysing(
        self, text: str, own_words: OwnWords | None = None, speaker: int | str = 0
    ) -> Iterator[AnalysedText | None]:
        """The same a sentence at a time: None behind each, and at the end what `analyse` gives."""
        frontend = spoken_by(with_own_words(self.frontend, own_words), self.name_of(speaker))
        parts, seconds, sentences = list[Analysis](), 0.0, None
        while True:
            with self._frontend_turn:
                start = time.perf_counter()
                sentences = sentences or markup.sentences(frontend, text)
                part = next(sentences, None)
                seconds += time.perf_counter() - start
            if part is None:
                break
            parts.append(part)
            yield None
        yield self._analysed(text, (Analysis.joined(parts), seconds))

    @checked
    def analyse_each(
        self, texts: Sequence[str | AnalysedText], speakers: Sequence[int | str]
    ) -> Iterator[AnalysedText]:
        """The same of several, one after the other, or by the processes for texts; analysed ones stay so."""
        pairs = zip(texts, speakers, strict=True)
        written = [(text, speaker) for text, speaker in pairs if isinstance(text, str)]
        if self._text_processes is None or len(written) < 2:
            made = (self.analyse(text, speaker=speaker) for text, speaker in written)
        else:
            told = [text for text, _ in written]
            names = [self.name_of(speaker) for _, speaker in written]
            made = map(self._analysed, told, self._text_processes.analyse(told, names))
        return (text if isinstance(text, AnalysedText) else next(made) for text in texts)

    @checked
    def name_of(self, speaker: int | str) -> str:
        """Of a speaker, or of the one who has most of a mix; "" where the voice has one."""
        return speaker_name(speaker, self.acoustic.source.speakers)

    def _analysed(self, text: str, timed: tuple[Analysis, float]) -> AnalysedText:
        analysis, seconds = timed
        utterances, ignored = possible_utterances(self.acoustic, analysis.utterances)
        utterances = fitting_utterances(text, utterances, self.acoustic.longest_text, self.frontend.symbols)
        return AnalysedText(utterances, analysis.unspoken, analysis.warnings + ignored, text, seconds)

    @checked
    def warm_up(
        self, *batch_sizes: int, streams: int = 1, sizes: ChunkSizes | None = None
    ) -> Iterator[Warmed]:
        """Runs every engine once, for every bucket, and says what that took; it goes on as it is read.

        Speaking waits for nothing then, as far as buckets go: TensorRT compiles for each new shape. Batches
        of `batch_sizes` run too, of the deployment's size where none is given, and what `speak_ahead` runs
        for so many `streams` with chunks of these `sizes`.
        """
        from melforge.common.synthesis.warm_up import warm_up

        for size in batch_sizes:
            self.choose_batch_size(size)
        if self._idle_warm_up:
            self._idle_warm_up.stop()
        return warm_up(self, batch_sizes, streams, sizes or ChunkSizes())

    def warm_up_when_idle(self) -> None:
        """On CUDA kernels, loads those of a short text, then warms up for single texts of usual lengths in a
        thread, while nobody speaks.

        A length that it has not come to takes some milliseconds longer. A line on stderr says when it begins.
        """
        if self.acoustic.engines.on_kernels and self.vocoder.engines.on_kernels and not self._idle_warm_up:
            from melforge.common.synthesis.warm_up import IdleWarmUp, load_kernels

            load_kernels(self)
            self._idle_warm_up = IdleWarmUp(self)

    def bucket_report(self) -> list[dict[str, Any]]:
        """A row for each bucket of each stage that ran: what it was used for, and what of it was padding."""
        return [
            {**row, "masked": driver.batch_safe or ".masked_" in row["stage"]}
            for driver in (self.acoustic, self.vocoder)
            for row in driver.engines.report()
        ]

    @checked
    def require_controls(self, controls: Controls) -> None:
        """An InputError where neither model knows a control that was asked for: it would change nothing."""
        if controls is not usual_controls():
            require_controls(controls, self.acoustic.source, self.vocoder.source)

    @checked
    def speak(self, text: str | AnalysedText, controls: Controls | None = None, retries: int = 0) -> Audio:
        """Speaks one text of any length.

        An utterance that the acoustic model reports a problem with is spoken again with `retries` further
        seeds, then in smaller pieces; what is still wrong stands in the answer's `problems`.
        """
        return next(self.speak_each([text], controls, batch_size=1, retries=retries))[1]

    @checked
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
        _require_several(texts)
        answers = dict(self.speak_each(list(texts), controls, batch_size, retries))
        return [answers[number] for number in sorted(answers)]

    @checked
    def speak_each(
        self,
        texts: Iterable[str | AnalysedText],
        controls: Controls | Sequence[Controls] | None = None,
        batch_size: int | None = None,
        retries: int = 0,
        progress: Callable[[int], object] = lambda utterances: None,
    ) -> Iterator[tuple[int, Audio]]:
        """As speak_many, but each answer leaves with its text's number as soon as it is ready.

        A generator of texts is read as they come, by a thread of its own: the first is spoken while the
        second is not there yet. With batches, which texts share one then depends on when they came. Whether
        its texts are as many as the controls is known only when one has no controls, or at its end.
        `progress` is told how many further utterances are spoken, also while a long text has no answer yet.
        """
        _require_several(texts)
        one_each = isinstance(controls, Sequence)
        given = controls if one_each else [controls or usual_controls()]
        for one in {id(one): one for one in given}.values():
            self.require_controls(one)
        if one_each and isinstance(texts, Sized):
            require_as_many(given, len(texts))
        batch_size = self.choose_batch_size(batch_size)
        queue = TextQueue(self, batch_size, _require_retries(retries), progress)
        count = 0
        for admitted in Admission(texts, batch_size * SORTED_BATCHES).rounds():
            count += len(admitted)
            for _, text in admitted:
                _require_text(text)
            if one_each and count > len(given):
                require_as_many(given, count)
            yield from queue.answers([(i, text, given[i if one_each else 0]) for i, text in admitted])
        if one_each:
            require_as_many(given, count)

    @checked
    def stream(
        self,
        text: str | AnalysedText,
        controls: Controls | None = None,
        retries: int = 0,
        sizes: ChunkSizes | None = None,
    ) -> Stream:
        """Speaks one text in chunks that join to what `speak` gives; the first leaves as early as it can."""
        controls = controls or usual_controls()
        self.require_controls(controls)
        (analysed,) = self.analyse_each([text], [controls.speaker])
        job = make_job(self, 0, analysed, controls)
        return Stream(self, job, _require_retries(retries), sizes or ChunkSizes())

    @checked
    def speak_ahead(self, streams: Sequence[Stream]) -> None:
        """What the models run for the next chunks of several streams, in batches where these take less time.

        Each stream gets what it would have made itself. One whose utterance cannot be spoken stays as it is:
        its error is raised where its own chunk is asked for. Nobody reads these streams meanwhile.
        """
        speak_ahead(self, streams)

    @checked
    def choose_batch_size(self, batch_size: int | None) -> int:
        """Utterances at a time, where a call asks for so many, or leaves it open."""
        largest = self.acoustic.largest_batch
        batch_size = self.batch_size if batch_size is None else batch_size
        if batch_size is None:
            if not self.acoustic.batch_safe:  # padding changes its neighbours: only on request
                return 1
            return min(GPU_BATCH if self.vocoder.prefers_batches else BATCH_SIZE, largest)
        if not 1 <= batch_size <= largest:
            raise InputError(f"batch size must be from 1 to {largest}, not {batch_size}")
        return batch_size


def start_text_processes(frontend: FrontendSpec | None, count: int) -> TextProcesses | None:
    """So many, where there are any."""
    if count < 0:
        raise InputError(f"text_processes must be at least 0, not {count}")
    if not count or frontend is None:
        return None
    from melforge.common.text.processes import TextProcesses

    return TextProcesses(frontend.build, count)


def _require_text(text: object) -> None:
    if not isinstance(text, str | AnalysedText):
        raise InputError(f"a text must be a str, not {type(text).__name__}")


def _require_several(texts: Iterable[str | AnalysedText]) -> None:
    if isinstance(texts, str):
        raise InputError(f"texts must be several: give a list, or speak({shown(texts)})")


def _require_retries(retries: int) -> int:
    if retries < 0:
        raise InputError(f"retries must be at least 0, not {retries}")
    return retries

"""The server's parts, and a request's way through them: admitted, analysed, spoken."""

from __future__ import annotations

import asyncio
import functools
import hmac
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from melforge.common.audio.sound_files import USUAL_RATE
from melforge.common.audio.wire import WireEncoder, require_format
from melforge.common.errors import InputError
from melforge.common.runner import AnalysedText, ChunkSizes, Stream, TextToSpeech
from melforge.common.serve.allowance import LIMITED, Allowances
from melforge.common.serve.errors import RETRY_AFTER, ApiError, bad_request, overloaded
from melforge.common.serve.hearing import Transcriber
from melforge.common.serve.keys import Access, open_keys
from melforge.common.serve.metrics import Metrics, log, milliseconds, shared_folder
from melforge.common.serve.orders import Orders
from melforge.common.serve.pairs import Pair, Pairs
from melforge.common.serve.requests import MOST_SAID, SpeechFields, SpeechRequest, controls_of
from melforge.common.serve.scheduler import Batches, Cancelled, JobProgress, Scheduler, SpeechJob
from melforge.common.serve.settings import ServeSettings
from melforge.common.serve.texts import TextAnalyser
from melforge.common.serve.traces import tracing_by
from melforge.common.serve.usage import ASKING, Asking, Usage, Used
from melforge.common.speech import Controls

COMING_SECONDS = 0.1  # for which a request whose body is not read yet has a place in the queue
NOBODY = Counter[str]()
TAKING_SECONDS = 30.0  # for the event loop, which may be about to end
SLOW = 0.5  # times the usual speed: below it sentences' mels are so long that two take much memory
ENCODING_THREADS = 4  # in addition to the one thread that owns a GPU

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Speaking:
    """A text being spoken: `stream` has what is known of it so far, `job` its bytes."""

    wanted: SpeechFields
    stream: Stream
    job: SpeechJob

    @property
    def unspoken(self) -> int:
        """Symbols of the text that the frontend has no way to speak."""
        return len(self.stream.analysis.unspoken)


class Service:
    """Answers requests, in one event loop.

    One thread analyses texts, and another loads pairs. Where threads can share engines there
    is a worker for each core, which also encodes what it speaks, and one that only makes first sounds.
    """

    def __init__(self, settings: ServeSettings, pairs: Pairs, workers: int, access: Access) -> None:
        self.settings, self.pairs, self.keys = settings, pairs, open_keys(settings, access.keys)
        self._token_secret = access.token_secret
        self.usage = Usage(settings.usage) if settings.usage else None
        self.tracing = tracing_by()
        self.metrics = Metrics()
        self.draining = False
        self._reading = asyncio.Lock()
        self.running = 0  # requests, and texts of batches
        self._by_key: Counter[str] = Counter()
        self._coming: dict[object, str] = {}  # requests that may still be admitted, and their keys
        self._texts = TextAnalyser()
        self._loader = ThreadPoolExecutor(1, "load")
        self.hearing = Transcriber(settings, self.count)
        self._shared = pairs.options.shares_engines
        encoders = 0 if self._shared else ENCODING_THREADS
        self.orders: Orders | None = Orders(self.change_voice, self.state)
        self.fault: Exception | None = None  # why the first pair could not be loaded
        self.settled = asyncio.Event()  # the first pair is there, or cannot be
        self.last_step = float("-inf")
        largest = settings.texts_together(self._shared)
        batches = Batches(attrgetter("batch_key"), self._speak_ahead, largest)
        self.scheduler = Scheduler(
            workers,
            settings.ahead,
            encoders,
            on_step=self._note_step,
            batches=batches,
            starters=int(self._shared),
        )
        self.allowances = Allowances(lambda: self.scheduler.clock(), shared_folder())

    def token_secret(self, key: str) -> bytes | None:
        """What signs the short-lived tokens for a key of this name; None where there is none any more."""
        digest = b""
        if self.keys:
            found = self.keys.named(key)
            if found is None or found.has_expired:
                return None
            digest = found.digest
        return hmac.digest(self._token_secret, digest, "sha256")

    def note_state(self) -> None:
        """Updates the metrics that describe the current state."""
        self.metrics.queue.set(self.scheduler.waiting)
        self.metrics.models.set(len(self.pairs.loaded))
        self.metrics.unwritten.set(self.usage.unwritten if self.usage else 0)

    def _note_step(self, seconds: float) -> None:
        self.last_step = self.scheduler.clock()
        self.metrics.steps.observe(seconds)

    def _speak_ahead(self, streams: Sequence[Stream]) -> None:
        """Of one pair."""
        self.metrics.batches.observe(sum(not stream.ended for stream in streams))
        streams[0].tts.speak_ahead(streams)

    @contextmanager
    def admitted(self, key: str, asked: Sequence[Any], begun: bool = False) -> Iterator[None]:
        """Counts each thing that a caller asked for as running; 429 or 503 if there is no room for them.

        `begun`: they belong to what is under way, which is finished before the server stops.
        """
        texts = len(asked)
        if (asking := ASKING.get()) is not None:
            asking.leave_place()
        self._require_room(key, texts, begun)
        if self.keys:
            self._take_allowance(key, asked)
        self.running += texts
        self._by_key[key] += texts
        self.metrics.running.set(self.running)
        try:
            yield
        finally:
            self.running -= texts
            self._by_key[key] -= texts
            if not self._by_key[key]:
                del self._by_key[key]
            self.metrics.running.set(self.running)

    def hold_place(self, key: str) -> Callable[[], object]:
        """Holds a place in the queue for a request that comes, until the result is called, as it is admitted
        or has ended. One that comes slowly loses it.

        429 or 503 if there is none: of many who come together the last ones hear so at once.
        """
        self._require_room(key, 1, coming=Counter(self._coming.values()))
        self._coming[place := object()] = key
        leave = functools.partial(self._coming.pop, place, None)
        asyncio.get_running_loop().call_later(COMING_SECONDS, leave)
        return leave

    def _require_room(self, key: str, texts: int, begun: bool = False, coming: Counter[str] = NOBODY) -> None:
        """429 or 503 if so many more texts cannot be taken."""
        running, of_key = self.running + coming.total(), self._by_key[key] + coming[key]
        if self.draining and not begun:
            raise overloaded("the server is about to stop")
        if running + texts > self.settings.queue:
            raise overloaded(f"{running} requests are being spoken or wait: try again later")
        if self.keys and of_key + texts > self.settings.key_requests:
            message = f"this key has {of_key} requests under way, of {self.settings.key_requests}"
            raise ApiError(429, message, code="rate_limit_exceeded", headers=RETRY_AFTER)

    def _take_allowance(self, key: str, asked: Sequence[Any]) -> None:
        """429 if this caller has had its requests or characters of the minute."""
        characters = sum(len(one) for one in asked if isinstance(one, str))
        limits = self.limits_of(key)
        amounts = {"requests": len(asked), "characters": characters, "audio_seconds": 0.0}
        what, wait = self.allowances.take(key, limits, amounts)
        if wait:
            named = what.replace("audio_seconds", "seconds of audio")
            message = f"this key has had its {limits[what]:g} {named} of the minute"
            retry = {"Retry-After": str(math.ceil(wait))}
            raise ApiError(429, message, code="rate_limit_exceeded", headers=retry)

    def limits_of(self, key: str) -> dict[str, float]:
        """What a caller may have in a minute, by LIMITED, as far as that is limited."""
        own, settings = self.keys.named(key), self.settings
        most = {what: getattr(own, what, None) or getattr(settings, f"key_{what}_minute") for what in LIMITED}
        return {what: limit for what, limit in most.items() if limit is not None} if self.keys else {}

    def count(self, model: str, voice: str, used: Used) -> asyncio.Event:
        """Counts what the current task's request used; the event is set when that is written."""
        loop, written = asyncio.get_running_loop(), asyncio.Event()
        self._count(ASKING.get(), model, voice, used, lambda: loop.call_soon_threadsafe(written.set))
        return written

    def _count(
        self, asking: Asking | None, model: str, voice: str, used: Used, then: Callable[[], object]
    ) -> None:
        """Calls `then` when it is written, or not to be."""
        if asking is not None:
            limits = self.limits_of(asking.key)
            self.allowances.spend(asking.key, limits, "audio_seconds", used.audio_seconds)
        if asking is None or self.usage is None:
            then()
        else:
            self.usage.add(asking, model, voice, used, then)

    def _count_job(
        self,
        asking: Asking | None,
        pair: Pair,
        characters: int,
        progress: JobProgress,
        error: BaseException | None,
        then: Callable[[], object],
    ) -> None:
        cancelled = isinstance(error, Cancelled)
        failed = error is not None and not cancelled
        if failed:
            self.last_step = float("-inf")  # earlier speech proves nothing now
        used = Used(1, characters, progress.made, int(failed), int(cancelled))
        self._count(asking, pair.name, pair.voice, used, then)

    def conclude(self, spoken: Speaking, key: str) -> dict[str, Any]:
        """Ends the work on a caller's text and counts it; what the log says of it, not the text itself."""
        spoken.job.cancel()
        progress, wanted = spoken.job.progress, spoken.wanted
        self.metrics.spoken(progress, len(wanted.input), key)
        return {
            "model": wanted.model,
            "voice": wanted.voice_name,
            "format": wanted.response_format,
            "characters": len(wanted.input),
            "unspoken": spoken.unspoken,
            "audio_s": round(progress.made, 3),
            "queue_ms": milliseconds(progress.arrived, progress.started),
            "first_audio_ms": milliseconds(progress.arrived, progress.first_audio),
            "underruns": progress.underruns,
        }

    async def load_first(self) -> None:
        """Loads the pair that /ready checks; `fault` says why that is impossible."""
        begun = self.scheduler.clock()
        try:
            await self.load(self.pairs.first)
        except Exception as error:
            self.fault = error
            return
        finally:
            self.settled.set()
        self.last_step = self.scheduler.clock()  # loading spoke a few words
        log("ready", pair=self.pairs.first.name, seconds=round(self.last_step - begun, 3))

    async def unload_idle(self, seconds: float) -> None:
        await in_thread(self._loader, self.pairs.unload_idle, seconds)

    async def change_voice(self, voice: str, action: str) -> None:
        """Loads, unloads or reloads a voice; an InputError has changed nothing.

        The loading thread waits until the event loop has taken the new pairs, so that it loads nothing of the
        old ones meanwhile; requests find one or the other.
        """
        if action == "reload" and voice not in self.pairs.voices:
            raise InputError(
                f"voice {voice!r} is not loaded: {', '.join(self.pairs.voices)} can be read again"
            )
        if action == "load" and any(pair.voice == voice for pair in self.pairs.ready):
            return
        loop = asyncio.get_running_loop()

        async def take(other: Pairs) -> None:
            self.pairs.take(other)

        def work() -> None:
            make = self.pairs.without_voice if action == "unload" else self.pairs.with_voice
            asyncio.run_coroutine_threadsafe(take(make(voice)), loop).result(TAKING_SECONDS)

        await in_thread(self._loader, work)

    def state(self) -> dict[str, Any]:
        """What the process does and has, for administrators."""
        weights = round(self.pairs.memory_bytes / 1e6, 1)
        return {
            "draining": self.draining,
            "requests": self.running,
            "waiting": self.scheduler.waiting,
            "streams": self.scheduler.jobs,
            "recordings": self.hearing.running,
            "usage_unwritten": self.usage.unwritten if self.usage else 0,
            "memory_mb": {"weights": weights, "resident": resident_mb()},
            "voices": list(self.pairs.voices),
            "pairs": list(self.pairs.names),
            "loaded": self.pairs.loaded,
        }

    def is_admin(self, caller: str) -> bool:
        key = self.keys.named(caller)
        return key is not None and key.admin

    async def load(self, pair: Pair) -> TextToSpeech:
        if self.pairs.is_ready(pair):
            return self.pairs.get(pair)
        return await in_thread(self._loader, self.pairs.get, pair)

    async def most_together(self, wanted: SpeechFields) -> int:
        """How many such texts of one request are spoken at the same time: one a worker, or as many as this
        computes together where the models gain by that.
        """
        workers = self.scheduler.workers
        if self._shared and takes_much_memory(wanted):
            return 1
        with suppress(Exception):  # `speak` raises it too
            await self.read_words(wanted)
            tts = await self.load(self.require(wanted)[0])
            if tts.acoustic.prefers_batches or tts.vocoder.prefers_batches:
                return workers * self.settings.texts_together(self._shared)
        return workers

    async def read_words(self, wanted: SpeechFields) -> None:
        """Reads a request's lexicon, which `require` checks: of those that came together one in each round of
        the event loop, which many would hold.
        """
        if wanted.lexicon:
            async with self._reading:
                with suppress(InputError):
                    wanted.own_words  # noqa: B018 (it is read)
                await asyncio.sleep(0)

    def require(self, wanted: SpeechFields) -> tuple[Pair, Controls]:
        """The pair and the controls of a request; 400 says what of it is impossible, but for its text."""
        if len(wanted.input) > self.settings.max_characters:
            limit = f"{len(wanted.input)} characters, of {self.settings.max_characters} at most"
            raise bad_request(f"input: {limit}", ("input",), "string_above_max_length")
        try:
            pair = self.pairs.find(wanted.model, wanted.voice_name)
        except InputError as error:
            raise bad_request(str(error), ("model", "voice"), "model_not_found") from None
        try:
            wanted.own_words  # noqa: B018 (it is read)
        except InputError as error:
            raise ApiError(400, str(error), "lexicon", "invalid_value") from None
        controls = controls_of(wanted)
        if (speaker := self.pairs.speaker(pair, wanted.voice_name)) and "speaker" not in controls.asked():
            controls = replace(controls, speaker=speaker)
        try:
            self.pairs.require_controls(pair, controls)
        except InputError as error:
            message = str(error).replace("'pace'", "'speed'")
            raise bad_request(message, SpeechRequest.model_fields, "unsupported_value") from None
        try:
            require_format(wanted.response_format, wanted.sample_rate)
        except InputError as error:
            param = "sample_rate" if "Hz" in str(error) else "response_format"
            raise ApiError(400, str(error), param, "unsupported_value") from None
        return pair, controls

    async def analyse(self, tts: TextToSpeech, wanted: SpeechFields, controls: Controls) -> AnalysedText:
        """A request's text; 400 says what is wrong with it."""
        try:
            own_words = wanted.own_words and wanted.own_words.limited(MOST_SAID)
            return await self._texts.analyse(tts, wanted.text, own_words, controls.speaker)
        except InputError as error:
            name = "lexicon" if str(error).startswith("lexicon: ") else "input"
            message = str(error) if name == "lexicon" else f"input: {error}"
            raise ApiError(400, message, name, "invalid_value") from None

    async def speak(self, wanted: SpeechFields, arrived: float, whole: bool = False) -> Speaking:
        """Starts speaking; 400 says what of the request is impossible.

        `whole`: the listener hears nothing before the end, so the audio's own header can state its length.
        """
        try:
            await self.read_words(wanted)
            pair, controls = self.require(wanted)
            tts = await self.load(pair)
            text = await self.analyse(tts, wanted, controls)
        except Exception:
            self.count("", "", Used(requests=1, errors=1))
            raise
        encoder = WireEncoder(wanted.response_format, tts.sampling_rate, wanted.sample_rate, whole)
        # What waits for a slow reader has as many bytes at higher rates, and two chunks may wait.
        ahead = self.settings.ahead * min(1.0, USUAL_RATE / wanted.sample_rate)
        sizes = self.pairs.chunk_sizes(tts, ahead / 2)
        stream = make_stream(tts, text, controls, wanted, sizes)
        whole = whole or encoder.head_comes_last
        length = len(wanted.input)
        asking = ASKING.get()
        if asking is not None and (span := asking.span) is not None:
            span.step("text", text.seconds)
            stream.timings.watch = span.step
            encoder.write = span.timed("encode", encoder.write)  # type: ignore[method-assign]
        count = functools.partial(self._count_job, asking, pair, length)
        job = self.scheduler.submit(stream, encoder, tts.sampling_rate, arrived, length, ahead, whole, count)
        return Speaking(wanted, stream, job)

    def stop(self, seconds: float = 5.0) -> None:
        """Stops all work; waits up to `seconds` for the workers."""
        self.scheduler.stop()
        self.hearing.stop()
        self._texts.stop()
        self._loader.shutdown(wait=False, cancel_futures=True)
        self.scheduler.join(seconds)
        if self.usage is not None:
            self.usage.close(seconds)
        if self.tracing is not None:
            self.tracing.close(seconds)


def takes_much_memory(wanted: SpeechFields) -> bool:
    """Whether two such texts of one caller should not be spoken at the same time."""
    return wanted.speed < SLOW or wanted.sample_rate > USUAL_RATE


def make_stream(
    tts: TextToSpeech, text: AnalysedText, controls: Controls, wanted: SpeechFields, sizes: ChunkSizes | None
) -> Stream:
    stream = tts.stream(text, controls, wanted.retries, sizes)
    if wanted.alignment:
        stream.alignments = []
    return stream


async def in_thread(executor: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(executor, function, *arguments)


def resident_mb() -> float | None:
    """Memory of this process, where the system tells."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)

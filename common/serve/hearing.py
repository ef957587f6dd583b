"""Transcription in the server: one low-priority thread, whose ear is loaded at the first request."""

from __future__ import annotations

import asyncio
import ctypes
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import BinaryIO, TypeVar
from weakref import WeakSet

import numpy as np

from melforge.common.audio.sound_files import c_libraries_silenced, decode_blocks, resample_blocks
from melforge.common.errors import InputError, unknown
from melforge.common.recognition.loading import make_recogniser
from melforge.common.recognition.long_recordings import hear_blocks, transcript_of
from melforge.common.recognition.recogniser import Recogniser
from melforge.common.recognition.transcript import Transcript
from melforge.common.serve.errors import RETRY_AFTER, ApiError, bad_request, overloaded
from melforge.common.serve.incoming import recording_file
from melforge.common.serve.priority import be_patient
from melforge.common.serve.settings import ServeSettings
from melforge.common.serve.usage import Used
from melforge.common.weights.ears import list_ears, load_ear

# OpenAI's names of transcribing models, on which clients insist: all mean the ear.
OPENAI_EARS = (
    "whisper-1",
    "gpt-transcribe",
    "gpt-4o-transcribe",
    "gpt-4o-mini-transcribe",
    "gpt-live-transcribe",
    "gpt-realtime-whisper",
)
NO_EAR = (
    "this server has no ear (a recogniser): give it one with `melforge serve --ear FOLDER`; "
    "`melforge ear NAME --checkpoint FILE` makes one of a recogniser's weights (docs/recognition.md)"
)
LANGUAGES = {"en": "english"}  # as Whisper names them

T = TypeVar("T")


class Transcriber:
    """Transcribes recordings one at a time on the CPU; others wait, up to a limit."""

    def __init__(self, settings: ServeSettings, count: Callable[[str, str, Used], asyncio.Event]) -> None:
        self._settings, self._count = settings, count
        self.ear = load_ear(settings.ear) if settings.ear or list_ears() else None
        self.running = 0  # recordings, including those that wait
        self._coming = WeakSet[BinaryIO]()
        self._thread = ThreadPoolExecutor(1, "ear", initializer=be_patient)
        self._stopping = threading.Event()

    @property
    def names(self) -> tuple[str, ...]:
        """The models that a request may name."""
        return (self.ear.name, *OPENAI_EARS) if self.ear else ()

    @property
    def language(self) -> str:
        """Of the ear, as ISO 639-1 has it."""
        return (self.ear and self.ear.language) or "en"

    def require(self, model: str, language: str = "") -> None:
        """400 if there is no ear, none of this name, or none of this language (ISO 639-1; "": the ear's)."""
        if not self.ear:
            raise ApiError(400, NO_EAR, "model", "no_ear")
        if model not in self.names:
            raise bad_request(unknown("model", model, self.names), ("model",), "model_not_found")
        known = self.language
        asked = re.split("[-_]", language.strip().lower(), maxsplit=1)[0]  # of en-US: en
        if asked not in ("", known, LANGUAGES.get(known)):
            message = f"language: the ear hears {known}, not {asked[:50]!r}"
            raise ApiError(400, message, "language", "unsupported_value")

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Counts a recording as running; 429 if there is no room for it."""
        if self.running >= self._settings.recordings:
            message = f"{self.running} recordings are being transcribed or wait: try again later"
            raise ApiError(429, message, code="rate_limit_exceeded", headers=RETRY_AFTER)
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def coming_file(self) -> BinaryIO:
        """An empty file for a recording that comes in messages; see `require_space`."""
        file = recording_file()
        self._coming.add(file)
        return file

    def require_space(self, more: int) -> None:
        """429 if recordings that come have more bytes together than those that may wait."""
        most = self._settings.recordings * self._settings.recording_bytes
        if more + sum(file.tell() for file in self._coming if not file.closed) > most:
            message = f"the recordings that come have more than {most} bytes together: try again later"
            raise ApiError(429, message, code="rate_limit_exceeded", headers=RETRY_AFTER)

    async def transcribe(self, file: BinaryIO) -> Transcript:
        """The transcript of a sound file; 400 if it is not one. Cancelling this stops the work."""
        given_up = threading.Event()
        loop = asyncio.get_running_loop()
        used = Used(requests=1, errors=1)
        try:
            heard = await loop.run_in_executor(self._thread, self._transcribe, file, given_up)
            used = Used(requests=1, audio_seconds=heard.seconds)
            return heard
        except asyncio.CancelledError:
            used = Used(requests=1, cancelled=1)
            raise
        except InputError as error:
            raise ApiError(400, f"file: {error}", "file", "invalid_value") from None
        finally:
            given_up.set()
            written = self._count(self.ear.name if self.ear else "", "", used)
            if not (used.errors or used.cancelled):
                await written.wait()

    @cached_property
    def _recogniser(self) -> Recogniser:
        assert self.ear
        made = make_recogniser(self.ear.only, "onnx", "cpu", 1)
        made.language_model  # noqa: B018 (it is read)
        if give_back := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc's
            give_back(0)  # some 15 MB that loading took for a moment
        return made

    def _transcribe(self, file: BinaryIO, given_up: threading.Event) -> Transcript:
        """Reads the file twice: it is known to be sound before the work, and is never whole in memory."""

        def unless_stopped(item: T) -> T:
            if given_up.is_set() or self._stopping.is_set():
                raise overloaded("the server is about to stop")
            return item

        def decoded() -> Iterator[tuple[np.ndarray, int]]:
            file.seek(0)
            blocks = decode_blocks(file, self._settings.recording_seconds)
            while True:
                with c_libraries_silenced():
                    block = next(blocks, None)
                if block is None:
                    return
                yield unless_stopped(block)

        lengths, rates = zip(*((len(block), rate) for block, rate in decoded()), strict=True)
        rate, recogniser = rates[0], self._recogniser
        blocks = resample_blocks((block for block, _ in decoded()), rate, recogniser.sampling_rate)
        heard = map(unless_stopped, hear_blocks(recogniser, blocks))
        return transcript_of(recogniser, heard, sum(lengths) / rate)

    def stop(self) -> None:
        """Stops the work after the current piece of audio."""
        self._stopping.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

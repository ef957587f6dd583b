"""The thread that analyses texts, a sentence at a time: those that are short, or have waited long, first."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from melforge.common.runner import AnalysedText, TextToSpeech
from melforge.common.serve.priority import hurry, hurrying
from melforge.common.text import OwnWords

# Seconds for which a text lets others pass, for each of its characters: some hundred times what they take.
PATIENCE = 1e-3
BOOK = 1.0  # seconds: what is not due for so long does not go before those who speak
# Characters of a text that takes less time than its way into the thread and back.
AT_ONCE = 200

Analysing = tuple[float, int, Iterator[AnalysedText | None], "Future[AnalysedText]"]


class TextAnalyser:
    """Analyses the texts of many callers in one thread, which goes before those who speak, but for books.

    A short one in ASCII is analysed in the caller's thread while this one has nothing to do.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self._waiting: queue.PriorityQueue[Analysing] = queue.PriorityQueue()
        threading.Thread(target=self._work, name="text", daemon=True).start()

    async def analyse(
        self, tts: TextToSpeech, text: str, own_words: OwnWords | None = None, speaker: int | str = 0
    ) -> AnalysedText:
        """As `TextToSpeech.analyse`. Cancelling this stops the work behind the current sentence."""
        sentences = tts.analysing(text, own_words, speaker)
        # A caller's own patterns may take any time, and tables of other scripts are read when these come.
        short = len(text) <= AT_ONCE and text.isascii() and own_words is None
        if short and not self._waiting.unfinished_tasks:
            return next(filter(None, sentences))
        found: Future[AnalysedText] = Future()
        due = self._clock() + PATIENCE * len(text)
        self._waiting.put((due, next(self._numbers), sentences, found))
        return await asyncio.wrap_future(found)

    def stop(self) -> None:
        """Ends the thread behind the current sentence; what waits is never analysed."""
        ended: Future[AnalysedText] = Future()
        ended.set_result(AnalysedText(()))
        self._waiting.put((float("-inf"), -1, iter(()), ended))

    def _work(self) -> None:
        hurries = hurry(True)
        while True:
            waiting = self._waiting.get()
            due, number, _, _ = waiting
            if number < 0:
                return
            is_book = due - self._clock() > BOOK
            with hurrying(False, hurries and is_book):
                self._analyse_sentence(waiting)
            self._waiting.task_done()

    def _analyse_sentence(self, waiting: Analysing) -> None:
        _, _, sentences, found = waiting
        if found.cancelled():
            return
        try:
            analysed = next(sentences)
        except Exception as error:
            with suppress(InvalidStateError):  # it was cancelled meanwhile
                found.set_exception(error)
            return
        if analysed is None:
            self._waiting.put(waiting)
            return
        with suppress(InvalidStateError):
            found.set_result(analysed)

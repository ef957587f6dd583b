"""The streaming model that Triton's Python backend calls."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from melforge.common.serve.pairs import LoadOptions, Pairs
from melforge.common.serve.scheduler import Batches, Scheduler
from melforge.common.serve.settings import ServeSettings
from melforge.common.serve.texts import TextAnalyser
from melforge.common.stages.choose import KINDS
from melforge.common.triton import tensors
from melforge.common.triton.backend import Busy, Model, in_json

STREAMS = "melforge_streams"  # among Triton's metrics


class TextToChunks(Model):
    """Text to audio in chunks as they are made: a decoupled model that answers several requests in turn.

    The speech server's scheduler decides whose chunk is next.
    """

    def choose(self, parameters: Mapping[str, str], folder: Path) -> None:
        super().choose(parameters, folder)
        self.most_texts = int(parameters[tensors.QUEUE_SIZE])

    def initialize(self, args: dict[str, str]) -> None:
        super().initialize(args)
        self.running = 0  # requests; the loop's thread alone counts
        kind = self.triton.MetricFamily.GAUGE
        self.figures = self.triton.MetricFamily(STREAMS, "Texts that stream", kind)  # lives as long as these
        self.streams = self.figures.Metric(labels={"model": tensors.STREAM})

    def load(self) -> None:
        choice, models = self.choice, [self.sources[kind].model for kind in KINDS]
        how = LoadOptions(
            voice=choice.voice,
            checkpoints=choice.checkpoints,
            backend=choice.backend,
            device=self.device(*KINDS),
            threads=choice.threads,
            decoder=choice.decoder,
            deployments=choice.deployments,
            overrides=choice.overrides,
            warm_up=self.warms_up(*KINDS),
            lexicon=choice.lexicon,
        ).with_threads()
        together = ServeSettings().texts_together(how.shares_engines)
        self.pairs = Pairs(replace(how, streams=together), "-".join(models))
        self.tts = self.pairs.get(self.pairs.first)
        batches = Batches(attrgetter("batch_key"), self.tts.speak_ahead, together)
        self.scheduler = Scheduler(how.workers(), math.inf, batches=batches)
        self.analyser = TextAnalyser()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="answers", daemon=True).start()

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            asyncio.run_coroutine_threadsafe(self.answer(request), self.loop)

    async def answer(self, request: Any) -> None:
        sender = request.get_response_sender()
        final = self.triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        self.running += 1
        self.streams.set(self.running)
        try:
            if self.running > self.most_texts:
                raise Busy(f"busy: {self.most_texts} texts are spoken already; try again later")
            await self.speak(request, sender)
        except Exception as error:  # in the last answer: behind an error tritonserver 2.51 may crash
            sender.send(self.triton.InferenceResponse([], self.error(error)), flags=final)
        else:
            sender.send(flags=final)
        finally:
            self.running -= 1
            self.streams.set(self.running)

    async def speak(self, request: Any, sender: Any) -> None:
        controls, (text,) = self.controls(request), self.texts(request)
        analysed = await self.analyser.analyse(self.tts, text, speaker=controls.speaker)
        stream = self.tts.stream(analysed, controls, sizes=self.pairs.chunk_sizes(self.tts))
        job = self.scheduler.submit(stream, Samples(), self.tts.sampling_rate, length=len(text))
        first = [self.output(tensors.UNSPOKEN.name, np.array([in_json(analysed)], object))]
        async for data in job:
            if sender.is_cancelled():
                job.cancel()
                return
            audio = self.output(tensors.AUDIO.name, np.frombuffer(data, np.float32))
            sender.send(self.triton.InferenceResponse([audio, *first]))
            first = []

    def finalize(self) -> None:
        self.scheduler.stop()
        self.analyser.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)


class Samples:
    """The scheduler's encoder where chunks leave as float32."""

    content_type, head, head_comes_last = "", b"", False

    def write(self, samples: np.ndarray) -> bytes:
        return samples.tobytes()

    def close(self) -> bytes:
        return b""

    def discard(self) -> None:
        pass

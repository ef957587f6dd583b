"""Metrics for Prometheus, and what the log says: a line for each request, without its text."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from melforge.common.serve.scheduler import LOG, JobProgress

SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
BATCHES = (2, 3, 4, 8, 16, 32)
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # where prometheus_client keeps metrics of several processes
STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)


class Metrics:
    """The metrics of one server; with several processes, the page has their sums."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        how: dict[str, Any] = {"registry": self.registry, "namespace": "melforge"}
        self.requests = Counter("requests", "Answers by route and status", ("route", "status"), **how)
        now = {"multiprocess_mode": "livesum", **how}
        self.running = Gauge("requests_running", "Requests that have no whole answer yet", **now)
        self.queue = Gauge("requests_waiting", "Requests that no worker has begun with", **now)
        self.models = Gauge("models_loaded", "Models in memory", **now)
        self.first_audio = Histogram(
            "first_audio_seconds", "From arrival to the first bytes", buckets=SECONDS, **how
        )
        self.total = Histogram("request_seconds", "From arrival to the last bytes", buckets=SECONDS, **how)
        self.steps = Histogram("step_seconds", "A worker's step: a chunk of audio", buckets=STEPS, **how)
        self.batches = Histogram(
            "batch_size", "Texts whose next chunks were computed together", buckets=BATCHES, **how
        )
        self.audio = Counter("audio_seconds", "Audio made", **how)
        self.characters = Counter("characters", "Characters of the texts spoken", **how)
        self.underruns = Counter("underruns", "Chunks that came after their listener ran dry", **how)
        self.dry = Counter("underrun_seconds", "Time that listeners were without audio", **how)
        self.left = Counter("disconnects", "Listeners who left before the end", **how)
        self.heard = Counter("heard_seconds", "Audio transcribed", **how)
        self.hearing = Histogram(
            "transcription_seconds", "From a recording's arrival to its transcript", buckets=SECONDS, **how
        )
        self.key_requests = Counter("key_requests", "Answers by API key and status", ("key", "status"), **how)
        self.key_characters = Counter("key_characters", "Characters spoken, by API key", ("key",), **how)
        self.key_audio = Counter("key_audio_seconds", "Audio made, by API key", ("key",), **how)
        self.unwritten = Gauge("usage_unwritten", "Requests that are not in the table of usage yet", **now)
        self._folder = shared_folder()
        if not self._folder:
            ProcessCollector(registry=self.registry)

    def answered(self, route: str, status: str, key: str) -> None:
        """Counts an answer to a caller; "": there are no keys."""
        self.requests.labels(route, status).inc()
        if key:
            self.key_requests.labels(key, status).inc()

    def spoken(self, progress: JobProgress, characters: int, key: str) -> None:
        """Counts a text that was spoken, completely or not, for a caller; "": there are no keys."""
        if key:
            self.key_characters.labels(key).inc(characters)
            self.key_audio.labels(key).inc(progress.made)
        self.characters.inc(characters)
        if progress.first_audio is not None:
            self.first_audio.observe(progress.first_audio - progress.arrived)
        if progress.ended is not None:
            self.total.observe(progress.ended - progress.arrived)
        self.audio.inc(progress.made)
        self.underruns.inc(progress.underruns)
        self.dry.inc(progress.dry)

    def page(self) -> bytes:
        if not self._folder:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together, str(self._folder))
        return generate_latest(together)


def shared_folder() -> Path | None:
    """A folder for what the processes of a server share; None where there is one process."""
    return Path(folder) if (folder := os.environ.get(FOLDER_VARIABLE)) else None


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    LOG.log(level, event, extra={"fields": fields})


def milliseconds(since: float, until: float | None) -> float | None:
    return None if until is None else round((until - since) * 1e3, 1)

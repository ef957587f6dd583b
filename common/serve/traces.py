"""OpenTelemetry's traces: a span for each request, in it one for each step of its text. No text is in any.

They are sent by OTLP where OpenTelemetry's own variables say so (OTEL_EXPORTER_OTLP_ENDPOINT and others).
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from melforge.common.errors import install_advice
from melforge.common.files import version
from melforge.common.serve.metrics import log

T = TypeVar("T")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
# What the log says of a request, by the names of OpenTelemetry's conventions where these have one.
ATTRIBUTES = {
    "key": "enduser.id",
    "client": "client.address",
    "model": "gen_ai.request.model",
    "voice": "melforge.voice",
    "format": "melforge.format",
    "characters": "melforge.characters",
    "audio_s": "melforge.audio_seconds",
    "heard_s": "melforge.heard_seconds",
    "queue_ms": "melforge.queue_milliseconds",
    "first_audio_ms": "melforge.first_audio_milliseconds",
    "underruns": "melforge.underruns",
    "end": "melforge.end",
    "id": "melforge.request_id",
}


class Tracing:
    """Makes spans; `provider` is one of OpenTelemetry's SDK."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("melforge", version())
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, name: str, headers: Mapping[str, str], **attributes: Any) -> RequestSpan:
        """A request's span, of the trace that its `traceparent` names or a new one."""
        from opentelemetry.trace import SpanKind

        context = self._propagator.extract(headers)
        known = {key: value for key, value in attributes.items() if value is not None}
        span = self._tracer.start_span(name, context, SpanKind.SERVER, known)
        return RequestSpan(self._tracer, span)

    def close(self, seconds: float) -> None:
        """Sends what waits, for so long at most."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(seconds)


class RequestSpan:
    """A request's span, which may be used from several threads."""

    def __init__(self, tracer: Any, span: Any) -> None:
        from opentelemetry.trace import set_span_in_context

        self._tracer, self._span = tracer, span
        self._context = set_span_in_context(span)

    @property
    def trace_id(self) -> str:
        return format(self._span.get_span_context().trace_id, "032x")

    def step(self, name: str, seconds: float) -> None:
        """Something that has taken so long and ends now."""
        if not self._span.is_recording():  # its trace is not to be sent
            return
        ended = time.time_ns()
        started = ended - round(seconds * 1e9)
        self._tracer.start_span(name, self._context, start_time=started).end(ended)

    def timed(self, name: str, work: Callable[[T], bytes]) -> Callable[[T], bytes]:
        """The same work, each time a step."""

        def timed(given: T) -> bytes:
            begun = time.perf_counter()
            done = work(given)
            self.step(name, time.perf_counter() - begun)
            return done

        return timed

    def end(self, name: str, record: Mapping[str, Any], failed: str = "", **attributes: Any) -> None:
        """`record` is the request's entry in the log, `failed` the kind of the server's fault."""
        from opentelemetry.trace import StatusCode

        found = {ATTRIBUTES[name]: value for name, value in record.items() if name in ATTRIBUTES}
        self._span.update_name(name)
        for key, value in {**found, **attributes}.items():
            if value is not None:
                self._span.set_attribute(key, value)
        if failed:
            self._span.set_attribute("error.type", failed)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


def trace_of(headers: Mapping[bytes, bytes]) -> str:
    """The id of the trace that a `traceparent` names; "" without one (W3C's Trace Context)."""
    found = TRACEPARENT.fullmatch(headers.get(b"traceparent", b"").decode("latin-1"))
    return found[1] if found else ""


def tracing_by(environment: Mapping[str, str] = os.environ) -> Tracing | None:
    """What OpenTelemetry's variables ask for; None where they ask for no traces, or its SDK is not there."""
    exporter = environment.get(
        "OTEL_TRACES_EXPORTER", "otlp" if any(map(environment.get, ENDPOINTS)) else "none"
    )
    if exporter != "otlp" or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    protocol = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
    kind = "grpc" if protocol == "grpc" else "http"
    try:
        sdk, export = map(
            importlib.import_module, ("opentelemetry.sdk.trace", "opentelemetry.sdk.trace.export")
        )
        resources = importlib.import_module("opentelemetry.sdk.resources")
        otlp = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{kind}.trace_exporter")
    except ImportError as error:
        advice = install_advice("opentelemetry", "sending traces")
        log("traces are not sent", logging.WARNING, error=str(error), advice=advice)
        return None
    resource = resources.Resource.create()
    if resource.attributes["service.name"].startswith("unknown_service"):
        resource = resource.merge(resources.Resource({"service.name": "melforge"}))
    provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    return Tracing(provider)

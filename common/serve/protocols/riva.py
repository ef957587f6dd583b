"""The server of NVIDIA Riva's gRPC services and of gRPC's health check, behind the same scheduler as HTTP.

Their messages are those of NVIDIA's own package, nvidia-riva-client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from socket import socket
from typing import Any

import grpc
import grpc.aio

from melforge.common.serve.errors import ApiError
from melforge.common.serve.health import Probe
from melforge.common.serve.protocols.riva_calls import HEALTH, MOST_BYTES, RivaCall, Work, answer_call
from melforge.common.serve.protocols.riva_door import INSIDE, MOST_STREAMS, Door, opened_door
from melforge.common.serve.protocols.riva_hearing import RivaHearing
from melforge.common.serve.protocols.riva_speech import RivaSpeech
from melforge.common.serve.service import Service

HEALTH_CHECKS = "grpc.health.v1.Health"
SPEECH, HEARING = "nvidia.riva.tts.RivaSpeechSynthesis", "nvidia.riva.asr.RivaSpeechRecognition"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3  # the last is not in NVIDIA's enumeration
WATCH_SECONDS = 1.0
KEEPALIVE_SECONDS, KEEPALIVE_TIMEOUT = 60, 20  # after which who does not answer has gone
IDLE_SECONDS = 600  # for which a connection is kept without a call
CLOSING_SECONDS = 2  # for calls to end after the last answer
ROOM = 1 << 16  # bytes of a message beside its recording


@asynccontextmanager
async def riva_server(service: Service, listening: socket) -> AsyncIterator[None]:
    """Answers those who come by the socket; at the end calls have a moment to end."""
    settings = service.settings
    options = {
        "grpc.max_receive_message_length": ROOM
        + max(settings.body_bytes, min(settings.recording_bytes, MOST_BYTES)),
        "grpc.max_send_message_length": -1,  # `RivaSpeech` has a limit
        "grpc.compression_enabled_algorithms_bitset": 1,  # none: a small message would be a large one
        "grpc.http2.bdp_probe": 0,  # it would let each call send megabytes ahead, those too that are refused
        "grpc.max_concurrent_streams": MOST_STREAMS,
        "grpc.max_connection_idle_ms": IDLE_SECONDS * 1000,
        "grpc.keepalive_time_ms": KEEPALIVE_SECONDS * 1000,
        "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT * 1000,
    }
    server = grpc.aio.server(options=tuple(options.items()))
    inside = server.add_insecure_port(f"{INSIDE}:0")
    async with opened_door(listening, inside, settings) as door:
        server.add_generic_rpc_handlers(handlers(service, door))
        await server.start()
        try:
            yield
        finally:
            await server.stop(CLOSING_SECONDS)


def handlers(service: Service, door: Door) -> list[grpc.GenericRpcHandler]:
    speech, hearing, health = RivaSpeech(service), RivaHearing(service), HealthChecks(service)
    services: dict[str, dict[str, Work]] = {
        SPEECH: {
            "Synthesize": speech.synthesize,
            "SynthesizeOnline": speech.synthesize_online,
            "GetRivaSynthesisConfig": speech.get_riva_synthesis_config,
        },
        HEARING: {
            "Recognize": hearing.recognize,
            "StreamingRecognize": hearing.streaming_recognize,
            "GetRivaSpeechRecognitionConfig": hearing.get_riva_speech_recognition_config,
        },
        HEALTH_CHECKS: {"Check": health.check, "Watch": health.watch},
    }
    health.known = frozenset(("", *services))
    found = []
    for name, methods in services.items():
        # For the wire a method of one message is one of several, whose first is read when there is room.
        answering = {
            method: grpc.stream_stream_rpc_method_handler(
                partial(answer_call, service, door, f"/{name}/{method}", work, name != HEALTH_CHECKS)
            )
            for method, work in methods.items()
        }
        found.append(grpc.method_handlers_generic_handler(name, answering))
    return found


class HealthChecks:
    """gRPC's health service, by the same probe as /ready."""

    def __init__(self, service: Service) -> None:
        self.service, self.probe = service, Probe(service)
        self.known: frozenset[str] = frozenset()  # services

    async def check(self, call: RivaCall) -> AsyncGenerator[bytes, None]:
        request: Any = await call.message(HEALTH.HealthCheckRequest)
        if request.service not in self.known:
            raise ApiError(404, f"service: there is no {request.service[:100]!r}", "service")
        yield await self._answer(request.service)

    async def watch(self, call: RivaCall) -> AsyncGenerator[bytes, None]:
        """Whenever it changes, up to the server's end."""
        request: Any = await call.message(HEALTH.HealthCheckRequest)
        told = b""
        while True:
            draining = self.service.draining
            if (answer := await self._answer(request.service)) != told:
                yield answer
                told = answer
            if draining:
                return
            await asyncio.sleep(WATCH_SECONDS)

    async def _answer(self, name: str) -> bytes:
        if name not in self.known:
            status = SERVICE_UNKNOWN
        else:
            status = NOT_SERVING if await self.probe.fault() else SERVING
        return HEALTH.HealthCheckResponse(status=status).SerializeToString()

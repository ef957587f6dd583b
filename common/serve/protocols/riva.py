"""The server of NVIDIA Riva's gRPC services and of gRPC's health check, behind the same scheduler as HTTP.

Their messages are those of NVIDIA's own package, nvidia-riva-client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from melforge.common.serve.connections import most_connections
from melforge.common.serve.errors import ApiError
from melforge.common.serve.health import Probe
from melforge.common.serve.protocols.riva_calls import HEALTH, MOST_BYTES, RivaCall, Work, answer_call
from melforge.common.serve.protocols.riva_hearing import RivaHearing
from melforge.common.serve.protocols.riva_speech import RivaSpeech
from melforge.common.serve.service import Service

HEALTH_CHECKS = "grpc.health.v1.Health"
SPEECH, HEARING = "nvidia.riva.tts.RivaSpeechSynthesis", "nvidia.riva.asr.RivaSpeechRecognition"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3  # the last is not in NVIDIA's enumeration
WATCH_SECONDS = 1.0
KEEPALIVE_SECONDS, KEEPALIVE_TIMEOUT = 60, 20  # after which who does not answer has gone
IDLE_SECONDS = 600  # for which a connection is kept without a call
ROOM = 1 << 16  # bytes of a message beside its recording


async def start_riva(service: Service, host: str, port: int) -> tuple[grpc.aio.Server, int]:
    """A server that listens, and its port; an OSError where that is impossible."""
    settings = service.settings
    options = {
        "grpc.so_reuseport": int(settings.processes > 1),
        "grpc.max_receive_message_length": ROOM
        + max(settings.body_bytes, min(settings.recording_bytes, MOST_BYTES)),
        "grpc.http2.bdp_probe": 0,  # it would let each call send megabytes ahead, those too that are refused
        "grpc.compression_enabled_algorithms_bitset": 1,  # none: a small message would be a large one
        "grpc.max_send_message_length": -1,  # `RivaSpeech` has a limit
        "grpc.max_allowed_incoming_connections": most_connections(settings),
        "grpc.max_connection_idle_ms": IDLE_SECONDS * 1000,
        "grpc.keepalive_time_ms": KEEPALIVE_SECONDS * 1000,
        "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT * 1000,
    }
    server = grpc.aio.server(options=tuple(options.items()))
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
    for name, methods in services.items():
        # For the wire a method of one message is one of several, whose first is read when there is room.
        handlers = {
            method: grpc.stream_stream_rpc_method_handler(
                partial(answer_call, service, f"/{name}/{method}", work, name != HEALTH_CHECKS)
            )
            for method, work in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    address = f"{f'[{host}]' if ':' in host else host}:{port}"
    try:
        if settings.certificate and settings.certificate_key:
            pair = Path(settings.certificate_key).read_bytes(), Path(settings.certificate).read_bytes()
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            port = server.add_insecure_port(address)
    except RuntimeError:
        raise OSError(f"cannot listen at {host} port {port}: another program may have it") from None
    await server.start()
    return server, port


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

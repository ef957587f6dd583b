"""gRPC's calls, with what every request has here: its id and key, metrics, a line in the log, errors."""

from __future__ import annotations

import asyncio
import logging
import os
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its lines are none of the log's

import grpc
from google.protobuf.message import DecodeError, Message
from riva.client.proto import health_pb2, riva_asr_pb2, riva_audio_pb2, riva_tts_pb2

from melforge.common.serve.answer import answer_for
from melforge.common.serve.errors import LONGEST_MESSAGE, ApiError
from melforge.common.serve.gate import request_id
from melforge.common.serve.metrics import log, milliseconds
from melforge.common.serve.requests import ignored_header
from melforge.common.serve.service import Service
from melforge.common.serve.usage import ASKING, Asking

M = TypeVar("M", bound=Message)
# The messages of NVIDIA's own package, whose classes protobuf makes when these modules are imported.
TTS: Any = riva_tts_pb2
ASR: Any = riva_asr_pb2
HEALTH: Any = health_pb2
ENCODINGS: Any = riva_audio_pb2.AudioEncoding  # type: ignore[attr-defined]

WITH_SOUND = (ASR.RecognizeRequest, ASR.StreamingRecognizeRequest)

CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
NAMED_CODES = {  # which say more than the status
    "model_not_found": grpc.StatusCode.NOT_FOUND,
    "no_ear": grpc.StatusCode.UNIMPLEMENTED,
    "timeout": grpc.StatusCode.DEADLINE_EXCEEDED,
}
LARGE = 1 << 17  # bytes of a message that a thread reads or writes
MOST_BYTES = 11 << 20  # of sound in a message, which is in memory three times when it has come
OWN_NAMES = {
    "input": "text",
    "voice": "voice_name",
    "sample_rate": "sample_rate_hz",
    "file": "audio",
}  # Riva's by OpenAI's


def encoding_of(number: int) -> str:
    """The name of an AudioEncoding, or the number where it has none."""
    return ENCODINGS.Name(number) if number in ENCODINGS.values() else str(number)


class RivaCall:
    """One call: its messages, its caller, and its entry in the log."""

    def __init__(self, service: Service, messages: AsyncIterable[bytes], context: Any) -> None:
        self.service, self.context, self._messages = service, context, messages
        self.arrived = service.scheduler.clock()
        self.metadata = {key: str(value) for key, value in context.invocation_metadata() or ()}
        name = request_id(self.metadata.get("x-request-id", "").encode())
        peer = urllib.parse.unquote(context.peer())  # ipv4:127.0.0.1:1 or ipv6:[::1]:1
        client = peer.partition(":")[2].rpartition(":")[0].strip("[]")
        self.record: dict[str, Any] = {"id": name.decode(), "method": "GRPC", "client": client}
        self.authorization = self.metadata.get("authorization", "").encode()
        self.key = ""
        self.ignored: set[str] = set()  # fields without effect

    async def messages(self, kind: type[M]) -> AsyncGenerator[M, None]:
        """What the caller sends; 400 for what is no message of this kind."""
        parse: Any = kind.FromString
        received: Any = aiter(self._messages)
        async with aclosing(received):  # which holds its last message
            async for data in received:
                if kind not in WITH_SOUND and len(data) > (most := self.service.settings.body_bytes):
                    raise ApiError(413, f"the message has more than {most} bytes", code="request_too_large")
                try:
                    message = parse(data) if len(data) < LARGE else await asyncio.to_thread(parse, data)
                except DecodeError:
                    wrong = f"this is no {kind.DESCRIPTOR.full_name}"
                    raise ApiError(400, wrong, code="invalid_value") from None
                del data
                yield message

    async def message(self, kind: type[M]) -> M:
        """The message of a call that has one."""
        async with aclosing(self.messages(kind)) as messages:
            async for found in messages:
                return found
        raise ApiError(400, f"a {kind.DESCRIPTOR.full_name} is missing", code="missing")

    @property
    def trailer(self) -> tuple[tuple[str, str], ...]:
        ignored = (("x-melforge-ignored", ignored_header(sorted(self.ignored))),) if self.ignored else ()
        return (("x-request-id", self.record["id"]), *ignored)


Work = Callable[[RivaCall], AsyncGenerator[bytes, None]]  # a call's answers


async def answer_call(
    service: Service, route: str, work: Work, guarded: bool, messages: AsyncIterable[bytes], context: Any
) -> None:
    """Sends what the work gives, and what it raises as gRPC's code. It ends with a call that is cancelled.

    `guarded`: the call needs a key where there are keys, has a line in the log, and ends in time.
    """
    call, code, span = RivaCall(service, messages, context), grpc.StatusCode.CANCELLED, None
    try:
        if guarded:
            call.key = service.keys.caller(call.authorization)
            if service.tracing is not None:
                kind, _, method = route.strip("/").partition("/")
                about = {"rpc.system": "grpc", "rpc.service": kind, "rpc.method": method}
                span = service.tracing.begin(route.strip("/"), call.metadata, **about)
                call.record["trace_id"] = span.trace_id
            ASKING.set(Asking(call.key, "riva", span))
            call.record |= {"key": call.key} if call.key else {}
        async with (
            asyncio.timeout(service.settings.seconds if guarded else None),
            aclosing(work(call)) as answers,
        ):
            async for answer in answers:
                await context.write(answer)
        code = grpc.StatusCode.OK
        call.record["end"] = "whole"
        context.set_trailing_metadata(call.trailer)
    except (asyncio.CancelledError, grpc.aio.InternalError) as error:  # the latter: a write found it ended
        if (left := context.time_remaining()) is not None and left <= 0:
            code = grpc.StatusCode.DEADLINE_EXCEEDED
        call.record["end"] = "disconnect"
        if guarded:
            service.metrics.left.inc()
        if isinstance(error, asyncio.CancelledError):
            raise
    except Exception as error:
        call.record["end"] = type(error).__name__
        if isinstance(error, TimeoutError):
            late = f"not answered within {service.settings.seconds:g} seconds"
            error = ApiError(503, late, code="timeout")
        fault = answer_for(error, call.record)
        code = NAMED_CODES.get(fault.code or "") or CODES.get(fault.status, grpc.StatusCode.INTERNAL)
        if fault.status == 401:
            log("audit", logging.WARNING, **call.record, refused=str(fault))
        own = OWN_NAMES.get(fault.param or "", "")
        message = str(fault).replace(f"{fault.param}: ", f"{own}: ", 1) if own else str(fault)
        headers = tuple((name.lower(), value) for name, value in fault.headers.items())
        with suppress(grpc.aio.InternalError):  # the call was over already
            await context.abort(code, message[:LONGEST_MESSAGE], (*call.trailer, *headers))
    finally:
        service.metrics.answered(route, code.name, call.key)
        if guarded:
            total = milliseconds(call.arrived, service.scheduler.clock())
            log("request", **call.record, route=route, status=code.name, total_ms=total)
        if span is not None:
            failed = code.name if code is grpc.StatusCode.INTERNAL else ""
            span.end(route.strip("/"), call.record, failed, **{"rpc.grpc.status_code": code.value[0]})

"""What every request passes: its id, the check of its API key, metrics and its line in the log."""

from __future__ import annotations

import hmac
import os
import re
from typing import Any

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from melforge.common.serve.errors import ApiError
from melforge.common.serve.incoming import Left
from melforge.common.serve.metrics import log, milliseconds
from melforge.common.serve.scheduler import LOG
from melforge.common.serve.service import Service

ID = re.compile(rb"[\w.-]{1,64}")
GUARDED = ("/v1/", "/metrics")
QUIET = ("/health", "/ready", "/metrics")  # asked every few seconds: no line in the log
LEFT = 499  # nginx's status for a client that left before the answer
SWITCHED, POLICY = 101, 1008  # a WebSocket's status, and its close code if it is not allowed
FAULT = ApiError(500, "this is a fault of the server", code="internal_error")
STARTS = ("http.response.start", "websocket.accept", "websocket.http.response.start")  # of an answer
RECORD, CALLER = "melforge.record", "melforge.caller"


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, service: Service):
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        arrived = self.service.scheduler.clock()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        name = given if ID.fullmatch(given) else os.urandom(8).hex().encode()
        record: dict[str, Any] = {"id": name.decode(), "method": scope.get("method", "WEBSOCKET")}
        scope[RECORD] = record
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] in STARTS:
                status = message.get("status", SWITCHED)
                message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", name)]}
            await send(message)

        try:
            scope[CALLER] = self._caller(scope["path"], headers.get(b"authorization", b""))
            await self.app(scope, receive, sending)
        except Left:
            record["end"] = "disconnect"
            self.service.metrics.left.inc()
        except Exception as error:
            answer = error if isinstance(error, ApiError) else FAULT
            if answer is FAULT:
                LOG.error("fault", exc_info=error, extra={"fields": {"id": record["id"]}})
            if not status:
                await answer.response(scope, receive, sending)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": POLICY})
        finally:
            route = getattr(scope.get("route"), "path", "other")
            status = status or LEFT
            self.service.metrics.requests.labels(route, str(status)).inc()
            if route not in QUIET:
                total = milliseconds(arrived, self.service.scheduler.clock())
                log("request", **record, route=route, status=status, total_ms=total)

    def _caller(self, path: str, authorization: bytes) -> str:
        """The caller, by the number of its API key; 401 if keys are needed and this one is none of them."""
        keys = self.service.keys
        if not keys or not path.startswith(GUARDED):
            return ""
        scheme, _, given = authorization.partition(b" ")
        # All keys are compared, so that the time does not tell which one matches.
        fitting = [number for number, key in enumerate(keys) if hmac.compare_digest(key, given.strip())]
        if scheme.lower() != b"bearer" or not fitting:
            message = "a valid API key is needed: Authorization: Bearer KEY"
            raise ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        return str(fitting[0])


def record_of(request: Request) -> dict[str, Any]:
    """The request's entry in the log, to which handlers add."""
    return request.scope[RECORD]


def caller_of(request: Request) -> str:
    return request.scope[CALLER]

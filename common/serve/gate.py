"""What every request passes: its id, the checks of where it comes from and of its API key, metrics and its
line in the log.

Any page that a browser shows can send requests to this machine. Host, Origin and the body's type (`incoming`)
are checked as OWASP's sheets on cross-site request forgery, on WebSockets and on DNS rebinding have it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.utils import ClientDisconnected

from melforge.common.serve.errors import ApiError
from melforge.common.serve.incoming import Left
from melforge.common.serve.keys import refused
from melforge.common.serve.metrics import log, milliseconds
from melforge.common.serve.scheduler import LOG
from melforge.common.serve.service import Service
from melforge.common.serve.settings import LOOPBACK, ServeSettings, listed
from melforge.common.serve.tokens import PREFIX, Token, read_token
from melforge.common.serve.traces import RequestSpan, trace_of
from melforge.common.serve.usage import ASKING, Asking

ID = re.compile(rb"[\w.-]{1,64}")
GUARDED = ("/v1/", "/metrics")
PROBES = ("/health", "/ready", "/v1/health/live", "/v1/health/ready")  # which have no keys
QUIET = (*PROBES, "/metrics")  # asked every few seconds: no line in the log
# Whose POST is admitted by `Service.admitted`. In a flood each refusal waits for those before it.
ADMITTED = frozenset(
    f"/v1/audio/{name}"
    for name in (
        "speech",
        "speech/batch",
        "phonemize",
        "transcriptions",
        "translations",
        "synthesize",
        "synthesize_online",
    )
)
LEFT = 499  # nginx's status for a client that left before the answer
SWITCHED, POLICY = 101, 1008  # a WebSocket's status, and its close code if it is not allowed
FAULT = ApiError(500, "this is a fault of the server", code="internal_error")
STARTS = ("http.response.start", "websocket.accept", "websocket.http.response.start")  # of an answer
RECORD, CALLER, TOKEN = "melforge.record", "melforge.caller", "melforge.token"
KEY_PROTOCOL = "openai-insecure-api-key."  # of a WebSocket: a browser's only place for a key or a token
FOR_TOKENS = re.compile(r"/v1/(?:audio/.*|realtime)")  # not the route that makes them
ENDED = (
    "this token does not hold, or no longer: its time or its key has ended, or the server was started again; "
    "POST /v1/realtime/client_secrets makes another one"
)
TURNS = 8  # requests that begin, but for probes, or are left in one round of the event loop
REFUSALS = 32  # those that find no room, of which each takes little
HOST = re.compile(r"(?:\[([^\]]*)\]|([^:]*))(?::\d*)?")  # a name or an address, and the port
SAFE = ("GET", "HEAD", "OPTIONS")  # methods that pages of other sites may use: they cannot read the answers


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, service: Service):
        self.app, self.service = app, service
        self._hosts = known_hosts(service.settings, bool(service.keys))
        self._origins = frozenset(origin.rstrip("/") for origin in listed(service.settings.origins))
        self._turns, self._refusals = asyncio.Semaphore(TURNS), asyncio.Semaphore(REFUSALS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        scope = with_origin_form(scope)
        arrived = self.service.scheduler.clock()
        headers = dict(scope["headers"])
        name = request_id(headers.get(b"x-request-id", b""))
        record: dict[str, Any] = {"id": name.decode(), "method": scope.get("method", "WEBSOCKET")}
        if client := scope.get("client"):
            record["client"] = client[0]
        scope[RECORD] = record
        asks_for_room = scope.get("method") == "POST" and scope["path"] in ADMITTED
        is_probe = scope["path"] in PROBES
        status, span, asking = 0, None, None
        turns = self._refusals  # until nothing more can be refused here

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] in STARTS:
                status = message.get("status", SWITCHED)
                more = [(b"x-request-id", name), *self._limits(scope.get(CALLER))]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect":
                await self._turn(self._turns)
            return message

        try:
            require_one_length(headers)
            require_known_site(scope, headers, self._hosts, self._origins)
            guarded = scope["path"].startswith(GUARDED) and not is_probe
            authorization = headers.get(b"authorization") or bearer_of(scope)
            if token := token_of(self.service, scope["path"], authorization):
                scope[TOKEN], scope[CALLER] = token, token.key
            else:
                scope[CALLER] = self.service.keys.caller(authorization) if guarded else ""
            record |= {"key": scope[CALLER]} if scope[CALLER] else {}
            if guarded:
                span = self._begin_span(scope, headers)
                if trace := span.trace_id if span else trace_of(headers):
                    record["trace_id"] = trace
                leave = self.service.hold_place(scope[CALLER]) if asks_for_room else None
                asking = Asking(scope[CALLER], scope["path"].rpartition("/")[2], span, leave)
            ASKING.set(asking)
            turns = self._turns
            if not is_probe:
                await self._turn(turns)
            await self.app(scope, receiving, sending)
        except (Left, ClientDisconnected) as left:
            record["end"] = "disconnect"
            self.service.metrics.left.inc()
            if isinstance(left, ClientDisconnected):
                raise  # uvicorn waits for it where a socket has not been accepted
        except Exception as error:
            if turns is self._refusals and not is_probe:
                await self._turn(turns)
            answer = error if isinstance(error, ApiError) else FAULT
            if answer.status == 401:
                log("audit", logging.WARNING, **record, refused=str(answer))
            if answer is FAULT:
                LOG.error("fault", exc_info=error, extra={"fields": {"id": record["id"]}})
            if not status:
                await answer.response(scope, receive, sending)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": POLICY})
        finally:
            if asking is not None:
                asking.leave_place()
            route = getattr(
                scope.get("route"), "path", scope["path"] if scope["path"] in ADMITTED else "other"
            )
            status = status or LEFT
            self.service.metrics.answered(route, str(status), scope.get(CALLER, ""))
            if route not in QUIET:
                total = milliseconds(arrived, self.service.scheduler.clock())
                log("request", **record, route=route, status=status, total_ms=total)
            if span is not None:
                failed = str(status) if status >= 500 else ""
                span.end(
                    f"{record['method']} {route}",
                    record,
                    failed,
                    **{"http.route": route, "http.response.status_code": status},
                )

    async def _turn(self, turns: asyncio.Semaphore) -> None:
        """Waits while others begin or leave, who came together and would hold the loop in one round of it."""
        await turns.acquire()
        asyncio.get_running_loop().call_soon(turns.release)

    def _begin_span(self, scope: Scope, headers: Mapping[bytes, bytes]) -> RequestSpan | None:
        """By OpenTelemetry's conventions for HTTP servers."""
        if self.service.tracing is None:
            return None
        method, path = scope.get("method", "GET"), scope["path"]
        about = {
            "http.request.method": method,
            "url.path": path,
            "url.scheme": scope.get("scheme"),
            "network.protocol.version": scope.get("http_version"),
        }
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        return self.service.tracing.begin(f"{method} {path}", given, **about)

    def _limits(self, caller: str | None) -> list[tuple[bytes, bytes]]:
        """Headers about what a caller has left of the minute."""
        service = self.service
        return service.allowances.headers(caller, service.limits_of(caller)) if caller else []


def with_origin_form(scope: Scope) -> Scope:
    """A request whose target is a whole address, as clients of a proxy send it, as one for the path alone.
    Its host counts then and not the header's (RFC 9112, 3.2.2).
    """
    before, mark, address = scope.get("raw_path", b"").partition(b"://")
    if not mark or before.lower() not in (b"http", b"https"):
        return scope
    host, _, path = address.partition(b"/")
    headers = [(name, host if name == b"host" else value) for name, value in scope["headers"]]
    path = b"/" + path
    return {**scope, "raw_path": path, "path": unquote(path), "headers": headers}


def request_id(given: bytes) -> bytes:
    """The one that a client gives, if it is one."""
    return given if ID.fullmatch(given) else os.urandom(8).hex().encode()


def token_of(service: Service, path: str, authorization: bytes) -> Token | None:
    """What a short-lived token says, which stands for a key where speech is made and heard; None where there
    is none, 401 where it does not hold.
    """
    scheme, _, given = authorization.partition(b" ")
    given = given.strip()
    if scheme.lower() != b"bearer" or not given.startswith(PREFIX.encode()) or not FOR_TOKENS.fullmatch(path):
        return None
    token = read_token(given.decode("latin-1"), service.token_secret)
    if token is None and service.keys.find(given) is None:
        raise refused(ENDED)
    return token


def bearer_of(scope: Scope) -> bytes:
    """A key that a browser offers as a WebSocket's subprotocol, as if it were in the header."""
    offered = (one for one in scope.get("subprotocols", ()) if one.startswith(KEY_PROTOCOL))
    return b"Bearer " + next(offered, "").removeprefix(KEY_PROTOCOL).encode()


def require_known_site(
    scope: Scope, headers: Mapping[bytes, bytes], hosts: frozenset[str] | None, origins: frozenset[str]
) -> None:
    """421 for a name that is not this machine's, 403 for what a page of another site sends.

    No page can have the address itself for its own name, and by that a cluster's probes ask.
    """
    host = headers.get(b"host", b"").decode("latin-1").lower()
    address = (one.removeprefix("::ffff:") for one in (scope.get("server") or ())[:1])
    if host and hosts is not None and host_name(host) not in {*hosts, *address}:
        message = f"this server is not {host[:100]!r}: start it with --hosts and that name if it is"
        raise ApiError(421, message, code="host_not_allowed")
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    own = headers.get(b"sec-fetch-site") == b"same-origin" or origin.partition("://")[2] == host
    if not origin or own or scope.get("method") in SAFE or origins & {origin, "*"}:
        return
    message = f"pages of {origin[:100]!r} may not use this server: start it with --origins and that address"
    raise ApiError(403, message, code="origin_not_allowed")


def known_hosts(settings: ServeSettings, with_keys: bool) -> frozenset[str] | None:
    """The names that requests may be sent to; None for all.

    A page that has its own name resolved to this machine (DNS rebinding) is one with it for the browser. What
    it lacks is a key, so the names are checked where none is needed.
    """
    names = listed(settings.hosts)
    if "*" in names or (not names and (with_keys or settings.host not in LOOPBACK)):
        return None
    return frozenset((*LOOPBACK, *(host_name(name.lower()) for name in names)))


def host_name(host: str) -> str:
    """Without the port and the brackets of an IPv6 address; "" if it is no host."""
    found = HOST.fullmatch(host)
    return (found[1] or found[2] or "") if found else ""


def require_one_length(headers: Mapping[bytes, bytes]) -> None:
    """400 for a body with two lengths, of which a proxy may believe the other (RFC 9112, 6.3)."""
    if b"transfer-encoding" in headers and b"content-length" in headers:
        message = "a body has either a Content-Length or a Transfer-Encoding"
        raise ApiError(400, message, code="invalid_request", headers={"Connection": "close"})


def record_of(request: Request) -> dict[str, Any]:
    """The request's entry in the log, to which handlers add."""
    return request.scope[RECORD]


def caller_of(request: Request) -> str:
    return request.scope[CALLER]

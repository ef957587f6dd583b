"""The ASGI application of a `Service`."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from melforge.common.audio.wire import DEFAULT_RATE, MPEG_RATES, WireEncoder
from melforge.common.errors import InputError
from melforge.common.serve import accounts, admin, health, web
from melforge.common.serve.allowance import LIMITED
from melforge.common.serve.errors import ERRORS, ApiError
from melforge.common.serve.gate import Gate
from melforge.common.serve.health import STEP_LIMIT
from melforge.common.serve.metrics import log
from melforge.common.serve.protocols import live, nim, openai_api, realtime, transcriptions
from melforge.common.serve.service import Service
from melforge.common.serve.settings import listed

KEY = HTTPBearer(scheme_name="API key", auto_error=False)
HANGING_CHECK = 1.0  # seconds
# Response headers that scripts of other origins may read.
EXPOSED = (
    "retry-after",
    "x-request-id",
    *(
        f"x-ratelimit-{part}-{what.replace('_', '-')}"
        for what in LIMITED
        for part in ("limit", "remaining", "reset")
    ),
    "x-sample-rate",
    "x-melforge-ignored",
    "x-melforge-unspoken",
    "x-melforge-warnings",
)
GARBAGE_CHECK, BUSY_CHECKS = 1.0, 60  # seconds, and how many of them it may wait for a quiet moment
FEW_TASKS = 32  # with which few callers are here
NEVER, SELDOM = 2**31 - 1, 10  # searches of what is young before one of all; the latter is Python's own
IDLE_CHECKS = 10  # checks within the time after which an idle pair is unloaded


def make_app(service: Service) -> FastAPI:
    """Routes, errors in OpenAI's form, and the first pair loaded in the background."""

    app = FastAPI(
        title="Melforge",
        version="1",
        description="Text to speech, and back, over OpenAI's audio API.",
        lifespan=lambda app: upkeep(service),
        redirect_slashes=False,
        docs_url=None,  # Swagger's page comes from a server of others; `web` has one of its own
        redoc_url=None,
    )
    # The gate checks keys; here they are only described.
    described: dict[str, Any] = {"dependencies": [Security(KEY)] if service.keys else [], "responses": ERRORS}
    for module in (openai_api, transcriptions, realtime, accounts, nim, web):
        app.include_router(module.make_router(service), **described)
    if service.orders is not None:
        app.include_router(admin.make_router(service, service.orders), **described)
    for module in (live, health):
        app.include_router(module.make_router(service))
    app.add_exception_handler(ApiError, answer_api_error)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, answer_http_error)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, answer_validation_error)  # type: ignore[arg-type]
    app.add_middleware(Gate, service=service)
    app.add_middleware(Plainly)
    if origins := listed(service.settings.origins):
        # In front of the gate: what a browser asks beforehand has no key.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[origin.rstrip("/") for origin in origins],
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )
    return app


class Plainly:
    """ASGI middleware: a path may end in a slash, and HEAD is answered as GET is (RFC 9110, 9.3.2): servers
    leave the body out.
    """

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        if scope.get("method") == "HEAD":
            scope["method"] = "GET"
        await self.app(scope, receive, send)


@asynccontextmanager
async def upkeep(service: Service) -> AsyncIterator[None]:
    """Loads the first pair, and does what is to be done now and then."""
    work = (service.load_first(), replace_hanging(service), collect_garbage(service))
    tasks = [asyncio.create_task(one) for one in work]
    if service.orders is not None:
        tasks.append(asyncio.create_task(service.orders.follow()))
    if service.settings.idle_unload is not None:
        tasks.append(asyncio.create_task(unload_idle(service, service.settings.idle_unload)))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def make_ready(app: FastAPI) -> None:
    """Does what holds the loop once, at a first request and a first large form: imports, FastAPI's routes."""

    async def nothing(*_: Any) -> Any: ...

    with suppress(InputError):
        await run_in_threadpool(WireEncoder, "mp3", MPEG_RATES[0], DEFAULT_RATE)
    await app.router({"type": "http", "method": "GET", "path": "/nothing", "headers": []}, nothing, nothing)


async def replace_hanging(service: Service) -> None:
    """Replaces workers that hang; impossible where one thread owns the models."""
    while service.pairs.options.shares_engines:
        await asyncio.sleep(HANGING_CHECK)
        if given_up := service.scheduler.replace_hanging(STEP_LIMIT):
            log("workers replaced", logging.ERROR, workers=given_up)


async def collect_garbage(service: Service) -> None:
    """Has Python search all that is alive for garbage when that is little and nobody waits, or once a minute.

    That holds all threads, with a thousand callers for a tenth of a second. What is young it always searches.
    """
    usual = gc.get_threshold()
    gc.set_threshold(*usual[:2], NEVER)
    checks = 0  # since the last search
    try:
        while True:
            await asyncio.sleep(GARBAGE_CHECK)
            checks += 1
            _, young, old = gc.get_count()
            is_quiet = not service.running and len(asyncio.all_tasks()) <= FEW_TASKS
            if (young or old) if is_quiet else (old > SELDOM and checks >= BUSY_CHECKS):
                gc.collect()
                checks = 0
    finally:
        gc.set_threshold(*usual)


async def unload_idle(service: Service, seconds: float) -> None:
    """Now and then unloads pairs that have not been used for a while."""
    while True:
        await asyncio.sleep(seconds / IDLE_CHECKS)
        with suppress(RuntimeError):  # the server is about to stop
            await service.unload_idle(seconds)


async def answer_api_error(request: Request, error: ApiError) -> JSONResponse:
    return error.response


async def answer_http_error(request: Request, error: HTTPException) -> JSONResponse:
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
    path = request.url.path
    hint = "; the API is at /v1" if code == "not_found" and not path.startswith("/v1") else ""
    message = f"{request.method} {path[:100]}: {error.detail}{hint}"
    return ApiError(error.status_code, message, code=code, headers=error.headers).response


async def answer_validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return ApiError(400, f"{name}: {first['msg']}", name, "invalid_value").response

"""The server process: a socket, uvicorn, and a shutdown that lets running answers finish."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import gc
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from melforge.common.serve.app import make_app, make_ready, upkeep
from melforge.common.serve.connections import HttpConnection, LiveConnection, most_connections
from melforge.common.serve.handing import Handed
from melforge.common.serve.keys import Access
from melforge.common.serve.logs import exit_now, set_up_logging
from melforge.common.serve.metrics import log
from melforge.common.serve.pairs import LoadOptions, Pairs
from melforge.common.serve.priority import hurrying
from melforge.common.serve.service import Service
from melforge.common.serve.settings import ServeSettings

# What stops a server in order. SIGHUP comes of a terminal that closes; nohup has it ignored.
SIGNALS = (signal.SIGTERM, signal.SIGINT) + (signal.SIGHUP,) * (
    signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
)
BACKLOG = 2048  # connections that the system keeps until they are accepted
ACCEPTED = 16  # in one step of the event loop, before `HttpConnection` counts them
SWITCHING_SECONDS = 5e-4  # until a thread that waits has its turn in Python; by default it is 5 ms
LARGE_BUFFER = 1 << 20  # bytes
KEPT_FREE = 16 << 20  # bytes, of smaller ones: those of a few chunks
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
CLOSING_SECONDS = 2  # for connections to close after the last answer


class Server(uvicorn.Server):
    """uvicorn, without raising the signal again that ended it (exit status 143)."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await make_ready(cast(FastAPI, self.config.app))
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)  # asyncio has set it to ACCEPTED


def make_server(service: Service, handed: Handed | None = None) -> Server:
    settings = service.settings
    connection: Any = functools.partial(HttpConnection, most=most_connections(settings), handed=handed)
    config = uvicorn.Config(
        make_app(service),
        http=connection,
        ws=LiveConnection,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=ACCEPTED,
        ws_max_size=settings.body_bytes,
        ws_per_message_deflate=False,  # speech hardly gets smaller, and all would wait for it
        ws_ping_timeout=settings.seconds,  # pings arrive behind audio, which may wait for its listener
        timeout_graceful_shutdown=CLOSING_SECONDS,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.certificate_key,
    )
    return Server(config)


def serve(settings: ServeSettings, options: LoadOptions, access: Access) -> int:
    """Serves until a signal comes; the exit status."""
    set_up_logging()
    listening = listen(settings.host, settings.port)

    async def run() -> None:
        await answer(make_service(settings, options, access), listening, wyoming_uri(settings))

    try:
        asyncio.run(run())
    finally:
        listening.close()
    return 0


def serve_without_http(settings: ServeSettings, options: LoadOptions, uri: str) -> int:
    """The Wyoming protocol alone, at tcp://HOST:PORT, unix://PATH or stdio://."""
    set_up_logging()

    async def run() -> None:
        await answer(make_service(settings, options, Access()), None, uri)

    asyncio.run(run())
    return 0


def wyoming_uri(settings: ServeSettings) -> str | None:
    port = settings.wyoming_port
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return None if port is None else f"tcp://{host}:{port}"


def make_service(settings: ServeSettings, options: LoadOptions, access: Access) -> Service:
    """In an event loop."""
    sys.setswitchinterval(SWITCHING_SECONDS)
    keep_little_freed_memory()
    pairs = Pairs(options, settings.pairs, settings.memory_limit)
    workers = settings.workers or options.workers(settings.processes)
    return Service(settings, pairs, workers, access)


def keep_little_freed_memory() -> None:
    """Has the system get large buffers back when they are freed; call it before there are threads.

    By default glibc keeps such of up to 32 MB once some were freed, and each thread those of its own. Told
    not to, it would give all but 128 KB of smaller ones back too, and get them again for each chunk.
    """
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        set_option(MMAP_THRESHOLD, LARGE_BUFFER)
        set_option(TRIM_THRESHOLD, KEPT_FREE)
        set_option(ARENA_MAX, 1)


def bind(host: str, port: int, shared: bool = False) -> socket.socket:
    """A bound socket. Its protocol is stated as TCP: only then asyncio sets TCP_NODELAY.

    Several processes can have the same port if all their sockets are `shared`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Connections of an earlier server may still be in TIME_WAIT.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"{error.strerror}: {host} port {port}") from None
    return bound


def listen(host: str, port: int) -> socket.socket:
    listening = bind(host, port)
    try:
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"{error.strerror}: {host} port {port}") from None
    return listening


async def answer(service: Service, listening: socket.socket | None, wyoming: str | None = None) -> None:
    """Serves by HTTP, by Wyoming or by both until a signal comes; raises what keeps the first pair from being
    loaded.
    """
    over = asyncio.Event()
    ending: list[asyncio.Task[None]] = []

    def on_signal(number: int) -> None:
        # A terminal that closes may send two; systemd sends each process one, and so does the front, which
        # kills them itself.
        if ending and (number == signal.SIGHUP or isinstance(listening, Handed)):
            return
        if ending:
            log("stopped at once", logging.WARNING, running=service.running)
            exit_now(128 + number)
        ending.append(asyncio.create_task(drain(service, over)))

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    if listening is not None:
        host, port = listening.getsockname()[:2]
        scheme = "https" if service.settings.certificate else "http"
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        tell = functools.partial(log, "listening", url=url, workers=service.scheduler.workers)
        if isinstance(listening, Handed):
            listening.begun.append(tell)
        else:
            tell()
    settling = asyncio.create_task(settle(service, over))
    try:
        async with AsyncExitStack() as stack:
            stack.enter_context(hurrying(True))  # all callers wait for this thread
            if wyoming is not None:
                from melforge.common.serve.protocols.wyoming import serving_wyoming

                await stack.enter_async_context(serving_wyoming(service, wyoming, over))
            await stack.enter_async_context(serving_riva(service))
            if listening is not None:
                await answer_http(service, listening, over)
            else:
                await stack.enter_async_context(upkeep(service))
                await over.wait()
    finally:
        settling.cancel()
        service.stop()
    if service.fault is not None:
        raise service.fault
    log("stopped")


async def answer_http(service: Service, listening: socket.socket, over: asyncio.Event) -> None:
    server = make_server(service, listening if isinstance(listening, Handed) else None)

    async def exit_when_over() -> None:
        await over.wait()
        server.should_exit = True

    exiting = asyncio.create_task(exit_when_over())
    try:
        await server.serve(sockets=[listening])
    finally:
        exiting.cancel()


@asynccontextmanager
async def serving_riva(service: Service) -> AsyncIterator[int | None]:
    """Serves Riva's gRPC too where its port is set, which is given; at the end calls have a moment to end."""
    settings = service.settings
    if settings.riva_port is None:
        yield None
        return
    from melforge.common.serve.protocols.riva import start_riva

    server, port = await start_riva(service, settings.host, settings.riva_port)
    log("listening", url=f"grpc://{settings.host}:{port}", protocol="riva")
    try:
        yield port
    finally:
        await server.stop(CLOSING_SECONDS)


async def settle(service: Service, over: asyncio.Event) -> None:
    """Ends the server where its first pair cannot be loaded."""
    await service.settled.wait()
    if service.fault is not None:
        over.set()
    gc.freeze()  # all threads would wait each time that Python looks through what is loaded for garbage


async def drain(service: Service, over: asyncio.Event) -> None:
    """New requests get 503; running ones may finish within the grace period, then they are cut off."""
    grace = service.settings.grace
    log("draining", running=service.running, grace_s=grace)
    service.draining = True
    end = service.scheduler.clock() + grace
    while service.running and service.scheduler.clock() < end:
        await asyncio.sleep(0.02)
    if service.running:
        log("cut off", logging.WARNING, running=service.running)
        service.scheduler.stop()
    over.set()

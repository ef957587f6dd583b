"""What is added to Ray's HTTP proxies: a request that no replica takes is refused there, and an answer that
falls silent is broken off.

A proxy itself waits without end for an ingress, and what it and the ingress take, on a busy machine seconds,
is known to nobody else. Ray imports `middlewares` by PROXY_VARIABLES.
"""

from __future__ import annotations

import asyncio

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from melforge.common.cluster.forward import READ_WHOLE, START, TAKEN, WANTS_TAKEN
from melforge.common.serve.errors import TAKEN_SECONDS, overloaded


def middlewares() -> list[Middleware]:
    return [Middleware(Refusing)]


class Refusing:
    """Answers 503 to whom nobody answers: a request that is not taken in time, or is lost with its ingress.

    The time begins with the request's last byte. One that a replica takes late has to begin its answer in
    it too. An answer that is heard as it comes may be without a sound and a sign of work for as long.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        late = began = is_heard = None

        async def receive_on() -> Message:
            nonlocal late
            message = await receive()
            if late is None and not message.get("more_body"):
                late = loop.time() + TAKEN_SECONDS / 2
                if not (began or limit.expired()):
                    limit.reschedule(loop.time() + TAKEN_SECONDS)
            return message

        async def send_on(message: Message) -> None:
            nonlocal began, is_heard
            if limit.expired():
                return
            if message["type"] == START:
                began, is_heard = True, READ_WHOLE not in message["headers"]
            if began or late is None or loop.time() < late:
                limit.reschedule(None)
            if began:
                if message["type"] != TAKEN:
                    await send(message)
                if is_heard and message.get("more_body", message["type"] in (START, TAKEN)):
                    limit.reschedule(loop.time() + TAKEN_SECONDS)

        headers = [pair for pair in scope["headers"] if pair[0] != WANTS_TAKEN[0]]
        try:
            async with asyncio.timeout(None) as limit:
                await self._app({**scope, "headers": [*headers, WANTS_TAKEN]}, receive_on, send_on)
        except TimeoutError:  # where the application lets the cancellation through; Ray's does not
            if not limit.expired():
                raise
        if not began:
            error = overloaded("no replica could take the request: try again")
            await error.response(scope, receive, send)

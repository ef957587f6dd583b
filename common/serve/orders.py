"""What administrators order, done by all processes of a server: it stands in a file that they share."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from melforge.common.files import write_bytes
from melforge.common.serve.metrics import shared_folder
from melforge.common.serve.scheduler import LOG

LOOK_EVERY = 0.5  # seconds, at what was ordered in other processes
FOLLOWING_SECONDS = 60.0  # for the other processes to do it too


class Orders:
    """Orders about voices: `do` is given a voice and what is to be done, `state` describes this process.

    All processes do them in the same order, of those about one voice the last that they find; one that begins
    later does so before it listens.
    """

    def __init__(
        self, do: Callable[[str, str], Awaitable[None]], state: Callable[[], dict[str, Any]]
    ) -> None:
        self._do, self._state = do, state
        self._folder = shared_folder()
        self._done = 0  # lines of the file
        self._turn = asyncio.Lock()

    async def give(self, voice: str, action: str) -> None:
        """Does it here, then has the other processes do it, and waits for them.

        What it raises has changed nothing.
        """
        async with self._turn:
            if self._folder is None:
                await self._do(voice, action)
                return
            async with locked(self._folder / "orders") as file:
                await self._catch_up()
                await self._do(voice, action)
                os.write(file, json.dumps([voice, action]).encode() + b"\n")
                self._done += 1
            number = self._done
        with suppress(TimeoutError):  # a process that hangs is replaced
            async with asyncio.timeout(FOLLOWING_SECONDS):
                while any(state["orders"] < number for state in self.states()):
                    await asyncio.sleep(LOOK_EVERY)

    async def follow(self) -> None:
        """Does what was ordered in other processes, for ever."""
        while self._folder is not None:
            await self.catch_up()
            await asyncio.sleep(LOOK_EVERY)

    async def catch_up(self) -> None:
        """Does what was ordered so far, and leaves this process's state where the others find it."""
        if self._folder is None:
            return
        async with self._turn:
            await self._catch_up()
        with suppress(OSError):  # a full disk
            write_bytes(self._folder / f"{os.getpid()}.state", json.dumps(self.state()).encode())

    async def _catch_up(self) -> None:
        assert self._folder
        with suppress(FileNotFoundError):
            lines = (self._folder / "orders").read_text().splitlines()[self._done :]
            for voice, action in dict(json.loads(line) for line in lines).items():
                try:
                    await self._do(voice, action)
                except Exception:
                    LOG.exception("an order failed", extra={"fields": {"voice": voice, "action": action}})
            self._done += len(lines)

    def state(self) -> dict[str, Any]:
        """Of this process."""
        return {"pid": os.getpid(), "orders": self._done, **self._state()}

    def states(self) -> list[dict[str, Any]]:
        """Of all processes: this one's now, the others' of a moment ago."""
        found = [self.state()]
        for path in sorted(self._folder.glob("*.state")) if self._folder else ():
            with suppress(OSError, ValueError):
                state = json.loads(path.read_text())
                if state["pid"] != os.getpid():
                    found.append(state)
        return found


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[int]:
    """The file, open for appending, for one process at a time; one that dies leaves its lock."""
    import fcntl

    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)

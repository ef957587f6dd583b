"""Clients that ask for speech again and again, and what each of their requests came to.

With $MELFORGE_FLOOD_SECONDS the tests that use this, which flood servers or kill parts of them, are as long
as that; with -s they print their figures.
"""

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from melforge.common.serve import client
from melforge.common.serve.client import Address, Connection, ServerError

SECONDS = float(os.environ.get("MELFORGE_FLOOD_SECONDS", "4"))
IN_TIME = pytest.mark.timeout(300 + 2 * SECONDS)
CLIENTS = 128
PATIENCE = 60.0  # seconds without a byte that a client waits
BACK_OFF = 1.0  # seconds that a client waits after 503, as Retry-After says
TEXTS = tuple(
    f"This is sentence number {number}. " + "There is more of it to be read. " * (number % 4)
    for number in range(12)
)

Ask = Callable[[Connection, str], Awaitable[tuple[int, bytes]]]  # the status, and samples


@dataclass
class Found:
    """Seconds of each request that was answered and refused; what else came, in words."""

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)  # an error that the client saw
    soonest_failure: float = math.inf  # seconds of the request that failed most quickly
    wrong: list[str] = field(default_factory=list)  # an answer that is not the text's
    longest: float = 0.0  # seconds of any request

    def __str__(self) -> str:
        def at(seconds: list[float]) -> str:
            if not seconds:
                return "0"
            p50, p95 = np.percentile(seconds, (50, 95))
            late = sum(one > 0.1 for one in seconds)
            return (
                f"{len(seconds)} (p50 {p50:.3f}, p95 {p95:.3f}, most {max(seconds):.3f} s; {late} over 0.1 s)"
            )

        return (
            f"answered {at(self.answered)}\nrefused {at(self.refused)}\n"
            f"failed {len(self.failed)}, wrong {len(self.wrong)}, longest {self.longest:.1f} s"
        )


async def post(connection: Connection, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    """The status, headers and body of an answer."""
    reader, head = await connection._ask(path, body)
    status, headers = client._parsed(head)
    return status, headers, b"".join([data async for data in connection._body(reader, headers)])


def flood(
    url: str,
    ask: Ask,
    is_whole: Callable[[str, bytes], bool],
    until: Callable[[], bool],
    clients: int = CLIENTS,
) -> Found:
    """Until `until` is true; `is_whole` says whether samples are all of a text's."""
    found = Found()

    async def one(number: int) -> None:
        turn, connection = number, Connection(Address.parse(url), timeout=PATIENCE)
        while not until():
            text, begun = TEXTS[turn % len(TEXTS)], time.monotonic()
            turn += 1
            try:
                status, content = await ask(connection, text)
            except (ServerError, OSError, EOFError) as error:
                status, content = 0, repr(error).encode()
                connection.close()
            took = time.monotonic() - begun
            found.longest = max(found.longest, took)
            if status == 200 and is_whole(text, content):
                found.answered.append(took)
            elif status == 200:
                found.wrong.append(f"{text}: {len(content)} bytes")
            elif status == 503:
                found.refused.append(took)
                await asyncio.sleep(BACK_OFF)
            else:
                found.failed.append(f"{status} {content[:200]!r}")
                found.soonest_failure = min(found.soonest_failure, took)
                await asyncio.sleep(BACK_OFF)
        connection.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(one(number) for number in range(clients)))

    asyncio.run(all_of_them())
    return found


def seconds_from_now(seconds: float = SECONDS) -> Callable[[], bool]:
    """What is true when they are over."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def private_mb(pids: Iterable[int]) -> float:
    """Memory of these processes together that is nobody else's."""
    kilobytes = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    return kilobytes / 1000

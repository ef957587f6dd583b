"""python -m tests.front PORT TO: passes connections on to another port of this machine.

A process in front of a store may be killed like the store's own, and what the store has stays.
"""

import asyncio
import sys
from contextlib import suppress


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main(port: str, to: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", int(to))
        await asyncio.gather(copy(reader, back), copy(there, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", int(port)) as server:
        print("listens", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A process that stands in for distance: it forwards connections on loopback, each byte later, and counts them."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from multiprocessing.connection import Connection


def run_between(targets: list[str], delay_s: float, told: Connection) -> None:
    """Tells an address for each target, HOST:PORT, and for each true value that it gets, bytes up and down of each.

    It ends at the first false one, or when the other end is closed. Every byte comes `delay_s` late in each direction;
    what is sent later does not wait for what was sent before. A target that is not there yet closes the connection.
    """
    moved = [[0, 0] for _ in targets]

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: list[int], way: int) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                writer.write(data)
                if not data:
                    writer.close()
                    return

        task = asyncio.ensure_future(deliver())
        try:
            while data := await reader.read(2**18):
                count[way] += len(data)
                waiting.put_nowait((time.monotonic() + delay_s, data))
        finally:
            waiting.put_nowait((time.monotonic() + delay_s, b""))
            await task

    async def serve() -> None:
        ports = []
        for target, count in zip(targets, moved, strict=True):
            host, _, port = target.partition(":")

            async def accept(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                far: tuple[str, int] = (host, int(port)),
                count: list[int] = count,
            ) -> None:
                try:
                    far_reader, far_writer = await asyncio.open_connection(*far)
                except OSError:
                    writer.close()
                    return
                ways = forward(reader, far_writer, count, 0), forward(far_reader, writer, count, 1)
                await asyncio.gather(*ways, return_exceptions=True)

            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            ports.append(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        told.send(ports)
        with suppress(EOFError):
            while await asyncio.get_running_loop().run_in_executor(None, told.recv):
                told.send(moved)
        os._exit(0)  # what is still on its way need not arrive

    asyncio.run(serve())

"""A forwarder of connections on loopback, in a thread of its own; what it does to them is each test's."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress


class Forwarder:
    """Listens at `address` while it is open, and joins each connection to one to the target until either end is gone.

    A subclass's _forward(reader, writer, shared) passes on what comes one way, from the client first, until that ends.
    shared: a list of both ways of a connection.
    """

    def __init__(self, target):
        self._host, _, port = target.rpartition(":")
        self._port, self._loop = int(port), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self):
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_):
        async def stop():
            self._server.close()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._call(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port, limit=2**21)
        shared = []
        ways = [self._forward(reader, far_writer, shared), self._forward(far_reader, writer, shared)]
        try:
            with suppress(asyncio.CancelledError):
                await asyncio.wait(map(asyncio.ensure_future, ways), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (writer, far_writer):
                each.transport.abort()

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=300)

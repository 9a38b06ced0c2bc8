"""A connection on which nothing is said for long, or little gets through: the real options, in shorter times."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import grpc
import pytest

from coordinator.connection.hub import NODE_OPTIONS
from guardian.port import _OPTIONS as GUARDIAN_OPTIONS
from party.connection.node import _OPTIONS as DIALLING_OPTIONS
from runtime.guardian_carrier import _OPTIONS as CARRIER_OPTIONS
from tests.harness.forwarding import Forwarder

# gRPC forgives two pings that come too early, and ends the connection at the next.
PINGS = 4
HEADER, PREFACE = 9, len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
PING, ACKNOWLEDGED = 6, 1


class Counted(Forwarder):
    """Counts the pings of its client; `enough` is set after PINGS of them, or at the end."""

    pings = 0

    def __init__(self, target):
        super().__init__(target)
        self.enough = threading.Event()

    async def _forward(self, reader, writer, shared):
        shared.append(reader)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            if len(shared) == 1:
                writer.write(await reader.readexactly(PREFACE))
                while True:
                    header = await reader.readexactly(HEADER)
                    self._count(header[3], header[4])
                    writer.write(header + await reader.readexactly(int.from_bytes(header[:3], "big")))
            while data := await reader.read(65536):
                writer.write(data)
        self.enough.set()

    def _count(self, kind, flags):
        if kind == PING and not flags & ACKNOWLEDGED:
            self.pings += 1
            if self.pings >= PINGS:
                self.enough.set()


@contextmanager
def served(options, handler):
    """The address of a server with one method, of this name."""
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads, options=options)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {"call": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(0).wait()


def hundredth(options):
    return [(key, value // 100 if "keepalive_time_ms" in key or "interval" in key else value) for key, value in options]


@pytest.fixture(scope="module")
def idle():
    """What became of each connection, while nothing was said on both."""
    pairs = {"coordinator": (NODE_OPTIONS, DIALLING_OPTIONS), "guardian": (GUARDIAN_OPTIONS, CARRIER_OPTIONS)}
    with ThreadPoolExecutor(len(pairs)) as beside:
        return dict(zip(pairs, beside.map(lambda options: kept(*options), pairs.values()), strict=True))


@pytest.mark.parametrize("server", ["coordinator", "guardian"])
def test_an_idle_connection_is_kept_however_often_its_client_pings(idle, server):
    assert idle[server] == (True, PINGS)


def kept(serving, dialling):
    """(whether an idle connection stands, the pings by then)."""
    over = threading.Event()

    def silent(_, context):
        context.add_callback(over.set)
        over.wait(60)
        yield b""

    handler = grpc.stream_stream_rpc_method_handler(silent)
    with served(hundredth(serving), handler) as address, Counted(address) as line:
        with grpc.insecure_channel(line.address, options=hundredth(dialling)) as channel:
            call = channel.stream_stream("/test/call")(iter(lambda: over.wait(60) and b"", b""))
            assert line.enough.wait(60)
            stands, pings = call.is_active(), line.pings
            call.cancel()
        over.set()
    return stands, pings


# Times are so much shorter, and the line so much faster than 24 kbit/s: the request takes 33 s of true ones.
BY, REQUEST = 20, bytes(100_000)


class Slow(Forwarder):
    """Passes 24 kbit/s on in each direction, and takes what comes meanwhile."""

    async def _forward(self, reader, writer, shared):
        while data := await reader.read(4096):
            await asyncio.sleep(len(data) * 8 / 24_000 / BY)
            writer.write(data)


def test_a_request_that_takes_longer_than_a_ping_may_arrives_on_a_slow_line():
    # The answer to a ping waits behind the request: where it may take 10 s, the line is taken for dead.
    serving, dialling = (
        [(key, value // BY if key.endswith("_ms") else value) for key, value in options]
        for options in (NODE_OPTIONS, DIALLING_OPTIONS)
    )
    handler = grpc.unary_stream_rpc_method_handler(lambda *_: iter([REQUEST]))
    with served(serving, handler) as address, Slow(address) as line:
        with grpc.insecure_channel(line.address, options=dialling) as channel:
            assert next(channel.unary_stream("/test/call")(b"", timeout=60)) == REQUEST

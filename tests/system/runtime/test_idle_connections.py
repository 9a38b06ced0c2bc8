"""A connection on which nothing is said for long, or little gets through: the real options, in shorter times."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

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


class Counted:
    """A way to a server that counts the pings of its client; `enough` is set after PINGS of them, or at the end."""

    def __init__(self, port):
        self._to, self.pings, self.enough = port, 0, threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._carry, daemon=True).start()

    def _carry(self):
        client, _ = self._listening.accept()
        with closing(self._listening), client, socket.create_connection(("127.0.0.1", self._to)) as server:
            back = threading.Thread(target=self._pass_back, args=(server, client), daemon=True)
            back.start()
            with client.makefile("rb") as frames, suppress(OSError):
                server.sendall(frames.read(PREFACE))
                while header := frames.read(HEADER):
                    self._count(header[3], header[4])
                    server.sendall(header + frames.read(int.from_bytes(header[:3], "big")))
            server.close()
            back.join()

    def _count(self, kind, flags):
        if kind == PING and not flags & ACKNOWLEDGED:
            self.pings += 1
            if self.pings >= PINGS:
                self.enough.set()

    def _pass_back(self, server, client):
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        self.enough.set()
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


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

    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads, options=hundredth(serving))
        handler = grpc.stream_stream_rpc_method_handler(silent)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("idle", {"stay": handler}),))
        line = Counted(server.add_insecure_port("127.0.0.1:0"))
        server.start()
        with grpc.insecure_channel(line.address, options=hundredth(dialling)) as channel:
            call = channel.stream_stream("/idle/stay")(iter(lambda: over.wait(60) and b"", b""))
            assert line.enough.wait(60)
            stands, pings = call.is_active(), line.pings
            call.cancel()
        over.set()
        server.stop(0).wait()
    return stands, pings


# Times are so much shorter, and the line so much faster than 24 kbit/s: the request takes 33 s of true ones.
BY, REQUEST = 20, bytes(100_000)


class Slow(Forwarder):
    """Passes 24 kbit/s on in each direction, and takes what comes meanwhile."""

    async def _serve(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port, limit=2**21)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(self._forward(reader, far_writer), self._forward(far_reader, writer))
        for each in (writer, far_writer):
            each.transport.abort()

    async def _forward(self, reader, writer):
        while data := await reader.read(4096):
            await asyncio.sleep(len(data) * 8 / 24_000 / BY)
            writer.write(data)


def test_a_request_that_takes_longer_than_a_ping_may_arrives_on_a_slow_line():
    # The answer to a ping waits behind the request: where it may take 10 s, the line is taken for dead.
    serving, dialling = (
        [(key, value // BY if key.endswith("_ms") else value) for key, value in options]
        for options in (NODE_OPTIONS, DIALLING_OPTIONS)
    )
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads, options=serving)
        handler = grpc.unary_stream_rpc_method_handler(lambda *_: iter([REQUEST]))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("slow", {"ask": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with Slow(f"127.0.0.1:{port}") as line, grpc.insecure_channel(line.address, options=dialling) as channel:
            assert next(channel.unary_stream("/slow/ask")(b"", timeout=60)) == REQUEST
        server.stop(0).wait()

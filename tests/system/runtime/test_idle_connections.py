"""A connection on which nothing is said for long: the real options, with pings a hundred times as often."""

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

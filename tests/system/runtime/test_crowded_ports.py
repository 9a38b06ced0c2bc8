"""Strangers that open connections to a port and say nothing: they take a part of the open files, and no more."""

import resource
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc

from runtime.guardian_carrier import listen

FILES = 64


def test_half_open_connections_take_a_quarter_of_the_open_files_and_who_is_connected_is_served(monkeypatch):
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (32, FILES))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    options, over = listen(), threading.Event()
    assert asked == [(FILES, FILES)]

    def echo(pieces, _):
        yield from pieces

    with ThreadPoolExecutor(2) as threads, ExitStack() as stack:
        server = grpc.server(threads, options=options)
        handler = grpc.stream_stream_rpc_method_handler(echo)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", {"stay": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        stack.callback(lambda: server.stop(0).wait())
        channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))
        stack.callback(over.set)
        said = iter([b"before", b"after"])
        going_on = iter(lambda: next(said, None) or (over.wait(60) and None), None)
        replies = channel.stream_stream("/echo/stay")(going_on, timeout=60)
        assert next(replies) == b"before"
        strangers = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(FILES)]
        assert sum(map(turned_away, strangers)) == FILES - FILES // 4 + 1
        assert next(replies) == b"after"
        over.set()


def turned_away(stranger):
    """Whether the port closes a connection at once; to others it sends its settings."""
    stranger.settimeout(60)
    try:
        return stranger.recv(1000) == b""
    except ConnectionError:
        return True

"""A web server on 127.0.0.1 alone, in a thread, with the standard library: for monitoring and live pages."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from protocols.errors import InvalidInput


class LoopbackHandler(BaseHTTPRequestHandler):
    """Answers requests of one loopback server, says nothing of its software, and logs nothing."""

    timeout = 5
    server_version, sys_version = "conclave", ""

    def say(self, status: int, body: str, *, kind: str, **headers: str) -> None:
        """Sends a whole answer. kind: its Content-Type; headers: others, with "_" for "-"."""
        data = body.encode()
        self.send_response(status)
        for name, value in {"Content_Type": kind, "Content_Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Logs nothing: requests have no place in the allow-list of logs."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of a browser that went away: the standard library would print a traceback into the log."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as it came


class LoopbackServer:
    """Serves on 127.0.0.1 until it is closed. port: the one that was opened."""

    def __init__(self, port: int, handler: type[LoopbackHandler], *, name: str) -> None:
        """port: 0 for any free one; name: of the setting. Raises InvalidInput for a port that is taken."""
        try:
            self._server = _Server(("127.0.0.1", port), handler)
        except OSError as error:
            raise InvalidInput(f"{name} {port} cannot be opened: {error.strerror}; allowed: a free one") from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Closes the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

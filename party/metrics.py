"""Health and metrics of a node on a loopback port, in Prometheus' text format, without a library for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from protocols.errors import StorageFailed

# Sample lines by metric name: labels and value. Names of metrics and labels are constants of this package.
Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]
_TIMEOUT_S: Final = 5.0


class Counts:
    """How often each event of the log happened, and whether the node is connected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: dict[str, int] = {}
        self.connected = False

    def __call__(self, event: str, fields: dict[str, str | int]) -> None:
        """Counts an event."""
        with self._lock:
            self._events[event] = self._events.get(event, 0) + 1
            if event == "connected":
                self.connected = True
            elif event in ("disconnected", "goodbye", "stopped", "malformed"):
                self.connected = False

    def samples(self) -> dict[str, list[tuple[Mapping[str, str], float]]]:
        """conclave_events_total by event, conclave_connected."""
        with self._lock:
            events: list[tuple[Mapping[str, str], float]] = [
                ({"event": name}, count) for name, count in sorted(self._events.items())
            ]
            return {"conclave_events_total": events, "conclave_connected": [({}, float(self.connected))]}


class Metrics:
    """Serves /healthz (200 while connected, 503 otherwise) and /metrics on 127.0.0.1. Use as a context manager."""

    def __init__(self, port: int, *, healthy: Callable[[], bool], samples: Callable[[], Samples]) -> None:
        """port: 0 for a free one. Raises StorageFailed if the port is taken."""

        class Handler(BaseHTTPRequestHandler):
            timeout = _TIMEOUT_S

            def do_GET(self) -> None:
                if self.path == "/healthz":
                    self._send(200 if healthy() else 503, "connected\n" if healthy() else "not connected\n")
                elif self.path == "/metrics":
                    self._send(200, exposition(samples()))
                else:
                    self._send(404, "allowed: /healthz, /metrics\n")

            def _send(self, status: int, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Requests are not logged: their paths are whatever somebody sends."""

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise StorageFailed(f"metrics port {port} on 127.0.0.1: {error.strerror}; choose another") from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True)

    def __enter__(self) -> Metrics:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def exposition(samples: Samples) -> str:
    """Samples in the text exposition format 0.0.4."""
    lines = []
    for name, values in samples.items():
        lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
        for labels, value in values:
            inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"{name}{{{inner}}} {value:g}" if inner else f"{name} {value:g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

"""/healthz and /metrics on loopback, for a monitoring system. No other path is served."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from protocols.errors import ConclaveError, InvalidInput

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Monitor:
    """An HTTP server on 127.0.0.1. healthy: whether the program is healthy; metrics: returns the page of metrics."""

    def __init__(self, port: int, *, healthy: Callable[[], bool], metrics: Callable[[], str]) -> None:
        """Raises InvalidInput for a port that is taken."""

        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def do_GET(self) -> None:
                if self.path == "/healthz":
                    good = healthy()
                    self._say(200 if good else 503, "ok\n" if good else "unhealthy\n")
                elif self.path == "/metrics":
                    try:
                        self._say(200, metrics())
                    except ConclaveError:
                        self._say(503, "the program's files cannot be read\n")
                else:
                    self._say(404, "allowed: /healthz, /metrics\n")

            def _say(self, status: int, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", _TEXT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Logs nothing: requests have no place in the allow-list of logs."""

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise InvalidInput(f"metrics_port {port} cannot be opened: {error.strerror}; allowed: a free one") from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="monitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Closes the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass(frozen=True)
class Family:
    """One metric: its name, what it means, and the labels and value of each sample. Names are constants in the code."""

    name: str
    about: str
    rows: Sequence[tuple[Mapping[str, str], float]]


def exposition(families: Iterable[Family], events: Mapping[str, int]) -> str:
    """The metrics and the counts of events, in Prometheus' text exposition format 0.0.4."""
    counted = [({"event": event}, float(count)) for event, count in sorted(events.items())]
    lines: list[str] = []
    for family in (*families, Family("conclave_events_total", "Events since this program started.", counted)):
        kind = "counter" if family.name.endswith("_total") else "gauge"
        lines += [f"# HELP {family.name} {family.about}", f"# TYPE {family.name} {kind}"]
        lines += [f"{family.name}{_labels(labels)} {value:.17g}" for labels, value in family.rows]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = {
        key: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"

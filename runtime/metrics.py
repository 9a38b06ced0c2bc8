"""/healthz and /metrics on loopback, for whatever watches the machine. Nothing else can be asked there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any  # the values of a JSON object

from protocols.errors import ConclaveError, InvalidInput

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Monitor:
    """An HTTP server on 127.0.0.1. healthy: whether serve is; metrics: the page, made when it is asked for."""

    def __init__(self, port: int, *, healthy: Callable[[], bool], metrics: Callable[[], str]) -> None:
        """Raises InvalidInput for a port that is taken."""

        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def do_GET(self) -> None:
                if self.path == "/healthz":
                    good = healthy()
                    self._say(200 if good else 503, "ok\n" if good else "not serving\n")
                elif self.path == "/metrics":
                    try:
                        self._say(200, metrics())
                    except ConclaveError:
                        self._say(503, "the store cannot be read\n")
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
                """Nothing: the log has an allow-list."""

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


def prometheus(status: Mapping[str, Any], events: Mapping[str, int]) -> str:
    """The figures of a status, and counts of events, in Prometheus' text format."""
    lines: list[str] = []

    def family(name: str, kind: str, text: str, rows: list[tuple[dict[str, str], float]]) -> None:
        lines.extend([f"# HELP {name} {text}", f"# TYPE {name} {kind}"])
        lines.extend(f"{name}{_labels(labels)} {value:.17g}" for labels, value in rows)

    studies = status["studies"]
    seats = [({"study": study["study"], "seat": seat["seat"]}, seat) for study in studies for seat in study["seats"]]
    family("conclave_parties_connected", "gauge", "Parties with an open stream.", [({}, len(status["connected"]))])
    family("conclave_requests_pending", "gauge", "Certificate requests that wait for approval.",
           [({}, len(status["pending_requests"]))])  # fmt: skip
    for key, text in (("batches", "Rounds of votes."), ("asked", "Queries asked."), ("answered", "Queries answered.")):
        known = [({"study": each["study"]}, each[key]) for each in studies if each[key] is not None]
        family(f"conclave_study_{key}", "gauge", text, known)
    for key, text in (
        ("connected", "Whether the seat's party has an open stream."),
        ("answers_left", "Answers that the seat's budget still bears, in the worst case."),
        ("epsilon_used", "The ledger at the seat's own order: a reading, not a guarantee."),
        ("epsilon_guaranteed", "The epsilon that the seat's cap guarantees."),
        ("left_out", "Batches of which the seat was left out."),
    ):
        family(f"conclave_seat_{key}", "gauge", text, [(labels, float(seat[key])) for labels, seat in seats])
    family("conclave_certificate_days_left", "gauge", "Days until a party's newest certificate ends.",
           [({"party": each["party"]}, each["days_left"]) for each in status["parties"]])  # fmt: skip
    family("conclave_events_total", "counter", "Events of this serve.",
           [({"event": event}, count) for event, count in sorted(events.items())])  # fmt: skip
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = {
        key: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"

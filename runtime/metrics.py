"""/healthz and /metrics on loopback, for a monitoring system. No other path is served."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from protocols.errors import ConclaveError
from runtime.loopback import LoopbackHandler, LoopbackServer

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Monitor(LoopbackServer):
    """An HTTP server on 127.0.0.1. healthy: whether the program is healthy; metrics: returns the page of metrics."""

    def __init__(self, port: int, *, healthy: Callable[[], bool], metrics: Callable[[], str]) -> None:
        """Raises InvalidInput for a port that is taken."""

        class Handler(LoopbackHandler):
            def do_GET(self) -> None:
                if self.path == "/healthz":
                    good = healthy()
                    self.say(200 if good else 503, "ok\n" if good else "unhealthy\n", kind=_TEXT)
                elif self.path == "/metrics":
                    try:
                        self.say(200, metrics(), kind=_TEXT)
                    except ConclaveError:
                        self.say(503, "the program's files cannot be read\n", kind=_TEXT)
                else:
                    self.say(404, "allowed: /healthz, /metrics\n", kind=_TEXT)

        super().__init__(port, Handler, name="metrics_port")


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

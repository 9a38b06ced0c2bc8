"""Structured logs: one JSON object per line, with an allow-list of fields.

Fields that are not on the list are dropped and counted, so that no change to the code can log votes, labels, tokens or
keys by accident.
"""

from __future__ import annotations

import datetime
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, TextIO

# An event with its fields: only names, codes and counts.
Event = Callable[[str, dict[str, str | int]], None]

FIELDS: Final[dict[str, type]] = {
    "party": str,
    "parties": int,
    "seat": str,
    "seats": str,
    "study": str,
    "job": int,
    "state": str,
    "code": str,
    "reason": str,
    "address": str,
    "port": int,
    "enrol_port": int,
    "metrics_port": int,
    "pid": int,
    "software": str,
    "version": int,
    "skew_ms": int,
    "quorum": int,
    "serial": str,
    "until": str,
    "process": int,
    "seconds": int,
    "status": int,
    "studies": int,
    "teachers": int,
    "times": int,
}
_TEXT = 500


class Log:
    """Writes events as log lines and counts them for the metrics. May be called from several threads."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def __call__(self, event: str, fields: Mapping[str, str | int]) -> None:
        """Writes one line: time (UTC), event, and the allowed fields; `left_out` counts the others."""
        line: dict[str, str | int] = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(),
            "event": printable(event),
        }
        # A code is a string too, and a bool does not count as a number.
        kept = {key: value for key, value in fields.items() if isinstance(value, FIELDS.get(key, ()))}
        kept = {key: value for key, value in kept.items() if not isinstance(value, bool)}
        line |= {key: printable(value) if isinstance(value, str) else value for key, value in kept.items()}
        if len(kept) < len(fields):
            line["left_out"] = len(fields) - len(kept)
        with self._lock:
            self.counts[printable(event)] += 1
            self._out.write(json.dumps(line) + "\n")
            self._out.flush()


def printable(value: str) -> str:
    """At most 500 characters of `value`, "?" for unprintable ones: text from another party is shown to people."""
    return "".join(each if each.isprintable() else "?" for each in value[:_TEXT])

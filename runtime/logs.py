"""Structured logs: one JSON object per line, or one plain line at a terminal, with an allow-list of fields.

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

from protocols.plural import at_most

# An event with its fields: only names, codes and counts.
Event = Callable[[str, Mapping[str, str | int | float]], None]

FIELDS: Final[dict[str, type]] = {
    "party": str,
    "parties": int,
    "seat": str,
    "seats": str,
    "study": str,
    "batch": int,
    "queries": int,
    "answers_left": int,
    "epsilon_used": float,
    "epsilon_cap": float,
    "job": int,
    "state": str,
    "code": str,
    "reason": str,
    "address": str,
    "port": int,
    "file": str,
    "enrol_port": int,
    "metrics_port": int,
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
_TEXT: Final = 500
_LEFT: Final = "epsilon {epsilon_used} of {epsilon_cap} used, {answers_left} answers left"
_CHARGES: Final = {
    "answered": "{study}: {seat} answered batch {batch} of {queries} queries, reserved in full; " + _LEFT,
    "settled": "{study}: batch {batch} of {seat} is settled; " + _LEFT,
}


class Log:
    """Writes events as log lines and counts them for the metrics. May be called from several threads.

    plain: for a person at a terminal, time and event and its fields in one line; otherwise one JSON object per line.
    """

    def __init__(self, out: TextIO, *, plain: bool = False) -> None:
        self._out = out
        self._plain = plain
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def __call__(self, event: str, fields: Mapping[str, str | int | float]) -> None:
        """Writes one line: time (UTC), event, and the allowed fields; `left_out` counts the others."""
        now, event = datetime.datetime.now(datetime.UTC), shortened(event)
        # A code is a string too, and a bool does not count as a number.
        kept = {
            key: shortened(value) if isinstance(value, str) else value
            for key, value in fields.items()
            if isinstance(value, FIELDS.get(key, ())) and not isinstance(value, bool)
        }
        if len(kept) < len(fields):
            kept["left_out"] = len(fields) - len(kept)
        line = (
            _sentence(now, event, kept) if self._plain else json.dumps({"time": now.isoformat(), "event": event} | kept)
        )
        with self._lock:
            self.counts[event] += 1
            self._out.write(line + "\n")
            self._out.flush()


def _sentence(now: datetime.datetime, event: str, fields: Mapping[str, str | int | float]) -> str:
    """One event for a person: what was charged in a sentence, anything else as its fields."""
    if event in _CHARGES:
        bounds = {name: at_most(float(fields[name])) for name in ("epsilon_used", "epsilon_cap")}
        said = _CHARGES[event].format_map({**fields, **bounds})
    else:
        said = " ".join([event.replace("_", " "), *(f"{key}={value}" for key, value in fields.items())])
    return f"{now:%Y-%m-%d %H:%M:%S}Z {said}"


def shortened(value: str) -> str:
    """At most 500 characters of `value`, "?" for unprintable ones: text from another party is shown to people."""
    return "".join(each if each.isprintable() else "?" for each in value[:_TEXT])

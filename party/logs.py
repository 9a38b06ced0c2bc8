"""A node's log: one JSON object a line on standard error, of an allow-list of events' fields.

A field that is not on the list is left out, so that no vote, record, path of a record or seed can reach a log by a
careless event; texts are cut and made printable.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Final, TextIO

FIELDS: Final = frozenset(
    "address code process reason seat seconds skew_ms status studies study teachers until version metrics_port".split()
)
_TEXT: Final = 500


class Log:
    """Writes events to a stream. clock: seconds since 1970."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.time) -> None:
        self._stream = stream
        self._clock = clock

    def __call__(self, event: str, fields: dict[str, str | int]) -> None:
        """One line: time, event, and those of the fields that are allowed."""
        line: dict[str, str | int] = {"time": _utc(self._clock()), "event": _clean(event)}
        for key, value in fields.items():
            if key in FIELDS:
                line[key] = _clean(value) if isinstance(value, str) else int(value)
        print(json.dumps(line), file=self._stream, flush=True)


def _clean(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text[:_TEXT])


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))

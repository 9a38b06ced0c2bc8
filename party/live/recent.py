"""What the events of a node's log say of its state: whether it is connected, since when, and what went wrong last."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

# Events that a person has to look at, and what ends each: it is then no longer shown.
_TROUBLES: Final[Mapping[str, str]] = {
    "study_failed": "",
    "teachers_failed": "teachers_ready",
    "teachers_late": "answered",
    "deadline_short": "",
    "could_not_vote": "answered",
    "record_votes_failed": "answered",
    "storage_failed": "answered",
    "renewal_failed": "renewed",
    "clock_skew": "connected",
    "stopped": "",
}
_ENDS: Final = ("disconnected", "goodbye", "stopped", "malformed")


class Recent:
    """The node's state, judged by its events. May be called from several threads.

    stands: whether it is connected; since_s: since when it is, or is not, in seconds since 1970; troubles: what was
    said of each trouble that has not ended, by event and study.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """clock: seconds since 1970."""
        self._clock = clock
        self.stands = False
        self.since_s = clock()
        self.troubles: dict[tuple[str, str], str] = {}

    def __call__(self, event: str, fields: Mapping[str, str | int | float]) -> None:
        """Updates the state from one event."""
        about = str(fields.get("study", ""))
        if event == "connected" or (event in _ENDS and self.stands):
            self.stands, self.since_s = event == "connected", self._clock()
        ended = {trouble for trouble, end in _TROUBLES.items() if end == event}
        self.troubles = {
            (trouble, study): said
            for (trouble, study), said in self.troubles.items()
            if trouble not in ended or study not in ("", about)
        }
        if event in _TROUBLES:
            said = fields.get("reason", fields.get("code", ""))
            self.troubles = self.troubles | {(event, about): f"{event.replace('_', ' ')}: {said}"}

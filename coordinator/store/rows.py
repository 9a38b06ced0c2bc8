"""Rows of the coordinator's store: jobs, seats left out, who is connected, and which process serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

JobState = Literal["waiting", "running", "finished", "stopped", "failed"]
ENDED: tuple[JobState, ...] = ("finished", "stopped", "failed")


@dataclass(frozen=True)
class Job:
    """A requested labelling. student: for an interactive mechanism; message: its progress, in words."""

    number: int
    study: str
    student: str | None
    state: JobState
    batches: int
    asked: int
    answered: int
    message: str

    @property
    def ended(self) -> bool:
        """Whether this job has ended."""
        return self.state in ENDED


@dataclass(frozen=True)
class Fault:
    """A seat that was left out of a batch: why, how often, and when last, in seconds since 1970."""

    number: int
    seat: str
    code: str
    times: int
    last_s: int


@dataclass(frozen=True)
class SessionRecord:
    """A connected party, as serve last wrote it. Times in seconds since 1970."""

    party: str
    since_s: float
    last_seen_s: float
    address: str
    software: str
    wire_version: int


@dataclass(frozen=True)
class SilenceRecord:
    """A party that did not answer in time, as serve last wrote it. since_s: seconds since 1970; times: deadlines that
    it missed."""

    party: str
    since_s: float
    times: int


@dataclass(frozen=True)
class Serving:
    """The serve of this home, as last written. process: its number; seen_s: seconds since 1970; metrics_port: 0 for
    none."""

    process: int
    seen_s: float
    port: int
    enrol_port: int
    metrics_port: int

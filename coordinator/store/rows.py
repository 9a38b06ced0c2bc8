"""What the coordinator's store keeps: jobs, seats that were left out, who is connected, and which process serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

JobState = Literal["waiting", "running", "finished", "stopped", "failed"]
ENDED: tuple[JobState, ...] = ("finished", "stopped", "failed")


@dataclass(frozen=True)
class Job:
    """A labelling that was asked for. student: of an interactive mechanism; message: where it stands, for people."""

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
        """Whether nothing more happens under this job."""
        return self.state in ENDED


@dataclass(frozen=True)
class Fault:
    """A seat that was left out of a batch, why, how often, and when last, in seconds since 1970."""

    number: int
    seat: str
    code: str
    times: int
    last_s: int


@dataclass(frozen=True)
class SessionRecord:
    """A party that is connected, as serve wrote it last. Times in seconds since 1970."""

    party: str
    since_s: float
    last_seen_s: float
    address: str
    software: str
    wire_version: int


@dataclass(frozen=True)
class Serving:
    """The serve of this home, as it wrote last. seen_s: seconds since 1970; metrics_port: 0 for none."""

    pid: int
    seen_s: float
    port: int
    enrol_port: int
    metrics_port: int

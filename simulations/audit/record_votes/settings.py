"""The settings of an audit of record votes, checked, and the studies that it audits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocols.bounds.rdp import check_budget
from protocols.errors import InvalidInput
from protocols.study.query_map import QueryMap
from protocols.study.record_study import RecordVotesPlan, record_study
from protocols.study.study import Study
from simulations.audit.record_votes.faults import FAULTS
from simulations.audit.record_votes.worst_cases import CLASSES, PARTIES
from simulations.audit.settings import NOISES, check_between
from simulations.setup.levels import simulated_level

UNITS = ("record", "patient")
# Lattice units per vote where noise is integer.
_LATTICE_UNITS = 1024


@dataclass(frozen=True)
class AuditedLevel:
    """Whose view is audited: name, in words; level; units; colluders: parties whose share of the noise is known."""

    words: str
    level: str
    units: int | None = None
    colluders: int | None = None


AUDITED_LEVELS = (
    AuditedLevel("real-valued noise", "clear"),
    # What one server of two sees, who knows its own noise.
    AuditedLevel("integer noise", "clear", units=_LATTICE_UNITS),
    AuditedLevel("shares of noise, one known", "secure_sum", units=_LATTICE_UNITS, colluders=1),
)


@dataclass(frozen=True, kw_only=True)
class RecordAuditSettings:
    """What is audited and how hard. Raises InvalidInput for a value out of range.

    trials: on each side of each case; epsilon: the budget of the audited party, at delta: the study has the least noise
    that it affords; confidence: with which all bounds hold together; noise: see AuditSettings; broken: a name of
    FAULTS or None.
    """

    trials: int
    epsilon: float
    delta: float
    confidence: float
    noise: str
    seed: int
    broken: str | None = None
    votes_by: ClassVar[str] = "record"

    def __post_init__(self) -> None:
        check_between("trials", self.trials, 1000, 20_000_000)
        check_between("seed", self.seed, 0, 2**63 - 1)
        check_between("epsilon", self.epsilon, 0.01, 20)
        check_budget(np.array([self.epsilon]), np.array([self.delta]))
        if not 0 < self.confidence < 1:
            raise InvalidInput(f"confidence is {self.confidence}; allowed: in (0, 1)")
        if self.noise not in NOISES:
            raise InvalidInput(f"noise is {self.noise!r}; allowed: {', '.join(NOISES)}")
        if self.broken is not None and self.broken not in FAULTS:
            raise InvalidInput(f"break is {self.broken!r}; allowed where records vote: {', '.join(FAULTS)}")

    def study(self, level: AuditedLevel, *, unit: str, queries: QueryMap) -> Study:
        """The study of a party with this budget and two with twice as much, made by the code that makes every study."""
        plan = RecordVotesPlan(
            name="audit",
            classes=CLASSES,
            unit=unit,
            population=100,
            queries=queries,
            rule="exhaustive",
            level=simulated_level(level.level, units=level.units, colluders=level.colluders, seats=PARTIES),
            quorum=PARTIES,
        )
        budgets = np.full(PARTIES, 2 * self.epsilon)
        budgets[0] = self.epsilon
        names = tuple(f"party {number}" for number in range(PARTIES))
        return record_study(plan, names=names, epsilon=budgets, delta=np.full(PARTIES, self.delta))

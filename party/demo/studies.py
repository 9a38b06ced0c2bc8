"""The studies of the demo: one in which teachers vote, and one in which records do."""

from __future__ import annotations

import numpy as np

from party.demo.demo_data import DemoData
from protocols.errors import InvalidInput
from protocols.mechanisms import ThresholdedGNMax
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import Clear
from protocols.study.queries import pool_digest
from protocols.study.study import Seat
from protocols.study.terms import Terms
from protocols.study.votes import TeacherVotes, UnitSums

TEACHERS, EPSILON, DELTA = 12, 8.0, 1e-5
RECORD_EPSILON = 1.0
_SIGMA, _THRESHOLD = 7.0, 30.0
_UNITS = 1024
# Far more than the teachers need on a quiet machine: the demo must also end on a busy one.
_DEADLINE_S = 180.0


def demo_study(data: DemoData, *, unit: str = "record") -> DeployedStudy:
    """The study in which teachers vote; its noise is chosen for 4 x TEACHERS votes and EPSILON per record."""
    return DeployedStudy(
        name="demo",
        classes=2,
        votes=TeacherVotes(
            mechanism=ThresholdedGNMax(sigma=_SIGMA, threshold=_THRESHOLD),
            view="label",
            teachers=TEACHERS,
            query_limit=len(data.pool),
            batch_limit=50,
            answer_rate=1.0,
            stop="first-exhausted",
            participation_name="all",
        ),
        unit=unit,
        # Exact composition holds where a unit moves one vote.
        accountant_name="exact_composition" if unit == "record" else "label_only",
        quorum=4,
        confidentiality=Clear(),
        roster=_roster(data, EPSILON),
        terms=_terms(data),
    )


def record_draft(data: DemoData) -> DeployedStudy:
    """The draft of the study in which records vote, before the operator's command makes its queries."""
    return DeployedStudy(
        name="demo",
        classes=2,
        votes=UnitSums(
            queries=2,
            votes=1,
            queries_sha256="0" * 64,
            population=sum(len(each) for each in data.rows.values()),
            sigma=8.0,
        ),
        unit="record",
        accountant_name="gaussian",
        quorum=4,
        confidentiality=Clear(units=_UNITS),
        roster=_roster(data, RECORD_EPSILON),
        terms=_terms(data),
    )


# The study that the demo begins with, by who votes.
DRAFTS = {TeacherVotes.by: demo_study, UnitSums.by: record_draft}


def labels_for_whole_hospitals(data: DemoData) -> int:
    """The number of labels that teachers' budgets would afford if all of a hospital's data were the unit."""
    try:
        budgets = demo_study(data, unit="party").budgets
    except InvalidInput:  # the budgets do not afford one query
        return 0
    return int(budgets.affordable(np.zeros(len(data.hospitals), dtype=np.int64), limit=len(data.pool)).min())


def _roster(data: DemoData, epsilon: float) -> tuple[Seat, ...]:
    return tuple(Seat(party=name, epsilon=epsilon, delta=DELTA, weight=1.0, rate=1.0) for name in data.hospitals)


def _terms(data: DemoData) -> Terms:
    return Terms(
        task=data.task,
        class_names=data.class_names,
        label=data.label,
        input_shape=data.pool.shape[1:],
        pool_size=len(data.pool),
        pool_sha256=pool_digest(data.pool),
        deadline_s=_DEADLINE_S,
        coordinator="centre",
        ends="2999-12-31",
        features=data.features,
    )

"""The study in which records vote: weights by budget, and the least noise that every budget affords."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any  # of any kind that a plan has

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.lattice_gaussian import least_sigma_units
from protocols.budgets.accountant import default_accountant
from protocols.budgets.individualization import weights
from protocols.budgets.planned import Planned, least_sigma
from protocols.features.feature_map import FeatureMap
from protocols.mechanisms import GNMax
from protocols.study.findings import labelled
from protocols.study.levels import Confidentiality
from protocols.study.overlap import UNKNOWN
from protocols.study.purposes import ForLabels
from protocols.study.queries_file import check_kind
from protocols.study.released_noise import usual_residuals
from protocols.study.study import Seat, Study, party_of
from protocols.study.votes import UnitSums, unit_sums
from protocols.sums.blocks import Blocks, Constant, Signs
from protocols.sums.judging import Evaluation
from protocols.votes import LATTICE

_LEAST_SIGMA, _MOST_SIGMA = 2.0**-6, 2.0**20
# Integer noise has a least sigma, which rounding errors must not undercut.
_JUST_ABOVE = 1 + 1e-9
# Of one feature with signs: what noise a study of graded features has follows from budgets, and hardly from features.
ANY_SIGNED = Blocks(
    FeatureMap((1,)),
    (Constant(share=1), Signs(share=1, columns=np.zeros(1, np.int64), scales=np.ones(1), centre=np.zeros(1, np.int64))),
)
# Without the ceiling of weights, which is for equal, independent voters.
_NO_CEILING = 1e9


@dataclass(frozen=True, kw_only=True)
class RecordVotesPlan:
    """What is chosen for a study of record votes before its noise is worked out. residuals: None where it is to be as
    usual for a public pool of so many records (usual_residuals); pool: their number, 0 where there is none."""

    name: str
    classes: int
    unit: str
    population: int
    queries: Blocks
    rule: str
    level: Confidentiality
    quorum: int
    hospitals_per_patient: int = 1
    overlap: str = UNKNOWN
    evaluation: Evaluation | None = None
    residuals: bool | None = False
    pool: int = 0
    purpose: str = ForLabels.name
    findings: tuple[str, ...] = ()

    @classmethod
    def of_draft(cls, draft: Study, **chosen: Any) -> RecordVotesPlan:
        """What a draft says of it, and what was chosen besides, by name."""
        sums = unit_sums(draft)
        return cls(
            name=draft.name, unit=draft.unit, population=sums.population, level=draft.confidentiality,
            quorum=draft.quorum, hospitals_per_patient=sums.hospitals_per_patient, overlap=sums.overlap,
            purpose=sums.purpose, findings=draft.findings, **chosen,
        )  # fmt: skip


def record_study_of_draft(plan: RecordVotesPlan, draft: Study) -> Study:
    """record_study for the seats and budgets of a draft."""
    epsilon, delta = (np.array([getattr(seat, name) for seat in draft.roster]) for name in ("epsilon", "delta"))
    return record_study(plan, names=[seat.party for seat in draft.roster], epsilon=epsilon, delta=delta)


def record_study(
    plan: RecordVotesPlan,
    *,
    names: Sequence[str],
    epsilon: Float64[ndarray, " seats"],
    delta: Float64[ndarray, " seats"],
) -> Study:
    """The study of these seats, each with its budget: weights by the plan's rule (mean 1), and the least sigma at which
    each budget affords the one batch.

    Raises InvalidInput where a budget affords none at any sigma, and as Study does.
    """
    if plan.residuals is None:
        made_of = partial(record_study, names=names, epsilon=epsilon, delta=delta)
        once = made_of(replace(plan, residuals=False))
        twice = plan.pool > 0 and usual_residuals(once, pool=plan.pool)
        return made_of(replace(plan, residuals=True)) if twice else once
    check_kind(plan.queries)
    units = plan.level.units or LATTICE
    sums = UnitSums(
        queries=plan.queries.rows,
        votes=plan.queries.filled,
        signed=plan.queries.signed,
        queries_sha256=plan.queries.digest,
        population=plan.population,
        sigma=1.0,
        hospitals_per_patient=plan.hospitals_per_patient,
        overlap=plan.overlap,
        evaluation=plan.evaluation,
        residuals=plan.residuals,
        purpose=plan.purpose,
        partitions=plan.queries.partitions,
    )
    changed = sums.cells_changed(plan.unit, labelled=labelled(plan.findings, plan.classes), classes=plan.classes)
    lattice = plan.level.lattice(quorum=plan.quorum, classes=changed)
    low = _LEAST_SIGMA if lattice is None else _JUST_ABOVE * least_sigma_units(lattice.shares) / lattice.units
    mechanism = GNMax(sigma=max(16.0, low)).on_lattice(lattice)
    account = default_accountant(mechanism, "histogram")
    apart = sums.apart(seen=not plan.level.conceals_votes)
    planned = Planned(
        accountant=account,
        mechanism=mechanism,
        epsilon=epsilon,
        delta=delta,
        sensitivity_per_weight=1,
        delta_squared=sums.delta_squared,
        sigma=_NO_CEILING,
        view="histogram",
        classes=plan.classes,
        query_limit=1,
        answer_rate=1.0,
    )
    weight = weights(plan.rule, planned, units=units)
    again = sums.rows_again * (1 if plan.residuals or plan.level.conceals_votes else len(names))
    least = least_sigma(
        replace(planned, query_limit=sums.queries * (len(names) if apart else 1) + again),
        lambda sigma: GNMax(sigma=sigma).on_lattice(lattice),
        weights=sums.charged(weight, [party_of(name) for name in names], apart=apart),
        low=low,
        high=_MOST_SIGMA,
    )
    rows = zip(names, epsilon.tolist(), delta.tolist(), weight.tolist(), strict=True)
    return Study(
        name=plan.name,
        classes=plan.classes,
        votes=replace(sums, sigma=least),
        unit=plan.unit,
        accountant_name=account.name,
        quorum=plan.quorum,
        confidentiality=plan.level,
        roster=tuple(Seat(party=p, epsilon=e, delta=d, weight=w, rate=1.0) for p, e, d, w in rows),
        findings=plan.findings,
    )

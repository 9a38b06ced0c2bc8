"""The queries of a study in which records vote, from its public pool, and the noise that its budgets afford.

Nothing here looks at a private record: the pool, the terms' columns, budgets and the public number of records are all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, log10

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from coordinator.queries.choice import QueryChoice, make_queries
from protocols.errors import InvalidInput
from protocols.study.deployed import DeployedStudy, deployed
from protocols.study.queries import pool_digest
from protocols.study.queries_file import check_shape
from protocols.study.query_map import QueryMap
from protocols.study.record_study import RecordVotesPlan, record_study
from protocols.study.votes import unit_sums

# Of sigma.
_DIGITS = 5


@dataclass(frozen=True, eq=False)
class PlannedRecords:
    """A study with its queries. study: the draft, with queries, noise and weights filled in."""

    study: DeployedStudy
    queries: QueryMap


def plan_records(
    draft: DeployedStudy, pool: Float32[ndarray, "pool ..."], *, choice: QueryChoice, rule: str
) -> PlannedRecords:
    """The draft's study with the queries of this choice, and all that follows from them and the budgets.

    rule: of the weights. The draft's name, terms, unit, level, population, quorum and budgets stay; the terms get the
    pool's size and hash. Raises InvalidInput for a draft in which teachers vote, a pool that does not fit, queries that
    cannot be made of it, and a budget that affords nothing.
    """
    records, terms = unit_sums(draft), draft.terms
    if pool.shape[1:] != terms.input_shape:
        raise InvalidInput(f"the pool's records have the shape {pool.shape[1:]}; allowed: {terms.input_shape}")
    queries = make_queries(pool, terms.features, choice, population=records.population)
    check_shape(queries, terms.input_shape)
    plan = RecordVotesPlan(
        name=draft.name,
        classes=draft.classes,
        unit=draft.unit,
        population=records.population,
        queries=queries,
        rule=rule,
        level=draft.confidentiality,
        quorum=draft.quorum,
    )
    made = record_study(
        plan,
        names=[seat.party for seat in draft.roster],
        epsilon=np.array([seat.epsilon for seat in draft.roster]),
        delta=np.array([seat.delta for seat in draft.roster]),
    )
    # Rounded up: more noise costs less, and a person can read it.
    made = made.voting(sigma=_rounded_up(made.mechanism.label_sigma))
    known = replace(terms, pool_size=len(pool), pool_sha256=pool_digest(pool))
    return PlannedRecords(deployed(made, known), queries)


def _rounded_up(sigma: float) -> float:
    step = 10.0 ** (floor(log10(sigma)) + 1 - _DIGITS)
    return float(f"{ceil(sigma / step) * step:.{_DIGITS}g}")


def study_lines(study: DeployedStudy) -> list[str]:
    """What a draft needs to become this study: the lines of its file, table by table."""
    records = unit_sums(study)
    lines = [
        f'accountant_name = "{study.accountant_name}"',
        "",
        "[records]",
        f"sigma = {records.sigma!r}",
        f"queries = {records.queries}",
        f"votes = {records.votes}",
        f'queries_sha256 = "{records.queries_sha256}"',
        "",
        "[terms]",
        f"pool_size = {study.terms.pool_size}",
        f'pool_sha256 = "{study.terms.pool_sha256}"',
    ]
    return lines + [f"# {seat.party}: weight = {seat.weight!r}" for seat in study.roster]

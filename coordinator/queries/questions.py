"""In which order teachers are asked about a public pool. A budget ends long before most pools do, so only the first
questions are answered; which they are is chosen from the public pool, or from it and the labels that were released
before, and costs nothing.

An order is that of the pool: a study's pool is put in order before its digest is taken, so everybody agrees on it. What
is chosen between batches is known from what was released.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.queries import ORDERS, parse_questions
from coordinator.queries.features import features_for
from coordinator.queries.uncertainty import UncertainFirst
from protocols.errors import InvalidInput
from protocols.study.chosen import GIVEN, UNCERTAINTY
from protocols.study.terms import Feature
from runtime.distribution import installed_part


def in_order(
    pool: Float32[ndarray, "pool ..."],
    named: str,
    *,
    columns: Sequence[Feature] = (),
    features: str = "auto",
    seed: int,
) -> Int64[ndarray, " pool"]:
    """Every position of the pool once, in the order in which it is asked about.

    named: GIVEN, or an order of ORDERS, with its number behind a colon where it has one; columns, features: see
    features_for.
    Raises InvalidInput for other names, and where the order does not fit the pool.
    """
    kind, number = parse_questions(named)
    if kind == GIVEN:
        return np.arange(len(pool))
    if kind == UNCERTAINTY:
        raise InvalidInput(
            f"questions is {named!r}, which is no order of a pool: they are chosen between batches, by the labels so "
            f"far; allowed: {GIVEN}, {', '.join(ORDERS)}:N"
        )
    found = features_for(pool, features, columns=columns, seed=seed)(pool)
    return np.asarray(installed_part(ORDERS, kind)(found, number=number, seed=seed), np.int64)


def by_uncertainty(
    pool: Float32[ndarray, "pool ..."], *, columns: Sequence[Feature] = (), features: str = "auto", seed: int
) -> UncertainFirst:
    """The choice of questions between batches by what a student of the labels so far is uncertain of.

    columns, features: see features_for. Raises InvalidInput where features do not fit the pool, and without
    scikit-learn.
    """
    return UncertainFirst(features_for(pool, features, columns=columns, seed=seed)(pool))

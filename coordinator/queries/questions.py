"""In which order teachers are asked about a public pool. A budget ends long before most pools do, so only the first
questions are answered; which they are is chosen from the public pool alone, and costs nothing.

The order is that of the pool: a study's pool is put in order before its digest is taken, so everybody agrees on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.queries import GIVEN, ORDERS, parse_questions
from coordinator.queries.features import features_for
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
    found = features_for(pool, features, columns=columns, seed=seed)(pool)
    return np.asarray(installed_part(ORDERS, kind)(found, number=number, seed=seed), np.int64)

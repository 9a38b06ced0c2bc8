"""The least noise at which every budget affords one query: one equation in sigma, solved without building a study."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets.accountant import Accountant
from protocols.budgets.filter import affordable_queries, cap_nano, noise_reserve, spend_nano
from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism, Sensitivity, View
from protocols.plural import at_most

_PRECISION = 1e-12
# The logarithm of what is solved for must be finite.
_LEAST, _MOST = 1e-280, 1e280


def least_sigma(
    mechanism: Callable[[float], Mechanism],
    *,
    accountant: Accountant,
    epsilon: Float64[ndarray, " parties"],
    delta: Float64[ndarray, " parties"],
    weights: Float64[ndarray, " parties"],
    view: View,
    classes: int,
    query_limit: int,
    low: float,
    high: float,
) -> float:
    """The least sigma in [low, high], to a part in 10^12 from above, at which each party's budget affords one query.

    mechanism(sigma): what is charged, answered or not; weights: what one protected unit moves, in votes. Raises
    InvalidInput if a budget affords none even at `high`.
    """
    each, whose = np.unique(np.stack([epsilon, delta, weights]), axis=1, return_index=True)
    reserve = noise_reserve(
        mechanism(high),
        epsilon=each[0],
        view=view,
        classes=classes,
        query_limit=query_limit,
        total_weight=float(weights.sum()),
    )
    caps = accountant.affords(each[0], np.maximum(each[1] - reserve, np.finfo(float).tiny))
    units = Sensitivity.always(each[2])

    row = np.arange(each.shape[1])

    def left(sigma: float) -> Float64[ndarray, " distinct"]:
        """Each cap over the charge of one query, in nano-units and at the order that the filter chooses."""
        cost = accountant.query_cost(mechanism(sigma), units, view=view, classes=classes)
        best = affordable_queries(caps, cost, answer_rate=1.0).argmax(axis=1)
        charge = spend_nano(cost.ask[row, best] + cost.answer[row, best])
        return np.clip(cap_nano(caps[row, best]) / charge, _LEAST, _MOST)

    if (shares := left(high)).min() < 1:
        worst = int(whose[shares.argmin()])
        raise InvalidInput(
            f"epsilon {at_most(epsilon[worst])} at delta {at_most(delta[worst])} affords no vote even "
            f"with noise of {high:g} votes; allowed: larger budgets"
        )
    if left(low).min() >= 1:
        return low
    # Nearly a line, of slope 2: the cost of Gaussian noise falls with its variance.
    solved = scipy.optimize.brentq(
        lambda log_sigma: log(left(exp(log_sigma)).min()), log(low), log(high), xtol=_PRECISION, rtol=1e-15
    )
    sigma = exp(solved)
    while left(sigma).min() < 1:  # the root is approached from both sides
        sigma *= 1 + _PRECISION
    return sigma

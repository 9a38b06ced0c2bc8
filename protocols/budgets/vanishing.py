"""Rates of taking part, and the weight of a vote, at which all budgets of a vanishing study run out together.

Vanishing (Boenisch et al. 2023, Appendix B, C) spends small budgets on fewer queries instead of smaller votes. Votes
are scaled up so that the nominal total weight, the sum of weight times rate, stays the number of votes: threshold and
noise keep their meaning, and a vote that enters costs more (s = scale).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets.individualization import on_lattice
from protocols.budgets.participation import Pattern, rates_for
from protocols.budgets.planned import Planned
from protocols.errors import InvalidInput
from protocols.mechanisms import Sensitivity
from protocols.votes import LATTICE

# Rates between which affordable answers are interpolated for secret coins.
_RATES = np.geomspace(2.0**-9, 1.0, 28)
_ROUNDS = 12
# The iteration ends when the weight changes by less than this share: the rates then fit it as well.
_SETTLED = 1e-3


def vanishing(pattern: Pattern, planned: Planned) -> tuple[Float64[ndarray, " parties"], float]:
    """The rate of each party and the one weight of all votes, for pattern "periodic" or "secret".

    The largest budget takes part in everything. Raises InvalidInput for a budget that affords nothing, or so small
    a one that its rate would be below 1/512 with secret coins.
    """
    budgets = planned.distinct(total_weight=2.0 * planned.sensitivity_per_weight * len(planned.epsilon))
    tried = np.ones(1) if pattern == "periodic" else _RATES
    rates, weight = np.ones(len(budgets.epsilon)), 1.0
    for _ in range(_ROUNDS):
        moved = np.full(len(tried), planned.sensitivity_per_weight * weight)
        queries = budgets.queries(Sensitivity(moved, tried))
        rates = rates_for(queries[:, 0]) if pattern == "periodic" else _secret_rates(queries, budgets.epsilon)
        scale = float(on_lattice(np.array([1.0 / rates[budgets.member].mean()]), units=LATTICE)[0])
        settled = abs(scale / weight - 1) < _SETTLED
        weight = scale
        if settled:
            break
    return rates[budgets.member], weight


def _secret_rates(
    queries: Float64[ndarray, "budgets rates"], epsilon: Float64[ndarray, " budgets"]
) -> Float64[ndarray, " budgets"]:
    """The rate at which each budget affords as many queries as the largest does at rate 1 (log-log interpolation)."""
    wanted = np.log(queries[:, -1].max())
    logs = np.log(queries)
    if (logs[:, 0] < wanted).any():
        worst = int((logs[:, 0] < wanted).argmax())
        raise InvalidInput(
            f"epsilon {epsilon[worst]:g} is too small beside {epsilon.max():g} for secret coins; allowed: budgets for "
            f"which a rate of at least {_RATES[0]:g} is enough"
        )
    # Affordable queries fall as the rate grows.
    enough = (logs >= wanted - 1e-12).sum(axis=1)
    right = np.clip(enough, 1, len(_RATES) - 1)
    row = np.arange(len(right))
    high, low = logs[row, right - 1], logs[row, right]
    share = np.clip((high - wanted) / np.maximum(high - low, 1e-12), 0.0, 1.0)
    log_rates = np.log(_RATES)
    rate = np.exp(log_rates[right - 1] + share * (log_rates[right] - log_rates[right - 1]))
    rate = np.where(enough == len(_RATES), 1.0, rate)
    return np.maximum(np.floor(rate * LATTICE), 1.0) / LATTICE

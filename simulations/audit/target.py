"""What is audited: a mechanism with its accountant's claim, one view, and how a unit's vote enters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.budgets.accountant import Accountant, GaussianDp
from protocols.budgets.filter import budget_filters, noise_reserve
from protocols.errors import InvalidInput
from protocols.mechanisms import ONE_VOTE, Mechanism, Sensitivity, View
from protocols.plural import at_most


@dataclass(frozen=True)
class NoisyThreshold:
    """A threshold and the scale of the noise on what is held against it, both in votes."""

    votes: float
    noise: float


@dataclass(frozen=True, kw_only=True)
class Target:
    """One line of the audit.

    weight: the unit's total vote weight, in votes, > 0; rate: the probability with which its vote enters a query by a
    secret coin (1: always); classes >= 2; queries: their number, all on the same votes, all planned to be answered.
    """

    mechanism: Mechanism
    accountant: Accountant
    view: View
    weight: float
    rate: float
    classes: int
    queries: int

    @property
    def name(self) -> str:
        return self.mechanism.name + (", secret coins" if self.rate < 1 else "")

    @property
    def gaussian_dp(self) -> bool:
        """Whether the claim is Gaussian differential privacy, which also says mu."""
        return isinstance(self.accountant, GaussianDp)

    @property
    def scale(self) -> float:
        """The scale of the label noise, in votes: sigma, or 1/gamma."""
        return self.mechanism.noise_scale

    @property
    def threshold(self) -> NoisyThreshold | None:
        """What the tested maximum is compared with in the last round; None if no threshold is tested."""
        noise = self.mechanism.tested_scale if self.view == "label" else None
        votes = self.mechanism.needed(second_round=self.mechanism.interactive)
        return None if noise is None or votes is None else NoisyThreshold(votes, noise)

    @property
    def multiplicity(self) -> Int64[ndarray, " levels"]:
        """The number of classes at each level of counts: the vote's class before, its class after, and all others."""
        return np.array([1, 1] if self.classes == 2 else [1, 1, self.classes - 2])


@dataclass(frozen=True)
class Claim:
    """What the accountant says `queries` queries cost one unit: epsilon at delta, and mu for Gaussian DP (else None).

    order: the Renyi order of the filter (NaN for Gaussian DP).
    """

    epsilon: float
    delta: float
    order: float
    mu: float | None


def claim_of(target: Target, *, delta: float, total_weight: float) -> Claim:
    """The guarantee that a budget filter publishes when it affords exactly these queries, by the code that charges
    budgets.

    Raises InvalidInput if no filter affords them at this delta.
    """
    sensitivity = Sensitivity(np.array([target.weight]), np.array([target.rate]), delta_squared=ONE_VOTE)
    cost = target.accountant.query_cost(target.mechanism, sensitivity, view=target.view, classes=target.classes)
    spend = target.queries * (cost.ask + cost.answer)[0]
    orders, epsilon, reserve = target.accountant.orders, 0.0, 0.0
    for _ in range(4):
        kept = np.full(len(orders), max(delta - reserve, delta / 2))
        epsilon = float(target.accountant.to_epsilon(spend, orders, kept).min())
        reserve = float(
            noise_reserve(
                target.mechanism,
                epsilon=np.array([epsilon]),
                view=target.view,
                classes=target.classes,
                query_limit=target.queries,
                total_weight=total_weight,
            )[0]
        )
    # The least budget is exact up to the filter's rounding; a budget of zero is not allowed.
    for slack in (1e-9, 1e-6, 1e-3):
        budget = max(epsilon * (1 + slack), 1e-6)
        filters = budget_filters(
            accountant=target.accountant,
            mechanism=target.mechanism,
            sensitivity=sensitivity,
            epsilon=np.array([budget]),
            delta=np.array([delta]),
            view=target.view,
            classes=target.classes,
            query_limit=target.queries,
            total_weight=total_weight,
            answer_rate=1.0,
        )
        if filters.affordable(np.zeros(1, dtype=np.int64), limit=target.queries)[0] == target.queries:
            mu = float(np.sqrt(spend[0])) if target.gaussian_dp else None
            return Claim(float(filters.epsilon_guaranteed[0]), delta, float(filters.order[0]), mu)
    raise InvalidInput(f"no filter affords {target.queries} queries at delta {at_most(delta)}; allowed: fewer queries")


def noise_scales(mechanism: Mechanism) -> str:
    """The mechanism's noise in words, for tables."""
    noise = [name for name, each in mechanism.parameters().items() if each.role == "noise"]
    return ", ".join(f"{name} {mechanism.values[name]:g}" for name in noise if name in mechanism.values)

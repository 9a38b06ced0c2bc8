"""A worst-case epsilon at delta, with its spend and the distance of float64 noise; and the composition of several.

Worst-case guarantee of a person known to several parties, computed only from the parties' caps.

A person with records at several parties moves the votes of all of them, so no single party's epsilon covers them. Every
party stops at its own cap; nothing is assumed about who votes in which query. The two bounds that are computed here, a
feasible point of the dual of a linear programme and the programme with a single price, are derived in
docs/explanation/mathematics.md, section 4.3. Secret coins amplify nothing here: the coins are assumed to be known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_epsilon
from protocols.bounds.label_only import ORDERS
from protocols.bounds.rdp import rdp_to_epsilon
from protocols.budgets.filter import BudgetFilter
from protocols.claims.strength import Figure
from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism, QueryCost, Sensitivity, View

_STEPS = 100
# The fixed point is approached from below; this much above it, the condition holds, which is checked.
_ABOVE = 1e-9


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-DP of all that a release shows, for one person. Adjacency: replace-one.

    epsilon: infinite if delta does not cover the distance of float64 noise from ideal noise at any epsilon;
    order: the Renyi order, NaN for Gaussian DP; spend: the RDP at that order, or mu squared, of ideal noise;
    noise_distance: total variation distance of what was released from what ideal noise releases.
    Raises InvalidInput, with the value and the allowed range.
    """

    epsilon: float
    delta: float
    order: float
    spend: float
    noise_distance: float

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise InvalidInput(f"delta is {self.delta}; allowed: in (0, 1)")
        if not (self.epsilon >= 0 and 0 <= self.spend < np.inf and 0 <= self.noise_distance <= 1):
            raise InvalidInput(
                f"epsilon {self.epsilon}, spend {self.spend}, noise distance {self.noise_distance}; allowed: >= 0, "
                "a finite spend and a distance up to 1"
            )
        if not (np.isnan(self.order) or 1 < self.order < np.inf):
            raise InvalidInput(f"order is {self.order}; allowed: finite and > 1, NaN for Gaussian DP")

    @property
    def figure(self) -> Figure:
        """What sentences say of it."""
        mu = float(np.sqrt(self.spend)) if np.isnan(self.order) else None
        return Figure(self.epsilon, self.delta, mu, self.noise_distance)


@dataclass(frozen=True)
class ChargedComposition:
    """What several releases guarantee together at `delta`: the smaller of two bounds.

    basic: epsilons and deltas add up; renyi: RDP adds up at one common order (or mu squared, with order NaN, if all are
    Gaussian DP).
    """

    delta: float
    basic: float
    renyi: float
    order: float

    @property
    def epsilon(self) -> float:
        """The smaller bound: the epsilon of all releases together."""
        return min(self.basic, self.renyi)


def compose_charges(parts: Sequence[Guarantee]) -> ChargedComposition:
    """The composition of all releases, for a person whose data were in each of them. parts: at least one.

    delta is the sum of their deltas. Basic composition adds epsilons (Dwork & Roth 2014, Thm 3.16). At a common order
    RDP adds up (Mironov 2017, Prop. 1): D_a does not decrease in a (van Erven & Harremoes 2014, Thm 3), so a bound at
    order b holds at every a < b; mu-GDP is a mu^2/2 at every order (Dong, Roth, Su 2022), and if all releases are
    Gaussian DP mu^2 adds up (Cor. 3.3). Later budgets must not have been chosen from private data. They may have been
    chosen after earlier releases were seen (adaptive composition), if all were fixed amounts.
    """
    if not parts:
        raise InvalidInput("no release is given; allowed: at least one")
    delta = float(sum(part.delta for part in parts))
    if delta >= 1:
        raise InvalidInput(f"the deltas add up to {delta}; allowed: below 1")
    distance = sum(part.noise_distance for part in parts)
    orders = [part.order for part in parts if not np.isnan(part.order)]
    mu_squared = sum(part.spend for part in parts if np.isnan(part.order))
    fixed = sum(part.spend for part in parts if not np.isnan(part.order))
    if orders:
        # Candidates are all orders of the table up to the least: with Gaussian DP among the parts, a lower one may be
        # best.
        candidates = np.append(ORDERS[min(orders) > ORDERS], min(orders))
        spends = fixed + candidates * mu_squared / 2

        def convert(left: Float64[ndarray, " rows"]) -> Float64[ndarray, "rows orders"]:
            return rdp_to_epsilon(spends[None, :], candidates[None, :], delta=left[:, None])
    else:
        candidates = np.array([np.nan])

        def convert(left: Float64[ndarray, " rows"]) -> Float64[ndarray, "rows orders"]:
            return gdp_epsilon(np.sqrt(np.array([mu_squared])), left)[:, None]

    renyi, best = least_epsilon(convert, delta=np.array([delta]), noise_distance=distance)
    basic = float(sum(part.epsilon for part in parts))
    return ChargedComposition(delta, basic, float(renyi[0]), float(candidates[best[0]]))


def least_epsilon(
    convert: Callable[[Float64[ndarray, " rows"]], Float64[ndarray, "rows orders"]],
    *,
    delta: Float64[ndarray, " rows"],
    noise_distance: float,
) -> tuple[Float64[ndarray, " rows"], ndarray]:
    """The least epsilon for which (epsilon, delta) holds with float64 noise, and the position of the order that gives
    it.

    convert(delta): epsilon at each order of ideal noise, non-increasing in delta. If what is released is within t =
    noise_distance of what ideal noise releases, (epsilon, d) of the latter gives (epsilon, d + (1 + e^epsilon) t): the
    least solution of epsilon = min convert(delta - (1 + e^epsilon) t) is approached from below, and what is returned
    was checked to be no less than its right-hand side. Infinite where there is no solution.
    """
    rows = np.arange(len(delta))

    def converted(left: Float64[ndarray, " rows"]) -> tuple[Float64[ndarray, " rows"], ndarray]:
        at = convert(np.where(left > 0, left, delta))
        best = at.argmin(axis=1)
        return np.where(left > 0, at[rows, best], np.inf), best

    epsilon, best = converted(delta)
    if noise_distance == 0:
        return epsilon, best

    def left_of(guess: Float64[ndarray, " rows"]) -> Float64[ndarray, " rows"]:
        with np.errstate(over="ignore"):
            return delta - (1.0 + np.exp(guess)) * noise_distance

    for _ in range(_STEPS):
        after = np.maximum(converted(left_of(epsilon))[0], epsilon)
        settled = bool((after == epsilon).all())
        epsilon = after
        if settled:
            break
    epsilon = epsilon * (1 + _ABOVE) + _ABOVE
    right, best = converted(left_of(epsilon))
    return np.where(right <= epsilon, epsilon, np.inf), best


# Raises sums above the rounding errors of their float64 terms.
_MARGIN = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Accounting:
    """What the accounting of a study consists of.

    budgets: the filters of its seats; votes: the votes that one protected unit of each seat moves, > 0; delta_squared:
    see Sensitivity; apart: whether what the seats sent is released seat by seat, so that moves add up in squares;
    noise_distance: total variation distance between all labels that may be released and those with
    ideal noise (0 under the view "histogram").
    """

    budgets: BudgetFilter
    mechanism: Mechanism
    votes: Float64[ndarray, " seats"]
    delta_squared: int | float
    apart: bool
    view: View
    classes: int
    noise_distance: float


def known_to(accounting: Accounting, hospitals: Sequence[Sequence[int]], *, delta: float) -> Guarantee:
    """The guarantee at delta of a person known to all of these hospitals. Adjacency: replace-one at each of them.

    hospitals: the positions of each one's seats; a person is in one seat of a hospital, taken to be the worst. delta:
    in (0, 1). Raises InvalidInput.
    """
    chosen = _hospitals(accounting, hospitals, delta)
    return _guarantees(accounting, _together(accounting, chosen)[None, :], delta=delta)[0]


def worst_known_to(accounting: Accounting, hospitals: Sequence[Sequence[int]], *, delta: float) -> list[Guarantee]:
    """The guarantees at delta of a person known to any 1, 2, ... of the hospitals, whichever choice is worst.

    Never below `known_to` for any choice of that many hospitals.
    """
    every = _hospitals(accounting, hospitals, delta)
    largest = _Hospitals(*(-np.sort(-each) for each in (every.answered, every.refused, every.votes)))
    theta = float((every.refused / every.answered).max())
    spends = np.minimum(_one_price(accounting, largest, theta), _together(accounting, every))
    return _guarantees(accounting, spends, delta=delta)


@dataclass(frozen=True, eq=False, repr=False)
class _Hospitals:
    """For each hospital n and m, the answered and the refused queries that its cap affords, and s, its votes."""

    answered: Float64[ndarray, " hospitals"]
    refused: Float64[ndarray, " hospitals"]
    votes: Float64[ndarray, " hospitals"]


def _hospitals(accounting: Accounting, hospitals: Sequence[Sequence[int]], delta: float) -> _Hospitals:
    """The hospitals by falling n; one with several seats takes the maximum of each quantity over them. Raises
    InvalidInput."""
    if not 0 < delta < 1:
        raise InvalidInput(f"delta is {delta}; allowed: in (0, 1)")
    known = [position for seats in hospitals for position in seats]
    count = len(accounting.votes)
    if not (hospitals and all(hospitals) and len(set(known)) == len(known) and set(known) <= set(range(count))):
        raise InvalidInput(
            f"{len(hospitals)} hospitals with the seats {known[:20]}; allowed: at least one hospital, each with seats "
            f"of 0 to {count - 1}, none twice"
        )
    budgets = accounting.budgets
    cap = budgets.spend(budgets.cap)
    # Where there is one batch, a cap that would pay for more is not spent on another.
    most = 1.0 if budgets.once else np.inf
    each = [np.minimum(cap / price, most) for price in (budgets.ask + budgets.answer, budgets.ask)]
    each.append(accounting.votes)
    answered, refused, votes = (np.array([values[list(seats)].max() for seats in hospitals]) for values in each)
    falling = np.argsort(-answered, kind="stable")
    return _Hospitals(answered[falling], refused[falling], votes[falling])


def _guarantees(accounting: Accounting, spends: Float64[ndarray, "rows orders"], *, delta: float) -> list[Guarantee]:
    """The guarantee of each row, at its best order."""
    accountant = accounting.budgets.accountant
    rows = len(spends)
    orders = np.broadcast_to(accountant.orders, spends.shape)

    def convert(left: Float64[ndarray, " rows"]) -> Float64[ndarray, "rows orders"]:
        deltas = np.broadcast_to(left[:, None], spends.shape)
        return accountant.to_epsilon(spends.ravel(), orders.ravel(), deltas.ravel()).reshape(spends.shape)

    epsilon, best = least_epsilon(convert, delta=np.full(rows, float(delta)), noise_distance=accounting.noise_distance)
    return [
        Guarantee(float(epsilon[row]), float(delta), float(orders[row, at]), float(spends[row, at]),
                  accounting.noise_distance)
        for row, at in enumerate(best)
    ]  # fmt: skip


def _together(accounting: Accounting, hospitals: _Hospitals) -> Float64[ndarray, " orders"]:
    """The spend at each order of a person known to all of them: the smaller of the two bounds."""
    cost = _cost(accounting, hospitals)
    by_ask = hospitals.refused[:, None] * _marginals(cost.ask, hospitals)
    by_full = hospitals.answered[:, None] * _marginals(cost.ask + cost.answer, hospitals)
    either = np.maximum(by_ask, by_full).sum(axis=0) * (1 + _MARGIN)
    theta = float((hospitals.refused / hospitals.answered).max())
    return np.minimum(either, _one_price(accounting, hospitals, theta)[-1])


def _one_price(accounting: Accounting, hospitals: _Hospitals, theta: float) -> Float64[ndarray, "hospitals orders"]:
    """The spend of the first, the first two, ... hospitals at each order, at a single price."""
    cost = _cost(accounting, hospitals)
    price = np.maximum(theta * cost.ask, cost.ask + cost.answer)
    each = hospitals.answered[:, None] * _marginals(price, hospitals)
    return np.cumsum(each, axis=0) * (1 + _MARGIN)


def _cost(accounting: Accounting, hospitals: _Hospitals) -> QueryCost:
    """What a query costs with the votes of the first, the first two, ... hospitals together."""
    power = 2 if accounting.apart else 1
    moved = np.cumsum(hospitals.votes**power) ** (1 / power)
    return accounting.budgets.accountant.query_cost(
        accounting.mechanism,
        Sensitivity.always(moved, delta_squared=accounting.delta_squared),
        view=accounting.view,
        classes=accounting.classes,
    )


def _marginals(
    price: Float64[ndarray, "hospitals orders"], hospitals: _Hospitals
) -> Float64[ndarray, "hospitals orders"]:
    """How much each hospital adds at a price, bounded by chords of the convex cost."""
    slopes = np.diff(price, axis=0, prepend=0.0) / hospitals.votes[:, None]
    return np.maximum.accumulate(slopes, axis=0) * hospitals.votes[:, None]

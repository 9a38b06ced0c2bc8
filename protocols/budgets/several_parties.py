"""Worst-case guarantee of a person known to several parties, computed only from the parties' caps.

A person with records at several parties moves the votes of all of them, so no single party's epsilon covers them. Every
party stops at its own cap; nothing is assumed about who votes in which query. The two bounds that are computed here, a
feasible point of the dual of a linear programme and the programme with a single price, are derived in
docs/explanation/mathematics.md, section 4.3. Secret coins amplify nothing here: the coins are assumed to be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets.filter import BudgetFilter
from protocols.budgets.guarantee import Guarantee, least_epsilon
from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism, QueryCost, Sensitivity, View

# Raises sums above the rounding errors of their float64 terms.
_MARGIN = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Accounting:
    """What the accounting of a study consists of.

    budgets: the filters of its seats; votes: the votes that one protected unit of each seat moves, > 0; noise_distance:
    total variation distance between all labels that may be released and those with ideal noise (0 under the view
    "histogram").
    """

    budgets: BudgetFilter
    mechanism: Mechanism
    votes: Float64[ndarray, " seats"]
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
    each = [cap / (budgets.ask + budgets.answer), cap / budgets.ask, accounting.votes]
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
    return accounting.budgets.accountant.query_cost(
        accounting.mechanism,
        Sensitivity.always(np.cumsum(hospitals.votes)),
        view=accounting.view,
        classes=accounting.classes,
    )


def _marginals(
    price: Float64[ndarray, "hospitals orders"], hospitals: _Hospitals
) -> Float64[ndarray, "hospitals orders"]:
    """How much each hospital adds at a price, bounded by chords of the convex cost."""
    slopes = np.diff(price, axis=0, prepend=0.0) / hospitals.votes[:, None]
    return np.maximum.accumulate(slopes, axis=0) * hospitals.votes[:, None]

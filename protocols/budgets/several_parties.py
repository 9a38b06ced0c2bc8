"""Worst-case guarantee of a person known to several parties, from the parties' caps alone (PRIVACY.md, section 5).

A person whose records lie at a set H of parties moves all of their votes: s_A votes in a query in which the subset A
of H takes part (s_A = the sum of s_p over A). No single party's epsilon covers that. Every party stops by a cap of its
own, so which parties vote in which query follows public ledgers, drop-outs and absences; nothing is assumed of them.

Let ask(s), full(s) be the worst-case cost at order a of a query that is refused, or answered (ask and answer cost
together). p's ledger bounds what p paid at its own order: with p's vote, at most m_p = c_p/ask_p refused queries, n_p =
c_p/full_p answered ones, or any mixture of the two (c_p: p's cap; ask_p, full_p: its prices).

1. Cost by path. Who takes part and what is answered is public, so the Renyi divergence of all that is released is at
   most the largest sum over a path of the conditional ones (Feldman & Zrnic 2021, arXiv 2008.11193, Thm 3.1; for mu^2
   of Gaussian DP, Smith & Thakurta 2022, arXiv 2210.17520). A query with the votes of A costs ask(s_A) or full(s_A):
   a unit with several votes pays for their sum (PRIVACY.md, section 2, "Several votes of one unit").
2. A linear programme. So the total is at most the largest sum over A of N0_A ask(s_A) + N1_A full(s_A), where the
   sum over A with p in it of N0_A/m_p + N1_A/n_p is at most 1 for each p. By duality it is at most the sum of any
   z_p >= 0 for which sum_A z_p/m_p >= ask(s_A) and sum_A z_p/n_p >= full(s_A) for all A.
3. Convexity. ask and full are convex in s, and 0 at 0. For a label: D_a(P(n) || P(n + v)) is convex in v (Prekopa:
   probabilities of convex cones are log-concave); its supremum over n along a ray is then convex. The bit, the same
   in one dimension; Laplace, the logarithm of a sum of exponentials; Gaussian RDP and mu^2, quadratic. A convex
   function of s_A is a supermodular function of A.
4. The bound. Marginals of a supermodular function in any order of the hospitals add up to no less than it over every A
   (Shapley 1971, Thm 3). So z_p = max(m_p d ask, n_p d full) will do, d being the increase from the sum of s before p
   to the sum with p. Hospitals are taken by falling n: with one price that is the worst plan itself (Lovasz 1983):
   all take part until the first budget is used up, then all others, and so on.
5. The worst choice of k. With theta = the largest full_p/ask_p = m_p/n_p, the total is also at most the programme with
   the one price g = max(theta ask, full) and the n_p alone, whose value is the integral over t of g(the sum of s over n
   > t): the k largest s and the k largest n of all hospitals, paired in order of size, bound every choice of k. Both
   bounds hold, and the lesser is taken; what holds for all hospitals holds for any k of them.
6. Any order. All of this holds at every order a at once and is fixed before the first query, so the least converted
   epsilon over orders is a guarantee, unlike an order chosen after spending.

If all afford the same number n of answered queries, R = n full(s_H) where nothing is refused: the cost of that many
queries at the summed weight. With quadratic costs that is (sum_p sqrt R_p)^2, and otherwise never above it.

The published tables of costs are upper bounds, convex up to their error: chords with rising slopes are laid over their
values, which is an upper bound of the true convex function everywhere (a chord is, between two values that are).

A secret coin amplifies nothing here: which parties' coins let their votes in is taken as known, and the joint
convexity of the divergence makes that the worst (van Erven & Harremoes 2014, Thm 13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets.filter import NANO, BudgetFilter
from protocols.budgets.guarantee import Guarantee, least_epsilon
from protocols.errors import InvalidInput
from protocols.mechanisms.mechanism import Mechanism, QueryCost, Sensitivity, View

# Lifts sums over the rounding of their float64 terms.
_MARGIN = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Accounting:
    """What a study fixes about accounting besides its budgets.

    budgets: the filters of its seats; votes: what one protected unit of each seat moves, > 0; noise_distance: total
    variation distance of all labels that may be released from those of ideal noise (0 under the view "histogram").
    """

    budgets: BudgetFilter
    mechanism: Mechanism
    votes: Float64[ndarray, " seats"]
    view: View
    classes: int
    noise_distance: float


def known_to(accounting: Accounting, hospitals: Sequence[Sequence[int]], *, delta: float) -> Guarantee:
    """The guarantee at delta of a person known to all of these hospitals. Adjacency: replace-one at each of them.

    hospitals: the positions of each one's seats; a person is in one seat of a hospital, whichever is worst. delta: in
    (0, 1). Raises InvalidInput.
    """
    chosen = _hospitals(accounting, hospitals, delta)
    return _guarantees(accounting, _together(accounting, chosen)[None, :], delta=delta)[0]


def worst_known_to(accounting: Accounting, hospitals: Sequence[Sequence[int]], *, delta: float) -> list[Guarantee]:
    """The guarantees at delta of a person known to any 1, 2, ... of the hospitals, whichever choice is worst.

    As known_to, and never below it for any choice of as many.
    """
    every = _hospitals(accounting, hospitals, delta)
    largest = _Hospitals(*(-np.sort(-each) for each in (every.answered, every.refused, every.votes)))
    theta = float((every.refused / every.answered).max())
    spends = np.minimum(_one_price(accounting, largest, theta), _together(accounting, every))
    return _guarantees(accounting, spends, delta=delta)


@dataclass(frozen=True, eq=False, repr=False)
class _Hospitals:
    """n, m and s of each: the answered, or the refused, queries that its cap affords, and its votes."""

    answered: Float64[ndarray, " hospitals"]
    refused: Float64[ndarray, " hospitals"]
    votes: Float64[ndarray, " hospitals"]


def _hospitals(accounting: Accounting, hospitals: Sequence[Sequence[int]], delta: float) -> _Hospitals:
    """The hospitals by falling n; one with several seats has the most of each of them. Raises InvalidInput."""
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
    cap = budgets.cap / NANO
    each = [cap / (budgets.ask + budgets.answer), cap / budgets.ask, accounting.votes]
    answered, refused, votes = (np.array([values[list(seats)].max() for seats in hospitals]) for values in each)
    falling = np.argsort(-answered, kind="stable")
    return _Hospitals(answered[falling], refused[falling], votes[falling])


def _guarantees(accounting: Accounting, spends: Float64[ndarray, "rows orders"], *, delta: float) -> list[Guarantee]:
    """Each row at its best order."""
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
    """The spend at each order of a person known to all of them: the lesser of the bounds 4 and 5."""
    cost = _cost(accounting, hospitals)
    by_ask = hospitals.refused[:, None] * _marginals(cost.ask, hospitals)
    by_full = hospitals.answered[:, None] * _marginals(cost.ask + cost.answer, hospitals)
    either = np.maximum(by_ask, by_full).sum(axis=0) * (1 + _MARGIN)
    theta = float((hospitals.refused / hospitals.answered).max())
    return np.minimum(either, _one_price(accounting, hospitals, theta)[-1])


def _one_price(accounting: Accounting, hospitals: _Hospitals, theta: float) -> Float64[ndarray, "hospitals orders"]:
    """The spend of the first, the first two, ... hospitals at each order: bound 5."""
    cost = _cost(accounting, hospitals)
    price = np.maximum(theta * cost.ask, cost.ask + cost.answer)
    each = hospitals.answered[:, None] * _marginals(price, hospitals)
    return np.cumsum(each, axis=0) * (1 + _MARGIN)


def _cost(accounting: Accounting, hospitals: _Hospitals) -> QueryCost:
    """What a query costs with the votes of the first, the first two, ... hospitals."""
    return accounting.budgets.accountant.query_cost(
        accounting.mechanism,
        Sensitivity.always(np.cumsum(hospitals.votes)),
        view=accounting.view,
        classes=accounting.classes,
    )


def _marginals(
    price: Float64[ndarray, "hospitals orders"], hospitals: _Hospitals
) -> Float64[ndarray, "hospitals orders"]:
    """By how much each hospital raises a price: along chords of rising slope, which lie above the convex function."""
    slopes = np.diff(price, axis=0, prepend=0.0) / hospitals.votes[:, None]
    return np.maximum.accumulate(slopes, axis=0) * hospitals.votes[:, None]

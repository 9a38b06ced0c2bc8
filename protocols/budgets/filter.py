"""Budget filters: one integer cap and one integer cost rule per party.

Under exact composition the number of queries is fixed before the first one, and the filter counts: after N queries in
which a party took part it takes part in no other. What stops early was still charged N of N
(docs/explanation/exact-composition.md, section 5). Otherwise, at enrolment a party's (epsilon, delta) becomes ONE Renyi
order and ONE cap; spending stops before the sum at that order would exceed the cap. That is a valid filter under fully
adaptive queries, with individual accounting (Feldman & Zrnic 2021, arXiv 2008.11193; for mu^2 of Gaussian DP Smith &
Thakurta 2022). Proof: docs/explanation/mathematics.md, section 5. The guarantee is the CAP. The amount spent is an
odometer reading, not an epsilon: operators see it as budget used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.compositions import composition
from protocols.bounds.label_only import ORDERS
from protocols.bounds.label_pairs import LARGEST_SHIFT, LabelPairs
from protocols.bounds.rdp import check_budget, epsilon_to_rdp, rdp_to_epsilon
from protocols.budgets.accountant import Accountant
from protocols.errors import InvalidInput
from protocols.ledger.amount import Amount
from protocols.mechanisms import Mechanism, QueryCost, Sensitivity, View
from protocols.plural import at_least, at_most
from protocols.ranges import LARGEST_CAP


@dataclass(frozen=True, eq=False)
class PlannedQueries:
    """Numbers of queries for parties: the better of exact composition and Renyi DP at the best order.

    cost: RDP of one query at ORDERS; query_limit: the most queries that are asked, which sets the tables' depth.
    """

    pairs: LabelPairs
    cost: Float64[ndarray, "parties orders"]
    query_limit: int

    def of(self, parties: Int64[ndarray, " chosen"]) -> PlannedQueries:
        """The same for some of the parties, each as often as it is named."""
        pairs = LabelPairs(self.pairs.kind, self.pairs.shifts[parties])
        return PlannedQueries(pairs, self.cost[parties], self.query_limit)

    def affordable(
        self, epsilon: Float64[ndarray, " parties"], delta: Float64[ndarray, " parties"]
    ) -> Int64[ndarray, " parties"]:
        """The queries, up to query_limit, that each (epsilon, delta) buys. delta: of ideal noise, in (0, 1)."""
        spend = epsilon_to_rdp(epsilon[:, None], ORDERS[None, :], delta=delta[:, None])
        found = np.minimum((spend / self.cost).max(axis=1) * (1 - _MARGIN), self.query_limit)
        found = np.maximum(found, 0.0).astype(np.int64)
        for party, (shift, most, at) in enumerate(zip(self.pairs.shifts.tolist(), epsilon, delta, strict=True)):
            if shift <= LARGEST_SHIFT and found[party] < self.query_limit:
                table = composition(self.pairs.kind, shift, queries=self.query_limit)
                found[party] = max(found[party], table.queries(float(most), float(at), limit=self.query_limit))
        return found

    def epsilon(
        self, queries: Int64[ndarray, " parties"], delta: Float64[ndarray, " parties"]
    ) -> Float64[ndarray, " parties"]:
        """The epsilon at delta of so many queries; 0 for none. It may be published for a planned number only."""
        given = np.stack([self.pairs.shifts, queries.astype(np.float64), delta])
        distinct, first, member = np.unique(given, axis=1, return_index=True, return_inverse=True)
        spend = distinct[1][:, None] * self.cost[first] * (1 + _MARGIN)
        converted = rdp_to_epsilon(spend, ORDERS[None, :], delta=distinct[2][:, None]).min(axis=1)
        composed = [self._composed(*each) for each in distinct.T.tolist()]
        return np.where(distinct[1] > 0, np.minimum(converted, composed), 0.0)[member]

    def delta(self, queries: int, epsilon: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """delta(epsilon) of so many queries of the one party that it holds; epsilon: from 0 to 50."""
        if not queries:
            return np.zeros_like(epsilon)
        spend = queries * self.cost[0] * (1 + _MARGIN)
        exponent = (ORDERS - 1.0) * (spend - epsilon[:, None] + np.log1p(-1.0 / ORDERS)) - np.log(ORDERS)
        converted = np.exp(np.minimum(exponent.min(axis=1), 0.0))
        shift = float(self.pairs.shifts[0])
        if shift > LARGEST_SHIFT:
            return converted
        return np.minimum(
            converted, composition(self.pairs.kind, shift, queries=self.query_limit).delta(queries, epsilon)
        )

    def _composed(self, shift: float, queries: float, delta: float) -> float:
        if not queries or shift > LARGEST_SHIFT:
            return np.inf
        return composition(self.pairs.kind, shift, queries=self.query_limit).epsilon(int(queries), delta)


# Ledgers count nano-units of spend. Costs are first rounded up and caps down by this relative margin, which
# covers the rounding of the few float64 products in between; caps are lowered by as much absolutely, too (`cap_nano`).
NANO = 1e9
_MARGIN = 1e-12


def cap_nano(spend: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """The whole nano-units that a filter may spend of a cap, rounded down; 0 if it is not positive.

    A cap is a difference: it is positive only where epsilon exceeds the other terms of the conversion, so its float64
    error is a few last places of epsilon, below 1e-12 for epsilons up to 500, and bounded absolutely.
    """
    return np.maximum(np.floor(spend * (NANO * (1 - _MARGIN)) - NANO * _MARGIN), 0.0)


def spend_nano(spend: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """The nano-units of a spend, before they are rounded up to whole ones."""
    return spend * (NANO * (1 + _MARGIN))


@dataclass(frozen=True)
class BudgetFilter:
    """Every party's filter, as arrays over parties. Built by `budget_filters`; immutable.

    order: each party's own Renyi order, fixed beforehand (NaN for Gaussian DP); cap: of `unit`, as all amounts, >= 1;
    ask, answer: spend per query at that order, not rounded; once: whether a batch costs as much as one query, however
    many it has. planned: under exact composition cap and charges are numbers of queries, and the cap of a budget that
    buys no query is 0.
    """

    accountant: Accountant
    epsilon: Float64[ndarray, " parties"]
    delta: Float64[ndarray, " parties"]
    order: Float64[ndarray, " parties"]
    cap: Int64[ndarray, " parties"]
    ask: Float64[ndarray, " parties"]
    answer: Float64[ndarray, " parties"]
    once: bool = False
    planned: PlannedQueries | None = None

    @property
    def unit(self) -> str:
        """The unit of its caps and amounts: queries if these were planned, else the accountant's."""
        return self.accountant.unit if self.planned is None else "queries"

    def tagged(self, counts: Int64[ndarray, " parties"]) -> list[Amount]:
        """Each party's cap, or another amount of this filter, with its unit."""
        unit = self.unit
        return [Amount(count, unit) for count in counts.tolist()]

    def tagged_one(self, counts: Int64[ndarray, " parties"], seat: int) -> Amount:
        """The same of the party at one position."""
        return Amount(int(counts[seat]), self.unit)

    def amount(
        self, asked: int | Int64[ndarray, " parties"], answered: int | Int64[ndarray, " parties"]
    ) -> Int64[ndarray, " parties"]:
        """What a batch costs each party when it took part in `asked` queries and `answered` of them were.

        Rounded UP, once. An amount above every cap, which int64 might not
        hold, becomes one more than the largest cap.
        """
        if self.once:
            asked, answered = np.minimum(asked, 1), np.minimum(answered, 1)
        if self.planned is not None:
            return np.minimum(np.broadcast_to(asked, self.cap.shape), LARGEST_CAP + 1).astype(np.int64)
        spend = spend_nano(asked * self.ask + answered * self.answer)
        return np.minimum(np.ceil(spend), LARGEST_CAP + 1.0).astype(np.int64)

    def affordable(self, spent: Int64[ndarray, " parties"], *, limit: int) -> Int64[ndarray, " parties"]:
        """How many queries, at most `limit`, fit what is left of each cap if the party takes part in all of them and
        all are answered."""
        if self.once:
            return np.where(self.amount(1, 1) <= self.cap - spent, limit, 0)
        if self.planned is not None:
            return np.clip(self.cap - spent, 0, limit)
        per_query = spend_nano(self.ask + self.answer)
        size = np.minimum(np.floor((self.cap - spent) / per_query), limit).astype(np.int64)
        # The quotient may be one too large if it was rounded up: the actual charge decides.
        too_many = self.amount(size, size) > self.cap - spent
        return np.maximum(size - too_many, 0)

    @cached_property
    def settles(self) -> bool:
        """Whether a batch costs some party less when queries of it are not answered. If not, it has one price, which is
        charged at once, and nobody's word on what was answered changes it."""
        return bool((self.answer > 0).any())

    def share(self, spent: Int64[ndarray, "*rows parties"]) -> Float64[ndarray, "*rows parties"]:
        """The share of each cap that was spent, in [0, 1]; 0 of a cap that affords nothing."""
        return spent / np.maximum(self.cap, 1)

    def epsilon_of(self, spent: Int64[ndarray, " parties"]) -> Float64[ndarray, " parties"]:
        """The ledger converted at each party's own order, 0 if nothing was spent: an operator's reading."""
        return self.readings(spent.astype(np.float64), np.arange(len(self.cap)))

    def readings(self, spent: Float64[ndarray, " rows"], seats: Int64[ndarray, " rows"]) -> Float64[ndarray, " rows"]:
        """`epsilon_of` for amounts of some seats, each as often as it is named; amounts between two of a ledger too."""
        if self.planned is not None:
            return self.planned.of(seats).epsilon(np.ceil(spent).astype(np.int64), self.delta[seats])
        return self.accountant.to_epsilon(spent / NANO, self.order[seats], self.delta[seats])

    def spend(self, amount: Int64[ndarray, "*rows parties"]) -> Float64[ndarray, "*rows parties"]:
        """Amounts of the ledger as spend at each party's own order: RDP or mu squared.

        Of planned queries it is their Renyi DP: a bound that composes with other releases.
        """
        return amount / NANO if self.planned is None else amount * self.ask

    def nano(self, amount: int, seat: int) -> int:
        """An amount of one seat's ledger in nano-units of spend, rounded up."""
        return amount if self.planned is None else ceil(amount * float(spend_nano(self.ask)[seat]))

    @cached_property
    def epsilon_guaranteed(self) -> Float64[ndarray, " parties"]:
        """The cap converted, at each party's own fixed order or for all its planned queries: the epsilon that may be
        published. Not writeable.
        """
        guaranteed = self.epsilon_of(self.cap)
        guaranteed.flags.writeable = False
        return guaranteed


def budget_filters(
    *,
    accountant: Accountant,
    mechanism: Mechanism,
    sensitivity: Sensitivity,
    epsilon: Float64[ndarray, " parties"],
    delta: Float64[ndarray, " parties"],
    view: View,
    classes: int,
    query_limit: int,
    total_weight: float,
    answer_rate: float,
    once: bool = False,
) -> BudgetFilter:
    """Turns each party's (epsilon, delta) into one order and one integer cap.

    The order maximises the number of queries that the cap affords when a share `answer_rate` (in [0, 1], public
    planning figure) of them is answered. Under the view "label" the distance of float64
    noise from ideal noise, over `query_limit` queries, is taken off delta first (`noise_reserve`).
    once: see BudgetFilter.

    Raises InvalidInput for a budget that affords nothing at any order, naming the budget.
    """
    check_budget(epsilon, delta)
    if not 0 <= answer_rate <= 1:
        raise InvalidInput(f"answer_rate is {answer_rate}; allowed: in [0, 1]")
    reserve = noise_reserve(
        mechanism, epsilon=epsilon, view=view, classes=classes, query_limit=query_limit, total_weight=total_weight
    )
    if (reserve >= delta).any():
        worst = int((reserve / delta).argmax())
        distance = query_limit * mechanism.noise_distance(classes=classes, total_weight=total_weight)
        # The epsilon at which the reserve takes half of delta.
        largest = max(0.0, np.log(delta[worst] / (2 * distance)))
        raise InvalidInput(
            f"delta {at_most(delta[worst])} at epsilon {at_most(epsilon[worst])} does not cover the "
            f"{at_most(reserve[worst])} set aside for float64 noise over {query_limit} queries; allowed: a larger "
            f"delta, fewer queries, or an epsilon of at most {at_least(largest)}"
        )
    # Parties with the same budget and sensitivity have the same filter: solve it once for each distinct one.
    key = np.stack([epsilon, delta, sensitivity.votes, sensitivity.rate])
    distinct, member = np.unique(key, axis=1, return_inverse=True)
    distinct_reserve = np.zeros(distinct.shape[1])
    distinct_reserve[member] = reserve
    caps = accountant.affords(distinct[0], distinct[1] - distinct_reserve)
    each = Sensitivity(distinct[2], distinct[3], delta_squared=sensitivity.delta_squared)
    cost = accountant.query_cost(mechanism, each, view=view, classes=classes)
    best = affordable_queries(caps, cost, answer_rate=answer_rate).argmax(axis=1)
    row = np.arange(len(best))
    cap_spend, ask, answer = caps[row, best], cost.ask[row, best], cost.answer[row, best]
    pairs = accountant.pairs(mechanism, each, view=view, classes=classes)
    if pairs is not None:
        planned = PlannedQueries(pairs, cost.ask, query_limit)
        return BudgetFilter(
            accountant=accountant,
            epsilon=epsilon,
            delta=delta - reserve,
            order=accountant.orders[best][member],
            cap=planned.affordable(distinct[0], distinct[1] - distinct_reserve)[member],
            ask=ask[member],
            answer=answer[member],
            planned=planned.of(member),
        )
    cap = cap_nano(cap_spend)
    if (cap < 1).any():
        worst = int(cap.argmin())
        largest = float(accountant.orders[-1])
        raise InvalidInput(
            f"epsilon {at_most(distinct[0, worst])} cannot be guaranteed at delta {at_most(distinct[1, worst])}"
            f"{f' with Renyi orders up to {largest:g}' if np.isfinite(largest) else ''}; allowed: a larger epsilon or "
            "delta"
        )
    if (cap > LARGEST_CAP).any():
        raise InvalidInput(f"epsilon is {at_most(distinct[0, int(cap.argmax())])}; allowed: at most 4e6")
    orders = accountant.orders[best]
    return BudgetFilter(
        accountant=accountant,
        epsilon=epsilon,
        delta=delta - reserve,
        order=orders[member],
        cap=cap.astype(np.int64)[member],
        ask=ask[member],
        answer=answer[member],
        once=once,
    )


def affordable_queries(
    caps: Float64[ndarray, "... orders"], cost: QueryCost, *, answer_rate: float
) -> Float64[ndarray, "... units orders"]:
    """How many queries each cap affords at each order if a share `answer_rate` is answered (a real number).

    caps: one row per unit, or [budgets, 1, orders] to combine every budget with every unit.
    """
    per_query = cost.ask + answer_rate * cost.answer
    return np.maximum(caps, 0.0) / per_query


def noise_reserve(
    mechanism: Mechanism,
    *,
    epsilon: Float64[ndarray, " parties"],
    view: View,
    classes: int,
    query_limit: int,
    total_weight: float,
) -> Float64[ndarray, " parties"]:
    """The part of delta set aside for float64 noise: (1 + e^epsilon) times the total variation distance.

    If M' is within t of M, then (epsilon, delta) of M gives (epsilon, delta + (1 + e^epsilon) t) of M'. At most 1, a
    delta that promises nothing. Zero under the view "histogram" with real-valued noise: a node's noise is integer
    there, and a simulation's protects nobody. Integer noise is drawn exactly; its reserve is the probability that it
    leaves the ring.
    """
    if view == "histogram" and mechanism.lattice is None:
        return np.zeros_like(epsilon)
    distance = query_limit * mechanism.noise_distance(classes=classes, total_weight=total_weight)
    with np.errstate(over="ignore"):
        return np.minimum((1.0 + np.exp(epsilon)) * distance, 1.0)

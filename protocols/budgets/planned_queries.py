"""How many queries each party's budget buys by exact composition, and the epsilon of any number of them.

The number is fixed before the first query, and the filter counts: after N queries in which a party took part it takes
part in no other. That is a filter by construction. What stops early was still charged N of N
(docs/explanation/exact-composition.md, section 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.compositions import composition
from protocols.bounds.label_only import ORDERS
from protocols.bounds.label_pairs import LARGEST_SHIFT, LabelPairs
from protocols.bounds.rdp import epsilon_to_rdp, rdp_to_epsilon

# Covers the rounding of the few float64 products in between.
_MARGIN = 1e-12


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

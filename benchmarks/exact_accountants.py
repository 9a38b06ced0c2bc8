"""`exact` and `exact_own_vote`: exact per-instance RDP of any unit of a weight, or of one that knows its own votes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from benchmarks.exact_per_instance import LARGEST_MOVE, Directions, QuerySetting, query_rdp, total_rdp
from protocols.errors import InvalidInput
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.mechanisms.gnmax import GNMax
from protocols.mechanisms.interactive_gnmax import InteractiveGNMax
from protocols.mechanisms.thresholded_gnmax import ThresholdedGNMax
from protocols.research.data_dependent import (
    FIGURE_ORDERS,
    Circumstances,
    DataDependentAccountant,
    Figures,
    QueryVotes,
    Units,
    gaussian_decision,
    renyi_figures,
)
from protocols.research.private import Private
from protocols.votes import ABSTAIN

# The most distinct weights that are analysed query by query.
MOST_WEIGHTS = 32


class Exact(DataDependentAccountant):
    """Exact per-instance RDP, both directions, for any unit of a given weight; no unit's own vote is used.

    Every unit that takes part votes, before and after: neighbours neither contain an abstention nor move to one, so
    votes with abstentions are refused.
    """

    name = "exact"
    statement = "exact_per_instance_of_a_weight"
    source = "Renyi divergence by quadrature, both directions"
    note = "neighbours always vote: the move that gives a vote to nobody is not among them"
    units = "record, or party with one vote"
    mechanisms = (GNMax, ThresholdedGNMax, ConfidentGNMax, InteractiveGNMax)

    def check(self, given: Circumstances) -> None:
        super().check(given)
        check_one_vote(self.name, given)
        if self._knows_votes and not given.votes_known:
            raise InvalidInput(
                f"accountant {self.name!r} needs the one vote of each unit; allowed: one teacher per party, and no "
                "votes as counts"
            )
        check_few_weights(self.name, given.sensitivity)
        largest, sigma = float(given.sensitivity.max()), given.mechanism.label_sigma
        if largest > LARGEST_MOVE * sigma:
            raise InvalidInput(
                f"accountant {self.name!r} would move {largest:g} votes at sigma {sigma:g}; allowed: at most "
                f"{LARGEST_MOVE:g} sigma (smaller weights or more noise)"
            )

    def figures(self, evidence: QueryVotes, units: Units) -> Private[Figures]:
        setting = _query_setting(evidence)
        own = units.own_votes
        if evidence.abstentions or (own is not None and (own[units.present] == ABSTAIN).any()):
            raise InvalidInput(
                f"accountant {self.name!r} is for units that vote whenever they take part, and one abstained (-1); "
                "allowed: votes without abstentions, or papernot2018, which needs no own vote"
            )
        if self._knows_votes and units.own_votes is None:
            raise InvalidInput(f"accountant {self.name!r} needs the votes of each unit; votes as counts hold none")
        if self._knows_votes or units.present.all():
            total = total_rdp(
                evidence.counts,
                FIGURE_ORDERS,
                setting=setting,
                sensitivity=units.sensitivity,
                own_votes=units.own_votes if self._knows_votes else None,
            )
            return total.map(lambda rdp: renyi_figures(rdp, units.delta))
        # The costs of all queries are computed once per weight; each unit adds up those of its own queries.
        distinct = np.unique(units.sensitivity)
        rows = [query_rdp(evidence.counts, FIGURE_ORDERS, setting=setting, sensitivity=float(s)) for s in distinct]

        def add_up(each: list[Directions]) -> Figures:
            rdp = np.zeros((len(units.delta), len(FIGURE_ORDERS)))
            for s, costs in zip(distinct, each, strict=True):
                members = units.sensitivity == s
                present = units.present[members].astype(np.float64)
                rdp[members] = np.maximum(present @ costs.forward, present @ costs.reverse)
            return renyi_figures(rdp, units.delta)

        return Private.gather(rows).map(add_up)

    _knows_votes: ClassVar[bool] = False


class ExactOwnVote(Exact):
    """Exact per-instance RDP of a unit whose own votes are known: only moves away from them count."""

    name = "exact_own_vote"
    statement = "exact_per_instance_of_a_unit"
    _knows_votes = True


def _query_setting(evidence: QueryVotes) -> QuerySetting:
    decision = gaussian_decision(evidence)
    return QuerySetting(
        sigma=decision.sigma,
        threshold=decision.threshold,
        sigma_threshold=decision.sigma_threshold,
        student_votes=evidence.student_votes,
    )


def check_one_vote(name: str, given: Circumstances) -> None:
    """Raises InvalidInput where a unit has several votes per query."""
    if not given.one_vote:
        raise InvalidInput(
            f"accountant {name!r} is for units with one vote per query; here a unit has several: allowed: unit "
            "'record', or one teacher per party, and no upsampling"
        )


def check_few_weights(name: str, weights: Float64[ndarray, " units"]) -> None:
    """Raises InvalidInput for more than MOST_WEIGHTS distinct weights."""
    number = len(np.unique(weights))
    if number > MOST_WEIGHTS:
        raise InvalidInput(
            f"accountant {name!r} would go through {number} distinct weights query by query; allowed: at most "
            f"{MOST_WEIGHTS} (fewer distinct budgets, or --weights uniform)"
        )

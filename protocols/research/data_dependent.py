"""Evidence: the votes behind the labels, which a data-dependent accountant analyses, and the units that it is for.

Data-dependent accountants: the privacy cost of the released labels, given the votes that were cast.

They look at votes, so every figure is Private, and none of them offers what a study, a ledger or a plan would need: no
cap, no cost of a future query. The accountants that charge budgets are in accountant.py. All are for the view "label",
adjacency replace-one, and for the queries that were asked; the unit enters as its sensitivity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.bounds.rdp import rdp_to_epsilon, rdp_to_epsilon_mironov
from protocols.errors import InvalidInput
from protocols.mechanisms import GaussianMechanism, Mechanism, View
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.mechanisms.decision import Decision
from protocols.mechanisms.gnmax import GNMax
from protocols.mechanisms.interactive_gnmax import InteractiveGNMax
from protocols.research import papernot
from protocols.research.private import Private


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Circumstances:
    """What is known about a study before anything is trained: enough to tell which accountants apply.

    classes: >= 2; sensitivity: of each unit, votes; cast: the weight of each vote that may be cast in a query;
    votes_known: whether each unit's own vote will be known; one_vote: whether a unit has one vote per query; everyone:
    whether every party takes part in every query; secret: whether parties take part by secret coins.
    """

    mechanism: Mechanism
    view: View
    classes: int
    sensitivity: Float64[ndarray, " units"]
    cast: Float64[ndarray, " votes"]
    votes_known: bool
    one_vote: bool
    everyone: bool
    secret: bool


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class QueryVotes:
    """The votes behind the queries that were asked; private.

    counts: weighted; abstentions: whether any vote that entered is an abstention; answered: which queries got a label;
    student_votes: for Interactive-GNMax what was subtracted from the counts before the threshold test, else None.
    """

    mechanism: Mechanism
    counts: Float64[ndarray, "queries classes"]
    abstentions: bool
    answered: Bool[ndarray, " queries"]
    student_votes: Float64[ndarray, "queries classes"] | None

    @property
    def top(self) -> Float64[ndarray, " queries"]:
        """The numbers that the threshold tests."""
        return (self.counts if self.student_votes is None else self.counts - self.student_votes).max(axis=1)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Units:
    """The protected units: sensitivity in votes (> 0), delta, in which queries each took part, and its own votes.

    cast: the weight of each vote that may be cast in a query. own_votes: class ids, ABSTAIN where not present; None if
    not known, or several per query.
    """

    sensitivity: Float64[ndarray, " units"]
    cast: Float64[ndarray, " votes"]
    delta: Float64[ndarray, " units"]
    present: Bool[ndarray, "units queries"]
    own_votes: Int64[ndarray, "units queries"] | None


@dataclass(frozen=True, eq=False, repr=False)
class Least:
    """The epsilon of each unit at its delta, and the Renyi order (or moment + 1) at which it is least."""

    epsilon: Float64[ndarray, " units"]
    order: Float64[ndarray, " units"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Figures:
    """An accountant's figures; None where it has no such figure.

    happened: for what happened; expected: the mean over the threshold's noise; each by the conversion that the project
    uses, and (mironov, expected_mironov) by that of the papers' tables, epsilon = R + ln(1/delta)/(a - 1) (Mironov
    2017, Prop. 3), where Renyi DP is converted; std: of the epsilon of each unit, where it is that of a noisy release;
    details: how the figure of each unit came about, by name, where there is more to say.
    """

    happened: Least
    mironov: Least | None = None
    expected: Least | None = None
    expected_mironov: Least | None = None
    std: Float64[ndarray, " units"] | None = None
    details: tuple[Mapping[str, float], ...] | None = None

    @property
    def epsilon(self) -> Float64[ndarray, " units"]:
        """The epsilon of each unit for what happened."""
        return self.happened.epsilon

    @property
    def order(self) -> Float64[ndarray, " units"]:
        """The order at which each unit's epsilon for what happened is least."""
        return self.happened.order


def alike_units(
    units: Units,
) -> Iterator[tuple[Int64[ndarray, " members"], Float64[ndarray, "1"], Float64[ndarray, " queries"]]]:
    """Units of one weight that took part in the same queries: their positions, the weight, and 1 for those queries."""
    for members in _classes(units):
        first = members[0]
        yield members, units.sensitivity[first : first + 1], units.present[first].astype(np.float64)


def _classes(units: Units) -> list[Int64[ndarray, " members"]]:
    packed = np.packbits(units.present, axis=1)
    keys = np.concatenate([packed, units.sensitivity[:, None].view(np.uint8).reshape(len(packed), -1)], axis=1)
    _, member = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(member.ravel(), kind="stable")
    return np.split(order, np.flatnonzero(np.diff(member.ravel()[order])) + 1)


def spread_over_units(each: list[Float64[ndarray, "..."]], units: Units) -> Float64[ndarray, "units columns"]:
    """Rows for the groups of `alike`, expanded to rows for their units."""
    rows = np.empty((len(units.delta), each[0].shape[-1]))
    for members, row in zip(_classes(units), each, strict=True):
        rows[members] = row
    return rows


# Orders that a figure may choose among: it is private, so the choice may depend on the votes too.
FIGURE_ORDERS = np.concatenate([[1.25, 1.5, 1.75], np.arange(2.0, 32.5, 0.5), np.geomspace(36.0, 1024.0, 18).round()])


class DataDependentAccountant(ABC):
    """One way to compute the cost of the labels on these votes. It cannot charge a budget."""

    name: ClassVar[str]
    statement: ClassVar[str]
    source: ClassVar[str]
    # What a reader of the figure must know besides its statement.
    note: ClassVar[str] = ""
    units: ClassVar[str] = "record or party"
    noise_law: ClassVar[str] = "gaussian"
    mechanisms: ClassVar[tuple[type[Mechanism], ...]]
    views: ClassVar[tuple[View, ...]] = ("label",)

    @abstractmethod
    def figures(self, evidence: QueryVotes, units: Units) -> Private[Figures]:
        """The epsilon of each unit. Raises InvalidInput as `check` does, and if a condition of the theorem fails."""

    def check(self, given: Circumstances) -> None:
        """Raises InvalidInput if this accountant does not apply, before anything is trained."""
        if given.view not in self.views:
            raise InvalidInput(f"accountant {self.name!r} does not hold for view {given.view!r}; allowed: view 'label'")
        if type(given.mechanism) not in self.mechanisms:
            allowed = ", ".join(m.name for m in self.mechanisms)
            raise InvalidInput(f"accountant {self.name!r} does not hold for {given.mechanism.name}; allowed: {allowed}")
        if given.secret:
            raise InvalidInput(
                f"accountant {self.name!r} has no bound for secret sampling of parties; allowed: participation that is "
                "public"
            )


class Papernot2018(DataDependentAccountant):
    """Theorem 6 of Papernot et al. 2018 at individual sensitivity, for labels and for threshold tests."""

    name = "papernot2018"
    statement = "papernot_2018_data_dependent"
    source = "Papernot et al. 2018, Thm 6, Props 7-10; Boenisch et al. 2023"
    mechanisms = (GNMax, ConfidentGNMax, InteractiveGNMax)

    def figures(self, evidence: QueryVotes, units: Units) -> Private[Figures]:
        decision = gaussian_decision(evidence)
        sigma, bit_sigma, threshold = decision.sigma, decision.sigma_threshold, decision.threshold
        tested = partial(papernot.total_threshold_rdp, evidence.top, FIGURE_ORDERS)
        answer = Private(np.ones(len(evidence.counts)))
        if bit_sigma is not None and threshold is not None:
            answer = papernot.answer_probability(evidence.top, sigma_threshold=bit_sigma, threshold=threshold)

        def rdp(answered: Float64[ndarray, " queries"]) -> Private[Float64[ndarray, "units orders"]]:
            rows = []
            for _, s, present in alike_units(units):
                label = papernot.total_label_rdp(
                    evidence.counts, FIGURE_ORDERS, sigma=sigma, sensitivity=s, times=answered * present
                )
                if bit_sigma is None or threshold is None:
                    rows.append(label)
                    continue
                tests = tested(sigma_threshold=bit_sigma, threshold=threshold, sensitivity=s, times=present)
                rows.append(label.join(tests, np.add))
            return Private.gather(rows).map(lambda each: spread_over_units(each, units))

        happened = rdp(evidence.answered.astype(np.float64)).map(lambda total: renyi_figures(total, units.delta))
        return happened.join(
            answer.then(rdp).map(lambda total: renyi_figures(total, units.delta)),
            lambda realised, mean: replace(realised, expected=mean.happened, expected_mironov=mean.mironov),
        )


def renyi_figures(rdp: Float64[ndarray, "units orders"], delta: Float64[ndarray, " units"]) -> Figures:
    """The least epsilon over the orders (Canonne, Kamath, Steinke 2020, Prop. 12), and by Mironov's conversion."""
    orders, columns = FIGURE_ORDERS[None, :], delta[:, None]
    each = [convert(rdp, orders, delta=columns) for convert in (rdp_to_epsilon, rdp_to_epsilon_mironov)]
    ours, mironov = (Least(epsilon.min(axis=1), FIGURE_ORDERS[epsilon.argmin(axis=1)]) for epsilon in each)
    return Figures(happened=ours, mironov=mironov)


def gaussian_decision(evidence: QueryVotes) -> Decision:
    """How a query was decided. Raises InvalidInput for noise that is not Gaussian."""
    mechanism = evidence.mechanism
    if not isinstance(mechanism, GaussianMechanism):
        raise InvalidInput(f"{mechanism.name} is not analysed like this; allowed: a mechanism with Gaussian noise")
    return mechanism.decision(second_round=False)

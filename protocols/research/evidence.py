"""Evidence: the votes behind the labels, which a data-dependent accountant analyses, and the units that it is for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.mechanisms import Mechanism, View
from protocols.research.smooth_sensitivity.best_release import BestRelease


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
    2017, Prop. 3), where Renyi DP is converted; releases: for a sanitised epsilon, how each would be released.
    """

    happened: Least
    mironov: Least | None = None
    expected: Least | None = None
    expected_mironov: Least | None = None
    releases: tuple[BestRelease, ...] | None = None

    @property
    def epsilon(self) -> Float64[ndarray, " units"]:
        """The epsilon of each unit for what happened."""
        return self.happened.epsilon

    @property
    def order(self) -> Float64[ndarray, " units"]:
        """The order at which each unit's epsilon for what happened is least."""
        return self.happened.order

    @property
    def std(self) -> Float64[ndarray, " units"] | None:
        """Standard deviation of a sanitised epsilon; None without a release."""
        return None if self.releases is None else np.array([release.std for release in self.releases])


def alike(
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


def spread(each: list[Float64[ndarray, "..."]], units: Units) -> Float64[ndarray, "units columns"]:
    """Rows for the groups of `alike`, expanded to rows for their units."""
    rows = np.empty((len(units.delta), each[0].shape[-1]))
    for members, row in zip(_classes(units), each, strict=True):
        rows[members] = row
    return rows

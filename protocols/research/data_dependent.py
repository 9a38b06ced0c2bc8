"""Data-dependent accountants: the privacy cost of the released labels, given the votes that were cast.

They look at votes, so every figure is Private, and none of them offers what a study, a ledger or a plan would need: no
cap, no cost of a future query. The accountants that charge budgets are in accountant.py. All are for the view "label",
adjacency replace-one, and for the queries that were asked; the unit enters as its sensitivity.

Data-dependent RDP of GNMax and of its threshold test (Papernot et al. 2018, arXiv 1802.08908), individually.

Theorem 6 with Propositions 7 to 10: where the plurality is strong, a label costs much less than in the worst case, and
so does a threshold test whose outcome is nearly certain. The bound depends on the votes and holds in one direction
only, D(M(D) || M(D')); it serves to reproduce published figures and to compare. Results are Private: they may neither
stop a study nor be published.

Adjacency replace-one; view "label". q bounds the probability that the label is not the plurality's and is a property
of the histogram, with its actual weights and noise: the same for every unit. A unit of total weight s has the noise
sigma/s in place of sigma in Theorem 6, whose proof uses the neighbour through the Gaussian bound alone (Boenisch et
al. 2023, Appendix on individual RDP).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.bounds.rdp import check_orders, check_sensitivity, rdp_to_epsilon, rdp_to_epsilon_mironov
from protocols.errors import InvalidInput
from protocols.mechanisms import GaussianMechanism, Mechanism, View
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.mechanisms.decision import Decision
from protocols.mechanisms.gnmax import GNMax
from protocols.mechanisms.interactive_gnmax import InteractiveGNMax
from protocols.noise import check_sigma
from protocols.research.private import Private

# Cells [queries, classes] and [queries, orders] held at a time: a few arrays of this size fit a core's cache.
_CHUNK = 200_000
# Below this sum of probabilities a row is computed in logarithms.
_TINY = 1e-280


def total_label_rdp(
    counts: Float64[ndarray, "queries classes"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma: float,
    sensitivity: Float64[ndarray, " units"],
    times: Float64[ndarray, " queries"] | None = None,
) -> Private[Float64[ndarray, "units orders"]]:
    """Sum over queries of the label's RDP, for units of each total weight: Theorem 6, or the Gaussian bound if less.

    Where a condition of Theorem 6 fails, the Gaussian bound a s^2/sigma^2 stands, as in the theorem. counts: weighted
    votes, >= 0, finite, of m >= 2 classes; orders > 1; sensitivity: votes, > 0. Each query counts `times` (in [0, 1];
    None: once). Memory is bounded by chunks. Raises InvalidInput.

    times: 1 and 0 for queries that were answered and were not, or their answer probabilities for an expectation.
    """
    _check(counts, orders, sigma, sensitivity)
    often = _often(times, len(counts))
    return Private(_total(_log_q(counts, sigma), orders, sigma / sensitivity, often))


def each_label_rdp(
    counts: Float64[ndarray, "queries classes"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma: float,
    sensitivity: float,
) -> Private[Float64[ndarray, "queries orders"]]:
    """Each label's RDP for one unit of this total weight: the terms of which `total_label_rdp` is the sum.

    Arguments and errors as there; one row of orders a query, held at once.
    """
    _check(counts, orders, sigma, np.array([sensitivity]))
    return Private(_theorem_6(_log_q(counts, sigma), orders, sigma / sensitivity))


def total_threshold_rdp(
    top: Float64[ndarray, " queries"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma_threshold: float,
    threshold: float,
    sensitivity: Float64[ndarray, " units"],
    times: Float64[ndarray, " queries"] | None = None,
) -> Private[Float64[ndarray, "units orders"]]:
    """Sum over queries of the threshold tests' RDP, as the paper charges them: Theorem 6, or the worst case if less.

    Theorem 6 holds for any mechanism with the Gaussian's RDP curve. A test has two outcomes, the less likely one of
    probability q = min(p, 1 - p), p that of an answer; and a moved vote changes the maximum by s where it changes the
    histogram by sqrt(2) s: sqrt(2) sigma_threshold/s takes the place of the theorem's sigma. top: the largest count (or
    tested difference) of each query; times: as for labels. Raises InvalidInput.
    """
    check_orders(orders)
    check_sensitivity(sensitivity)
    often = _often(times, len(top))
    distance = _distance(top, sigma_threshold, threshold)
    logs = scipy.special.log_ndtr(-np.abs(distance))
    return Private(_total(logs, orders, np.sqrt(2.0) * sigma_threshold / sensitivity, often))


def answer_probability(
    top: Float64[ndarray, " queries"], *, sigma_threshold: float, threshold: float
) -> Private[Float64[ndarray, " queries"]]:
    """P[max + N(0, sigma_threshold^2) >= threshold] of each query; top: the largest count (or tested difference)."""
    return Private(scipy.special.ndtr(_distance(top, sigma_threshold, threshold)))


def check_counts(counts: Float64[ndarray, "queries classes"]) -> None:
    """Raises InvalidInput unless counts are finite, >= 0, of at least one query and two classes."""
    if counts.ndim != 2 or counts.shape[0] < 1 or counts.shape[1] < 2:
        raise InvalidInput(f"counts of shape {counts.shape}; allowed: [queries, classes] with 2 classes or more")
    if not (np.isfinite(counts).all() and (counts >= 0).all()):
        raise InvalidInput("counts hold a negative or non-finite number of votes; allowed: finite, >= 0")


def _check(
    counts: Float64[ndarray, "queries classes"],
    orders: Float64[ndarray, " orders"],
    sigma: float,
    sensitivity: Float64[ndarray, " units"],
) -> None:
    check_counts(counts)
    check_orders(orders)
    check_sigma("sigma", sigma)
    check_sensitivity(sensitivity)


def _distance(
    top: Float64[ndarray, " queries"], sigma_threshold: float, threshold: float
) -> Float64[ndarray, " queries"]:
    """By how many standard deviations of the test's noise each tested number exceeds the threshold."""
    check_sigma("sigma_threshold", sigma_threshold)
    if not (np.isfinite(top).all() and np.isfinite(threshold)):
        raise InvalidInput(f"the threshold is {threshold} or a tested count is not finite; allowed: finite numbers")
    return (top - threshold) / sigma_threshold


def _often(times: Float64[ndarray, " queries"] | None, queries: int) -> Float64[ndarray, " queries"]:
    often = np.ones(queries) if times is None else times
    if often.shape != (queries,) or not ((often >= 0).all() and (often <= 1).all()):
        raise InvalidInput(
            f"times of shape {often.shape} span [{often.min()}, {often.max()}]; allowed: one in [0, 1] each"
        )
    return often


def _total(
    logs: Float64[ndarray, " queries"],
    orders: Float64[ndarray, " orders"],
    sigmas: Float64[ndarray, " units"],
    often: Float64[ndarray, " queries"],
) -> Float64[ndarray, "units orders"]:
    """The sum of Theorem 6 over queries, in chunks; sigmas: of each unit, at sensitivity 1."""
    total = np.zeros((len(sigmas), len(orders)))
    step = max(1, _CHUNK // len(orders))
    for unit, sigma in enumerate(sigmas.tolist()):
        for start in range(0, len(logs), step):
            part = slice(start, start + step)
            total[unit] += often[part] @ _theorem_6(logs[part], orders, sigma)
    return total


def _log_q(counts: Float64[ndarray, "queries classes"], sigma: float) -> Float64[ndarray, " queries"]:
    """ln q, q = min(1/2 sum_{j != i*} erfc((n_i* - n_j)/(2 sigma)), 1 - 1/m) (Papernot et al. 2018, Prop. 7).

    q is at least the probability that GNMax's label differs from the plurality i*. Exact down to ln q = -1e12. In
    chunks: erfc is summed directly, and in logarithms for rows where all terms underflow.
    """
    queries, classes = counts.shape
    logs = np.empty(queries)
    step = max(1, _CHUNK // classes)
    for start in range(0, queries, step):
        part = counts[start : start + step]
        row = np.arange(len(part))
        top = part.argmax(axis=1)
        gap = part[row, top][:, None] - part
        gap *= 0.5 / sigma
        # The plurality itself is left out of the sum.
        gap[row, top] = np.inf
        total = 0.5 * scipy.special.erfc(gap).sum(axis=1)
        tiny = total < _TINY
        with np.errstate(divide="ignore"):
            logs[start : start + step] = np.log(total)
        if tiny.any():
            each = scipy.special.log_ndtr(-gap[tiny] * np.sqrt(2.0))
            largest = each.max(axis=1)
            logs[start + np.flatnonzero(tiny)] = largest + np.log(np.exp(each - largest[:, None]).sum(axis=1))
    return np.minimum(logs, np.log1p(-1 / classes))


def _theorem_6(
    logs: Float64[ndarray, " queries"], orders: Float64[ndarray, " orders"], sigma: float
) -> Float64[ndarray, "queries orders"]:
    """Theorem 6 for sensitivity 1 and noise `sigma`, given ln q; the Gaussian bound where it does not apply."""
    worst = orders / sigma**2
    rdp = np.tile(worst, (len(logs), 1))
    mu2 = sigma * np.sqrt(-logs)
    valid = _conditions(logs, mu2, sigma) & (mu2 + 1 > orders.min())
    if not valid.any():
        return rdp
    logs, mu2 = logs[valid], mu2[valid]
    mu1 = mu2 + 1
    # ln(1 - q) and ln(1 - (q e^e2)^((mu2 - 1)/mu2)), of which A is the quotient (Prop. 8).
    log_1q = np.log1p(-np.exp(logs))
    log_1w = np.log1p(-np.exp((logs + mu2 / sigma**2) * (1 - 1 / mu2)))
    log_b = mu1 / sigma**2 - logs / (mu1 - 1)
    order = orders[None, :]
    stays = order * log_1q[:, None] - (order - 1) * log_1w[:, None]
    leaves = logs[:, None] + (order - 1) * log_b[:, None]
    # Far above the Gaussian bound the value does not matter; the cap keeps exp finite.
    power = np.expm1(np.minimum(stays, 600.0)) + np.exp(np.minimum(leaves, 600.0))
    bound = np.log1p(np.maximum(power, 0.0)) / (order - 1)
    large = np.maximum(stays, leaves) > 500.0
    if large.any():
        bound[large] = (np.logaddexp(stays, leaves) / (order - 1))[large]
    rdp[valid] = np.where(order < mu1[:, None], np.minimum(bound, worst), worst)
    return rdp


def _conditions(
    logs: Float64[ndarray, " queries"], mu2: Float64[ndarray, " queries"], sigma: float
) -> Bool[ndarray, " queries"]:
    """Theorem 6's conditions on q (Prop. 10), except a < mu1: mu2 > 1, q e^e2 < 1, and q below the third bound."""
    possible = mu2 > 1
    safe = np.where(possible, mu2, 2.0)
    e2 = safe / sigma**2
    third = (safe - 1) * e2 - safe * (np.log1p(1 / safe) + np.log(safe / (safe - 1)))
    return possible & (logs + e2 < 0) & (logs <= third)


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
        tested = partial(total_threshold_rdp, evidence.top, FIGURE_ORDERS)
        answer = Private(np.ones(len(evidence.counts)))
        if bit_sigma is not None and threshold is not None:
            answer = answer_probability(evidence.top, sigma_threshold=bit_sigma, threshold=threshold)

        def rdp(answered: Float64[ndarray, " queries"]) -> Private[Float64[ndarray, "units orders"]]:
            rows = []
            for _, s, present in alike_units(units):
                label = total_label_rdp(
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

"""How well scores tell members from non-members: AUC, rates at fixed false positives, advantage; with intervals.

A score is larger the more a record looks like a member. All intervals are two-sided and hold for records that are
drawn independently; records of one patient are not, and make them too narrow.

A membership report: what attacks found on the released student and on controls, and the ceilings.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import (
    Any,  # the values of a JSON object
    Final,
)

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

from protocols.errors import InvalidInput

LEVEL: Final = 0.95
FALSE_POSITIVE_RATES: Final = (0.001, 0.01, 0.1)
# A curve keeps at most about this many points, evenly spread over the logarithm of its false positives.
_CURVE_POINTS = 200
_PERMUTATIONS = 400
# Standard deviations on each side of a normal interval at LEVEL.
_DEVIATIONS = -float(scipy.special.ndtri((1 - LEVEL) / 2))
# Rounding leaves variances of 1e-33 where there is none; a real one is above 1/records^4.
_NO_VARIANCE = 1e-26

_Scores = Float64[ndarray, " records"]


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval at LEVEL."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class RateAt:
    """The share of members found where at most a share `wanted` of non-members is taken for members.

    false_positive_rate: the threshold's rate on the non-members at hand, with its interval.
    """

    wanted: float
    true_positive_rate: Estimate
    false_positive_rate: Estimate


@dataclass(frozen=True, eq=False)
class Curve:
    """Points of a receiver operating characteristic, both rates ascending; it starts at the first false positive."""

    false_positive_rate: Float64[ndarray, " points"]
    true_positive_rate: Float64[ndarray, " points"]


def area(members: _Scores, others: _Scores) -> Estimate:
    """The area under the curve: P(member > other) + P(equal)/2, with DeLong's interval on the logit scale.

    DeLong, DeLong & Clarke-Pearson 1988, by midranks (Sun & Xu 2014). Where the scores separate fully, or are
    all equal, that variance is 0 and says nothing: then the interval is the exact one of independent pairs.
    """
    value, of_members, of_others = _placements(members, others)
    variance = of_members.var(ddof=1) / len(members) + of_others.var(ddof=1) / len(others)
    if variance < _NO_VARIANCE:
        return _area_of_pairs(value, min(len(members), len(others)))
    logit = np.log(value) - np.log1p(-value)
    half = _DEVIATIONS * np.sqrt(variance) / (value * (1 - value))
    low, high = 1 / (1 + np.exp(-np.array([logit - half, logit + half])))
    return Estimate(value, float(low), float(high))


def area_difference(members: _Scores, others: _Scores, *, base_members: _Scores, base_others: _Scores) -> Estimate:
    """area(members, others) - area(base_members, base_others), two scores of the same records; DeLong's interval.

    DeLong et al. 1988, with the contrast (1, -1). Where that variance is 0, the interval follows from the two
    areas' own.
    """
    _check(members, base_members)
    _check(others, base_others)
    value, of_members, of_others = _placements(members, others)
    base, base_of_members, base_of_others = _placements(base_members, base_others)
    variance = (of_members - base_of_members).var(ddof=1) / len(members)
    variance += (of_others - base_of_others).var(ddof=1) / len(others)
    if variance < _NO_VARIANCE:
        first, second = area(members, others), area(base_members, base_others)
        return Estimate(value - base, first.low - second.high, first.high - second.low)
    half = _DEVIATIONS * float(np.sqrt(variance))
    return Estimate(value - base, max(-1.0, value - base - half), min(1.0, value - base + half))


def permuted_area(members: _Scores, others: _Scores, *, rng: np.random.Generator) -> Estimate:
    """Areas when membership is permuted over all records: the mean of _PERMUTATIONS, and the range of 95 % of them.

    An area outside of the range is what chance gives in 5 % of cases if members and others are exchangeable, whatever
    the law of the scores.
    """
    _check_enough(members, others)
    ranks, count = scipy.stats.rankdata(np.concatenate([members, others])), len(members)
    sums = np.array([rng.permutation(ranks)[:count].sum() for _ in range(_PERMUTATIONS)])
    areas = (sums - count * (count + 1) / 2) / (count * len(others))
    low, high = np.quantile(areas, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(areas.mean()), float(low), float(high))


def rates(members: _Scores, others: _Scores) -> tuple[RateAt, ...]:
    """The true-positive rate at each of FALSE_POSITIVE_RATES, with Clopper-Pearson intervals.

    The threshold is as low as the non-members allow without interpolation, so with fewer than 1/rate of them no
    false positive is allowed at all. Members are independent of it, so their interval is exact; and the upper end of
    the false-positive interval is the exact one of an order statistic (Wilks 1941).
    """
    _check_enough(members, others)
    found = []
    for wanted in FALSE_POSITIVE_RATES:
        # The smallest excess guards against 0.1 * 10 = 0.99...9.
        allowed = int(np.floor(wanted * len(others) * (1 + 1e-12)))
        threshold = np.sort(others)[len(others) - 1 - allowed]
        positives, false = int((members > threshold).sum()), int((others > threshold).sum())
        found.append(RateAt(wanted, proportion(positives, len(members)), proportion(false, len(others))))
    return tuple(found)


def best_threshold(members: _Scores, others: _Scores) -> float:
    """The score from which on a record is called a member, chosen so that TPR - FPR is largest on these records."""
    _check_enough(members, others)
    values = np.unique(np.concatenate([members, others]))
    true = 1 - np.searchsorted(np.sort(members), values) / len(members)
    false = 1 - np.searchsorted(np.sort(others), values) / len(others)
    best = int(np.argmax(true - false))
    # Halfway to the next lower score, so that rounding does not affect the records at the threshold.
    return float(values[best] if best == 0 else values[best - 1] / 2 + values[best] / 2)


def advantage(members: _Scores, others: _Scores, *, threshold: float) -> Estimate:
    """TPR - FPR of calling records with at least score `threshold` members (the advantage of Yeom et al. 2018).

    The threshold must come from other records: the best one for the same records is optimistic. The interval joins two
    Clopper-Pearson intervals by the square-and-add rule (Newcombe 1998, method 10; Zou & Donner 2008).
    """
    _check_enough(members, others)
    true = proportion(int((members >= threshold).sum()), len(members))
    false = proportion(int((others >= threshold).sum()), len(others))
    value = true.value - false.value
    below = np.hypot(true.value - true.low, false.high - false.value)
    above = np.hypot(true.high - true.value, false.value - false.low)
    return Estimate(value, float(value - below), float(value + above))


def proportion(successes: int, trials: int, *, level: float = LEVEL) -> Estimate:
    """A share with its exact interval (Clopper & Pearson 1934)."""
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else float(scipy.special.betaincinv(successes, trials - successes + 1, tail))
    high = 1.0 if successes == trials else float(scipy.special.betainccinv(successes + 1, trials - successes, tail))
    return Estimate(successes / trials, low, high)


def curve(members: _Scores, others: _Scores) -> Curve:
    """The receiver operating characteristic at up to about _CURVE_POINTS numbers of false positives."""
    _check_enough(members, others)
    count = len(others)
    allowed = np.unique(np.geomspace(1, count, _CURVE_POINTS).round().astype(np.int64))
    # The lowest threshold that at most `allowed` non-members reach; -inf if all may.
    thresholds = np.append(-np.inf, np.sort(others))[count - allowed]
    true = 1 - np.searchsorted(np.sort(members), thresholds, side="right") / len(members)
    return Curve(allowed / count, true)


def _placements(members: _Scores, others: _Scores) -> tuple[float, _Scores, _Scores]:
    """The area, and for each record the share of the other side that scores lower (members) or higher (others)."""
    _check_enough(members, others)
    ranks = scipy.stats.rankdata(np.concatenate([members, others]))
    of_members = (ranks[: len(members)] - scipy.stats.rankdata(members)) / len(others)
    of_others = 1 - (ranks[len(members) :] - scipy.stats.rankdata(others)) / len(members)
    return float(of_members.mean()), of_members, of_others


def _area_of_pairs(value: float, pairs: int) -> Estimate:
    """The interval where a member beats each other record (1), none (0), or all are equal (1/2).

    `pairs` disjoint pairs are independent; wins and losses among them have exact intervals, joined by Bonferroni.
    """
    wins, losses = (pairs if value == side else 0 for side in (1.0, 0.0))
    win = proportion(wins, pairs, level=(1 + LEVEL) / 2)
    loss = proportion(losses, pairs, level=(1 + LEVEL) / 2)
    return Estimate(value, (1 + win.low - loss.high) / 2, (1 + win.high - loss.low) / 2)


def _check_enough(members: _Scores, others: _Scores) -> None:
    for name, scores in (("members", members), ("non-members", others)):
        if scores.ndim != 1 or len(scores) < 2:
            raise InvalidInput(f"scores of {name} have shape {scores.shape}; allowed: one row of at least 2")
        if np.isnan(scores).any():
            raise InvalidInput(f"scores of {name} hold NaN; allowed: numbers")


def _check(scores: _Scores, base: _Scores) -> None:
    if scores.shape != base.shape:
        raise InvalidInput(f"two scores of shapes {scores.shape} and {base.shape}; allowed: of the same records")


@dataclass(frozen=True, eq=False)
class AttackResult:
    """One attack on one model; members and non_members: how many records its area and rates were measured on."""

    attack: str
    members: int
    non_members: int
    area: Estimate
    rates: tuple[RateAt, ...]
    advantage: Estimate
    curve: Curve


@dataclass(frozen=True)
class BeyondShift:
    """By how much one attack on the released student exceeds the same attack on the student without private data."""

    attack: str
    area: Estimate
    advantage: Estimate


@dataclass(frozen=True)
class AttackCeiling:
    """The most that any attack on one unit of this (epsilon, delta) reaches; rates: at FALSE_POSITIVE_RATES."""

    epsilon: float
    delta: float
    area: float
    rates: tuple[float, ...]
    advantage: float


@dataclass(frozen=True)
class BudgetGroup:
    """The loss attack on the members of one budget, or a range of budgets, against all non-members.

    beyond_shift: by how much the area exceeds that of the model without private data on the same records. ceiling: of
    the area, at the largest epsilon of the group.
    """

    epsilon_low: float
    epsilon_high: float
    members: int
    area: Estimate
    beyond_shift: Estimate | None
    ceiling: float


@dataclass(frozen=True, eq=False)
class MembershipReport:
    """What two standard attacks found, controls, and ceilings.

    released, non_private, no_private_data: one result per attack; empty if a control was not measured. beyond_shift:
    one per attack, on the same records; empty if that student was not measured. permuted: areas of the loss
    attack when membership is permuted, their mean and range. least_protected: at the largest epsilon and the largest
    delta, which holds for every unit; most_protected: of the unit where the ceiling is lowest.
    """

    released: tuple[AttackResult, ...]
    non_private: tuple[AttackResult, ...]
    no_private_data: tuple[AttackResult, ...]
    beyond_shift: tuple[BeyondShift, ...]
    permuted: Estimate
    groups: tuple[BudgetGroup, ...]
    least_protected: AttackCeiling
    most_protected: AttackCeiling
    seed: int

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, without the curves."""
        plain: dict[str, Any] = {"level": LEVEL, "false_positive_rates": list(FALSE_POSITIVE_RATES), "seed": self.seed}
        for name in ("released", "non_private", "no_private_data"):
            plain[name] = [_attack_json(result) for result in getattr(self, name)]
        plain["beyond_shift"] = [asdict(beyond) for beyond in self.beyond_shift]
        plain["permuted"] = asdict(self.permuted)
        plain["groups"] = [asdict(group) for group in self.groups]
        plain["ceilings"] = {
            name: asdict(getattr(self, name)) | {"rates": list(getattr(self, name).rates)}
            for name in ("least_protected", "most_protected")
        }
        return plain


def _attack_json(result: AttackResult) -> dict[str, Any]:
    return {
        "attack": result.attack,
        "members": result.members,
        "non_members": result.non_members,
        "area": asdict(result.area),
        "rates": [asdict(rate) for rate in result.rates],
        "advantage": asdict(result.advantage),
    }

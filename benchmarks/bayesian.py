"""Bayesian differential privacy: the cost of a TYPICAL pair of neighbours (Triastcyn & Faltings, ICML 2020).

Unit: one record. Adjacency: whatever the sampled pairs are; with and without one record for the subsampled Gaussian of
the paper, one record replaced for PATE (benchmarks/typical_case.py). View: that of the mechanism whose
divergences are given. Only the record that moves is random, drawn from the data's own distribution: the figure says
little about an outlier and nothing about a chosen worst case.

The figure is an ESTIMATE, not a bound. Theorem 4 puts Student's t around the mean of e^(T x), which is right for
normal samples and in the limit of many. That variable is heavy-tailed: a rare pair that was not drawn may carry nearly
all of the mean, and then the estimate is too small with a probability far above 1 - confidence. Nor is that
probability corrected for the choice of the best power. Results depend on private data and are Private. More in
benchmarks/typical-case.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.research.private import Private

Number = float | int
Samples = Float64[ndarray, "pairs columns"]

# Above this exponent e^y - 1 is formed from logarithms; below it, directly, which loses no digits near 0.
_SMALL = 30.0


@dataclass(frozen=True, eq=False, repr=False)
class BayesianCurve:
    """The Bayesian privacy cost of everything composed so far, at each power. Always wrapped in a Private.

    powers: l > 0, one less than the Renyi order; costs: sum over calls of c(l) (Theorem 2); log_confidence: sum of
    ln(confidence); calls: how many mechanisms were added up; total: the exponent T of Hoelder's inequality with which
    each was estimated: how many may be added up at most (Theorem 1); top_shares: the part of the estimated mean of
    e^(T x) - 1 that rests on the one most expensive pair (the largest over calls; 1/N at least, 1: on it alone; 0 where
    no pair costs anything).
    """

    powers: Float64[ndarray, " powers"]
    costs: Float64[ndarray, " powers"]
    log_confidence: float
    calls: int
    total: int
    top_shares: Float64[ndarray, " powers"]

    def __add__(self, other: BayesianCurve) -> BayesianCurve:
        if not np.array_equal(self.powers, other.powers) or self.total != other.total:
            raise InvalidInput(
                f"Bayesian costs of other powers or of another total do not add; totals are {self.total} and "
                f"{other.total}: use the same"
            )
        return BayesianCurve(
            self.powers,
            self.costs + other.costs,
            self.log_confidence + other.log_confidence,
            self.calls + other.calls,
            self.total,
            np.maximum(self.top_shares, other.top_shares),
        )

    def __mul__(self, times: int) -> BayesianCurve:
        if times < 1:
            raise InvalidInput(f"times is {times}; allowed: at least 1")
        return replace(
            self, costs=self.costs * times, log_confidence=self.log_confidence * times, calls=self.calls * times
        )

    @property
    def failure(self) -> float:
        """1 - the product of the confidences: the part of delta that the estimates take up (Theorem 4)."""
        return float(-np.expm1(self.log_confidence))

    def to_epsilon(self, *, delta: Number) -> tuple[float, float]:
        """(epsilon, power): min_l (sum c(l) - ln(delta - failure))/l, at least 0, and the power that attains it.

        Triastcyn & Faltings 2020, Theorem 2 with the remark after Theorem 4. Raises InvalidInput unless failure <
        delta < 1, or where more calls were added up than `total`.
        """
        self._check_calls()
        if not self.failure < delta < 1:
            raise InvalidInput(
                f"delta is {delta}; allowed: below 1 and above 1 - (product of the confidences) = {self.failure:.6g}, "
                "the probability that an estimate is too small: raise the confidence or delta"
            )
        each = (self.costs - np.log(delta - self.failure)) / self.powers
        best = int(each.argmin())
        return max(float(each[best]), 0.0), float(self.powers[best])

    def _check_calls(self) -> None:
        if self.calls > self.total:
            raise InvalidInput(
                f"{self.calls} calls were added up and total is {self.total}; allowed: at most total calls, for which "
                "Hoelder's inequality was applied"
            )


def bayesian_cost(
    samples: Samples | Private[Samples], powers: Float64[ndarray, " powers"], *, total: int, confidence: Number
) -> Private[BayesianCurve]:
    """The estimated cost of one call at each power l (Triastcyn & Faltings 2020, Theorem 4).

    c(l) = 1/T ln[mean(e^(T x)) + t^-1_{N-1}(confidence)/sqrt(N - 1) sd(e^(T x))], sd with divisor N, at least 0.
    samples: x = l D_{l+1} of N >= 2 independently drawn typical pairs, the larger of both directions (>= 0, finite;
    the same pair in one row); total: T >= the calls that will be added up, 1 where x is already that of a whole
    composition; confidence: in (0, 1), with which c(l) would be large enough if e^(T x) were normal. Everything in
    logarithms. Raises InvalidInput.
    """
    check_powers(powers)
    if total < 1:
        raise InvalidInput(f"total is {total}; allowed: at least 1")
    check_confidence(confidence)
    given = samples if isinstance(samples, Private) else Private(samples)
    return given.map(lambda x: _curve(x, powers, total, confidence))


def bounded_cost(
    moved: int,
    pairs: int,
    ceiling: Float64[ndarray, " columns"],
    powers: Float64[ndarray, " powers"],
    *,
    confidence: Number,
) -> Private[BayesianCurve]:
    """A cost that IS an upper bound, with the stated confidence and at all powers at once: what the sampled pairs
    prove.

    c(l) = ln[1 + p (e^ceiling(l) - 1)], p being the upper confidence limit of the probability that a typical pair
    differs at all (Clopper & Pearson 1934), `moved` of `pairs` independently drawn ones having done so; ceiling: l
    times the worst-case divergence of order l + 1 of the same composition, whatever the pair. Raises InvalidInput.
    """
    check_powers(powers)
    check_confidence(confidence)
    if not 0 <= moved <= pairs or pairs < 1:
        raise InvalidInput(f"{moved} of {pairs} pairs moved; allowed: from 0 to the number of pairs, at least 1")
    if ceiling.shape != powers.shape or not (np.isfinite(ceiling).all() and (ceiling >= 0).all()):
        raise InvalidInput(f"ceiling of shape {ceiling.shape}; allowed: one finite number >= 0 a power")
    p = 1.0 if moved == pairs else float(scipy.stats.beta.isf(1.0 - confidence, moved + 1, pairs - moved))
    with np.errstate(divide="ignore"):
        costs = np.logaddexp(np.log(p) + ceiling, np.log1p(-p))
    # Rounding must not make it negative, nor better than the worst case.
    costs = np.clip(costs, 0.0, ceiling)
    return Private(BayesianCurve(powers, costs, _log_confidence(confidence), 1, 1, np.zeros(len(powers))))


def check_powers(powers: Float64[ndarray, " powers"]) -> None:
    """Raises InvalidInput unless every power l is finite and > 0 (the Renyi order is l + 1)."""
    if powers.size == 0 or not (np.isfinite(powers).all() and (powers > 0).all()):
        raise InvalidInput(f"powers are {powers.tolist()}; allowed: finite and > 0, one less than the Renyi orders")


def check_confidence(confidence: Number) -> None:
    """Raises InvalidInput unless the confidence is in (0, 1)."""
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence is {confidence}; allowed: in (0, 1)")


def _curve(samples: Samples, powers: Float64[ndarray, " powers"], total: int, confidence: Number) -> BayesianCurve:
    """`bayesian_cost` for samples that are not wrapped in a Private."""
    pairs = len(samples)
    if samples.shape[1] != len(powers):
        raise InvalidInput(f"samples of shape {samples.shape} for {len(powers)} powers; allowed: one column per power")
    if pairs < 2:
        raise InvalidInput(f"{pairs} sampled pairs; allowed: 2 or more, so that they have a spread")
    if not (np.isfinite(samples).all() and (samples >= 0).all()):
        raise InvalidInput("samples hold a negative value or one that is not finite; allowed: l D_{l+1}, finite, >= 0")
    with np.errstate(over="ignore"):
        y = total * samples
    if not np.isfinite(y).all():
        raise InvalidInput(f"total is {total}, with which a sample passes the largest float; allowed: smaller")
    spread = float(scipy.stats.t.isf(1.0 - confidence, pairs - 1)) / np.sqrt(pairs - 1)
    top = y.max(axis=0)
    near = np.expm1(np.minimum(y, _SMALL))
    small = np.log1p(np.maximum(near.mean(axis=0) + spread * near.std(axis=0), 0.0))
    scaled = np.exp(y - top)
    # A quantile below the median makes spread negative; the mean itself is at least 1, so the cost at least 0.
    large = top + np.log(np.maximum(scaled.mean(axis=0) + spread * scaled.std(axis=0), np.finfo(np.float64).tiny))
    costs = np.where(top <= _SMALL, small, np.maximum(large, 0.0)) / total
    share = np.where(top <= _SMALL, near.max(axis=0) / np.maximum(near.sum(axis=0), 1e-300), 1 / scaled.sum(axis=0))
    return BayesianCurve(powers, costs, _log_confidence(confidence), 1, total, share)


def _log_confidence(confidence: Number) -> float:
    return float(np.log1p(-(1.0 - confidence)))

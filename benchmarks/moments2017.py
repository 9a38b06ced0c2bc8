"""`moments2017`: the moments accountant of PATE 2017 for LNMax (Papernot et al., ICLR 2017, arXiv 1610.05755).

alpha(l) is the log of the l-th moment of e^(privacy loss); it adds over queries, and epsilon is the least
(alpha(l) + ln(1/delta))/l (Abadi et al. 2016, Thm 2). In RDP terms alpha(l)/l is the divergence of order l + 1. The
data-independent part holds for every vote; the data-dependent one (Theorem 3) is Private.

At individual sensitivity s: for one unit of total weight s the mechanism is (2 gamma s)-DP, because two independent
counts move by s each under noise of scale 1/gamma. Theorem 3 uses the neighbour only through that level, and the votes
only through q; so 2 gamma becomes 2 gamma s there, while q keeps the actual noise and counts.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Float64, Integer
from numpy import ndarray

from protocols.bounds.rdp import check_sensitivity
from protocols.errors import InvalidInput
from protocols.mechanisms.lnmax import LNMax
from protocols.research.data_dependent import (
    DataDependentAccountant,
    Figures,
    Least,
    QueryVotes,
    Units,
    alike_units,
    check_counts,
    spread_over_units,
)
from protocols.research.private import Private

MOMENTS = np.arange(1, 129)


class Moments2017(DataDependentAccountant):
    """The moments accountant of PATE 2017 for LNMax, with Theorem 3 where it applies."""

    name = "moments2017"
    statement = "moments_2017_data_dependent"
    source = "Papernot et al. 2017, Thm 3, Lemma 4"
    noise_law = "laplace"
    mechanisms = (LNMax,)

    def figures(self, evidence: QueryVotes, units: Units) -> Private[Figures]:
        mechanism = evidence.mechanism
        if not isinstance(mechanism, LNMax):
            raise InvalidInput(f"accountant {self.name!r} does not hold for {mechanism.name}; allowed: {LNMax.name}")
        rows = [
            total_log_moments(
                # Queries without the unit cost it nothing; a first row keeps the shape where there are no others.
                evidence.counts[present > 0] if present.any() else evidence.counts[:1],
                MOMENTS,
                gamma=mechanism.gamma,
                sensitivity=s,
            ).map(partial(np.multiply, float(present.any())))
            for _, s, present in alike_units(units)
        ]

        def least(each: list[Float64[ndarray, "..."]]) -> Figures:
            epsilons = (spread_over_units(each, units) - np.log(units.delta)[:, None]) / MOMENTS
            return Figures(happened=Least(epsilons.min(axis=1), MOMENTS[epsilons.argmin(axis=1)] + 1.0))

        return Private.gather(rows).map(least)


_MOMENTS_CHUNK = 500_000


def data_independent(
    moments: Integer[ndarray, " moments"], *, gamma: float, sensitivity: Float64[ndarray, " units"]
) -> Float64[ndarray, "units moments"]:
    """alpha(l) <= min(2 (gamma s)^2 l (l+1), 2 gamma s l) of one label, whatever the votes (Thm 2; Bun & Steinke 2016).

    moments: whole numbers l >= 1; gamma: inverse scale per vote; sensitivity: votes, > 0. Raises InvalidInput.
    """
    _check_moments(moments, gamma, sensitivity)
    l, t = moments[None, :].astype(np.float64), gamma * sensitivity[:, None]  # noqa: E741  # l of the paper
    return np.minimum(2 * t * t * l * (l + 1), 2 * t * l)


def total_log_moments(
    counts: Float64[ndarray, "queries classes"],
    moments: Integer[ndarray, " moments"],
    *,
    gamma: float,
    sensitivity: Float64[ndarray, " units"],
) -> Private[Float64[ndarray, "units moments"]]:
    """Sum over queries of alpha(l): Theorem 3 where q < 1/(e^(2 gamma s) + 1) makes it valid and it is smaller.

    counts: weighted votes, >= 0; the rest as in `data_independent`. Memory is bounded by chunks. Raises InvalidInput.
    """
    check_counts(counts)
    _check_moments(moments, gamma, sensitivity)
    logs = _log_q_of_lnmax(counts, gamma)
    loose = data_independent(moments, gamma=gamma, sensitivity=sensitivity)
    total = np.zeros_like(loose)
    step = max(1, _MOMENTS_CHUNK // len(moments))
    for unit, s in enumerate(sensitivity):
        for start in range(0, len(logs), step):
            tight = _theorem_3(logs[start : start + step], moments, 2 * gamma * s)
            total[unit] += np.minimum(tight, loose[unit]).sum(axis=0)
    return Private(total)


def _log_q_of_lnmax(counts: Float64[ndarray, "queries classes"], gamma: float) -> Float64[ndarray, " queries"]:
    """ln q of each query, q = min(sum_{j != i*} (2 + gamma D_j)/(4 e^(gamma D_j)), 1 - 1/m) (Lemma 4).

    q bounds the probability that LNMax's label differs from the plurality i*; D_j = n_i* - n_j. Exact in logarithms.
    """
    queries, classes = counts.shape
    logs = np.empty(queries)
    step = max(1, _MOMENTS_CHUNK // classes)
    for start in range(0, queries, step):
        part = counts[start : start + step]
        row, top = np.arange(len(part)), part.argmax(axis=1)
        gap = gamma * (part[row, top][:, None] - part)
        each = np.log((2 + gap) / 4) - gap
        each[row, top] = -np.inf
        largest = each.max(axis=1)
        logs[start : start + step] = largest + np.log(np.exp(each - largest[:, None]).sum(axis=1))
    return np.minimum(logs, np.log1p(-1 / classes))


def _theorem_3(
    logs: Float64[ndarray, " queries"], moments: Integer[ndarray, " moments"], level: float
) -> Float64[ndarray, "queries moments"]:
    """ln[(1-q) ((1-q)/(1-e^level q))^l + q e^(level l)]; infinite where q >= 1/(e^level + 1).

    level: the mechanism is level-DP. The theorem states q < (e^level - 1)/(e^(2 level) - 1), which is the same.
    """
    bound = np.full((len(logs), len(moments)), np.inf)
    valid = logs < -np.logaddexp(0.0, level)
    log_q_valid = logs[valid][:, None]
    l = moments[None, :].astype(np.float64)  # noqa: E741  # l of the paper
    stays = (l + 1) * np.log1p(-np.exp(log_q_valid)) - l * np.log1p(-np.exp(log_q_valid + level))
    leaves = log_q_valid + level * l
    small = np.maximum(stays, leaves) < 100.0
    near = np.log1p(np.expm1(np.where(small, stays, 0.0)) + np.exp(np.where(small, leaves, 0.0)))
    bound[valid] = np.where(small, near, np.logaddexp(stays, leaves))
    return bound


def _check_moments(
    moments: Integer[ndarray, " moments"], gamma: float, sensitivity: Float64[ndarray, " units"]
) -> None:
    if moments.size == 0 or (moments < 1).any():
        raise InvalidInput(f"moments are {moments}; allowed: whole numbers >= 1")
    if not (np.isfinite(gamma) and gamma > 0):
        raise InvalidInput(f"gamma is {gamma}; allowed: a finite number > 0, per vote")
    check_sensitivity(sensitivity)

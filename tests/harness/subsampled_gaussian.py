"""One step of the subsampled Gaussian, as Triastcyn and Faltings count it: the Bayesian accountant is held to it."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from benchmarks.bayesian import check_powers
from protocols.research.private import Private

Number = float | int
Directions = Literal["both", "published_code"]
# Cells [pairs, powers, terms] held at a time.
_CHUNK = 2_000_000
# Stands for ln 0.
_EMPTY = -1e6


def subsampled_gaussian(
    left: Float64[ndarray, "pairs features"],
    right: Float64[ndarray, "others their_features"],
    powers: Float64[ndarray, " powers"],
    *,
    sigma: Number,
    rate: Number,
    directions: Directions,
) -> Private[Float64[ndarray, "pairs powers"]]:
    """x = l D_{l+1} of one step of the subsampled Gaussian, for each pair (Triastcyn & Faltings 2020, Theorem 3).

    left, right: what is released (a mean of gradients, say) with and without the example, before noise; sigma: of
    the noise, same units; rate: probability in (0, 1] that the example is in the sample. With c = |left -
    right|^2/(2 sigma^2), at whole l:

        left   ln E_{k ~ B(l+1, rate)} e^((k^2 - k) c)      exact
        right  ln E_{k ~ B(l, rate)} e^((k^2 + k) c)        an upper bound: 1/p is convex

    "both": the larger of the two, for each pair. "published_code": left alone, as the authors' program computes it
    (its two directions are the same expression), only to reproduce it. Between whole l the value lies on the chord, an
    upper bound, because l D_{l+1} is convex in l and 0 at 0 (van Erven & Harremoes 2014, Cor. 2). Several steps on one
    pair multiply x.
    """
    check_powers(powers)
    with np.errstate(over="ignore"):
        c = (((left - right) / sigma) ** 2).sum(axis=1) / 2
    low = np.floor(powers).astype(np.int64)
    whole, member = np.unique(np.concatenate([low, np.ceil(powers).astype(np.int64)]), return_inverse=True)
    values = _whole_powers(c, whole, float(rate), reverse=False)
    if directions == "both":
        values = np.maximum(values, _whole_powers(c, whole, float(rate), reverse=True))
    below, above = values[:, member[: len(low)]], values[:, member[len(low) :]]
    return Private(below + (powers - low) * (above - below))


def _whole_powers(
    c: Float64[ndarray, " pairs"], whole: Int64[ndarray, " powers"], rate: float, *, reverse: bool
) -> Float64[ndarray, "pairs powers"]:
    """ln E_k e^((k^2 -+ k) c) = ln(1 + E_k[e^((k^2 -+ k) c) - 1]): a sum without cancellation, in logarithms."""
    values = np.zeros((len(c), len(whole)))
    apart = np.flatnonzero(c > 0)
    trials = whole if reverse else whole + 1
    step = max(1, _CHUNK // (int(trials[-1]) + 1))
    for start in range(0, len(whole), step):
        n = trials[start : start + step, None].astype(np.float64)
        k = np.arange(int(n.max()) + 1, dtype=np.float64)
        rest = np.maximum(n - k, 0.0)
        log_p = (
            scipy.special.gammaln(n + 1)
            - scipy.special.gammaln(k + 1)
            - scipy.special.gammaln(rest + 1)
            + scipy.special.xlogy(k, rate)
            + scipy.special.xlog1py(rest, -rate)
        )
        log_p = np.where(k > n, -np.inf, log_p)
        factor = k * k + k if reverse else k * k - k
        pairs = max(1, _CHUNK // log_p.size)
        for first in range(0, len(apart), pairs):
            rows = apart[first : first + pairs]
            # Terms that are empty (all of them, for the power 0) are as good as none.
            terms = np.maximum(log_p + _log_expm1(factor * c[rows, None])[:, None, :], _EMPTY)
            top = terms.max(axis=2)
            sums = top + np.log(np.exp(terms - top[:, :, None]).sum(axis=2))
            values[rows, start : start + step] = np.logaddexp(0.0, sums)
    return values


def _log_expm1(z: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """ln(e^z - 1) for z >= 0; -inf at 0."""
    with np.errstate(divide="ignore"):
        return np.where(z < 1.0, np.log(np.expm1(np.minimum(z, 1.0))), z + np.log1p(-np.exp(-np.maximum(z, 1.0))))

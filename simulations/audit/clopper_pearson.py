"""Clopper-Pearson limits: exact one-sided confidence limits of a probability (Clopper & Pearson 1934)."""

from __future__ import annotations

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

from protocols.errors import InvalidInput


def lower_limit(hits: Float64[ndarray, "..."], trials: int, *, alpha: float) -> Float64[ndarray, "..."]:
    """The p below which `hits` or more of `trials` have probability alpha: P(limit > p) <= alpha. 0 for no hits.

    hits in [0, trials]; alpha in (0, 1). Raises InvalidInput.
    """
    _check(hits, trials, alpha)
    some = np.maximum(hits, np.finfo(float).tiny)
    return np.where(hits > 0, scipy.special.betaincinv(some, trials - hits + 1, alpha), 0.0)


def upper_limit(hits: Float64[ndarray, "..."], trials: int, *, alpha: float) -> Float64[ndarray, "..."]:
    """The p above which `hits` or fewer of `trials` have probability alpha: P(limit < p) <= alpha. 1 for all hits."""
    return 1.0 - lower_limit(trials - hits, trials, alpha=alpha)


def _check(hits: Float64[ndarray, "..."], trials: int, alpha: float) -> None:
    if trials < 1:
        raise InvalidInput(f"trials is {trials}; allowed: at least 1")
    if not ((hits >= 0) & (hits <= trials)).all():
        raise InvalidInput(f"hits span [{hits.min()}, {hits.max()}]; allowed: in [0, {trials}]")
    if not 0 < alpha < 1:
        raise InvalidInput(f"alpha is {alpha}; allowed: in (0, 1)")

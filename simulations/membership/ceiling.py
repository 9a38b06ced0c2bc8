"""The most that differential privacy allows any membership attack: rates, area and advantage.

The game: an attacker sees what was released and decides whether it came from data with one unit's records, or from the
same data with these replaced. Under (epsilon, delta)-differential privacy no decision reaches above the region
TPR <= e^epsilon FPR + delta and TPR <= 1 - e^-epsilon (1 - delta - FPR) (Wasserman & Zhou 2010, Thm 2.4;
Kairouz, Oh & Viswanath 2015, Thm 2.1).
"""

from __future__ import annotations

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

from protocols.errors import InvalidInput

Values = Float64[ndarray, "..."]


def true_positive_ceiling(false_positive_rate: Values, *, epsilon: Values, delta: Values) -> Values:
    """The largest true-positive rate at a false-positive rate; the three arguments are broadcast."""
    _check(epsilon, delta)
    if not ((false_positive_rate >= 0) & (false_positive_rate <= 1)).all():
        raise InvalidInput("a false-positive rate is outside [0, 1]")
    # e^epsilon FPR in logarithms: a large epsilon must not overflow. FPR = 0 leaves delta.
    with np.errstate(divide="ignore"):
        log_first = epsilon + np.log(false_positive_rate)
    first = np.exp(np.minimum(log_first, 0.0)) + delta
    second = 1 - np.exp(-epsilon) * np.maximum(1 - delta - false_positive_rate, 0.0)
    return np.asarray(np.minimum(np.minimum(first, second), 1.0))


def area_ceiling(*, epsilon: Values, delta: Values) -> Values:
    """The largest area under a curve inside that region: 1 - (1 - delta)^2/(1 + e^epsilon).

    The region's border is one line through each of (0, delta) and (1 - delta, 1), which meet on the antidiagonal where
    both errors are (1 - delta)/(1 + e^epsilon); what lies above it are two triangles of base 1 - delta.
    """
    _check(epsilon, delta)
    return np.asarray(1 - (1 - delta) ** 2 * scipy.special.expit(-epsilon))


def advantage_ceiling(*, epsilon: Values, delta: Values) -> Values:
    """The largest TPR - FPR: 1 - 2 (1 - delta)/(1 + e^epsilon) (Humphries et al. 2023, the tight bound for
    independent records)."""
    _check(epsilon, delta)
    return np.asarray(1 - 2 * (1 - delta) * scipy.special.expit(-epsilon))


def _check(epsilon: Values, delta: Values) -> None:
    for name, values, allowed, good in (
        ("epsilon", epsilon, "finite numbers >= 0", np.isfinite(epsilon) & (epsilon >= 0)),
        ("delta", delta, "in [0, 1]", (delta >= 0) & (delta <= 1)),
    ):
        if not good.all():
            raise InvalidInput(f"{name} is {values[~good].ravel()[0]:g}; allowed: {allowed}")

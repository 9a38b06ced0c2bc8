"""The conditions on a study's weights, threshold and noise under which the ring F_p holds every count.

Both servers' noise is added to each count. A sum of discrete Gaussians is subgaussian with the sum of their variances
(Canonne, Kamath & Steinke 2020, "The discrete Gaussian for differential privacy": E exp(t X) <= exp(t^2 sigma^2 / 2)),
so it leaves [-12 sigma_tot, 12 sigma_tot] with probability at most 2 exp(-72), about 1e-31. Within these limits the
circuit's comparisons are those of the integers; the mass outside goes to delta.
"""

from __future__ import annotations

import math

from protocols.errors import InvalidInput

# Half the ring, with room for the rounding of centres and of carries (circuit.py).
LIMIT = 2**30 - 4

_DEVIATIONS = 12.0


def check_ring(
    *, total_units: int, threshold_units: int | None, sigma_units: float | int, classes: int, queries: int
) -> float:
    """An upper bound on the probability that noise leaves the ring in any of the queries, which delta must cover.

    total_units: N w_max S, or the sum of all weights; threshold_units: T S, None without one; sigma_units: of ONE
    server's noise, in units, of which two are added. Raises InvalidInput if the ring is too small.
    """
    for name, value, least in (("total_units", total_units, 1), ("classes", classes, 2), ("queries", queries, 0)):
        if value < least:
            raise InvalidInput(f"{name} = {value}; allowed: {least} or more")
    if not (math.isfinite(sigma_units) and sigma_units > 0):
        raise InvalidInput(f"sigma_units = {sigma_units}; allowed: finite, above 0")
    counts, what = total_units, "total_units"
    if threshold_units is not None:
        # The noisy counts are compared with the threshold, which lies in the middle of the ring.
        counts = 2 * max(abs(threshold_units), abs(total_units - threshold_units))
        what = "2 max(|threshold_units|, |total_units - threshold_units|)"
    needed = counts + 2 * _DEVIATIONS * math.sqrt(2.0) * sigma_units
    if not needed < LIMIT:
        raise InvalidInput(f"{what} + 24 sigma_units sqrt(2) = {needed:.0f}; allowed: below {LIMIT}")
    # The last bits of a product of floats must not make the bound smaller.
    return min(1.0, queries * classes * 2.0 * math.exp(-(_DEVIATIONS**2) / 2.0) * (1.0 + 1e-12))


MAX_CLASSES = 10_000

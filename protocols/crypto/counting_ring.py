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
    *,
    total_units: int,
    threshold_units: int | None,
    most_offset_units: int,
    label_sigma_units: float | int,
    threshold_sigma_units: float | int | None,
    classes: int,
    queries: int,
) -> float:
    """An upper bound on the probability that noise leaves the ring in any of the queries, which delta must cover.

    total_units: N w_max S, or the sum of all weights; threshold_units: T S, None without one; most_offset_units: the
    largest offset of an interactive threshold; the sigmas are those of ONE server's noise, in units, of which two are
    added; threshold_sigma_units: None unless the threshold has noise of its own. Raises InvalidInput if the ring is too
    small.
    """
    _check_counts(total_units=total_units, most_offset_units=most_offset_units, classes=classes, queries=queries)
    if threshold_units is None and threshold_sigma_units is not None:
        raise InvalidInput(
            f"threshold_units = None, threshold_sigma_units = {threshold_sigma_units}; allowed: noise of a threshold "
            "only with a threshold"
        )
    label = _total_sigma("label_sigma_units", label_sigma_units)
    counts, what = total_units, "total_units"
    if threshold_units is not None and threshold_sigma_units is None:
        # The noisy counts themselves are compared with the threshold, which then lies in the middle of the ring.
        counts = 2 * max(abs(threshold_units), abs(total_units - threshold_units))
        what = "2 max(|threshold_units|, |total_units - threshold_units|)"
    needed = counts + 2 * _DEVIATIONS * label
    if not needed < LIMIT:
        raise InvalidInput(f"{what} + 24 label_sigma_units sqrt(2) = {needed:.0f}; allowed: below {LIMIT}")
    draws = queries * classes
    if threshold_units is not None and threshold_sigma_units is not None:
        threshold = _total_sigma("threshold_sigma_units", threshold_sigma_units)
        reach = abs(threshold_units) + most_offset_units
        needed = total_units + reach + _DEVIATIONS * (label + threshold)
        if not needed < LIMIT:
            raise InvalidInput(
                "total_units + |threshold_units| + most_offset_units + 12 (label_sigma_units + threshold_sigma_units) "
                f"sqrt(2) = {needed:.0f}; allowed: below {LIMIT}"
            )
        draws += queries
    # The last bits of a product of floats must not make the bound smaller.
    return min(1.0, draws * 2.0 * math.exp(-(_DEVIATIONS**2) / 2.0) * (1.0 + 1e-12))


def _total_sigma(name: str, one_server: float | int) -> float:
    if not (math.isfinite(one_server) and one_server > 0):
        raise InvalidInput(f"{name} = {one_server}; allowed: finite, above 0")
    return math.sqrt(2.0) * one_server


def _check_counts(*, total_units: int, most_offset_units: int, classes: int, queries: int) -> None:
    for name, value, least in (
        ("total_units", total_units, 1),
        ("most_offset_units", most_offset_units, 0),
        ("classes", classes, 2),
        ("queries", queries, 0),
    ):
        if value < least:
            raise InvalidInput(f"{name} = {value}; allowed: {least} or more")


MAX_CLASSES = 10_000

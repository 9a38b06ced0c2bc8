"""The rings of sums: of masked sums, and of the counts that two servers hold.

The ring of the masked sums: integers modulo 2**32, or modulo 2**64 if those would wrap around.

The conditions on a study's weights, threshold and noise under which the ring F_p holds every count.

Both servers' noise is added to each count. A sum of discrete Gaussians is subgaussian with the sum of their variances
(Canonne, Kamath & Steinke 2020, "The discrete Gaussian for differential privacy": E exp(t X) <= exp(t^2 sigma^2 / 2)),
so it leaves [-12 sigma_tot, 12 sigma_tot] with probability at most 2 exp(-72), about 1e-31. Within these limits the
circuit's comparisons are those of the integers; the mass outside goes to delta.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import InvalidInput

RING_BITS = (32, 64)
# The most that the probability of a wrapped cell may be.
WRAP_PROBABILITY = 2.0**-60


def check_ring(*, total_units: int, noise_sigma_units: float | int, cells: int) -> int:
    """The bits of the smallest ring in which `cells` noisy sums stay within half of it, except with probability 2**-60.

    total_units: the largest absolute value of a sum without noise; noise_sigma_units: standard deviation of the sum of
    all noise shares, each discrete Gaussian or Skellam. The bound is Chernoff's for Skellam noise, P[|X| >= m] <=
    2 exp(-v (r asinh r - sqrt(1 + r^2) + 1)), v the variance, r = m/v, times cells; sums of discrete Gaussians, which
    are subgaussian (Canonne, Kamath & Steinke 2020, Corollary 17), lie below since cosh s - 1 >= s^2/2. A wrapped cell
    is post-processing of the noisy sum: it may give a wrong label and never costs privacy. Raises InvalidInput if both
    rings are too small.
    """
    if cells < 1 or total_units < 0 or not (0 <= noise_sigma_units < math.inf):
        raise InvalidInput(
            f"cells = {cells}, total_units = {total_units}, noise_sigma_units = {noise_sigma_units}; allowed: at least "
            "1, at least 0, and finite and at least 0"
        )
    for bits in RING_BITS:
        room = 2 ** (bits - 1) - 1 - total_units
        wrap = _tail(room, float(noise_sigma_units)) * cells
        if room > 0 and wrap <= WRAP_PROBABILITY:
            return bits
    raise InvalidInput(
        f"total_units = {total_units} with noise of {noise_sigma_units} units over {cells} cells; allowed: sums below "
        f"2**63 = {2**63}, except with probability {WRAP_PROBABILITY:.1e}"
    )


def check_sum_field(*, total_units: int, noise_sigma_units: float, cells: int) -> None:
    """Raises InvalidInput unless `cells` noisy sums stay within half of F_p, p = 2^31 - 1, but for probability 2**-60;
    the arguments are those of check_ring."""
    room = 2**30 - 1 - total_units
    if room <= 0 or _tail(room, noise_sigma_units) * cells > WRAP_PROBABILITY:
        raise InvalidInput(
            f"total_units = {total_units} with noise of {noise_sigma_units:g} units over {cells} cells; allowed: sums "
            f"below 2**30 = {2**30}, except with probability {WRAP_PROBABILITY:.1e}"
        )


def _tail(room: int, sigma: float) -> float:
    if sigma == 0 and room > 0:
        return 0.0
    if room <= 0 or sigma >= 2.0**63:
        return 1.0
    variance = max(sigma * sigma, 1e-12)  # the bound grows with the variance; less would overflow
    ratio = room / variance
    square = ratio * ratio
    return 2.0 * math.exp(-variance * (ratio * math.asinh(ratio) - square / (math.sqrt(1.0 + square) + 1.0)))


def to_ring(values: Int64[ndarray, "..."], *, bits: int) -> ndarray:
    """The values modulo 2**bits."""
    return values.astype(np.int64, copy=False).view(np.uint64).astype(f"<u{bits // 8}")


def from_ring(words: ndarray) -> Int64[ndarray, "..."]:
    """The representatives around 0."""
    return words.view(f"<i{words.dtype.itemsize}").astype(np.int64)


MOST_CELLS = 2**26


# Half the ring, with room for the rounding of centres and of carries (garbling.py).
LIMIT = 2**30 - 4

_DEVIATIONS = 12.0


def check_counting_ring(
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

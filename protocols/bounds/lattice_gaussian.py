"""Gaussian DP of noisy histograms whose noise is a discrete Gaussian, or a sum of many parties' shares of one.

Discrete Gaussian noise of variance s^2 is, but for a total variation distance below 1e-33 a cell, the rounding at
random of continuous noise of variance s^2 - t^2, t = 2. The rounding is post-processing, so the histogram is Gaussian
DP as with continuous noise of that variance; the distance is charged to delta like that of any noise from its ideal.
Proof: docs/explanation/lattice-noise.md, section 8. View: histogram. Adjacency: replace-one.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.lattice_smoothing import LEAST_SIGMA_UNITS, ROUNDING_SIGMA, ripple
from protocols.errors import InvalidInput

# A share's least standard deviation: with it a sum of shares is nearly one discrete Gaussian.
_LEAST_SHARE = 3.0


def least_sigma_units(shares: int) -> float:
    """The least sigma, in lattice units, of the sum of so many shares for which the bound is stated."""
    return max(LEAST_SIGMA_UNITS, _LEAST_SHARE * sqrt(shares))


def lattice_mu_squared(
    moved_units: Float64[ndarray, " units"], *, sigma_units: float | int, shares: int
) -> Float64[ndarray, " units"]:
    """mu^2 = |move|^2/(s^2 - 4) of one noisy histogram, or of as many cells as there are.

    moved_units: the L2 norm, in lattice units, of how far each protected unit moves whole numbers, >= 0; sigma_units:
    s, of the noise in each cell, a discrete Gaussian or the sum of `shares` independent ones of equal variance. Raises
    InvalidInput where s is below `least_sigma_units`.
    """
    if not (np.isfinite(sigma_units) and sigma_units >= least_sigma_units(shares)):
        raise InvalidInput(
            f"sigma = {sigma_units} lattice units in {shares} shares; allowed for accountant 'gaussian_dp': finite, at "
            f"least {least_sigma_units(shares):g}: use more units per vote, or more noise"
        )
    s = float(sigma_units)
    return np.square(moved_units) / ((s - ROUNDING_SIGMA) * (s + ROUNDING_SIGMA))


def rounding_distance(*, shares: int) -> float:
    """Total variation distance of one cell's noise from rounded continuous noise, wherever `lattice_mu_squared` holds.

    2 r(2) for a discrete Gaussian, and ln((1 + r)/(1 - r)), r = r(3/sqrt(2)) or less, for each further share.
    """
    further = 2.0 * float(np.arctanh(ripple(_LEAST_SHARE / sqrt(2.0))))
    return 2.0 * float(ripple(ROUNDING_SIGMA)) + (shares - 1) * further

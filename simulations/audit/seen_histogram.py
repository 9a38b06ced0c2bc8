"""The view "histogram": what is seen, its log-likelihood ratio, and the law of that ratio.

A moved vote changes two counts. Let z be each noisy count minus the count without the unit's vote, in noise scales, and
d = s/scale. The ratio is l(z_0) - l(z_1), with l(z) = ln(1 - g + g f(z - d)/f(z)) and f the density of the noise
(derived in protocols/bounds/secret_sampling.py).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_epsilon
from simulations.audit.composition import RatioLaw, composed_epsilon_of_ratios
from simulations.audit.target import Target

# The trapezoid over one coordinate's noise.
_NODES = 200_001
# The noise is integrated as far out as its log-density is above this.
_NEGLIGIBLE = -42.0
_REACHES = np.arange(1.0, 1001.0, 0.5)


def histogram_log_ratio(
    target: Target, noisy: Float64[ndarray, "queries classes"], levels: Float64[ndarray, " levels"]
) -> Float64[ndarray, " queries"]:
    """ln of the density before the vote moved over that after, of each query's noisy histogram."""
    z = (noisy[:, :2] - levels[:2]) / target.scale
    each = _log_ratio(target, z)
    return each[:, 0] - each[:, 1]


def histogram_epsilon(target: Target, *, delta: float) -> float:
    """The exact epsilon of the composition, equal in both directions: in closed form, or on a grid to about 1e-4."""
    d = target.weight / target.scale
    if target.gaussian_dp:
        return float(gdp_epsilon(np.array([d * np.sqrt(2 * target.queries)]), np.array([delta]))[0])
    without, weights = _noise_law(target, d)
    # The vote is on class 0 with probability g, and not on class 1.
    ratio = _log_ratio(target, without)
    parts = [RatioLaw(ratio, weights * np.exp(ratio)), RatioLaw(-ratio, weights)]
    return composed_epsilon_of_ratios(parts, copies=target.queries, delta=delta)


def _log_ratio(target: Target, z: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    d = target.weight / target.scale
    density = target.mechanism.noise_log_density
    whole = density(z - d) - density(z)
    if target.rate == 1:
        return whole
    return np.logaddexp(np.log1p(-target.rate), np.log(target.rate) + whole)


def _noise_law(target: Target, d: float) -> tuple[Float64[ndarray, " nodes"], Float64[ndarray, " nodes"]]:
    """Quadrature nodes for one coordinate's noise and their masses, wide enough with or without the vote."""
    reach = _REACHES[np.argmax(target.mechanism.noise_log_density(_REACHES) <= _NEGLIGIBLE)]
    z = np.linspace(-reach, reach + d, _NODES)
    mass = np.exp(target.mechanism.noise_log_density(z))
    return z, mass / mass.sum()

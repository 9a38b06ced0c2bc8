"""The view "histogram": what is seen, its log-likelihood ratio, and the law of that ratio.

A moved vote changes two counts. With the noise of either in noise scales, z about the counts without the unit's vote
and d = s/scale, the ratio is l(z_0) - l(z_1), l(z) = ln(1 - g + g f(z - d)/f(z)), f being the density of the noise
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
# Noise is looked at as far out as its density is above this, in logarithms.
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
    """The exact epsilon of the composition, the same in both directions: to about 1e-4 on a grid, else closed."""
    d = target.weight / target.scale
    if target.accountant.name == "gaussian_dp":
        return float(gdp_epsilon(np.array([d * np.sqrt(2 * target.queries)]), np.array([delta]))[0])
    without, weights = _noise_law(target, d)
    # Of class 0 the vote is there with probability g, of class 1 it is not.
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
    """Nodes of one coordinate's noise and their masses, wide enough for the vote to be there or not."""
    reach = _REACHES[np.argmax(target.mechanism.noise_log_density(_REACHES) <= _NEGLIGIBLE)]
    z = np.linspace(-reach, reach + d, _NODES)
    mass = np.exp(target.mechanism.noise_log_density(z))
    return z, mass / mass.sum()

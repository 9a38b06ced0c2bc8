"""Standard normal noise, and how far floating point is from the ideal.

`StandardNormal` is what mechanisms take: a function from a shape to independent N(0, 1) draws. A node uses
`cryptographic`; a simulation may use `simulated`, which is faster and protects nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

import numpy as np
from jaxtyping import Float64
from numpy import ndarray
from scipy.special import ndtri

from protocols.errors import InvalidInput
from protocols.randomness import RandomSource

StandardNormal = Callable[[tuple[int, ...]], Float64[ndarray, "..."]]

# |z| > 9.8 has probability below 2**-70 for one draw; such draws are counted in the total variation distance.
_REACH = 9.8
_TAIL = 2.0**-70
# Relative error allowed for scipy's ndtri (Cephes: peak 5e-16), with its argument's rounding (Mills' ratio times
# 2**-53) and the products and sums that follow: at most 16 units of 2**-53 in total.
_UNITS = 16 * 2.0**-53


def simulated(rng: np.random.Generator) -> StandardNormal:
    """Noise of a NumPy generator: for simulation only, never on a node."""
    return rng.standard_normal


def cryptographic(source: RandomSource) -> StandardNormal:
    """Noise by inversion from 128 random bits a draw.

    63 bits and then, for small values, 64 more make u in (0, 1/2] with full float64 precision in the tail; one
    bit is the sign. z = sign * ndtri(u).
    """

    def draw(shape: tuple[int, ...]) -> Float64[ndarray, "..."]:
        count = int(np.prod(shape, dtype=np.int64))
        words = np.frombuffer(source(16 * count), dtype="<u8").reshape(count, 2)
        sign = np.where(words[:, 0] >> np.uint64(63), 1.0, -1.0)
        high = (words[:, 0] & np.uint64(2**63 - 1)).astype(np.float64)
        low = words[:, 1].astype(np.float64) + 0.5
        u = high * 2.0**-64 + low * 2.0**-128
        z: Float64[ndarray, "..."] = sign * ndtri(u)
        return z.reshape(shape)

    return draw


def float_noise_distance(*, sigma: float, classes: int, total_weight: float) -> float:
    """Upper bound of the total variation distance between the label (or bit) of float64 noise and the ideal one.

    Couple each float draw with the ideal draw of the same bits: the noisy counts differ by at most
    eta = (total_weight + _REACH sigma) _UNITS, but for a tail of probability _TAIL a draw. The argmax differs
    only if the two largest noisy counts lie within 2 eta: for each class, given the others, with probability at
    most 2 eta / (sigma sqrt(2 pi)) (the density of a Gaussian is at most 1/(sigma sqrt(2 pi))); a union bound over
    the classes ends the proof. The threshold bit is the case of one class.

    sigma: votes, > 0; total_weight: votes; classes >= 1.
    """
    eta = (total_weight + _REACH * sigma) * _UNITS
    return classes * (2 * eta / (sigma * sqrt(2 * pi)) + 2 * _TAIL)


def check_sigma(name: str, sigma: float) -> None:
    """Raises InvalidInput unless sigma is a positive finite number of votes."""
    if not (np.isfinite(sigma) and sigma > 0):
        raise InvalidInput(f"{name} is {sigma}; allowed: a finite number of votes > 0")

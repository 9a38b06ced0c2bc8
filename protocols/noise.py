"""The noise that mechanisms take, and the distance between the noise drawn and ideal noise.

`StandardNormal` is a function from a shape to independent N(0, 1) draws: `cryptographic` on a node, or `simulated`,
which is faster and protects nobody. `LatticeNoise` is integer noise in lattice units, for a study whose votes are
whole numbers of such units. Both are a `Noise`; `gaussian` draws from either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, pi, sqrt

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.crypto.discrete_gaussian import INVERSION_DISTANCE, discrete_gaussian, lattice_sigma
from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput

StandardNormal = Callable[[tuple[int, ...]], Float64[ndarray, "..."]]


@dataclass(frozen=True)
class LatticeNoise:
    """Integer noise: draw(count, sigma in units) -> that many integers; units: lattice units per vote, a power of
    two.
    """

    units: int
    draw: Callable[[int, float], Int64[ndarray, " count"]]


Noise = StandardNormal | LatticeNoise

# Rings hold noise up to this many standard deviations.
RING_SIGMAS = 12

# |z| > 9.8 has probability below 2**-70 for one draw; such draws are counted in the total variation distance.
_REACH = 9.8
_TAIL = 2.0**-70
# Values of |z| at which `float_noise_distance` may split; any would be valid.
_SPLITS = np.linspace(3.0, _REACH, 35)


def simulated(rng: np.random.Generator) -> StandardNormal:
    """Noise of a NumPy generator: for simulation only, never on a node."""
    return rng.standard_normal


def cryptographic(source: RandomSource) -> StandardNormal:
    """Noise by inversion from 128 random bits per draw.

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
        z: Float64[ndarray, "..."] = sign * scipy.special.ndtri(u)
        return z.reshape(shape)

    return draw


def gaussian(noise: Noise, shape: tuple[int, ...], *, sigma: float) -> Float64[ndarray, "..."]:
    """Independent Gaussian noise of standard deviation sigma, in votes; on the lattice, exact multiples of 1/units."""
    if isinstance(noise, LatticeNoise):
        drawn = noise.draw(int(np.prod(shape, dtype=np.int64)), sigma * noise.units)
        return drawn.reshape(shape) / noise.units
    return sigma * noise(shape)


def silent(noise: Noise) -> Noise:
    """No noise of the same kind: for counts that carry theirs already."""
    if isinstance(noise, LatticeNoise):
        return LatticeNoise(noise.units, lambda count, sigma: np.zeros(count, dtype=np.int64))
    return np.zeros


def lattice_noise_distance(*, draws: int) -> float:
    """Upper bound of the total variation distance between noise as it is drawn in a ring, and exact noise that need not
    fit one.

    `draws` sums of discrete Gaussians, none of which may exceed RING_SIGMAS of its standard deviations: each does with
    probability at most 2 exp(-RING_SIGMAS^2/2) (Canonne, Kamath, Steinke 2020, Cor. 17: no heavier a tail than the
    continuous one's bound). Two servers draw by inversion, within INVERSION_DISTANCE of exact (discrete_gaussian.py).
    """
    return draws * (2 * exp(-(RING_SIGMAS**2) / 2) + INVERSION_DISTANCE)


def float_noise_distance(*, sigma: float, classes: int, total_weight: float) -> float:
    """Upper bound of the total variation distance between the label (or bit) of float64 noise and the ideal one.

    Float and ideal draws of the same random bits are coupled; the label differs only if two noisy counts at the top lie
    within the rounding error of both (docs/explanation/mathematics.md, section 8). The bound holds for every split of
    |z|; the least is returned. The threshold bit is the case of one class.

    sigma: votes, > 0; total_weight: votes; classes >= 1.
    """
    density = 1 / (sigma * sqrt(2 * pi))
    eta = (2 * total_weight + sigma * (10 * _SPLITS + 4)) * 2.0**-53
    near = classes * 2 * eta * density
    far = classes * (classes - 1) * 2 * scipy.special.ndtr(-_SPLITS) * 4 * eta[-1] * density
    return float((near + far).min()) + 2 * classes * _TAIL


def check_sigma(name: str, sigma: float) -> None:
    """Raises InvalidInput unless sigma is a positive finite number of votes, within what float64 squares safely."""
    if not (np.isfinite(sigma) and 1e-9 <= sigma <= 1e12):
        raise InvalidInput(f"{name} is {sigma}; allowed: a finite number of votes > 0, from 1e-9 to 1e12")


def lattice_noise(source: RandomSource, *, units: int) -> LatticeNoise:
    """Exact discrete Gaussian noise from random bytes."""
    return LatticeNoise(
        units,
        lambda count, sigma: discrete_gaussian(source, sigma=lattice_sigma(sigma / units, units=units), size=count),
    )

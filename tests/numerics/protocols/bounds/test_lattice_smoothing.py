"""The facts that carry the lattice bounds: ripples, the share of ties, and the kernel inequality, each by summation."""

import mpmath
import numpy as np
import pytest
from scipy.signal import fftconvolve

from protocols.bounds.lattice_smoothing import check_lattice, continuous_shift, ripple, ripple_cost, tie_share
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses

ORDERS = np.array([1.05, 2.0, 32.0])


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 2.0, 3.0])
def test_the_ripple_bounds_every_lattice_sum_of_a_gaussian_density_and_is_attained(sigma: float) -> None:
    with mpmath.workdps(110):
        worst = max(
            abs(mpmath.nsum(lambda n, u=u: mpmath.npdf(n - u, 0, sigma), [-mpmath.inf, mpmath.inf]) - 1)
            for u in (mpmath.mpf(0), mpmath.mpf("0.2"), mpmath.mpf("0.5"))
        )
        assert worst <= float(ripple(sigma)) <= worst * (1 + 1e-2)


def passes(u, t):
    """K(u) = Pr[N_Z(u, t^2) >= 0] for an array u."""
    n = np.arange(-60, 61)
    centre = np.floor(u)[:, None]
    weights = np.exp(-((n + centre - u[:, None]) ** 2) / (2 * t * t))
    return (weights * (n + centre >= 0)).sum(axis=1) / weights.sum(axis=1)


@pytest.mark.parametrize("t", [0.5, 2.0, 7.7])
def test_the_share_of_ties_is_the_total_variation_distance_of_a_half_units_shift(t: float) -> None:
    """1 - integral of min(density, density shifted by (-1/2, 1/2)), in the plane."""
    z = np.linspace(-7 * t - 1, 7 * t + 1, 1201)
    density, back, forth = (np.exp(-((z + shift) ** 2) / (2 * t * t)) for shift in (0.0, -0.5, 0.5))
    common = np.minimum(density[:, None] * density, back[:, None] * forth).sum() * (z[1] - z[0]) ** 2
    assert tie_share(t) == pytest.approx(1 - common / (2 * np.pi * t * t), abs=1e-5)


@pytest.mark.parametrize("c", [0, 1])
@pytest.mark.parametrize("centre", [(0.0, 0.0), (1.3, -2.4), (-4.0, 3.5), (6.2, 5.9), (-5.1, -4.4), (-0.5, -0.5)])
def test_the_label_of_rounded_counts_dominates_the_share_of_shifted_cones(centre, c: int) -> None:
    """K_i(u) >= Pr[u + Z in the cone i and Z kept] for each outcome i (lattice-noise.md, section 3).

    Z = theta + V, kept with V's density min(phi(v), phi(v + h)); integer counts have the law N_Z(u, t^2 + r^2), r that
    of theta's rounding. The integral runs over a grid; a cell that a boundary crosses counts by half, which leaves
    an error of 1 %.
    """
    r, t = 2.0, 2.5
    u = np.array(centre)
    width = 0.05
    v = np.arange(-240, 241) * width
    density = np.exp(-(v**2) / (2 * t * t)) / (t * np.sqrt(2 * np.pi))
    back, forth = (np.exp(-((v + shift) ** 2) / (2 * t * t)) / (t * np.sqrt(2 * np.pi)) for shift in (-0.5, 0.5))
    shifted = np.outer(back, forth) if c == 0 else np.outer(forth, back)
    kept = np.minimum(np.outer(density, density), shifted) * width**2
    theta = -np.diff(passes(-(np.arange(-202, 202) + 0.5) * width, r))
    weight = fftconvolve(fftconvolve(kept, theta[:, None]), theta[None, :])
    assert weight.sum() == pytest.approx(1 - tie_share(t), rel=1e-3)
    z = (np.arange(len(weight)) - (len(weight) - 1) / 2) * width
    a, b = z[:, None] + u[0], z[None, :] + u[1]
    cones = [
        np.heaviside(a, 0.5) * np.heaviside(a - b, 0.5),
        np.heaviside(b, 0.5) * np.heaviside(b - a, 0.5),
        np.heaviside(-a, 0.5) * np.heaviside(-b, 0.5),
    ]
    n = np.arange(-50, 51)
    first, second = (np.exp(-((n - x) ** 2) / (2 * (t * t + r * r))) for x in u)
    joint = np.outer(first / first.sum(), second / second.sum())
    counts_a, counts_b = np.meshgrid(n, n, indexing="ij")
    label = [
        joint[(counts_a >= 0) & (counts_a >= counts_b + c)].sum(),
        joint[(counts_b >= 0) & (counts_b > counts_a - c)].sum(),
        joint[(counts_a < 0) & (counts_b < 0)].sum(),
    ]
    assert sum(label) == pytest.approx(1.0)
    for lattice, cone in zip(label, cones, strict=True):
        assert lattice >= (weight * cone).sum() * 0.99


@pytest.mark.parametrize("t", [2.0, 5.0])
def test_a_wider_discrete_gaussian_is_a_gaussian_rounded_by_a_narrower_one(t: float) -> None:
    """E_W of N_Z(W, t^2), W ~ N(0, s^2 - t^2), against N_Z(0, s^2): within the ripple, here rounding alone."""
    s = 9.0
    w = np.linspace(-90, 90, 12_001)
    density = np.exp(-(w**2) / 2 / (s * s - t * t))
    density /= density.sum()
    n = np.arange(-40, 41)
    mixed = np.array([(density * (passes(w - z, t) - passes(w - z - 1, t))).sum() for z in n[::8]])
    exact = np.exp(-(n**2) / (2 * s * s)) / np.exp(-(np.arange(-200, 201) ** 2) / (2 * s * s)).sum()
    assert mixed == pytest.approx(exact[::8], rel=1e-9)


def test_shifts_and_costs_are_those_of_their_formulas() -> None:
    votes = np.array([0, 3])
    assert continuous_shift(votes, sigma_units=5.0, rounding_sigma=3.0) == pytest.approx([0.0, 0.75])
    cost = ripple_cost(ORDERS, sigma=1.0, coordinates=2)
    r = float(ripple(1.0))
    assert cost == pytest.approx(2 * ORDERS / (ORDERS - 1) * np.log((1 + r) / (1 - r)))


@pytest.mark.parametrize("sigma", [63.9, 0.0, float("nan"), float("inf")])
def test_too_little_noise_for_a_lattice_is_refused_with_what_to_do(sigma: float) -> None:
    with refuses(InvalidInput, 64):
        check_lattice(np.array([1]), ORDERS, sigma_units=sigma)


def test_negative_votes_and_orders_out_of_range_are_refused() -> None:
    with refuses(InvalidInput, -1):
        check_lattice(np.array([2, -1]), ORDERS, sigma_units=64.0)
    with refuses(InvalidInput, "orders"):
        check_lattice(np.array([2]), np.array([1.0]), sigma_units=64.0)

"""Noise as a sum of shares: sizes by exact fractions, cost against exact convolution, tails against exact sums."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from protocols.bounds.distributed_noise import distributed_gaussian_rdp, share_sigma
from protocols.crypto.discrete_gaussian import discrete_gaussian
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source


@given(
    sigma=st.floats(0.01, 1e6),
    parties=st.integers(1, 5000),
    dropouts=st.integers(0, 400),
    colluders=st.integers(0, 400),
)
def test_the_honest_survivors_always_add_the_stated_variance_and_hardly_more(
    sigma, parties, dropouts, colluders
) -> None:
    honest = parties - dropouts - colluders
    if honest < 1:
        with refuses(InvalidInput, honest):
            share_sigma(sigma_units=sigma, parties=parties, dropouts=dropouts, colluders=colluders)
        return
    share = share_sigma(sigma_units=sigma, parties=parties, dropouts=dropouts, colluders=colluders)
    assert honest * share**2 >= Fraction(sigma) ** 2
    # One step of the grid less would not do.
    step = Fraction(1, 2**20) if sigma < 400 else Fraction(sigma) * Fraction(1, 2**27)
    assert honest * max(share - step, Fraction(0)) ** 2 <= Fraction(sigma) ** 2
    assert discrete_gaussian(seeded_source(1), sigma=share, size=1).shape == (1,)


def exact_sum(sigma: float, shares: int, reach: int):
    """log-pmf of a sum of discrete Gaussians on [-reach, reach], to 40 digits before the logarithm."""
    with mpmath.workdps(60):
        side = [mpmath.exp(-(mpmath.mpf(z) ** 2) / (2 * mpmath.mpf(sigma) ** 2)) for z in range(reach + 1)]
        total = side[0] + 2 * mpmath.fsum(side[1:])
        one = [side[abs(z)] / total for z in range(-reach, reach + 1)]
        law = one
        for _ in range(shares - 1):
            law = [
                mpmath.fsum(
                    law[i] * one[z - i + reach] for i in range(max(0, z - reach), min(2 * reach, z + reach) + 1)
                )
                for z in range(2 * reach + 1)
            ]
        return np.array([float(mpmath.log(p)) for p in law])


@pytest.mark.parametrize(("sigma", "shares"), [(0.5, 2), (0.5, 4), (0.6, 3), (0.8, 2), (1.0, 3)])
def test_the_cost_of_one_cell_is_at_least_that_of_the_exact_sum_and_the_correction_is_needed(sigma, shares) -> None:
    """Where shares are small a sum costs more than the Gaussian formula says; the correction covers it."""
    log_p = exact_sum(sigma, shares, 16)
    needed = False
    for k, order in ((1, 1.05), (1, 2.0), (1, 4.0), (2, 1.05), (2, 2.0)):
        exact = logsumexp(order * log_p[k:] - (order - 1) * log_p[:-k]) / (order - 1)
        # Two cells change alike: the bound is twice that of one.
        bound = distributed_gaussian_rdp(
            np.array([k]), np.array([order]), share_sigma=sigma, honest=shares, squared_move=2, dimension=2
        )
        assert exact <= bound[0, 0] / 2
        needed |= exact > order * k**2 / (2 * shares * sigma**2) * (1 + 1e-9)
    assert needed or sigma > 0.6


@pytest.mark.parametrize(("weight", "squared_move"), [(3, 2), (3, 4)])
def test_a_vector_of_bounded_length_may_change_as_many_cells_as_its_squared_length(weight, squared_move) -> None:
    """Cells that each move by one unit: the exact cost of all of them is above what 2 k changed cells would add."""
    sigma, shares, order = 0.5, 2, 16.0
    log_p = exact_sum(sigma, shares, 16)
    changed = squared_move * weight**2
    exact = changed * logsumexp(order * log_p[1:] - (order - 1) * log_p[:-1]) / (order - 1)
    terms = {"share_sigma": sigma, "honest": shares, "squared_move": squared_move}

    def bound(dimension):
        return distributed_gaussian_rdp(np.array([weight]), np.array([order]), dimension=dimension, **terms)[0, 0]

    assert bound(2 * weight) < exact <= bound(changed)
    assert bound(10 * changed) == bound(changed)


def test_the_correction_of_many_small_shares_is_that_of_a_slow_computation() -> None:
    """A patient's vector of 64 units in 10,000 cells, 4,100 shares of sigma 1; theta functions summed term by term."""
    shares, weight, cells, order = 4100, 64, 10_000, 8.0
    with mpmath.workdps(20):

        def theta(t, at):
            return mpmath.fsum(mpmath.npdf(y, at, t) for y in range(-9, 10))

        scales = [mpmath.sqrt(mpmath.mpf(j) / (j + 1)) for j in range(1, shares)]
        correction = mpmath.fsum(mpmath.log(theta(t, 0) / theta(t, mpmath.mpf("0.5"))) for t in scales)
        slow = float(order * weight**2 / shares + 2 * weight**2 * correction)
    bound = distributed_gaussian_rdp(
        np.array([weight]), np.array([order]), share_sigma=1, honest=shares, squared_move=2, dimension=cells
    )
    assert bound[0, 0] == pytest.approx(slow, rel=1e-9)
    assert slow > order * weight**2 / shares + 2.1


@given(
    k=st.integers(0, 1000), sigma=st.floats(0.5, 100), honest=st.integers(1, 500), dimension=st.integers(1, 200),
)  # fmt: skip
def test_the_correction_is_below_the_published_one_and_falls_as_shares_grow(k, sigma, honest, dimension) -> None:
    """Kairouz, Liu, Steinke 2021, Prop. 14: a D^2/(2 n s^2) + tau d, tau = 10 sum exp(-2 pi^2 s^2 j/(j+1))."""
    votes, orders = np.array([k]), np.array([1.05, 2.0, 64.0])
    terms = {"honest": honest, "squared_move": 2, "dimension": dimension}
    bound = distributed_gaussian_rdp(votes, orders, share_sigma=sigma, **terms)
    gaussian = orders * k**2 / (honest * sigma**2)
    j = np.arange(1, honest)
    published = gaussian + 10 * np.exp(-2 * np.pi**2 * sigma**2 * j / (j + 1)).sum() * min(dimension, 2 * k**2)
    assert (bound >= gaussian).all()
    assert (bound <= published * (1 + 1e-9)).all()
    larger = distributed_gaussian_rdp(votes, orders, share_sigma=1.1 * sigma, **terms)
    assert (larger <= bound).all()


def test_values_out_of_range_are_refused() -> None:
    votes, orders = np.array([1]), np.array([2.0])
    with refuses(InvalidInput, "sigma"):
        distributed_gaussian_rdp(votes, orders, share_sigma=0.4, honest=3, squared_move=2, dimension=2)
    with refuses(InvalidInput, "0 honest shares"):
        distributed_gaussian_rdp(votes, orders, share_sigma=1.0, honest=0, squared_move=2, dimension=2)
    with refuses(InvalidInput, -1):
        distributed_gaussian_rdp(-votes, orders, share_sigma=1.0, honest=3, squared_move=2, dimension=2)
    with refuses(InvalidInput, "squared move of 0"):
        distributed_gaussian_rdp(votes, orders, share_sigma=1.0, honest=3, squared_move=0, dimension=2)
    with refuses(InvalidInput, "sigma = nan"):
        share_sigma(sigma_units=float("nan"), parties=3, dropouts=0, colluders=0)
    with refuses(InvalidInput, "at most 2"):
        share_sigma(sigma_units=1e12, parties=3, dropouts=0, colluders=0)
    with refuses(InvalidInput, -1):
        share_sigma(sigma_units=1.0, parties=3, dropouts=-1, colluders=0)

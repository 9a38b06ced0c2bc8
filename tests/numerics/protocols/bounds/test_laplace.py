"""Laplace noise: its RDP against mpmath quadrature, its law, and its distance from the ideal."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import log_ndtr

from protocols.bounds.laplace import laplace_histogram_rdp, laplace_noise
from protocols.noise import cryptographic, simulated
from tests.harness.seeded import seeded_source


def quadrature(t, order):
    """Twice the Renyi divergence of Lap(1) and Lap(1) + t, by mpmath."""
    with mpmath.workdps(50):
        t, a = mpmath.mpf(t), mpmath.mpf(order)
        density = lambda x: mpmath.e ** (-a * abs(x) - (1 - a) * abs(x - t)) / 2  # noqa: E731
        integral = mpmath.quad(density, [-mpmath.inf, 0, t, mpmath.inf])
        return float(2 * mpmath.log(integral) / (a - 1))


@pytest.mark.parametrize("order", [1.05, 2.0, 64.0, 1024.0])
@pytest.mark.parametrize("t", [1e-9, 1e-3, 0.3, 5.0])
def test_the_bound_is_the_divergence_and_never_below_it(t, order):
    bound = laplace_histogram_rdp(np.array([t]), np.array([order]), gamma=1.0)[0, 0]
    exact = quadrature(t, order)
    assert exact * (1 - 1e-14) <= bound <= exact * (1 + 1e-9)


@given(gamma=st.floats(1e-6, 1e3), sensitivity=st.floats(0, 1e6), order=st.floats(1.001, 1024))
def test_the_bound_is_finite_below_pure_dp_and_below_the_moments_of_2017(gamma, sensitivity, order):
    bound = laplace_histogram_rdp(np.array([sensitivity]), np.array([order]), gamma=gamma)[0, 0]
    t = gamma * sensitivity
    assert np.isfinite(bound)
    assert 0 <= bound <= min(2 * t, 2 * t * t * order) * (1 + 1e-9)


@pytest.mark.parametrize("source", ["cryptographic", "simulated"])
def test_draws_have_the_law_of_laplace(source):
    """Kolmogorov-Smirnov on 100,000 draws; false-alarm rate 1e-6."""
    noise = cryptographic(seeded_source(3)) if source == "cryptographic" else simulated(np.random.default_rng(3))
    draws = laplace_noise(noise, (100, 1000), gamma=0.05)
    assert stats.kstest(draws.ravel(), stats.laplace(scale=20.0).cdf).pvalue > 1e-6


def test_log_ndtr_is_as_precise_as_the_distance_takes_it_to_be():
    for z in np.concatenate([np.linspace(0, 9.8, 200), [1e-12, 1e-6, 37.0]]):
        with mpmath.workdps(40):
            exact = mpmath.log(mpmath.ncdf(-mpmath.mpf(float(z))))
            assert abs((mpmath.mpf(float(log_ndtr(-z))) - exact) / exact) < 32 * 2.0**-53

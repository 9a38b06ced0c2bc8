"""The noise of private training, against slow computations of its own."""

from math import exp, sqrt

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from benchmarks.linear import epsilon_of, noise_multiplier_for

DELTA = 1e-5


@pytest.mark.parametrize(("epsilon", "steps"), [(0.5, 1), (8.0, 20)])
def test_without_sampling_the_epsilon_is_that_of_the_gaussian_mechanism(epsilon, steps):
    noise = noise_multiplier_for(epsilon, rate=1.0, steps=steps, delta=DELTA)
    mu = 2 * sqrt(steps) / noise  # a unit's data are replaced by the opposite

    def excess(at):  # Balle and Wang 2018, Theorem 8
        return norm.cdf(mu / 2 - at / mu) - exp(at) * norm.cdf(-mu / 2 - at / mu) - DELTA

    exact = brentq(excess, 0, 50)
    assert exact <= epsilon
    assert exact == pytest.approx(epsilon, rel=2e-3)


@pytest.mark.parametrize("steps", [1, 2])
def test_with_sampling_the_epsilon_is_that_of_the_integral_over_all_noise(steps):
    rate, noise, delta = 0.2, 1.5, 1e-3
    claimed = epsilon_of(noise, rate=rate, steps=steps, delta=delta)
    x, width = np.linspace(-12 * noise, 12 * noise, 1501, retstep=True)
    near = (1 - rate) * norm.pdf(x, 0, noise)
    first, second = (near + rate * norm.pdf(x, at, noise) for at in (1, -1))
    if steps == 2:
        first, second, width = np.outer(first, first), np.outer(second, second), width**2
    found = np.maximum(first - exp(claimed) * second, 0).sum() * width
    assert found <= delta * (1 + 1e-4)
    assert found == pytest.approx(delta, rel=0.01)

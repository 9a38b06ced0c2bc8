"""The view "histogram": the ratio is that of the densities, the exact epsilon that of a two-dimensional integral."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import laplace, norm

from protocols.bounds.gaussian import gdp_epsilon
from protocols.mechanisms.gnmax import GNMax
from protocols.mechanisms.lnmax import LNMax
from protocols.noise import simulated
from simulations.audit.targets import histogram_epsilon, histogram_log_ratio
from tests.harness.audits import of_mechanisms


def target(mechanism, *, rate, queries=1, scale=2.0):
    found = of_mechanisms(
        mechanisms=(mechanism,), views=("histogram",), trials=1000, queries=queries, classes=3, weight=1.0, sigma=scale,
        parameters={"sigma_threshold": 1.0, "gamma": 1 / scale},
    rate=rate, delta=0.01, confidence=0.99, noise="fast", seed=0,
    ).of.targets()  # fmt: skip
    return found[-1]


def density(mechanism, z, rate, moved):
    law = norm.pdf if mechanism == "gnmax" else laplace.pdf
    return (1 - rate) * law(z) + rate * law(z - moved)


@pytest.mark.parametrize(("mechanism", "rate"), [("gnmax", 1.0), ("gnmax", 0.5), ("lnmax", 1.0)])
def test_the_ratio_is_that_of_the_densities_of_both_counts(mechanism, rate):
    rng = np.random.default_rng(0)
    levels = np.array([10.0, 11.0, 9.0])
    noisy = levels + 3 * rng.standard_normal((500, 3))
    z = (noisy - levels) / 2.0
    d = 0.5
    before = density(mechanism, z[:, 0], rate, d) * density(mechanism, z[:, 1], rate, 0)
    after = density(mechanism, z[:, 0], rate, 0) * density(mechanism, z[:, 1], rate, d)
    got = histogram_log_ratio(target(mechanism, rate=rate), noisy, levels)
    np.testing.assert_allclose(got, np.log(before / after), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("mechanism", "rate"), [("gnmax", 0.5), ("lnmax", 1.0)])
@pytest.mark.parametrize("delta", [0.01, 1e-3])
def test_the_exact_epsilon_is_that_of_a_two_dimensional_integral(mechanism, rate, delta):
    d, step = 0.5, 0.02
    axis = np.arange(-12, 12.5, step)
    with_vote, without = density(mechanism, axis, rate, d), density(mechanism, axis, rate, 0)
    p, q = np.outer(with_vote, without) * step**2, np.outer(without, with_vote) * step**2
    expected = brentq(lambda e: np.maximum(p - np.exp(e) * q, 0).sum() - delta, 0, 3)
    assert histogram_epsilon(target(mechanism, rate=rate), delta=delta) == pytest.approx(expected, abs=2e-3)


def test_a_vote_that_always_enters_gaussian_noise_is_gaussian_dp():
    exact = float(gdp_epsilon(np.array([np.sqrt(2 * 6) / 2.0]), np.array([0.01]))[0])
    assert histogram_epsilon(target("gnmax", rate=1.0, queries=6), delta=0.01) == exact


@pytest.mark.parametrize("mechanism", [GNMax(sigma=2.0), LNMax(gamma=0.5)], ids=lambda mechanism: mechanism.name)
def test_the_release_is_the_argmax_of_what_is_seen(mechanism):
    counts = np.random.default_rng(3).uniform(0, 5, (2000, 4))
    shown = mechanism.noisy(counts, simulated(np.random.default_rng(4)), view="histogram")
    labels = mechanism.release(counts, simulated(np.random.default_rng(4)), view="histogram")
    np.testing.assert_array_equal(shown.argmax(axis=1), labels)
    np.testing.assert_array_equal(shown * 2**20, np.rint(shown * 2**20))

"""Exact epsilons of compositions: against enumeration of sequences, a closed form and direct convolution."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from protocols.bounds.gaussian import gdp_epsilon
from simulations.audit.bounds import RatioLaw, composed_epsilon, composed_epsilon_of_ratios


def composed(p, q, *, queries, delta):
    """Of one pair of probabilities."""
    return float(composed_epsilon(np.log([p]), np.log([q]), queries=queries, delta=delta)[0])


def by_sequences(p, q, queries, delta):
    """Smallest epsilon with sum (P - e^eps Q)+ <= delta in both directions, over all sequences one by one."""
    sequences = list(product(range(len(p)), repeat=queries))
    both = [np.array([np.prod([law[i] for i in s]) for s in sequences]) for law in (p, q)]
    found = 0.0
    for first, second in (both, both[::-1]):
        gap = lambda e, a=first, b=second: np.maximum(a - np.exp(e) * b, 0).sum() - delta  # noqa: E731
        found = max(found, brentq(gap, 0, 60, xtol=1e-13) if gap(0) > 0 else 0.0)
    return found


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.1])
@pytest.mark.parametrize(
    ("p", "q", "queries"),
    [
        ([0.7, 0.3], [0.5, 0.5], 6),
        ([0.2, 0.5, 0.3], [0.3, 0.45, 0.25], 4),
        ([0.1, 0.2, 0.3, 0.4], [0.2, 0.1, 0.4, 0.3], 4),
    ],
)  # fmt: skip
def test_composed_epsilon_is_that_of_all_sequences(p, q, queries, delta):
    expected = by_sequences(p, q, queries, delta)
    assert composed(p, q, queries=queries, delta=delta) == pytest.approx(expected, abs=1e-10)


def test_many_pairs_are_composed_as_each_alone(monkeypatch):
    p, q = np.random.default_rng(0).dirichlet([2.0, 2.0, 2.0], (2, 50))
    together = composed_epsilon(np.log(p), np.log(q), queries=5, delta=0.01)
    assert together == pytest.approx([composed(*pair, queries=5, delta=0.01) for pair in zip(p, q, strict=True)])
    monkeypatch.setattr("simulations.audit.bounds._CELLS", 100)
    np.testing.assert_array_equal(composed_epsilon(np.log(p), np.log(q), queries=5, delta=0.01), together)


@pytest.mark.parametrize(("mu", "copies"), [(0.35, 1), (0.25, 8), (0.1, 64)])
@pytest.mark.parametrize("delta", [0.01, 1e-5])
def test_convolved_ratios_of_a_gaussian_are_gaussian_dp(mu, copies, delta):
    z = np.linspace(-9.5, 9.5 + mu, 100_001)
    ratio, mass = mu * z - mu * mu / 2, np.exp(-(z**2) / 2)
    law = RatioLaw(ratio, mass * np.exp(ratio) / (mass * np.exp(ratio)).sum())
    exact = float(gdp_epsilon(np.array([mu * np.sqrt(copies)]), np.array([delta]))[0])
    assert composed_epsilon_of_ratios([law], copies=copies, delta=delta) == pytest.approx(exact, abs=1e-3)


def test_convolved_ratios_with_atoms_are_those_of_their_outcomes():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.35, 0.35, 0.3])
    law = RatioLaw(np.log(p / q), p)
    for delta in (0.001, 0.05):
        reverse = composed_epsilon_of_ratios([RatioLaw(np.log(q / p), q)], copies=5, delta=delta)
        found = max(composed_epsilon_of_ratios([law], copies=5, delta=delta), reverse)
        exact = composed(p, q, queries=5, delta=delta)
        # Atoms are split over two points of the grid, a 4000th of the largest ratio apart.
        assert found == pytest.approx(exact, abs=2e-3)


def test_one_gaussian_bit_at_its_best_threshold_is_gaussian_dp():
    """The best single set is a half-line: the bit costs what the whole noisy count does (Dong, Roth & Su 2022)."""
    mu, delta = 0.8, 0.01
    g = np.linspace(-4, 4, 801)[:, None]
    p, q = np.concatenate([ndtr(g), ndtr(-g)], axis=1), np.concatenate([ndtr(g + mu), ndtr(-g - mu)], axis=1)
    bits = composed_epsilon(np.log(p), np.log(q), queries=1, delta=delta)
    assert bits.max() == pytest.approx(float(gdp_epsilon(np.array([mu]), np.array([delta]))[0]), abs=1e-4)

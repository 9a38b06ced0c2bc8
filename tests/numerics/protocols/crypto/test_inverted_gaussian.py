"""The discrete Gaussian by inversion, against its probabilities by mpmath and a test of fit."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.stats import chisquare

from protocols.crypto.discrete_gaussian import INVERSION_DISTANCE, LARGEST_SIGMA, REACH, distance, inverted
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses


def words_of(number):
    return np.array([[number >> 64, number & (2**64 - 1)]], dtype=np.uint64)


def bounds(sigma):
    """F(z) for each z within reach, in units of 2^-128, with 400 bits: of the whole law, not cut."""
    with mpmath.workprec(400):
        reach = int(mpmath.ceil(REACH * sigma))
        variance = mpmath.mpf(sigma.numerator) ** 2 / mpmath.mpf(sigma.denominator) ** 2
        weights = {z: mpmath.exp(-(mpmath.mpf(z) ** 2) / (2 * variance)) for z in range(-3 * reach, 3 * reach + 1)}
        total, running, found = mpmath.fsum(weights.values()), mpmath.mpf(0), {}
        for z, weight in weights.items():
            running += weight
            found[z] = running / total
        return found


@pytest.mark.parametrize("sigma", [Fraction(1, 3), Fraction(5), Fraction(201, 8)])
def test_every_step_is_where_the_distribution_function_has_it(sigma):
    exact, reach = bounds(sigma), int(np.ceil(float(REACH * sigma)))
    with mpmath.workprec(400):
        slack = mpmath.mpf(distance(sigma))
        for z in range(-reach, reach):
            # Draws up to z must have probability F(z), give or take the stated distance.
            below = int(mpmath.floor((exact[z] - slack) * 2**128)) - 1
            above = int(mpmath.ceil((exact[z] + slack) * 2**128)) + 1
            assert below < 0 or inverted(words_of(below), sigma=sigma)[0] <= z
            assert above >= 2**128 or inverted(words_of(above), sigma=sigma)[0] > z
    assert slack < 2.0**-100


def test_the_extreme_words_give_the_ends_of_the_reach():
    sigma = Fraction(5)
    assert inverted(words_of(0), sigma=sigma)[0] == -REACH * 5
    assert inverted(words_of(2**128 - 1), sigma=sigma)[0] == REACH * 5


def test_words_that_equal_the_upper_word_of_a_bound_are_told_apart_by_the_lower_one():
    sigma = Fraction(5)
    low, high = 0, 2**128 - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if inverted(words_of(middle), sigma=sigma)[0] <= 2 else (low, middle)
    assert inverted(words_of(low), sigma=sigma)[0] == 2
    assert inverted(words_of(high), sigma=sigma)[0] == 3
    assert low >> 64 == high >> 64


def test_draws_fit_the_law():
    """A chi-squared test with 100,000 draws; the seed is fixed, and 1e-6 the rate at which others would fail."""
    sigma, rng = Fraction(4), np.random.default_rng(0)
    drawn = inverted(rng.integers(0, 2**64, (100_000, 2), dtype=np.uint64), sigma=sigma)
    values = np.arange(-14, 15)
    weights = np.exp(-(np.arange(-52, 53) ** 2) / 32.0)
    law = weights / weights.sum()
    seen = np.array([(drawn == z).sum() for z in values])
    expected = 100_000 * law[values + 52]
    rest = [100_000 - seen.sum()], [100_000 - expected.sum()]
    assert chisquare(np.append(seen, rest[0]), np.append(expected, rest[1])).pvalue > 1e-6


@pytest.mark.parametrize("sigma", [Fraction(0), Fraction(-1), Fraction(LARGEST_SIGMA + 1)])
def test_a_sigma_out_of_range_is_refused_with_the_range(sigma):
    with refuses(InvalidInput, LARGEST_SIGMA):
        inverted(words_of(1), sigma=sigma)


def test_the_distance_that_studies_count_holds_up_to_the_largest_sigma():
    assert distance(Fraction(1, 100)) < distance(Fraction(LARGEST_SIGMA)) < INVERSION_DISTANCE

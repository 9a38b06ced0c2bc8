"""What an attack costs, and how numbers are written: against the mechanisms that reach a bound, and slow searches."""

import re
from math import exp, inf, log
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.bounds.gaussian import gdp_delta, gdp_mu
from protocols.claims.strength import Figure, accused_in_words, factor, odds, percent_at_most
from protocols.errors import InvalidInput
from protocols.plural import at_least, at_most
from tests.harness.refusals import refuses

EPSILON = st.floats(0, 20)
DELTA = st.floats(1e-12, 0.2)
SHARE = st.floats(0, 1)


def worst_pair(epsilon, delta):
    """Kairouz, Oh and Viswanath 2015, section 4: the pair of laws that every (epsilon, delta)-DP pair follows from."""
    high, low = (1 - delta) * exp(epsilon) / (1 + exp(epsilon)), (1 - delta) / (1 + exp(epsilon))
    return np.array([delta, high, low, 0.0]), np.array([0.0, low, high, delta])


def gaussian_pair(mu):
    """N(mu, 1) and N(0, 1) in cells of 1e-4, by decreasing likelihood ratio."""
    edges = np.arange(-12.0, 12.0 + mu, 1e-4)[::-1]
    one, other = (np.diff([float(mpmath.ncdf(x)) for x in (mean - edges[::40])]) for mean in (mu, 0.0))
    return one, other


def most_powerful(members, others, accused):
    """Neyman and Pearson: accuse by falling likelihood ratio, the last outcome by a coin."""
    found, left = 0.0, accused
    for hit, wrong in zip(members, others, strict=True):
        taken = 1.0 if wrong <= 0 else min(1.0, left / wrong)
        found, left = found + taken * hit, left - taken * wrong
    return found


@given(st.floats(0, 8), DELTA, SHARE)
def test_the_best_attack_on_the_worst_pair_catches_what_is_said_and_accuses_what_is_said(epsilon, delta, share):
    figure, pair = Figure(epsilon, delta), worst_pair(epsilon, delta)
    found = most_powerful(*pair, share)
    assert found == pytest.approx(figure.caught(share), abs=1e-9)
    # To catch as many, nobody accuses fewer.
    assert figure.accused(min(found, 1.0)) <= share + 1e-9


@given(st.floats(0, 8), DELTA)
def test_no_more_guesses_are_right_than_is_said_and_of_the_worst_pair_as_many(epsilon, delta):
    one, other = worst_pair(epsilon, delta)
    # The best guess names the likelier value; both are equally likely before.
    assert np.maximum(one, other).sum() / 2 == pytest.approx(Figure(epsilon, delta).guessed, abs=1e-12)


@pytest.mark.parametrize("mu", [0.1, 0.2681, 1.0, 3.0])
def test_of_a_gaussian_mechanism_as_many_guesses_are_right_as_is_said(mu):
    right = np.maximum(*gaussian_pair(mu)).sum() / 2
    figure = Figure(1.0, float(gdp_delta(np.array([mu]), np.array([1.0]))[0]), mu)
    assert right <= Figure(40.0, 0.9, mu).guessed + 1e-9
    assert right == pytest.approx(Figure(40.0, 0.9, mu).guessed, abs=2e-3)
    assert right <= figure.guessed + 1e-9


@pytest.mark.parametrize("mu", [0.1, 0.2681, 1.0, 3.0])
def test_the_best_attack_on_a_gaussian_mechanism_reaches_its_curve_and_no_more(mu):
    members, others = gaussian_pair(mu)
    epsilon = 1.0
    figure = Figure(epsilon, float(gdp_delta(np.array([mu]), np.array([epsilon]))[0]), mu)
    for share in (0.001, 0.01, 0.1, 0.5, 0.9):
        found = most_powerful(members, others, share)
        assert found == pytest.approx(figure.caught(share), abs=2e-4)
        assert found <= figure.caught(share) + 1e-9
        assert figure.accused(found) == pytest.approx(share, abs=2e-4)


@given(SHARE, st.floats(0.01, 5), st.floats(1e-12, 0.01))
def test_a_distance_from_the_gaussian_law_only_makes_attacks_easier(share, mu, distance):
    near, exact = (Figure(40.0, 1 - 1e-6, mu, each) for each in (distance, 0.0))
    assert near.accused(share) <= exact.accused(share)
    assert near.caught(share) >= exact.caught(share)
    # A law that is off by the distance: it adds as much to what is caught, and takes as much from what is accused.
    z = float(mpmath.ncdf(mpmath.mpf(mu) + mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(share) - 1)))
    assert near.accused(min(1.0, z + distance)) <= share + 2e-6


@pytest.mark.parametrize(("epsilon", "times"), [(1.0, 16), (0.5, 29)])
def test_odds_pass_e_to_the_epsilon_many_times_as_often_as_delta_and_twice_that_no_more_than_twice(epsilon, times):
    mu = float(gdp_mu(np.array([epsilon]), np.array([1e-5]))[0])
    loss = mpmath.mpf(mu) ** 2 / 2  # the privacy loss of a Gaussian mechanism is N(mu^2/2, mu^2)
    assert float(mpmath.ncdf((loss - epsilon) / mu)) / 1e-5 == pytest.approx(times, abs=0.7)
    assert float(mpmath.ncdf((loss - epsilon - log(2)) / mu)) <= 2e-5


@given(st.lists(st.tuples(st.floats(1e-6, 1), st.floats(1e-6, 1)), min_size=2, max_size=8), st.floats(0, 3))
def test_odds_pass_twice_the_factor_at_most_twice_as_often_as_delta_for_any_two_laws(cells, epsilon):
    one, other = np.array(cells).T / np.array(cells).sum(axis=0)[:, None]
    delta = np.maximum(one - exp(epsilon) * other, 0).sum()
    assert one[one > 2 * exp(epsilon) * other].sum() <= 2 * delta + 1e-12


def test_what_is_said_of_odds_is_twice_the_factor_and_twice_delta():
    said = odds(Figure(1.0, 1e-5))
    assert "5.44" in said
    assert "2e-05, one in 50,000" in said


@given(EPSILON, DELTA, st.one_of(st.none(), st.floats(0.01, 6)))
def test_those_accused_are_never_said_to_be_more_than_they_may_be(epsilon, delta, mu):
    figure = Figure(epsilon, delta, mu)
    words = accused_in_words(figure)
    if found := re.fullmatch(r"at least (\d+) of ([\d,]+)", words):
        said = int(found[1]) / int(found[2].replace(",", ""))
        assert 0.9 * figure.accused(0.5) - 1e-12 <= said <= figure.accused(0.5) * (1 + 1e-8)
    else:
        assert figure.accused(0.5) < 1e-8
    assert float(percent_at_most(figure.caught(0.01)).split()[0]) >= 100 * figure.caught(0.01) - 1e-6
    words = factor(epsilon)
    if "e^" not in words:
        value = float(words.replace(",", "").split()[0]) * (1e6 if "million" in words else 1)
        assert value >= exp(epsilon) * (1 - 1e-8)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1"), (7.97304, "7.974"), (4.74608, "4.747"), (3.0 + 1e-12, "3"), (99.9991, "100"), (120.2, "121"),
        (1234567.0, "1234567"), (0.0, "0"), (1e-5, "1e-05"), (1.2341e-5, "1.24e-05"), (0.00099999, "0.001"),
        (inf, "none"),
    ],
)  # fmt: skip
def test_a_bound_is_written_rounded_up_and_the_rounding_of_float64_does_not_count(value, shown):
    assert at_most(value) == shown


@given(st.floats(1e-12, 1e9))
def test_no_bound_is_written_on_the_side_that_is_not_true(value):
    assert value * (1 - 2e-9) <= float(at_most(value)) <= value * 1.02 + 1e-3 * (value >= 1e-3) + (value >= 100)
    assert float(at_least(value)) <= value * (1 + 2e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(-0.1, 1e-5), (float("nan"), 1e-5), (1.0, 1.0), (1.0, 0.0)])
def test_what_is_out_of_range_is_refused(epsilon, delta):
    with refuses(InvalidInput, "allowed"):
        Figure(epsilon, delta)
    with refuses(InvalidInput, "allowed"):
        Figure(1.0, 1e-5).caught(1.5)
    with refuses(InvalidInput, "allowed"):
        Figure(1.0, 1e-5).accused(-0.5)


def test_the_table_of_the_page_on_nist_is_what_the_words_say():
    page = (Path(__file__).parents[3] / "docs/explanation/nist-sp-800-226.md").read_text()
    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
        mu = float(gdp_mu(np.array([epsilon]), np.array([1e-5]))[0])
        gaussian, any_ = Figure(epsilon, 1e-5, mu), Figure(epsilon, 1e-5)
        words = [
            at_most(epsilon), accused_in_words(gaussian), accused_in_words(any_),
            percent_at_most(gaussian.caught(0.01)), percent_at_most(any_.caught(0.01)), factor(epsilon + log(2)),
            gaussian.rating,
        ]  # fmt: skip
        assert f"| {' | '.join(words)} |" in page, words

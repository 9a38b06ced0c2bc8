"""How sure a guess can become: the bound, against the mechanism that reaches it and against slow searches."""

from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.claims import WEAK, found_at, rating, rounded_up, strength, sure
from protocols.claims.strength import factor_in_words, sure_in_words
from protocols.errors import InvalidInput

EPSILON = st.floats(0, 20)
DELTA = st.floats(0, 0.2)


def worst_pair(epsilon, delta):
    """Kairouz, Oh and Viswanath 2015, section 4: the pair of laws that every (epsilon, delta)-DP pair follows from."""
    high, low = (1 - delta) * exp(epsilon) / (1 + exp(epsilon)), (1 - delta) / (1 + exp(epsilon))
    return np.array([delta, high, low, 0.0]), np.array([0.0, low, high, delta])


@given(EPSILON, DELTA)
def test_no_guess_on_the_worst_pair_is_better_and_the_best_reaches_the_bound(epsilon, delta):
    one, other = worst_pair(epsilon, delta)
    best = np.maximum(one, other).sum() / 2
    assert sure(epsilon, delta) == pytest.approx(best, abs=1e-12)


@given(st.floats(0, 8), DELTA, st.floats(0, 1))
def test_no_test_on_the_worst_pair_finds_more_at_any_share_of_false_positives(epsilon, delta, share):
    members, others = worst_pair(epsilon, delta)
    # Neyman and Pearson: accuse by falling likelihood ratio, the last outcome by a coin.
    found, left = 0.0, share
    for hit, wrong in zip(members, others, strict=True):
        taken = 1.0 if wrong == 0 else min(1.0, left / wrong)
        found, left = found + taken * hit, left - taken * wrong
    assert found == pytest.approx(found_at(share, epsilon, delta), abs=1e-9)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_a_gaussian_mechanism_stays_within_the_bound_of_its_own_curve(sigma):
    import scipy

    for epsilon in np.linspace(0.01, 8, 40):
        delta = scipy.special.ndtr(0.5 / sigma - epsilon * sigma) - exp(epsilon) * scipy.special.ndtr(
            -0.5 / sigma - epsilon * sigma
        )
        assert scipy.special.ndtr(0.5 / sigma) <= sure(float(epsilon), float(delta)) + 1e-12


@given(EPSILON, EPSILON, DELTA)
def test_it_grows_with_epsilon_and_starts_from_a_coin(one, other, delta):
    assert sure(0.0, 0.0) == 0.5
    low, high = sorted((one, other))
    assert 0.5 <= sure(low, delta) <= sure(high, delta) <= 1.0


@given(EPSILON, DELTA)
def test_figures_in_words_are_never_smaller_than_they_are(epsilon, delta):
    assert float(sure_in_words(epsilon, delta).split()[0]) >= 100 * sure(epsilon, delta) - 1e-6
    words = factor_in_words(epsilon)
    if "e^" not in words:
        value = float(words.replace(",", "").split()[0]) * (1e6 if "million" in words else 1)
        assert value >= exp(epsilon) * (1 - 1e-8)


def test_epsilon_8_is_weak_with_its_factor_and_1_is_strong():
    assert strength(8.0, 1e-5) == (
        "Weak: somebody who was 50 % sure can become at most 99.97 % sure (odds change by a factor of at most 2,981)."
    )
    assert strength(1.0, 1e-5).startswith("Strong: somebody who was 50 % sure can become at most 74 % sure")
    assert [rating(each) for each in (0.1, 1.0, 2.0, 4.0, 8.0, 40.0)] == [
        "strong", "strong", "moderate", "limited", WEAK, WEAK,
    ]  # fmt: skip
    assert "e^41" in strength(41.0, 1e-5)
    assert strength(None, 1e-5) == "No guarantee at this delta."


@pytest.mark.parametrize(
    ("epsilon", "shown"), [(1.0, 1.0), (2.154001, 2.155), (3.0 + 1e-12, 3.0), (99.9991, 100.0), (120.2, 121.0)]
)
def test_an_epsilon_is_shown_rounded_up_and_the_rounding_of_float64_does_not_count(epsilon, shown):
    assert rounded_up(epsilon) == shown


def test_what_is_said_of_2():
    assert sure(2.0, 0.0) == pytest.approx(1 / (1 + exp(-2)))
    assert "at most 89 % sure (odds change by a factor of at most 7.39)" in strength(2.0, 1e-5)
    assert log(7.39) >= 2


@pytest.mark.parametrize(("epsilon", "delta"), [(-0.1, 0.0), (float("inf"), 0.0), (float("nan"), 0.0), (1.0, 1.0)])
def test_what_is_out_of_range_is_refused(epsilon, delta):
    with pytest.raises(InvalidInput, match="allowed"):
        sure(epsilon, delta)
    with pytest.raises(InvalidInput, match="allowed"):
        found_at(1.5, 1.0, 0.0)


def test_the_table_of_the_page_on_nist_is_what_the_words_say():
    page = (Path(__file__).parents[3] / "docs/explanation/nist-sp-800-226.md").read_text()
    for epsilon in (0.5, 1, 2, 4, 8):
        words = [f"{epsilon:g}", sure_in_words(epsilon, 1e-5), factor_in_words(epsilon), rating(epsilon)]
        assert f"| {' | '.join(words)} |" in page
    assert (
        f"{100 * found_at(0.01, 2.0, 1e-5):.1f} % at an epsilon of 2, {100 * found_at(0.01, 8.0, 1e-5):.2f} % at 8"
        in page
    )

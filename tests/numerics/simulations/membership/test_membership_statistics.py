"""Areas, rates and advantages against plain counting, and their intervals against simulated coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom, norm
from sklearn.metrics import roc_auc_score, roc_curve

from protocols.errors import InvalidInput
from simulations.membership.report import (
    FALSE_POSITIVE_RATES,
    LEVEL,
    advantage,
    area,
    area_difference,
    best_threshold,
    curve,
    permuted_area,
    rates,
)
from tests.harness.refusals import refuses

# Few distinct values, so that ties are the rule.
TIED = arrays(np.float64, st.integers(2, 12), elements=st.integers(-3, 3).map(float))
RNG = np.random.default_rng


def plain_area(members, others):
    """P(member > other) + P(equal)/2 over all pairs."""
    return float(np.mean([(m > o) + (m == o) / 2 for m in members for o in others]))


def plain_variance(members, others):
    """DeLong's variance from the kernel, pair by pair."""
    kernel = np.array([[(m > o) + (m == o) / 2 for o in others] for m in members])
    return kernel.mean(axis=1).var(ddof=1) / len(members) + kernel.mean(axis=0).var(ddof=1) / len(others)


@given(members=TIED, others=TIED)
def test_the_area_is_the_share_of_pairs_in_order_and_that_of_scikit_learn(members, others):
    found = area(members, others)
    assert found.value == pytest.approx(plain_area(members, others), abs=1e-12)
    truth = np.repeat([1, 0], [len(members), len(others)])
    assert found.value == pytest.approx(roc_auc_score(truth, np.concatenate([members, others])), abs=1e-12)
    assert 0 <= found.low <= found.value <= found.high <= 1


@given(members=TIED, others=TIED)
def test_the_interval_is_that_of_delong_on_the_logit_scale(members, others):
    value, variance = plain_area(members, others), plain_variance(members, others)
    found = area(members, others)
    if variance < 1e-12:
        # Full separation, or all equal: a binomial interval of pairs, never a point.
        assert found.high - found.low > 0.05
        return
    half = norm.ppf(0.5 + LEVEL / 2) * np.sqrt(variance) / (value * (1 - value))
    for end, sign in ((found.low, -1), (found.high, 1)):
        assert np.log(end / (1 - end)) == pytest.approx(np.log(value / (1 - value)) + sign * half, abs=1e-6)


@pytest.mark.parametrize(("mean", "records"), [(0.0, (30, 50)), (0.5, (80, 40)), (2.0, (150, 150))])
def test_the_interval_of_the_area_covers_the_true_area(mean, records):
    """Normal scores, so the area is Phi(mean/sqrt 2). 1,000 draws: 95 % less 1.5 points for a law of large samples
    must be reached; a false alarm is a binomial tail below 1e-4."""
    rng, truth, draws = RNG(1), norm.cdf(mean / 2**0.5), 1000
    covered = 0
    for _ in range(draws):
        found = area(rng.normal(mean, 1, records[0]), rng.normal(0, 1, records[1]))
        covered += found.low <= truth <= found.high
    assert binom.cdf(covered, draws, LEVEL - 0.015) > 1e-4, covered / draws
    assert binom.sf(covered, draws, LEVEL + 0.02) > 1e-4, covered / draws


def test_full_separation_has_the_interval_of_independent_pairs():
    found = area(np.arange(20.0) + 100, np.arange(50.0))
    assert (found.value, found.high) == (1.0, 1.0)
    # 20 pairs, all won: each tail of the two binomials has 1.25 %.
    won, lost = 0.0125 ** (1 / 20), 1 - 0.0125 ** (1 / 20)
    assert found.low == pytest.approx((1 + won - lost) / 2, rel=1e-12)
    same = area(np.zeros(20), np.zeros(50))
    assert same.value == 0.5
    assert same.low == pytest.approx((1 - lost) / 2, rel=1e-12)
    assert same.high == pytest.approx((1 + lost) / 2, rel=1e-12)


def test_the_difference_of_two_areas_covers_the_true_difference():
    """Two scores of the same records, correlated; as above."""
    rng, draws, covered, truth = RNG(3), 1000, 0, norm.cdf(1 / 2**0.5) - norm.cdf(0.5 / 2**0.5)
    for _ in range(draws):
        shared, shared_others = rng.normal(0, 0.8**0.5, 60), rng.normal(0, 0.8**0.5, 60)
        noise = rng.normal(0, 0.2**0.5, (4, 60))
        found = area_difference(
            1 + shared + noise[0],
            shared_others + noise[1],
            base_members=0.5 + shared + noise[2],
            base_others=shared_others + noise[3],
        )
        covered += found.low <= truth <= found.high
    assert binom.cdf(covered, draws, LEVEL - 0.02) > 1e-4, covered / draws
    assert binom.sf(covered, draws, LEVEL + 0.02) > 1e-4, covered / draws


@pytest.mark.parametrize("tied", [False, True])
def test_permuted_areas_lie_around_one_half_as_widely_as_the_rank_sum_says(tied):
    """Mann & Whitney 1947: variance (n + m + 1)/(12 n m) without ties. Four standard errors of 400 draws each."""
    rng = RNG(6)
    members, others = (rng.integers(0, 3, 40) * 1.0, rng.integers(0, 3, 60) * 1.0) if tied else rng.random((2, 50))
    found = permuted_area(members, others, rng=RNG(7))
    spread = ((len(members) + len(others) + 1) / (12 * len(members) * len(others))) ** 0.5
    assert abs(found.value - 0.5) < 4 * spread / 20
    if not tied:
        assert (found.high - found.low) / (2 * 1.96 * spread) == pytest.approx(1, abs=0.2)
    assert found == permuted_area(np.exp(members), np.exp(others), rng=RNG(7))


@given(members=TIED, others=TIED)
def test_rates_are_the_best_of_all_thresholds_within_the_false_positives(members, others):
    truth = np.repeat([1, 0], [len(members), len(others)])
    false, true, _ = roc_curve(truth, np.concatenate([members, others]), drop_intermediate=False)
    for wanted, rate in zip(FALSE_POSITIVE_RATES, rates(members, others), strict=True):
        assert rate.wanted == wanted
        assert rate.false_positive_rate.value <= wanted
        assert rate.true_positive_rate.value == pytest.approx(true[false <= wanted].max(), abs=1e-12)


def test_the_upper_end_of_the_false_positive_rate_covers_though_the_threshold_was_chosen():
    """Uniform non-members: the true rate of a threshold t is 1 - t. 1,000 draws, 97.5 % upper limits, exact."""
    rng, draws, covered = RNG(4), 1000, 0
    for _ in range(draws):
        others = rng.random(200)
        threshold = np.sort(others)[-3]
        covered += 1 - threshold <= rates(others, others)[1].false_positive_rate.high
    assert binom.cdf(covered, draws, (1 + LEVEL) / 2) > 1e-4
    assert binom.sf(covered, draws, (1 + LEVEL) / 2) > 1e-4


@given(members=TIED, others=TIED)
def test_the_best_threshold_has_the_largest_advantage(members, others):
    values = [*np.unique(np.concatenate([members, others])).tolist(), np.inf]
    best = max(np.mean(members >= t) - np.mean(others >= t) for t in values)
    found = advantage(members, others, threshold=best_threshold(members, others))
    assert found.value == pytest.approx(best, abs=1e-12)
    assert -1 <= found.low <= found.value <= found.high <= 1


def test_the_interval_of_the_advantage_covers():
    """Exact at each share, so a little wide: at least 95 % of 1,000 draws; false alarm below 1e-4."""
    rng, draws = RNG(5), 1000
    for true, false, records in ((0.5, 0.5, (60, 80)), (0.3, 0.02, (200, 100)), (0.05, 0.05, (40, 40))):
        covered = 0
        for _ in range(draws):
            members, others = rng.random(records[0]) < true, rng.random(records[1]) < false
            found = advantage(members * 1.0, others * 1.0, threshold=0.5)
            covered += found.low <= true - false <= found.high
        assert binom.cdf(covered, draws, LEVEL) > 1e-4, (true, covered / draws)


@pytest.mark.parametrize("function", [area, rates, best_threshold, curve])
def test_too_few_records_or_no_numbers_are_refused(function):
    with refuses(InvalidInput, "members"):
        function(np.zeros(1), np.zeros(5))
    with refuses(InvalidInput, "non-members"):
        function(np.zeros(5), np.zeros(0))
    with refuses(InvalidInput, "NaN"):
        function(np.zeros(5), np.array([0.0, np.nan]))
    with refuses(InvalidInput, "records"):
        area_difference(np.zeros(5), np.zeros(5), base_members=np.zeros(4), base_others=np.zeros(5))

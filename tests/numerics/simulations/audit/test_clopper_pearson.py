"""Clopper-Pearson limits: against scipy, and their coverage computed exactly."""

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from simulations.audit.bounds import lower_limit, upper_limit


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (1, 10), (10, 10), (3, 1000), (99_990, 100_000), (17, 20_000)])
@pytest.mark.parametrize("alpha", [1e-6, 0.001, 0.05, 0.4])
def test_limits_are_those_of_scipys_exact_test(hits, trials, alpha):
    lower = binomtest(hits, trials, alternative="greater").proportion_ci(1 - alpha, "exact").low
    upper = binomtest(hits, trials, alternative="less").proportion_ci(1 - alpha, "exact").high
    count = np.array(float(hits))
    assert lower_limit(count, trials, alpha=alpha) == pytest.approx(lower, rel=1e-7, abs=1e-11)
    assert upper_limit(count, trials, alpha=alpha) == pytest.approx(upper, rel=1e-7, abs=1e-11)


@pytest.mark.parametrize("trials", [1, 7, 40])
@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.3])
def test_a_limit_is_wrong_with_probability_alpha_at_most(trials, alpha):
    """Exact enumeration of the coverage for 300 values of p; near each limit it is nearly alpha."""
    hits = np.arange(trials + 1.0)
    lower, upper = lower_limit(hits, trials, alpha=alpha), upper_limit(hits, trials, alpha=alpha)
    worst = 0.0
    for p in np.concatenate([np.linspace(0, 1, 300), np.nextafter(lower[lower > 0], 0), np.nextafter(upper, 1)]):
        mass = binom.pmf(hits, trials, min(p, 1.0))
        for wrong in (mass[lower > p].sum(), mass[upper < p].sum()):
            assert wrong <= alpha * (1 + 1e-9)
            worst = max(worst, wrong)
    assert worst > 0.9 * alpha


def test_limits_grow_with_the_hits_from_zero_to_one():
    hits = np.arange(51.0)
    for limit in (lower_limit, upper_limit):
        assert (np.diff(limit(hits, 50, alpha=0.01)) >= 0).all()
    assert lower_limit(hits, 50, alpha=0.01)[0] == 0
    assert upper_limit(hits, 50, alpha=0.01)[-1] == 1

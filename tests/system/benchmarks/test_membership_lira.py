"""The likelihood-ratio attack against its definition, and on shadows whose law is known."""

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.membership_lira import SHADOWS_FOR_OWN_VARIANCE, likelihood_ratios
from simulations.membership.report import area


def shadows_of(rng, *, count, records, gap):
    """Half of the shadows have each record, where scores are higher by gap; each record has a level of its own."""
    included = np.argsort(rng.random((count, records)), axis=0) < count // 2
    level = rng.normal(0, 5, records)
    return level, included, level + gap * included + rng.normal(0, 1, (count, records))


@pytest.mark.parametrize("count", [8, SHADOWS_FOR_OWN_VARIANCE])
def test_it_is_the_ratio_of_two_normal_densities(count):
    rng = np.random.default_rng(0)
    level, included, shadows = shadows_of(rng, count=count, records=6, gap=1.0)
    found = likelihood_ratios(level, shadows, included)
    sides = [[shadows[side[:, j], j] for j in range(6)] for side in (included, ~included)]
    for j in range(6):
        logs = []
        for side in sides:
            variance = np.var(side[j], ddof=1)
            if count < SHADOWS_FOR_OWN_VARIANCE:
                # The same number of shadows a record, so the pooled variance is their mean.
                variance = np.mean([np.var(values, ddof=1) for values in side])
            logs.append(norm.logpdf(level[j], side[j].mean(), variance**0.5))
        assert found[j] == pytest.approx(logs[0] - logs[1], rel=1e-9)


@pytest.mark.parametrize("count", [16, 128])
def test_it_finds_what_the_plain_score_cannot(count):
    """Records differ in difficulty by far more than membership does; with it known, the area is Phi(gap/sqrt 2)."""
    rng = np.random.default_rng(1)
    level, included, shadows = shadows_of(rng, count=count, records=4000, gap=2.0)
    member = rng.random(4000) < 0.5
    target = level + 2.0 * member + rng.normal(0, 1, 4000)
    ratios = likelihood_ratios(target, shadows, included)
    assert area(target[member], target[~member]).high < 0.65
    best = norm.cdf(2.0 / 2**0.5)
    found = area(ratios[member], ratios[~member])
    assert best - 0.05 < found.value < best + 0.02

"""The release that is best on given votes, computed again part by part."""

import numpy as np
import pytest

from benchmarks.sanitised import (
    ORDERS,
    SMOOTHNESS,
    BestRelease,
    best_parameters,
    best_release,
    corrected_cost,
    settings_that_hold,
)
from benchmarks.smooth import VoteSetting, distance_bounds, gnmax_rdp, smooth_sensitivity
from protocols.bounds.rdp import rdp_to_epsilon
from protocols.errors import InvalidInput
from protocols.research.private import Private
from tests.harness.refusals import refuses

SIGMA, SIGMA_THRESHOLD, PARTIES, DELTA = 8.0, 25.0, 60, 1e-5
CAST = np.ones(PARTIES)


def drawn(seed: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Histograms of three classes, mostly of one mind, and which were answered."""
    rng = np.random.default_rng(seed)
    votes = rng.choice(3, p=[0.94, 0.04, 0.02], size=(queries, PARTIES))
    return np.stack([(votes == c).sum(axis=1) for c in range(3)], axis=1).astype(float), rng.random(queries) < 0.6


def of_order(counts, answered, order: float) -> tuple[float, float]:
    """(epsilon, standard deviation) at one order, from the parts."""
    setting = VoteSetting(sigma=SIGMA, order=order, classes=3, weights=CAST, sensitivity=1.0)
    weight = answered.astype(float)
    bounds = distance_bounds(counts, setting, answered=weight)
    given = best_parameters(bounds, order=order, betas=SMOOTHNESS / order).for_research()
    cost = float(corrected_cost(order=order, beta=given.beta, sigma_ss=given.sigma_ss))
    tests = len(counts) * order / (2 * SIGMA_THRESHOLD**2)
    rdp = gnmax_rdp(counts, setting, answered=weight).for_research() + tests + cost
    std = given.sigma_ss * smooth_sensitivity(bounds, beta=given.beta).for_research()[0]
    return float(rdp_to_epsilon(np.array([rdp]), np.array([order]), delta=DELTA)[0]), float(std)


def found(counts, answered) -> Private[BestRelease]:
    return best_release(
        counts, answered=answered, sigma=SIGMA, sigma_threshold=SIGMA_THRESHOLD, sensitivity=1.0, cast=CAST, delta=DELTA
    )


@pytest.mark.parametrize(("seed", "queries"), [(0, 30), (1, 200), (2, 500)])
def test_the_figure_is_the_rdp_its_cost_and_every_test_at_the_order_of_least_two_sigma_end(seed, queries):
    counts, answered = drawn(seed, queries)
    assert 0 < answered.sum() < queries
    release = found(counts, answered).for_research()
    epsilon, std = of_order(counts, answered, release.order)
    assert release.epsilon == pytest.approx(epsilon, rel=1e-12)
    assert release.std == pytest.approx(std, rel=1e-12)
    assert release.std == pytest.approx(release.sigma_ss * release.sensitivity, rel=1e-12)
    held = settings_that_hold(sigma=SIGMA, sensitivity=1.0, cast=CAST, classes=3)
    ends = {setting.order: sum(np.array([1, 2]) * of_order(counts, answered, setting.order)) for setting in held}
    assert release.order == min(ends, key=lambda order: ends[order])
    assert release.objective == pytest.approx(ends[release.order], rel=1e-12)


def test_orders_at_which_a_condition_fails_are_left_out_and_without_any_it_is_refused():
    orders = [setting.order for setting in settings_that_hold(sigma=SIGMA, sensitivity=1.0, cast=CAST, classes=3)]
    assert 0 < len(orders) < len(ORDERS)
    with refuses(InvalidInput, "C5", "C6", "0.3", 1, 3, 30):
        settings_that_hold(sigma=0.3, sensitivity=1.0, cast=CAST, classes=3)

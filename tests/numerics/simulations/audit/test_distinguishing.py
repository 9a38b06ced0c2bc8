"""Lower bounds from samples of releases whose privacy is known: they hold, and they come close."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from simulations.audit.bounds import Samples, epsilon_lower_bound, mu_lower_bound

CANARIES = json.loads((Path(__file__).parents[3] / "vectors" / "canary_scores.json").read_text(encoding="utf-8"))


def randomised_response(rng, epsilon, delta, trials):
    """The tight (epsilon, delta) pair: with probability delta the truth is told, else a coin of odds e^epsilon.

    Kairouz, Oh & Viswanath 2015, the dominating pair; statistic: 2 and -2 tell the truth, 1 and -1 are the coin.
    """
    told = rng.random((2, trials)) < delta
    right = rng.random((2, trials)) < 1 / (1 + np.exp(-epsilon))
    value = np.where(told, 2.0, np.where(right, 1.0, -1.0))
    return Samples(value[0], -value[1])


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.5, 0.0), (1.0, 0.01), (3.0, 1e-3)])
def test_the_bound_on_randomised_response_stays_below_its_epsilon_and_comes_close(epsilon, delta):
    """200 audits at alpha 0.2: at most 40 false alarms are expected; more than 75 have probability below 1e-7."""
    rng = np.random.default_rng(1)
    bounds = [
        epsilon_lower_bound([randomised_response(rng, epsilon, delta, 4000)], delta=delta, alpha=0.2).value
        for _ in range(200)
    ]
    assert sum(bound > epsilon for bound in bounds) <= 75
    large = epsilon_lower_bound([randomised_response(rng, epsilon, delta, 400_000)], delta=delta, alpha=1e-9)
    assert 0.93 * epsilon - 0.02 < large.value <= epsilon


def test_at_a_delta_below_the_true_one_the_bound_passes_epsilon():
    """(1, 0.01)-DP is no (1, 0)-DP: told truths are then a breach, and are found."""
    pair = randomised_response(np.random.default_rng(2), 1.0, 0.01, 100_000)
    assert epsilon_lower_bound([pair], delta=0.0, alpha=1e-6).value > 3.0


def test_the_bound_on_a_gaussian_shift_is_close_to_its_mu_and_to_its_epsilon():
    rng = np.random.default_rng(3)
    pair = Samples(1.0 + rng.standard_normal(400_000), rng.standard_normal(400_000))
    mu = mu_lower_bound([pair], alpha=1e-6)
    assert 0.95 < mu.value < 1.0
    z = np.linspace(-2, 5, 2001)
    exact = np.log(np.maximum(ndtr(1 - z) - 0.01, 1e-300) / ndtr(-z)).max()
    assert 0.88 * exact < epsilon_lower_bound([pair], delta=0.01, alpha=1e-6).value < exact


@pytest.mark.parametrize("case", CANARIES["cases"], ids=lambda case: case["scores"])
def test_the_bound_is_that_of_another_auditor_on_the_same_scores(case):
    order = np.random.default_rng(0)
    scores = (np.repeat(np.arange(float(len(case[side]))), case[side]) for side in ("before", "after"))
    found = epsilon_lower_bound(
        [Samples(*map(order.permutation, scores))], delta=CANARIES["delta"], alpha=CANARIES["alpha"]
    )
    # Each chooses its threshold on three tenths of the trials, which are not the same ones.
    assert found.value == pytest.approx(case["epsilon"], rel=0.06)


def test_the_reverse_direction_is_tried_too():
    """Only class "after" ever shows -1: the bound needs S to be likelier after the move."""
    rng = np.random.default_rng(4)
    pair = Samples(np.zeros(20_000), np.where(rng.random(20_000) < 0.1, -1.0, 0.0))
    bound = epsilon_lower_bound([pair], delta=0.0, alpha=1e-6)
    assert bound.direction == "after"
    assert bound.hits > 1000
    assert bound.false_hits == 0
    assert bound.value > 4


def test_of_several_pairs_the_most_telling_is_chosen_before_it_is_evaluated():
    rng = np.random.default_rng(5)
    nothing = Samples(rng.random(8000), rng.random(8000))
    telling = Samples(rng.random(8000) + 1, rng.random(8000))
    bound = epsilon_lower_bound([nothing, telling], delta=0.0, alpha=1e-3)
    assert bound.pair == 1
    assert bound.trials == 5600
    # The choice is made on the first three tenths: what the rest holds cannot change it.
    late = Samples(np.concatenate([nothing.before[:2400], telling.before[2400:]]), nothing.after)
    assert epsilon_lower_bound([late, telling], delta=0.0, alpha=1e-3).pair == 1

"""Confident-GNMax until a budget is spent: against each prefix computed on its own."""

import numpy as np
import pytest

from benchmarks.papers import students
from benchmarks.papers.students import Terms, label_until_spent, proportional_weights, published_weights, spent_after
from protocols.research import data_dependent

TERMS = Terms(sigma=4.0, sigma_threshold=5.0, threshold=14.0, delta=1e-3)
ORDERS = np.arange(2.0, 51.0)


def epsilon_of(counts, answered, sensitivity):
    """What a group has spent after these queries, converted as in Mironov 2017."""
    labels = data_dependent.total_label_rdp(
        counts, ORDERS, sigma=TERMS.sigma, sensitivity=np.array([sensitivity]), times=answered.astype(float)
    ).for_research()[0]
    tests = len(counts) * ORDERS * (sensitivity / TERMS.sigma_threshold) ** 2 / 2
    return (labels + tests - np.log(TERMS.delta) / (ORDERS - 1)).min()


@pytest.mark.parametrize("at_once", [3, 500])
def test_a_study_ends_before_the_first_group_would_pass_its_budget(monkeypatch, at_once):
    monkeypatch.setattr(students, "_AT_ONCE", at_once)
    counts = np.random.default_rng(0).multinomial(20, (0.8, 0.1, 0.1), size=40).astype(float)
    epsilon, sensitivity = np.array([2.5, 6.0]), np.array([0.6, 1.5])
    found = label_until_spent(counts, TERMS, epsilon=epsilon, sensitivity=sensitivity, seed=0)
    every = label_until_spent(counts, TERMS, epsilon=np.full(2, 1e6), sensitivity=sensitivity, seed=0)
    assert every.asked == len(counts)
    assert 1 < found.asked < len(counts)
    # The same draw: what was answered first is the same.
    assert np.array_equal(every.queries[: len(found.queries)], found.queries)
    order = students.simulation_rng(0, "until spent").permutation(len(counts))
    answered = np.isin(order, every.queries)
    spent = [
        [epsilon_of(counts[order[:asked]], answered[:asked], votes) for votes in sensitivity.tolist()]
        for asked in (found.asked, found.asked + 1)
    ]
    assert (np.array(spent[0]) <= epsilon).all()
    assert (np.array(spent[1]) > epsilon).any()
    # What is said of the number of labels out is what those queries cost.
    out = np.flatnonzero(answered)
    numbers = [1, len(found.queries), len(out) + 1]
    after = spent_after(counts, TERMS, labels=numbers, sensitivity=sensitivity, seed=0)
    for row, number in zip(after, numbers[:2], strict=False):
        until = out[number - 1] + 1
        slow = [epsilon_of(counts[order[:until]], answered[:until], votes) for votes in sensitivity.tolist()]
        assert row == pytest.approx(slow)
    assert np.isnan(after[2]).all()


def test_the_published_program_charges_groups_for_the_weight_of_others():
    epsilon, shares = np.array([1.0, 2.0, 3.0]), np.array([0.54, 0.37, 0.09])
    right = proportional_weights(epsilon, shares)
    assert right.weights == pytest.approx(epsilon / 1.55)
    assert np.array_equal(right.charged, right.weights)
    published = published_weights(epsilon, shares)
    assert shares @ published.weights == pytest.approx(1.0)
    assert published.weights == pytest.approx(np.array([0.54, 0.74, 0.27]) / 0.5897)
    # The smallest budget is charged for the weight of the largest one's group, half of its own.
    assert published.charged == pytest.approx(published.weights[[2, 0, 1]])

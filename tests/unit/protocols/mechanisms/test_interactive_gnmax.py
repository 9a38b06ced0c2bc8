"""Interactive-GNMax: where it asks, what it answers, and what it reinforces."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from protocols.errors import InvalidInput
from protocols.mechanisms import Sensitivity, make_mechanism
from protocols.noise import simulated
from protocols.votes import ABSTAIN

TERMS = {
    "sigma": 5.0,
    "sigma_threshold": 8.0,
    "threshold": 60.0,
    "interactive_threshold": 50.0,
    "reinforce_confidence": 0.9,
    "round_one": 10,
}
INTERACTIVE = make_mechanism("interactive_gnmax", **TERMS, view="label")
CONFIDENT = make_mechanism("confident_gnmax", sigma=5.0, sigma_threshold=8.0, threshold=60.0, view="label")


def noise(seed=0):
    return simulated(np.random.default_rng(seed))


@pytest.mark.parametrize("view", ["label", "histogram"])
def test_round_one_is_confident_gnmax(view):
    drop = () if view == "label" else ("sigma_threshold",)
    interactive = make_mechanism("interactive_gnmax", **{k: v for k, v in TERMS.items() if k not in drop}, view=view)
    confident = make_mechanism(
        "confident_gnmax",
        **{k: v for k, v in TERMS.items() if k in ("sigma", "sigma_threshold", "threshold") and k not in drop},
        view=view,
    )
    counts = np.random.default_rng(1).integers(0, 100, (500, 4)).astype(float)
    np.testing.assert_array_equal(
        interactive.release(counts, noise(), view=view), confident.release(counts, noise(), view=view)
    )


def test_round_two_answers_with_the_probability_that_parties_and_student_differ():
    """Exact binomial test of the number of answers (false-alarm rate 1e-6): max(n - M p) = 70 - 100 * 0.1 = 60."""
    counts, predictions = np.array([70.0, 20.0, 10.0]), np.array([0.1, 0.85, 0.05])
    draws = 50_000
    labels = INTERACTIVE.release(
        np.tile(counts, (draws, 1)),
        noise(),
        view="label",
        predictions=np.tile(predictions, (draws, 1)),
        total_weight=100.0,
    )
    passed = stats.norm.sf((50.0 - 60.0) / 8.0)
    assert stats.binomtest(int((labels != ABSTAIN).sum()), draws, passed).pvalue > 1e-6
    assert (labels[labels != ABSTAIN] == 0).mean() > 0.999


def test_agreement_is_not_answered_and_is_reinforced_where_the_student_is_confident():
    counts = np.array([[95.0, 5.0], [95.0, 5.0], [5.0, 95.0]])
    predictions = np.array([[0.97, 0.03], [0.8, 0.2], [0.99, 0.01]])
    quiet = make_mechanism("interactive_gnmax", **{**TERMS, "sigma": 0.1, "sigma_threshold": 0.1}, view="label")
    labels = quiet.release(counts, noise(), view="label", predictions=predictions, total_weight=100.0)
    np.testing.assert_array_equal(labels, [ABSTAIN, ABSTAIN, 1])
    np.testing.assert_array_equal(quiet.reinforced(labels, predictions), [0, ABSTAIN, ABSTAIN])


@given(
    counts=st.lists(st.integers(0, 50), min_size=3, max_size=3),
    offsets=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    weight=st.floats(0, 5),
    move=st.permutations(range(3)),
)
def test_public_offsets_leave_the_sensitivity_of_the_tested_maximum_at_the_weight_of_the_vote(
    counts, offsets, weight, move
):
    before = np.array(counts, float)
    before[move[0]] += weight
    after = np.array(counts, float)
    after[move[1]] += weight
    shift = 150.0 * np.array(offsets)
    assert abs((before - shift).max() - (after - shift).max()) <= weight + 1e-9


def test_both_rounds_cost_what_confident_gnmax_costs():
    units = Sensitivity.always(np.array([0.5, 1.0]), delta_squared=2)
    orders = np.array([2.0, 8.0])
    for mine, other in (
        (INTERACTIVE.noise_rdp(units, orders, view="label"), CONFIDENT.noise_rdp(units, orders, view="label")),
        (INTERACTIVE.label_only_rdp(units, orders, classes=3), CONFIDENT.label_only_rdp(units, orders, classes=3)),
    ):
        np.testing.assert_array_equal(mine.ask, other.ask)
        np.testing.assert_array_equal(mine.answer, other.answer)
    at = {"classes": 10, "total_weight": 250.0}
    assert INTERACTIVE.noise_distance(**at) > CONFIDENT.noise_distance(**at)


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        (np.array([[0.5, 0.4]]), "adding up to 1"),
        (np.array([[1.5, -0.5]]), "adding up to 1"),
        (np.array([[np.nan, 1.0]]), "adding up to 1"),
    ],
)
def test_predictions_that_are_no_probabilities_are_refused(predictions, message):
    with pytest.raises(InvalidInput, match=message):
        INTERACTIVE.release(np.ones((1, 2)), noise(), view="label", predictions=predictions, total_weight=2.0)

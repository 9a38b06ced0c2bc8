"""Curves of delta(epsilon), and the privacy-loss distributions that dominate them."""

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

import conclave
from protocols.budgets.accountant import accountant
from protocols.budgets.filter import budget_filters
from protocols.budgets.privacy_curve import privacy_curve
from protocols.mechanisms import GNMax, Sensitivity

TERMS = {"view": "label", "sensitivity": 1.0, "classes": 2, "sigma": 8.0}


@pytest.mark.parametrize("name", ["exact_composition", "label_only", "gaussian_dp"])
def test_a_privacy_loss_distribution_dominates_its_curve_and_gives_back_epsilon(name):
    curve = conclave.privacy_curve("gnmax", queries=20, accountant=name, **TERMS)
    loss = conclave.privacy_loss_distribution(curve)
    found = np.array(loss.get_delta_for_epsilon(curve.epsilon))
    assert (found >= curve.delta * (1 - 1e-9) - 1e-13).all()
    for delta in (1e-3, 1e-5, 1e-8):
        assert abs(loss.get_epsilon_for_delta(delta) - curve.epsilon_at(delta)) < 1e-3
        direct = conclave.epsilon_after(20, "gnmax", delta=delta, accountant=name, **TERMS)
        assert abs(curve.epsilon_at(delta) - direct) < 1e-3


def test_a_composed_distribution_of_a_gaussian_curve_is_that_of_the_library():
    curve = conclave.privacy_curve("gnmax", queries=4, accountant="gaussian_dp", **TERMS)
    both = conclave.privacy_loss_distribution(curve).self_compose(3)
    exact = from_gaussian_mechanism(8.0 / np.sqrt(24.0))
    assert both.get_epsilon_for_delta(1e-5) == pytest.approx(exact.get_epsilon_for_delta(1e-5), abs=2e-3)


def test_a_curve_of_a_cap_has_the_published_epsilon_and_the_share_of_rounded_noise():
    budgets = budget_filters(
        accountant=accountant("gaussian_dp"),
        mechanism=GNMax(sigma=8.0),
        sensitivity=Sensitivity.always(np.ones(1), delta_squared=2),
        epsilon=np.array([1.5]),
        delta=np.array([1e-5]),
        view="label",
        classes=2,
        query_limit=100,
        total_weight=40.0,
        answer_rate=1.0,
    )
    ideal = privacy_curve(budgets, 0, noise_distance=0.0)
    assert ideal.epsilon_at(float(budgets.delta[0])) == pytest.approx(1.5, abs=1e-4)
    rounded = privacy_curve(budgets, 0, noise_distance=1e-9)
    shared = min(len(ideal.delta), len(rounded.delta))
    np.testing.assert_allclose(
        rounded.delta[:shared] - ideal.delta[:shared], 1e-9 * (1 + np.exp(ideal.epsilon[:shared])), atol=1e-15
    )
    assert (np.diff(rounded.delta) <= 0).all()


def test_several_votes_are_not_taken_for_one_unless_exact_composition_is_named():
    several = TERMS | {"sensitivity": 3.0}
    default = conclave.privacy_curve("gnmax", queries=20, **several)
    direct = conclave.epsilon_after(20, "gnmax", delta=1e-5, accountant="label_only", **several)
    assert abs(default.epsilon_at(1e-5) - direct) < 1e-3
    named = conclave.privacy_curve("gnmax", queries=20, accountant="exact_composition", **several)
    assert named.epsilon_at(1e-5) < default.epsilon_at(1e-5) * 0.99

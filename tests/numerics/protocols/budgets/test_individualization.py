import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.budgets.accountant import accountant
from protocols.budgets.individualization import on_lattice, weights
from protocols.budgets.planned import Planned
from protocols.errors import InvalidInput
from protocols.mechanisms import make_mechanism
from protocols.votes import LATTICE
from tests.harness.refusals import refuses
from tests.harness.studies import make_study

GROUPS = [1.0] * 85 + [2.0] * 107 + [3.0] * 58


def solve(rule, epsilon, *, sigma=40.0, per_weight=1, account="label_only", view="label", units=LATTICE):
    epsilon = np.array(epsilon, float)
    planned = Planned(
        accountant=accountant(account),
        mechanism=make_mechanism("gnmax", sigma=sigma, sigma_threshold=None, threshold=None, view=view),
        epsilon=epsilon,
        delta=np.full(len(epsilon), 1e-5),
        sensitivity_per_weight=per_weight,
        delta_squared=2,
        sigma=sigma,
        view=view,
        classes=10,
        query_limit=9000,
        answer_rate=1.0,
    )
    return weights(rule, planned, units=units)


@settings(deadline=None, max_examples=25)
@given(
    epsilon=st.lists(st.floats(0.5, 8), min_size=2, max_size=40),
    rule=st.sampled_from(["uniform", "proportional", "exhaustive"]),
)
def test_weights_have_mean_one_lie_on_the_lattice_and_grow_with_the_budget(epsilon, rule):
    weight = solve(rule, epsilon)
    assert weight.mean() == pytest.approx(1, abs=2e-6)
    assert weight.mean() <= 1 + 1e-12
    np.testing.assert_array_equal(weight * LATTICE, np.rint(weight * LATTICE))
    order = np.argsort(epsilon)
    assert (np.diff(weight[order]) >= -2 / LATTICE).all()


def test_exhaustive_weights_let_all_budgets_run_out_together():
    study = make_study(GROUPS, rule="exhaustive", queries=9000)
    budgets = study.budgets
    answers = budgets.cap / (budgets.ask + budgets.answer)
    assert answers.max() / answers.min() < 1.002
    uniform = make_study(GROUPS, rule="uniform", queries=9000).budgets
    proportional = make_study(GROUPS, rule="proportional", queries=9000).budgets
    least = [(b.cap / (b.ask + b.answer)).min() for b in (uniform, proportional, budgets)]
    # By docs/explanation/mathematics.md, section 4.1: 2.91 and 3.14 times the labels of uniform weights.
    assert least[1] / least[0] == pytest.approx(2.91, abs=0.06)
    assert least[2] / least[0] == pytest.approx(3.14, abs=0.06)


def test_exhaustive_weights_under_gaussian_dp_are_proportional_to_mu():
    study = make_study(
        GROUPS, rule="exhaustive", account="gaussian_dp", view="histogram", sigma_threshold=None, queries=9000
    )
    mu = np.sqrt(study.budgets.cap)
    np.testing.assert_allclose(study.weights / study.weights[0], mu / mu[0], rtol=2e-3)


def test_a_weight_stops_growing_where_more_weight_stops_helping():
    """One rich voter among 100 at sigma 10: w v sum(w) < sigma^2 + v sum(w^2), v = 1/4."""
    weight = solve("exhaustive", [0.3] * 99 + [8.0], sigma=10.0)
    rich, total, squares = weight[-1], weight.sum(), (weight**2).sum()
    assert rich * 0.25 * total <= (100 + 0.25 * squares) * 1.01
    free = solve("exhaustive", [0.3] * 99 + [8.0], sigma=1000.0)
    assert free[-1] > rich


def test_proportional_weights_go_to_the_party_whose_budget_they_are():
    """Unequal group shares: the published code would hand the weights to the wrong groups."""
    epsilon = [3.0, 1.0, 1.0, 1.0, 2.0]
    weight = solve("proportional", epsilon)
    np.testing.assert_allclose(weight / weight[1], epsilon, rtol=1e-5)


def test_unknown_rules_and_vanishing_weights_are_refused():
    with refuses(InvalidInput, "uniform, proportional, exhaustive"):
        solve("vanishing", [1.0])
    with pytest.raises(InvalidInput, match="too small"):
        on_lattice(np.array([1.0, 1e-9]), units=LATTICE)
    with pytest.raises(InvalidInput, match="cannot be guaranteed"):
        solve("exhaustive", [1.0, 0.0005])

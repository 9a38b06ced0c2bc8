import math

import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.bounds.gaussian import gdp_delta
from protocols.budgets.accountant import ACCOUNTANTS, accountant, default_accountant
from protocols.budgets.filter import budget_filters, noise_reserve
from protocols.errors import InvalidInput
from protocols.mechanisms import Sensitivity, make_mechanism
from tests.harness.refusals import refuses

CONFIDENT = make_mechanism("confident_gnmax", sigma=40.0, sigma_threshold=150.0, threshold=200.0, view="label")


def filters(
    epsilon, delta=1e-5, *, account="label_only", sensitivity=1.0, view="label", mechanism=CONFIDENT, limit=9000
):
    epsilon = np.atleast_1d(np.asarray(epsilon, float))
    return budget_filters(
        accountant=accountant(account),
        mechanism=mechanism,
        sensitivity=Sensitivity.always(np.full(len(epsilon), float(sensitivity)), delta_squared=2),
        epsilon=epsilon,
        delta=np.full(len(epsilon), delta),
        view=view,
        classes=10,
        query_limit=limit,
        total_weight=250.0,
        answer_rate=1.0,
    )


@pytest.mark.parametrize(
    "account",
    [
        name
        for name in ACCOUNTANTS.own
        if ACCOUNTANTS[name].noise_law == "gaussian" and not ACCOUNTANTS[name].single_vote
    ],
)
@settings(deadline=None, max_examples=40)
@given(epsilon=st.floats(0.3, 8), delta=st.floats(1e-8, 1e-3), sensitivity=st.floats(0.1, 6))
def test_the_cap_gives_the_budget_and_never_more(account, epsilon, delta, sensitivity):
    # 20 queries: at epsilon 8 and delta 1e-8 the noise of 9,000 would need more than all of delta.
    budgets = filters(epsilon, delta, account=account, sensitivity=sensitivity, limit=20)
    assert budgets.epsilon_guaranteed[0] <= epsilon
    assert budgets.epsilon_guaranteed[0] == pytest.approx(epsilon, rel=1e-6)
    assert budgets.cap[0] >= 1


@settings(deadline=None, max_examples=60)
@given(epsilon=st.floats(0.3, 8), share=st.floats(0, 1), limit=st.integers(1, 10**6))
def test_affordable_is_the_largest_batch_whose_worst_case_fits(epsilon, share, limit):
    budgets = filters(epsilon)
    spent = np.floor(share * budgets.cap).astype(np.int64)
    size = int(budgets.affordable(spent, limit=limit)[0])
    assert spent + budgets.amount(size, size) <= budgets.cap
    assert size == limit or spent + budgets.amount(size + 1, size + 1) > budgets.cap


@given(asked=st.integers(0, 5000), answered=st.integers(0, 5000))
def test_amounts_are_rounded_up_once_and_never_fall_below_the_exact_cost(asked, answered):
    budgets = filters(2.0)
    amount = int(budgets.amount(asked, answered)[0])
    exact = math.fsum([asked * budgets.ask[0], answered * budgets.answer[0]]) * 1e9
    assert exact <= amount <= exact * (1 + 1e-9) + 1


def test_the_order_is_the_one_that_affords_most_queries():
    budgets = filters([0.5, 2.0, 8.0])
    account = accountant("label_only")
    cost = account.query_cost(CONFIDENT, Sensitivity.always(np.ones(1), delta_squared=2), view="label", classes=10)
    caps = account.affords(np.array([0.5, 2.0, 8.0]), np.full(3, 1e-5))
    best = (caps / (cost.ask + cost.answer)).argmax(axis=1)
    np.testing.assert_array_equal(budgets.order, account.orders[best])
    assert budgets.order[0] > budgets.order[1] > budgets.order[2]


def test_the_gaussian_filter_agrees_with_dp_accounting_at_its_order():
    budgets = filters(2.0, account="gaussian")
    count = int(budgets.affordable(np.zeros(1, dtype=np.int64), limit=10**6)[0])
    order = budgets.order
    values = order * (1 / 40.0**2 + 1 / (2 * 150.0**2))
    assert compute_epsilon(order, values * count, 1e-5)[0] <= 2.0
    assert compute_epsilon(order, values * (count + 1), 1e-5)[0] > 2.0 * (1 - 1e-6)


def test_the_gaussian_dp_filter_stops_where_the_exact_conversion_does():
    mechanism = make_mechanism("confident_gnmax", sigma=40.0, sigma_threshold=None, threshold=200.0, view="histogram")
    budgets = filters(2.0, account="gaussian_dp", view="histogram", mechanism=mechanism)
    count = int(budgets.affordable(np.zeros(1, dtype=np.int64), limit=10**6)[0])
    mu = np.sqrt(np.array([count, count + 1]) * 2 / 40.0**2)
    below, above = gdp_delta(mu, np.array(2.0))
    assert below <= 1e-5 < above
    # A refused query costs the full price under this view.
    assert budgets.amount(10, 0)[0] == budgets.amount(10, 10)[0] > 0


def test_a_party_of_k_teachers_pays_quadratically():
    one, four = filters(2.0, account="gaussian"), filters(2.0, account="gaussian", sensitivity=4.0)
    assert four.answer[0] / four.order[0] == pytest.approx(16 * one.answer[0] / one.order[0], rel=1e-12)


def test_accountants_refuse_views_that_see_more_than_their_bound():
    with refuses(InvalidInput, "histogram", "confident_gnmax", "gaussian_dp"):
        accountant("label_only").check(CONFIDENT, "histogram")
    with refuses(InvalidInput, "label_only", "gaussian_dp"):
        accountant("moments")
    assert default_accountant(CONFIDENT, "label").name == "label_only"
    assert default_accountant(CONFIDENT, "histogram").name == "gaussian_dp"
    with refuses(InvalidInput, "laplace", "label", "confident_gnmax"):
        accountant("laplace").check(CONFIDENT, "label")


def test_budgets_that_afford_nothing_are_refused_with_the_reason():
    with pytest.raises(InvalidInput, match="cannot be guaranteed"):
        filters(0.001)
    with refuses(InvalidInput, "float64 noise"):
        filters(40.0)
    with refuses(InvalidInput, "-1.0"):
        filters(-1.0)
    with refuses(InvalidInput, "delta", "1.0", "(0, 1)"):
        filters(1.0, delta=1.0)


def test_the_noise_reserve_is_small_and_grows_with_epsilon_and_queries():
    def reserve(epsilon, queries):
        return float(
            noise_reserve(
                CONFIDENT,
                epsilon=np.array([epsilon]),
                view="label",
                classes=10,
                query_limit=queries,
                total_weight=250.0,
            )[0]
        )

    assert 0 < reserve(2.0, 9000) < 1e-6
    assert reserve(2.0, 9000) == pytest.approx(9 * reserve(2.0, 1000))
    assert reserve(3.0, 1000) / reserve(2.0, 1000) == pytest.approx((1 + math.exp(3)) / (1 + math.exp(2)))

import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from hypothesis import given
from hypothesis import strategies as st

from protocols.bounds.rdp import RdpCurve, check_budget, epsilon_to_rdp, rdp_to_epsilon
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses

ORDERS = np.array([1.5, 2, 4, 8, 16, 32, 64])


@given(st.lists(st.floats(0, 5), min_size=7, max_size=7), st.floats(1e-9, 0.1))
def test_conversion_agrees_with_dp_accounting(values, delta):
    curve = RdpCurve(ORDERS, np.array(values))
    epsilon, order = curve.to_epsilon(delta=delta)
    library, _ = compute_epsilon(ORDERS, np.array(values), delta)
    # dp-accounting takes further short cuts where delta is large; it is never above this formula.
    assert library <= epsilon + 1e-9
    raw = np.array(values) + np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1)
    assert epsilon == pytest.approx(max(0.0, raw.min()), rel=1e-12, abs=1e-12)
    assert order in ORDERS


def test_conversion_equals_dp_accounting_for_a_gaussian():
    values = ORDERS * 100 / (2 * 40.0**2)
    ours, order = RdpCurve(ORDERS, values).to_epsilon(delta=1e-5)
    library, best = compute_epsilon(ORDERS, values, 1e-5)
    assert (ours, order) == (pytest.approx(library, rel=1e-12), best)


@given(epsilon=st.floats(0.5, 10), delta=st.floats(1e-10, 1e-2))
def test_caps_convert_back_to_their_epsilon(epsilon, delta):
    caps = epsilon_to_rdp(np.full(7, epsilon), ORDERS, delta=np.full(7, delta))
    positive = caps > 0
    kept, orders = caps[positive], ORDERS[positive]
    if positive.any():
        np.testing.assert_allclose(rdp_to_epsilon(kept, orders, delta=delta), epsilon, rtol=1e-12)


def test_bad_orders_values_and_budgets_are_refused():
    with refuses(InvalidInput, "finite and > 1"):
        RdpCurve(np.array([1.0, 2.0]), np.zeros(2))
    with refuses(InvalidInput, "finite, >= 0"):
        RdpCurve(np.array([2.0]), np.array([-1.0]))
    with refuses(InvalidInput, "one each"):
        RdpCurve(ORDERS, np.zeros(2))
    with refuses(InvalidInput, "orders"):
        RdpCurve(ORDERS, np.zeros(7)) + RdpCurve(ORDERS[:2], np.zeros(2))
    for epsilon in (0.0, -1.0, float("nan"), float("inf")):
        with refuses(InvalidInput, epsilon):
            check_budget(np.array([1.0, epsilon]), np.array([1e-5, 1e-5]))
    for delta in (0.0, 1.0, -1e-5, float("nan")):
        with refuses(InvalidInput, "(0, 1)"):
            check_budget(np.array([1.0]), np.array([delta]))

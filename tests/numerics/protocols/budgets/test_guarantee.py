import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.bounds.gaussian import gdp_epsilon
from protocols.bounds.rdp import rdp_to_epsilon
from protocols.budgets.guarantee import Guarantee, compose_charges
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses


def renyi(spend, order, *, delta=1e-5, distance=0.0):
    epsilon = rdp_to_epsilon(np.array([spend]), np.array([order]), delta=delta)[0]
    return Guarantee(float(epsilon), delta, order, spend, distance)


def gaussian(mu, *, delta=1e-5):
    return Guarantee(float(gdp_epsilon(np.array([mu]), np.array([delta]))[0]), delta, math.nan, mu**2, 0.0)


parts = st.lists(
    st.one_of(st.builds(renyi, st.floats(0.01, 3), st.floats(1.5, 60)), st.builds(gaussian, st.floats(0.05, 2))),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25)
@given(parts=parts)
def test_together_they_are_no_worse_than_their_sum_and_their_order_gives_what_is_said(parts):
    together = compose_charges(parts)
    assert together.delta == pytest.approx(1e-5 * len(parts))
    assert together.epsilon <= sum(part.epsilon for part in parts) * (1 + 1e-12)
    if not math.isnan(together.order):
        assert together.order <= min(part.order for part in parts if not math.isnan(part.order))
        spend = sum(part.spend * (together.order / 2 if math.isnan(part.order) else 1) for part in parts)
        expected = rdp_to_epsilon(np.array([spend]), np.array([together.order]), delta=together.delta)[0]
        assert together.renyi == pytest.approx(expected, rel=1e-12)


def test_unequal_orders_compose_at_the_smaller_one():
    together = compose_charges([renyi(0.5, 8.0), renyi(0.1, 40.0)])
    at_8 = rdp_to_epsilon(np.array([0.6]), np.array([8.0]), delta=2e-5)[0]
    assert together.renyi <= at_8
    assert together.order <= 8.0


def test_float_noise_of_all_releases_is_taken_off_their_delta():
    ideal, real = (compose_charges([renyi(0.5, 20.0, distance=distance)] * 2) for distance in (0.0, 1e-8))
    left = 2e-5 - (1 + math.exp(real.renyi)) * 2e-8
    assert ideal.renyi < real.renyi
    assert rdp_to_epsilon(np.array([1.0]), np.array([20.0]), delta=left)[0] <= real.renyi


def test_a_release_without_an_epsilon_leaves_none():
    without = Guarantee(math.inf, 1e-5, 20.0, 1.0, 1e-3)
    assert compose_charges([without, renyi(0.5, 20.0)]).epsilon == math.inf


@pytest.mark.parametrize(
    "change", [{"delta": 0.0}, {"delta": 1.0}, {"spend": -1.0}, {"spend": math.inf}, {"order": 1.0}, {"epsilon": -1.0}]
)
def test_figures_out_of_range_are_refused(change):
    with refuses(InvalidInput, "allowed"):
        Guarantee(**{"epsilon": 1.0, "delta": 1e-5, "order": 8.0, "spend": 0.5, "noise_distance": 0.0, **change})

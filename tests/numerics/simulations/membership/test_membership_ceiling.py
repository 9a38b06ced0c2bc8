"""Ceilings against closed forms, randomised response, quadrature, and brute force over decisions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from protocols.bounds.gaussian import gdp_delta
from protocols.errors import InvalidInput
from simulations.membership.attack import advantage_ceiling, area_ceiling, true_positive_ceiling
from tests.harness.refusals import refuses

EPSILON = st.floats(0, 50)
DELTA = st.floats(0, 1)


def at(value):
    return np.asarray(value, dtype=float)


@given(epsilon=st.floats(0, 12), delta=st.floats(0, 0.5))
def test_the_area_is_the_integral_of_the_rates(epsilon, delta):
    crossing = (1 - delta) / (1 + np.exp(epsilon))
    found, _ = quad(
        lambda false: float(true_positive_ceiling(at(false), epsilon=at(epsilon), delta=at(delta))),
        0,
        1,
        points=[crossing, 1 - delta],
        limit=200,
    )
    assert area_ceiling(epsilon=at(epsilon), delta=at(delta)) == pytest.approx(found, rel=1e-9)


@given(epsilon=EPSILON, delta=DELTA, false=st.floats(0, 1))
def test_both_inequalities_hold_and_one_is_tight(epsilon, delta, false):
    """Wasserman & Zhou 2010: each error is at least 1 - delta - e^epsilon times the other."""
    true = float(true_positive_ceiling(at(false), epsilon=at(epsilon), delta=at(delta)))
    assert false - 1e-12 <= true <= 1
    first = true - np.exp(epsilon) * false - delta
    second = (1 - false) - np.exp(epsilon) * (1 - true) - delta
    # The second loses the digits that e^epsilon takes.
    assert first <= 1e-12
    assert second <= 1e-14 * np.exp(epsilon) + 1e-12
    assert true == 1 or abs(first) <= 1e-9 or abs(second) <= 1e-14 * np.exp(epsilon) + 1e-9


@given(epsilon=st.floats(0, 8), delta=st.floats(0, 1))
def test_randomised_response_with_failure_reaches_the_ceiling(epsilon, delta):
    """The mechanism that tells the truth with probability delta and is randomised response otherwise is exactly
    (epsilon, delta)-DP (Kairouz et al. 2015); its best decisions are the corners of the region."""
    told = (1 - delta) * np.exp(epsilon) / (1 + np.exp(epsilon))
    lied = (1 - delta) / (1 + np.exp(epsilon))
    member = np.array([delta, told, lied, 0.0])
    other = np.array([0.0, lied, told, delta])
    true, false = member.cumsum(), other.cumsum()
    np.testing.assert_allclose(
        true_positive_ceiling(np.minimum(false, 1), epsilon=at(epsilon), delta=at(delta)), true, atol=1e-12
    )
    assert area_ceiling(epsilon=at(epsilon), delta=at(delta)) == pytest.approx(np.trapezoid(true, false), abs=1e-12)


@given(mu=st.floats(0.05, 5), epsilon=st.floats(0, 10))
def test_a_gaussian_mechanism_stays_below(mu, epsilon):
    """Dong, Roth & Su 2022: its curve is Phi(Phi^-1(x) + mu), its area Phi(mu/sqrt 2)."""
    delta = at(gdp_delta(at(mu), at(epsilon)))
    false = np.linspace(0.001, 0.999, 99)
    best = norm.cdf(norm.ppf(false) + mu)
    assert (best <= true_positive_ceiling(false, epsilon=at(epsilon), delta=delta) + 1e-9).all()
    assert norm.cdf(mu / 2**0.5) <= area_ceiling(epsilon=at(epsilon), delta=delta) + 1e-9
    assert 2 * norm.cdf(mu / 2) - 1 <= advantage_ceiling(epsilon=at(epsilon), delta=delta) + 1e-9


@pytest.mark.parametrize("false", [-0.1, 1.1, np.nan])
def test_what_is_no_rate_is_refused(false):
    with refuses(InvalidInput, "false-positive rate"):
        true_positive_ceiling(at(false), epsilon=at(1), delta=at(0))

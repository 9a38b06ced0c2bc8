import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from protocols.bounds.gaussian import gdp_delta, gdp_epsilon, gdp_mu


@given(mu=st.floats(0.01, 8), epsilon=st.floats(0, 20))
def test_delta_agrees_with_fifty_digit_arithmetic(mu, epsilon):
    mp.dps = 50
    exact = mp.ncdf(-mpf(epsilon) / mu + mpf(mu) / 2) - mp.exp(epsilon) * mp.ncdf(-mpf(epsilon) / mu - mpf(mu) / 2)
    if exact > mpf(10) ** -290:
        assert float(gdp_delta(np.array(mu), np.array(epsilon))) == pytest.approx(float(exact), rel=1e-8)


def test_delta_agrees_with_dp_accounting():
    for mu in (0.1, 0.5, 1.0, 3.0):
        library = from_gaussian_mechanism(standard_deviation=1.0, sensitivity=mu, value_discretization_interval=1e-4)
        for epsilon in (0.1, 1.0, 2.5):
            ours = float(gdp_delta(np.array(mu), np.array(epsilon)))
            # The library's discretisation is pessimistic: it lies above the exact value, by little.
            assert ours <= library.get_delta_for_epsilon(epsilon) * (1 + 1e-9)
            assert ours == pytest.approx(library.get_delta_for_epsilon(epsilon), rel=2e-3, abs=1e-12)


def test_a_composition_of_gaussians_is_one_gaussian():
    accountant = PLDAccountant()
    accountant.compose(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(20.0), 100))
    mu = np.sqrt(100 / 20.0**2)
    assert float(gdp_epsilon(np.array(mu), np.array(1e-5))) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


@given(epsilon=st.floats(0.01, 20), delta=st.floats(1e-12, 0.5))
def test_mu_and_epsilon_invert_each_other_on_the_safe_side(epsilon, delta):
    mu = gdp_mu(np.array(epsilon), np.array(delta))
    assert float(gdp_delta(mu, np.array(epsilon))) <= delta
    assert float(gdp_delta(np.asarray(mu * (1 + 1e-6)), np.array(epsilon))) > delta * (1 - 1e-9)
    back = float(gdp_epsilon(mu, np.array(delta)))
    assert back == pytest.approx(epsilon, rel=1e-8)


def test_nothing_spent_is_epsilon_zero():
    assert gdp_epsilon(np.array([0.0, 1.0]), np.array(1e-5)).tolist()[0] == 0.0

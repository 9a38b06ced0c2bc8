"""What a lifetime cap allows, and the epsilon that an amount comes to, against 50 digits."""

import math

import mpmath
import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from party.lifetime import CURRENCIES, LifetimeCap, allowance, epsilon_reached
from protocols.budgets.filter import NANO


@given(st.floats(0.05, 20.0), st.floats(1e-12, 1e-2), st.integers(0, len(CURRENCIES) - 2), st.integers(1, 10**11))
def test_the_epsilon_of_what_is_reserved_agrees_with_50_digits(epsilon, delta, at, nano):
    order = float(CURRENCIES[at])
    reached = epsilon_reached(nano, order, delta=delta, noise_distance=0.0)
    with mpmath.workdps(50):
        a = mpmath.mpf(order)
        exact = (
            mpmath.mpf(nano) / 10**9 + mpmath.log(1 - 1 / a) - (mpmath.log(mpmath.mpf(delta)) + mpmath.log(a)) / (a - 1)
        )
        exact = max(exact, mpmath.mpf(0))
        assert reached >= exact * (1 - mpmath.mpf(10) ** -12) - mpmath.mpf(10) ** -11
        assert reached <= exact * (1 + mpmath.mpf(10) ** -8) + mpmath.mpf(10) ** -9
    # What is allowed amounts to no more than the cap, and one nano-unit more than it to at least the cap.
    cap = LifetimeCap(epsilon, delta)
    allowed = allowance(cap, order, 0.0)
    if allowed:
        assert epsilon_reached(allowed, order, delta=delta, noise_distance=0.0) <= epsilon * (1 + 1e-8)
        assert epsilon_reached(allowed + 1, order, delta=delta, noise_distance=0.0) >= epsilon * (1 - 1e-9) - 1e-9


@given(
    st.integers(10**6, 10**11), st.integers(0, len(CURRENCIES) - 2), st.floats(1e-12, 1e-2), st.sampled_from([-1, 0, 1])
)
def test_what_is_allowed_is_below_the_cap_to_50_digits_where_that_is_next_to_a_whole_nano_unit(nano, at, delta, step):
    order = float(CURRENCIES[at])

    def exactly(nano):
        a = mpmath.mpf(order)
        return (
            mpmath.mpf(nano) / 10**9 + mpmath.log(1 - 1 / a) - (mpmath.log(mpmath.mpf(delta)) + mpmath.log(a)) / (a - 1)
        )

    with mpmath.workdps(50):
        epsilon = float(exactly(nano))
        assume(0 < epsilon < 500)
        epsilon = float(np.nextafter(epsilon, math.inf * step)) if step else epsilon
        allowed = allowance(LifetimeCap(epsilon, delta), order, 0.0)
        assert exactly(allowed) <= epsilon
        assert nano - 2 <= allowed <= nano


def test_gaussian_dp_is_allowed_below_the_cap_to_50_digits_too():
    for nano in (10**7, 123_456_789, 5 * 10**9, 10**11):
        with mpmath.workdps(50):
            mu = mpmath.sqrt(mpmath.mpf(nano) / 10**9)

            def delta_of(e, mu=mu):
                return mpmath.ncdf(-e / mu + mu / 2) - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2)

            epsilon = float(mpmath.findroot(lambda e: mpmath.log(delta_of(e)) - mpmath.log(mpmath.mpf(1e-5)), 5 * mu))
            for near in (epsilon, np.nextafter(epsilon, 0), np.nextafter(epsilon, 9e9)):
                allowed = allowance(LifetimeCap(float(near), 1e-5), math.nan, 0.0)
                at = mpmath.sqrt(mpmath.mpf(allowed) / 10**9)
                assert delta_of(mpmath.mpf(float(near)), at) <= mpmath.mpf(1e-5)
                assert nano * (1 - 1e-9) - 2 <= allowed <= nano


def test_float_noise_takes_its_part_of_delta():
    cap = LifetimeCap(1.0, 1e-5)
    order = float(CURRENCIES[60])
    amounts = [allowance(cap, order, distance) for distance in (0.0, 1e-7, 1e-6, 2e-6)]
    assert amounts == sorted(amounts, reverse=True)
    assert amounts[0] > amounts[2]
    assert allowance(cap, order, 1e-5) == 0
    assert epsilon_reached(10**9, order, delta=1e-5, noise_distance=1e-5) == math.inf
    # By the definition: the epsilon that is reported holds at the delta that remains for ideal noise.
    reached = epsilon_reached(10**9, order, delta=1e-5, noise_distance=1e-7)
    left = 1e-5 - (1 + math.exp(reached)) * 1e-7
    assert reached >= epsilon_reached(10**9, order, delta=left, noise_distance=0.0) * (1 - 1e-8)


@settings(max_examples=40)
@given(st.integers(0, len(CURRENCIES) - 1), st.floats(0.5, 60), st.floats(1e-9, 1e-3), st.floats(1e-16, 1e-2))
def test_what_a_cap_allows_beside_float_noise_keeps_the_cap_to_50_digits(at, epsilon, delta, share):
    order, distance = float(CURRENCIES[at]), share * delta
    nano = allowance(LifetimeCap(epsilon, delta), order, distance)
    assume(nano > 0)

    def delta_of(e):
        """By definition: what the ideal curve needs at e, and (1 + e^e) times the distance."""
        with mpmath.workdps(50):
            spend, e = mpmath.mpf(nano) / NANO, mpmath.mpf(e)
            if math.isnan(order):
                mu = mpmath.sqrt(spend)
                ideal = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
            else:
                a = mpmath.mpf(order)
                ideal = mpmath.exp((a - 1) * (spend - e)) / a * (1 - 1 / a) ** (a - 1)
            return ideal + (1 + mpmath.exp(e)) * distance

    # At some epsilon up to the cap's, delta is enough: then it is at the cap's own, too.
    best = minimize_scalar(lambda e: float(mpmath.log(delta_of(e))), bounds=(0.0, epsilon), method="bounded")
    assert min(delta_of(epsilon), delta_of(float(best.x))) <= delta * (1 + 1e-9)


def test_an_epsilon_beyond_every_float_is_infinite_or_a_number_but_never_a_warning():
    order = float(CURRENCIES[100])
    assert epsilon_reached(10**15, order, delta=1e-5, noise_distance=0.0) > 1e5
    assert epsilon_reached(10**15, order, delta=1e-5, noise_distance=1e-12) == math.inf
    assert allowance(LifetimeCap(2e3, 1e-5), order, 0.0) > 0
    # At an epsilon of 2,000 this noise would take all of delta; the cap is kept at a smaller one.
    assert 0 < allowance(LifetimeCap(2e3, 1e-5), order, 1e-300) == allowance(LifetimeCap(690.0, 1e-5), order, 1e-300)


@settings(max_examples=40)
@given(st.integers(1, 2 * 10**9), st.floats(1e-9, 1e-3))
def test_renyi_never_claims_less_than_the_exact_epsilon_of_gaussian_noise(mu_squared, delta):
    """RDP a mu^2 / 2 of a Gaussian, converted at any order, is above the exact curve of mu-GDP (Balle & Wang 2018)."""
    exact = epsilon_reached(mu_squared, float("nan"), delta=delta, noise_distance=0.0)
    for at in range(0, len(CURRENCIES) - 1, 12):
        order = float(CURRENCIES[at])
        reached = epsilon_reached(math.ceil(mu_squared * order / 2), order, delta=delta, noise_distance=0.0)
        assert reached >= exact * (1 - 1e-9) - 1e-12

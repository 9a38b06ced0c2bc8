"""Secret Poisson sampling: against mpmath, a two-dimensional integral, and a library's subsampled Gaussian."""

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import dblquad
from scipy.special import ndtr

from protocols.bounds.secret_sampling import _both_directions, sampled_bit_gaussian_rdp, sampled_label_gaussian_rdp
from protocols.errors import InvalidInput


def one(function, d, g, order):
    return float(function(np.array([d]), np.array([g]), np.array([float(order)]))[0, 0])


def directions(d, g, order):
    forward, reverse = _both_directions(np.array([d]), np.array([g]), np.array([float(order)]))
    return float(forward[0, 0]), float(reverse[0, 0])


def quadrature(d, g, order):
    """Both directions of the add/remove pair by mpmath, in 36 digits."""
    with mpmath.workdps(36):
        d, g, a = mpmath.mpf(d), mpmath.mpf(g), mpmath.mpf(order)
        p = lambda x: 1 - g + g * mpmath.exp(d * x - d * d / 2)  # noqa: E731
        reach = a * d + 18
        ends = [-reach, -a * d, -a * d / 2, 0, a * d / 2, a * d, reach]
        kink = (mpmath.log((1 - g) / g) + d * d / 2) / d  # where the parts of p are equal
        ends = sorted({*ends, kink} | {mpmath.mpf(k) for k in range(-15, 16, 3)})
        moment = lambda b: mpmath.quad(lambda x: mpmath.npdf(x) * p(x) ** b, ends)  # noqa: E731
        return [float(mpmath.log(moment(b)) / (a - 1)) for b in (a, 1 - a)]


@pytest.mark.parametrize(
    ("d", "g", "order"), [(1e-5, 0.01, 1.05), (1e-5, 0.9, 60.0), (0.4, 0.01, 7.5), (0.4, 0.9, 1.05), (0.4, 0.01, 60.0)]
)
def test_both_directions_are_those_of_the_integral(d, g, order):
    np.testing.assert_allclose(directions(d, g, order), quadrature(d, g, order), rtol=3e-10)


@pytest.mark.parametrize(("d", "g", "order"), [(0.05, 0.5, 1024.0), (7.0, 0.2, 20.0)])
def test_large_orders_and_shifts_are_as_precise(d, g, order):
    np.testing.assert_allclose(directions(d, g, order), quadrature(d, g, order), rtol=3e-10)


def test_a_rate_next_to_one_is_as_precise():
    """There 1 - g is as small as the rounding of 1 + g (e^x - 1), which would be raised to a power."""
    g = 1 - 2**-53
    np.testing.assert_allclose(directions(0.957, g, 45.24), quadrature(0.957, g, 45.24), rtol=3e-10)


@pytest.mark.parametrize(("d", "g", "order"), [(0.3, 0.5, 3.0), (1.0, 0.2, 2.5), (0.7, 0.8, 6.0)])
def test_the_replace_pair_is_the_two_dimensional_integral_in_both_orders_of_the_pair(d, g, order):
    density = lambda x, y: np.exp(-(x * x + y * y) / 2) / (2 * np.pi)  # noqa: E731
    p = lambda x: 1 - g + g * np.exp(d * x - d * d / 2)  # noqa: E731
    reach = order * d + 11
    for ratio in (lambda x, y: p(x) ** order * p(y) ** (1 - order), lambda x, y: p(y) ** order * p(x) ** (1 - order)):
        whole, _ = dblquad(
            lambda x, y, ratio=ratio: density(x, y) * ratio(x, y), -reach, reach, -reach, reach, epsabs=0, epsrel=1e-9
        )
        assert one(sampled_label_gaussian_rdp, d, g, order) == pytest.approx(np.log(whole) / (order - 1), rel=1e-7)


@pytest.mark.parametrize("order", [2.0, 8.0, 33.0])
@pytest.mark.parametrize(("d", "g"), [(0.05, 0.3), (0.5, 0.1), (1.0, 0.5)])
def test_the_forward_direction_is_a_librarys_poisson_sampled_gaussian(d, g, order):
    """At whole orders, where the library sums a finite series (at order 1.5 its infinite one does not converge)."""
    account = RdpAccountant([order])
    account.compose(dp_event.PoissonSampledDpEvent(g, dp_event.GaussianDpEvent(1 / d)))
    library = float(account._rdp[0])
    forward, reverse = directions(d, g, order)
    assert forward == pytest.approx(library, rel=1e-5)
    # Mironov, Talwar & Zhang 2019, Thm 5: removing costs no more than adding.
    assert reverse <= forward * (1 + 1e-9)
    assert one(sampled_label_gaussian_rdp, d, g, order) <= 2 * library * (1 + 1e-5)


@settings(deadline=None, max_examples=25)
@given(d=st.floats(1e-7, 3), g=st.floats(1e-3, 1), order=st.floats(1.05, 200))
def test_a_coin_never_costs_more_than_no_coin_and_costs_grow_with_rate_shift_and_order(d, g, order):
    units = np.array([d, 1.05 * d, d]), np.array([g, g, min(1.0, 1.05 * g)])
    orders = np.array([order, 1.05 * order])
    for function, whole in ((sampled_label_gaussian_rdp, 1.0), (sampled_bit_gaussian_rdp, 0.5)):
        cost = function(*units, orders)
        assert np.isfinite(cost).all()
        assert (cost > 0).all()
        assert (cost <= whole * orders * units[0][:, None] ** 2 * (1 + 1e-12)).all()
        assert cost[0, 0] <= min(cost[1, 0], cost[2, 0], cost[0, 1]) * (1 + 3e-9)


def test_the_bound_of_the_bit_holds_for_every_threshold_and_both_votes():
    """Brute force over the threshold and over where the two votes move the maximum, in both orders."""
    g, d, order = 0.3, 0.8, 4.0
    t = np.linspace(-6, 6, 241)[:, None, None]
    x, y = np.linspace(0, d, 9)[:, None], np.linspace(0, d, 9)[None, :]
    p = (1 - g) * ndtr(t) + g * ndtr(t + x)
    q = (1 - g) * ndtr(t) + g * ndtr(t + y)
    power = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
    assert (np.log(power) / (order - 1)).max() <= one(sampled_bit_gaussian_rdp, d, g, order)


@pytest.mark.parametrize(
    ("d", "g", "order", "message"),
    [
        (-1.0, 0.5, 2.0, "d spans"),
        (np.inf, 0.5, 2.0, "d spans"),
        (1.0, 0.0, 2.0, r"allowed: in \(0, 1\]"),
        (1.0, 1.5, 2.0, r"allowed: in \(0, 1\]"),
        (1.0, 0.5, 1.0, "orders are"),
    ],
)
def test_values_out_of_range_are_refused(d, g, order, message):
    with pytest.raises(InvalidInput, match=message):
        one(sampled_label_gaussian_rdp, d, g, order)

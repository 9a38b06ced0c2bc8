"""Votes that enter by a secret coin under integer noise: enumeration of the pair, laws, limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from protocols.bounds import secret_sampling
from protocols.bounds.label_only import ORDERS
from protocols.bounds.lattice_label_only import lattice_bit_rdp, lattice_label_rdp
from protocols.bounds.lattice_sampling import (
    sampled_lattice_bit_rdp,
    sampled_lattice_histogram_rdp,
    sampled_lattice_label_rdp,
)
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses


def log_moment(base, moved, rate, power):
    """ln sum of base^(1 - power) * ((1 - rate) base + rate moved)^power."""
    mixture = np.logaddexp(np.log1p(-rate) + base, np.log(rate) + moved)
    return logsumexp(power * mixture + (1 - power) * base)


@pytest.mark.parametrize(
    ("k", "rate", "order"), [(1, 0.3, 2.0), (30, 0.05, 8.0), (64, 0.5, 4.0), (100, 0.9, 2.0), (20, 0.1, 32.0)]
)
def test_the_histogram_of_integer_noise_costs_no_more_than_the_bound(k, rate, order) -> None:
    """The two cells that change are independent given the common base: the pair's moment is a product."""
    sigma = 64.0
    z = np.arange(-6000, 6001)
    base, moved = (-((z - shift) ** 2) / (2 * sigma**2) for shift in (0, k))
    base, moved = base - logsumexp(base), moved - logsumexp(moved)
    exact = (log_moment(base, moved, rate, order) + log_moment(base, moved, rate, 1 - order)) / (order - 1)
    bound = sampled_lattice_histogram_rdp(np.array([k]), np.array([rate]), np.array([order]), sigma_units=sigma)[0, 0]
    assert exact <= bound <= exact * (1 + 2e-3)


@pytest.mark.parametrize(("k", "rate", "order"), [(1, 0.3, 2.0), (30, 0.05, 8.0), (64, 0.5, 4.0)])
def test_the_bit_of_integer_noise_costs_no_more_than_the_bound(k, rate, order) -> None:
    """The vote of one answer enters and lifts the count by k; that of the other does not change it."""
    sigma = 64.0
    z = np.arange(-2000, 2001)
    log_p = -(z**2) / (2 * sigma**2)
    tail = np.exp(np.logaddexp.accumulate(log_p - logsumexp(log_p)))
    at = np.arange(-300, 301) + 2000
    passes, lifted = tail[at], (1 - rate) * tail[at] + rate * tail[at + k]
    laws = [np.log(np.stack([p, 1 - p])) for p in (passes, lifted)]
    bound = sampled_lattice_bit_rdp(np.array([k]), np.array([rate]), np.array([order]), sigma_units=sigma)[0, 0]
    for p, q in (laws, laws[::-1]):
        assert (logsumexp(order * p - (order - 1) * q, axis=0) / (order - 1)).max() <= bound


@given(
    k=st.integers(1, 3000), rate=st.floats(0.01, 1.0), sigma=st.floats(64.0, 1e5), classes=st.sampled_from([2, 3, 100])
)
@settings(max_examples=12, deadline=None)
def test_a_secret_coin_never_costs_more_than_a_vote_that_always_enters(k, rate, sigma, classes) -> None:
    units, rates, orders = np.array([k]), np.array([rate]), ORDERS[10:110:25]
    histogram = sampled_lattice_histogram_rdp(units, rates, orders, sigma_units=sigma)
    label = sampled_lattice_label_rdp(units, rates, orders, sigma_units=sigma, classes=classes)
    bit = sampled_lattice_bit_rdp(units, rates, orders, sigma_units=sigma)
    assert (label <= histogram).all()
    assert (histogram <= orders * (k / sigma) ** 2).all()
    assert (label <= lattice_label_rdp(units, orders, sigma_units=sigma, classes=classes)).all()
    assert (bit <= lattice_bit_rdp(units, orders, sigma_units=sigma)).all()
    continuous = secret_sampling.sampled_label_gaussian_rdp(units / sigma, rates, orders)
    assert (histogram >= continuous * (1 - 1e-9)).all()
    # The move is larger by about t^2 / (2 sigma^2), t = 2 the deviation of the rounding; a cost may grow much faster.
    further = secret_sampling.sampled_label_gaussian_rdp(units / sigma * (1 + 2.01 / sigma**2), rates, orders)
    assert (histogram <= further * (1 + 1e-9) + 1e-12).all()


def test_values_out_of_range_are_refused() -> None:
    one, rate, orders = np.array([1]), np.array([0.5]), np.array([2.0])
    for cost in (sampled_lattice_histogram_rdp, sampled_lattice_bit_rdp):
        with refuses(InvalidInput, 64):
            cost(one, rate, orders, sigma_units=10)
        with refuses(InvalidInput, "rates"):
            cost(one, 0 * rate, orders, sigma_units=64)

"""When a ring is too small, and the bound on the probability that a sum wraps around."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.crypto.rings import WRAP_PROBABILITY, _tail, check_ring, from_ring, to_ring
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), bits=st.sampled_from([32, 64]))
def test_values_within_half_the_ring_come_back_and_others_modulo_its_size(values, bits) -> None:
    back = from_ring(to_ring(np.array(values, dtype=np.int64), bits=bits)).tolist()
    half = 2 ** (bits - 1)
    assert back == [(value + half) % 2**bits - half for value in values]


@pytest.mark.parametrize(("sigma", "room"), [(0.5, 3), (1.0, 10), (5.0, 40), (30.0, 100), (30.0, 250)])
def test_the_bound_lies_above_the_tail_of_skellam_and_of_gaussian_noise(sigma, room) -> None:
    # P[X = k] = exp(-v) I_k(v) of a Skellam variable of variance v (Skellam 1946).
    variance, last = sigma**2, room + 12 * int(sigma + 2)
    terms = [mpmath.exp(-variance) * mpmath.besseli(k, variance) for k in range(room, last)]
    exact = 2 * mpmath.fsum(terms)
    assert exact <= _tail(room, sigma) < 60 * exact
    weights = [mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * mpmath.mpf(sigma) ** 2)) for x in range(60 * int(sigma + 1))]
    gaussian = 2 * mpmath.fsum(weights[room:]) / (2 * mpmath.fsum(weights) - 1)
    assert gaussian <= _tail(room, sigma)


@pytest.mark.parametrize("sigma", [1e-200, 1e-9, 1.0, 1e6, 2e8, 1e15])
def test_the_bound_agrees_with_many_digits(sigma) -> None:
    with mpmath.workdps(60):
        for room in (1, 2**20, 2**31 - 1, 2**63 - 1):
            variance = max(mpmath.mpf(sigma) ** 2, mpmath.mpf("1e-12"))
            ratio = room / variance
            exponent = variance * (ratio * mpmath.asinh(ratio) - mpmath.sqrt(1 + ratio**2) + 1)
            bound = 2 * mpmath.exp(-exponent)
            assert _tail(room, sigma) == pytest.approx(float(bound), rel=1e-9 * max(1.0, float(exponent)), abs=1e-300)


def test_the_smaller_ring_is_taken_where_it_fits() -> None:
    assert check_ring(total_units=250 * 64, noise_sigma_units=64.0 * 40, cells=10_000) == 32
    assert check_ring(total_units=0, noise_sigma_units=2.5e8, cells=10) == 64
    near = check_ring(total_units=0, noise_sigma_units=2.2e8, cells=1)
    assert _tail(2 ** (near - 1) - 1, 2.2e8) <= WRAP_PROBABILITY
    assert check_ring(total_units=2**31 - 1, noise_sigma_units=0, cells=1) == 64
    assert check_ring(total_units=2**31 - 2, noise_sigma_units=0, cells=1) == 32


@pytest.mark.parametrize(
    ("total", "sigma", "cells"),
    [
        (2**63, 1.0, 1),
        (0, 2e18, 1),
        (0, float("inf"), 1),
        (0, float("nan"), 1),
        (-1, 1.0, 1),
        (0, -1.0, 1),
        (0, 1.0, 0),
    ],
)
def test_what_no_ring_holds_is_refused_with_its_values(total, sigma, cells) -> None:
    with refuses(InvalidInput, "total_units", total):
        check_ring(total_units=total, noise_sigma_units=sigma, cells=cells)

"""The inequalities of the ring, and the mass of noise outside."""

import math

import mpmath
import pytest

from protocols.crypto.rings import LIMIT, check_counting_ring
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses

STUDY = {
    "total_units": 250 * 64, "threshold_units": 200 * 64, "sigma_units": 40 * 64.0, "classes": 10, "queries": 1000,
}  # fmt: skip


def test_a_common_study_fits_and_its_tail_is_far_below_any_delta() -> None:
    tail = check_counting_ring(**STUDY)
    assert 2 * 10_000 * math.exp(-72) <= tail <= 2 * 10_000 * math.exp(-72) * (1 + 1e-9)
    assert check_counting_ring(**STUDY | {"threshold_units": None}) == tail


@pytest.mark.parametrize("sigma", [1.0, 3.0, 20.0])
def test_the_tail_of_two_discrete_gaussians_is_below_the_bound(sigma) -> None:
    """By summation over the lattice: Pr[|X + Y| >= 12 sqrt(2) sigma]."""
    mpmath.mp.dps = 60
    reach = range(-math.ceil(26 * sigma), math.ceil(26 * sigma) + 1)
    weights = [mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * sigma**2)) for x in reach]
    above = [mpmath.mpf(0)] * (len(weights) + 1)
    for position in reversed(range(len(weights))):
        above[position] = above[position + 1] + weights[position]
    limit = math.ceil(12 * math.sqrt(2) * sigma)
    tail = mpmath.mpf(0)
    for x, weight in zip(reach, weights, strict=True):
        position = limit - x - reach[0]
        tail += weight * above[min(max(position, 0), len(weights))]
    tail *= 2 / above[0] ** 2
    bound = check_counting_ring(**STUDY | {"threshold_units": None, "classes": 2, "queries": 1})
    assert 0 < tail <= mpmath.mpf(bound) / 2


def at_the_limit(**changed):
    """One unit below what the ring of a plain argmax holds."""
    study = STUDY | {"threshold_units": None, "sigma_units": 1.0} | changed
    return study | {"total_units": LIMIT - math.floor(24 * math.sqrt(2)) - 1}


def test_the_limit_itself_is_sharp() -> None:
    study = at_the_limit()
    assert check_counting_ring(**study) > 0
    with refuses(InvalidInput, 24, "sigma_units"):
        check_counting_ring(**study | {"total_units": study["total_units"] + 1})


def test_a_threshold_on_the_noisy_counts_lies_in_the_middle_of_the_ring() -> None:
    """Counts from 0 to all of 2^29 - 21 units are within 2^29 of a threshold among them, and of no other."""
    plain = at_the_limit(threshold_units=None)
    study = plain | {"total_units": (LIMIT - math.floor(24 * math.sqrt(2)) - 1) // 2}
    for threshold in (0, study["total_units"] // 2, study["total_units"]):
        assert check_counting_ring(**study | {"threshold_units": threshold}) == check_counting_ring(**plain)
    for threshold in (-1, study["total_units"] + 1):
        with refuses(InvalidInput, 2, "threshold_units"):
            check_counting_ring(**study | {"threshold_units": threshold})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"total_units": 2**30}, (24, "sigma_units")),
        ({"sigma_units": 2.0**26}, (24, "sigma_units")),
        ({"threshold_units": 2**30}, ("|threshold_units|",)),
        ({"threshold_units": -(2**30)}, ("|threshold_units|",)),
        ({"threshold_units": 2**29}, (2, "threshold_units")),
        ({"threshold_units": -(2**29)}, (2, "threshold_units")),
        ({"sigma_units": math.nan}, ("sigma_units",)),
        ({"sigma_units": 0}, ("sigma_units", 0)),
        ({"total_units": 0}, ("total_units", 0)),
        ({"classes": 1}, ("classes = 1",)),
        ({"queries": -1}, (-1,)),
    ],
)
def test_a_study_that_the_ring_would_overflow_is_refused(changed, named) -> None:
    with refuses(InvalidInput, *named):
        check_counting_ring(**STUDY | changed)

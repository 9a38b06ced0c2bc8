"""Scales of features are exact."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from protocols.features.linear import UNITS, Scale
from protocols.features.stage import MOST_STEPS, STEPS
from tests.harness.refusals import refuses


@given(seed=st.integers(0, 2**32), wide=st.sampled_from([0.1, 1.0, 300.0]))
def test_the_result_is_that_of_fractions_rounded_once(seed, wide) -> None:
    rng = np.random.default_rng(seed)
    made = Scale.of(wide * rng.normal(size=6), rng.normal(size=6))
    for record in (wide * rng.normal(size=(4, 2, 3))).astype(np.float32):
        for value, factor, offset, found in zip(
            record.ravel(), made.factors, made.offset, made(record[None])[0], strict=True
        ):
            steps = max(-MOST_STEPS, min(MOST_STEPS, round(Fraction(float(value)) * STEPS)))
            assert found == np.float32((steps * int(factor) - int(offset)) / (STEPS * UNITS))


def test_it_is_the_map_that_was_meant_but_for_rounding() -> None:
    rng = np.random.default_rng(0)
    mean, factors, records = rng.normal(size=20), rng.normal(size=20), rng.normal(size=(9, 20)).astype(np.float32)
    np.testing.assert_allclose(Scale.of(mean, factors)(records), (records - mean) * factors, atol=0.005)


@pytest.mark.parametrize(
    ("factors", "offset", "words"),
    [
        (np.full(2, 2**36), np.zeros(2, np.int64), "may reach 9.0"),
        (np.full(1, -(2**63)), np.full(1, -(2**63)), "may reach"),
        (np.ones(2, np.int64), np.zeros(1, np.int64), "2 factors and 1 offsets"),
        (np.ones(0, np.int64), np.zeros(0, np.int64), "at least 1"),
    ],
)
def test_a_scale_whose_products_are_not_exact_is_refused(factors, offset, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        Scale(factors, offset)


def test_values_that_are_no_numbers_and_records_of_another_size_are_refused() -> None:
    with refuses(InvalidInput, "NaN"):
        Scale.of(np.zeros(1), np.array([np.inf]))
    with refuses(InvalidInput, "3 values"):
        Scale.of(np.zeros(3), np.ones(3)).output_shape((2, 2))

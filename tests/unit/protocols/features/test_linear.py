"""Linear maps and scales of features are exact, whatever the order of sums."""

import inspect
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from protocols.features.linear import MATRIX_UNITS, LinearMap, Scale
from protocols.features.stage import MOST_STEPS, STEPS
from tests.harness.refusals import refuses


@given(seed=st.integers(0, 2**32), wide=st.sampled_from([0.1, 1.0, 300.0]))
def test_the_result_is_that_of_fractions_rounded_once(seed, wide) -> None:
    rng = np.random.default_rng(seed)
    made = LinearMap.of(rng.normal(size=(6, 3)), wide * rng.normal(size=6))
    records = (wide * rng.normal(size=(4, 2, 3))).astype(np.float32)
    for record, found in zip(records, made(records), strict=True):
        steps = [max(-MOST_STEPS, min(MOST_STEPS, round(Fraction(float(x)) * STEPS))) for x in record.ravel()]
        for column, offset, value in zip(made.matrix.T, made.offset, found, strict=True):
            exact = sum(s * int(m) for s, m in zip(steps, column, strict=True)) - int(offset)
            assert value == np.float32(exact / (STEPS * MATRIX_UNITS))


def test_it_is_the_map_that_was_meant_but_for_rounding() -> None:
    rng = np.random.default_rng(0)
    matrix, mean, records = rng.normal(size=(20, 4)), rng.normal(size=20), rng.normal(size=(9, 20)).astype(np.float32)
    np.testing.assert_allclose(LinearMap.of(matrix, mean)(records), (records - mean) @ matrix, atol=0.02)


@pytest.mark.parametrize(
    ("matrix", "offset", "words"),
    [
        (np.full((2, 1), 2**36), np.zeros(1, np.int64), "may reach 1.8e"),
        (np.ones((2, 1), np.int64), np.full(1, 2**52), "may reach"),
        (np.full((2, 1), -(2**63)), np.full(1, -(2**63)), "may reach"),
        (np.ones((0, 2), np.int64), np.zeros(2, np.int64), "each at least 1"),
    ],
)
def test_a_map_whose_sums_are_not_exact_is_refused(matrix, offset, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        LinearMap(matrix, offset)


def test_values_that_are_no_numbers_are_refused() -> None:
    with refuses(InvalidInput, "NaN"):
        LinearMap.of(np.array([[np.nan]]), np.zeros(1))


@given(seed=st.integers(0, 2**32), wide=st.sampled_from([0.1, 1.0, 300.0]))
def test_a_scaled_value_is_that_of_fractions_rounded_once(seed, wide) -> None:
    rng = np.random.default_rng(seed)
    made = Scale.of(wide * rng.normal(size=6), rng.normal(size=6))
    for record in (wide * rng.normal(size=(4, 2, 3))).astype(np.float32):
        for value, factor, offset, found in zip(
            record.ravel(), made.factors, made.offset, made(record[None])[0], strict=True
        ):
            steps = max(-MOST_STEPS, min(MOST_STEPS, round(Fraction(float(value)) * STEPS)))
            assert found == np.float32((steps * int(factor) - int(offset)) / (STEPS * MATRIX_UNITS))


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
    # Without the check of shapes, which only some calls have (tests/conftest.py): a file's arrays are refused by Scale.
    with pytest.raises(InvalidInput, match=words):
        inspect.unwrap(Scale.__init__)(object.__new__(Scale), factors, offset)

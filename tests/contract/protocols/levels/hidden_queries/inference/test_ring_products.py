"""Products modulo 2^32 against Python's integers, on extreme and random factors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.levels.hidden_queries.inference.architecture import by_small, by_uniform

EXTREMES = [0, 1, 2**15 - 1, 2**15, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 2**15, 2**32 - 1]


def exact(rows, matrix):
    return ((rows.astype(object) @ matrix.astype(object).T) % 2**32).astype(np.uint32)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32))
@settings(max_examples=40)
def test_products_of_any_factors_are_exact(rows, inner, outputs, seed) -> None:
    rng = np.random.default_rng(seed)
    left = rng.choice([*EXTREMES, *rng.integers(0, 2**32, 10)], (rows, inner)).astype(np.uint32)
    right = rng.choice([*EXTREMES, *rng.integers(0, 2**32, 10)], (outputs, inner)).astype(np.uint32)
    assert (by_uniform(right)(left) == exact(left, right)).all()


@pytest.mark.parametrize("largest", [2**10, 2**16, 2**30])
def test_products_with_small_factors_are_exact_on_either_side_of_one_product(largest) -> None:
    rng = np.random.default_rng(largest)
    left = rng.choice(EXTREMES, (7, 60)).astype(np.uint32)
    right = rng.integers(-largest, largest + 1, (3, 60))
    assert (by_small(right)(left) == exact(left, right)).all()


def test_long_sums_of_the_largest_factors_are_exact() -> None:
    inner = 2**18
    left, right = np.full((1, inner), 2**32 - 2**15, np.uint32), np.full((1, inner), 2**31 - 2**15, np.uint32)
    assert int(by_uniform(right)(left)[0, 0]) == (2**32 - 2**15) * (2**31 - 2**15) * inner % 2**32

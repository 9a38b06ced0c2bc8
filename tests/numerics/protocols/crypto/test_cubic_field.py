"""The field of p^3 elements against polynomials of Python's integers, and its laws."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.field import P, cubic_times, plus

elements = st.lists(st.integers(0, P - 1), min_size=3, max_size=3)


def array(*coefficients):
    return np.array([coefficients], dtype=np.uint32)


def slow(left, right):
    """The product of two polynomials, from the highest power down."""
    powers = [0] * 5
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            powers[i + j] += a * b
    for power in (4, 3):
        powers[power - 3] += 7 * powers[power]
    return [each % P for each in powers[:3]]


@given(elements, elements)
def test_a_product_is_that_of_polynomials_modulo_x_cubed_minus_7(left, right) -> None:
    assert cubic_times(array(*left), array(*right)).tolist() == [slow(left, right)]


@given(elements, elements, elements)
def test_products_distribute_over_sums(left, right, other) -> None:
    first, second, third = (array(*each) for each in (left, right, other))
    np.testing.assert_array_equal(
        cubic_times(first, plus(second, third)), plus(cubic_times(first, second), cubic_times(first, third))
    )


def power(base, exponent):
    result = array(1, 0, 0)
    while exponent:
        if exponent & 1:
            result = cubic_times(result, base)
        base, exponent = cubic_times(base, base), exponent >> 1
    return result


@given(elements.filter(any))
@settings(max_examples=10)
def test_whatever_is_not_zero_has_an_inverse(element) -> None:
    """So a product is zero only if a factor is: 7 is no cube modulo p."""
    inverse = power(array(*element), P**3 - 2)
    assert cubic_times(array(*element), inverse).tolist() == [[1, 0, 0]]

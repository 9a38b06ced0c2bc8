"""The circuit over plain bits, against the integers it stands for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.field import BITS, P, from_integers, minus
from protocols.crypto.garbling import PlainGates, conjunctions_a_query, noisy_argmax

counts = st.one_of(st.integers(0, 3), st.integers(0, 2**30 - 1), st.sampled_from([0, 1, 2**29 - 1, 2**29, 2**30 - 1]))
masks = st.one_of(st.integers(0, P - 1), st.sampled_from([0, 1, P - 1, P - 2, 2**30, 2**30 - 1, 2**30 + 1]))


def wires(numbers):
    return ((numbers >> np.arange(BITS, dtype=np.uint32)[:, None, None]) & np.uint32(1)).astype(bool)


def labels(found):
    return (found.label * (1 << np.arange(len(found.label)))[:, None]).sum(axis=0)


def shares(integers, mask):
    return minus(from_integers(integers), mask), mask


@given(data=st.data(), classes=st.integers(2, 17), queries=st.integers(1, 4))
@settings(max_examples=40)
def test_threshold_and_argmax_are_those_of_the_integers_whatever_the_shares(data, classes, queries) -> None:
    def drawn(values):
        flat = data.draw(st.lists(values, min_size=classes * queries, max_size=classes * queries))
        return np.array(flat, dtype=np.int64).reshape(classes, queries)

    values = drawn(counts)
    left, right = (wires(each) for each in shares(2 * values, drawn(masks).astype("u4")))
    plain = noisy_argmax(PlainGates(), left, right, threshold=False)
    np.testing.assert_array_equal(labels(plain), values.argmax(axis=0))
    assert plain.passed is None
    # A winner passes from 2^29 on.
    found = noisy_argmax(PlainGates(), left, right, threshold=True)
    passed = values.max(axis=0) >= 2**29
    np.testing.assert_array_equal(found.passed, passed)
    np.testing.assert_array_equal(labels(found), np.where(passed, values.argmax(axis=0), 0))


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 31, 32, 33, 150])
def test_every_class_can_win_and_ties_go_to_the_lowest(classes) -> None:
    """Query q has its maximum at class q and again at every higher class."""
    values = (np.arange(classes)[:, None] >= np.arange(classes)).astype(np.int64) * (2**30 - 1)
    mask = np.random.default_rng(classes).integers(0, P, values.shape).astype(np.uint32)
    left, right = shares(2 * values, mask)
    for threshold in (False, True):
        found = noisy_argmax(PlainGates(), wires(left), wires(right), threshold=threshold)
        assert len(found.label) == (classes - 1).bit_length()
        np.testing.assert_array_equal(labels(found), np.arange(classes))
    assert found.passed.all()


def test_the_circuit_has_the_gates_that_its_docstring_says() -> None:
    # 30 for each sum, 30 for each comparison, 30 for each value that is selected but the last.
    for classes, index in ((10, 7), (2, 0)):
        selected, label_bits = classes - 2, (classes - 1).bit_length()
        argmax = 30 * classes + 30 * (classes - 1) + 30 * selected + index
        assert conjunctions_a_query(classes=classes, threshold=False) == argmax
        # One more for the winner's top bit.
        assert conjunctions_a_query(classes=classes, threshold=True) == argmax + 1 + label_bits
    assert conjunctions_a_query(classes=10, threshold=True) == 822

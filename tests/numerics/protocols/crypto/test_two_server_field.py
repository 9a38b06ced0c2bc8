"""Arithmetic modulo p and its expansion from seeds, against Python's integers and another implementation."""

import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto import field
from protocols.crypto import prg as expansion
from protocols.crypto.field import P
from tests.harness.two_server_sides import centred

elements = st.one_of(
    st.sampled_from([0, 1, 2, P - 1, P - 2, P // 2, P // 2 + 1, 2**16, 2**16 - 1]), st.integers(0, P - 1)
)


@given(pairs=st.lists(st.tuples(elements, elements), max_size=20))
def test_arithmetic_is_that_of_integers_modulo_p(pairs) -> None:
    left, right = np.array(pairs, dtype=np.uint32).reshape(-1, 2).T
    whole = [(int(a), int(b)) for a, b in pairs]
    assert field.plus(left, right).tolist() == [(a + b) % P for a, b in whole]
    assert field.minus(left, right).tolist() == [(a - b) % P for a, b in whole]
    assert field.times(left, right).tolist() == [a * b % P for a, b in whole]


@given(words=st.lists(st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([P, 2 * P, P * P, 2**64 - 1])), max_size=9))
def test_any_word_is_reduced(words) -> None:
    assert field.reduced(np.array(words, dtype=np.uint64)).tolist() == [word % P for word in words]


@given(values=st.lists(st.integers(-(2**62), 2**62), max_size=9))
def test_integers_keep_their_residue_and_small_ones_come_back(values) -> None:
    found = field.from_integers(np.array(values, dtype=np.int64))
    assert found.tolist() == [value % P for value in values]
    small = np.array([value % P - P // 2 for value in values], dtype=np.int64)
    np.testing.assert_array_equal(centred(field.from_integers(small)), small)


@given(seed=st.integers(0, 2**32), rows=st.integers(0, 4), inner=st.integers(0, 9), columns=st.integers(1, 4))
def test_a_matrix_product_is_that_of_integers(seed, rows, inner, columns) -> None:
    rng = np.random.default_rng(seed)
    left, right = (rng.integers(P - 5, P, shape).astype(np.uint32) for shape in ((2, rows, inner), (2, inner, columns)))
    expected = (left.astype(object) @ right.astype(object)) % P if inner else np.zeros((2, rows, columns))
    np.testing.assert_array_equal(field.matrix_product(left, right), expected.astype(np.uint32))


@pytest.mark.parametrize("count", [63, 64, 65, 2**16 + 7, 2**18])
def test_a_matrix_product_of_many_of_the_largest_terms_is_exact(count) -> None:
    left, right = np.full((1, count), P - 1, dtype=np.uint32), np.full((count, 1), P - 2, dtype=np.uint32)
    assert field.matrix_product(left, right).item() == (P - 1) * (P - 2) * count % P


def test_the_keystream_is_chacha20_and_elements_are_its_words() -> None:
    key = bytes(range(32))
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(400))
    assert expansion.next_bytes(expansion.keystream(key), 400).tobytes() == stream
    words = [int.from_bytes(stream[i : i + 4], "little") % 2**31 for i in range(0, 400, 4)]
    assert expansion.field_elements(key, 100).tolist() == words


def test_p_itself_is_drawn_again_until_it_is_an_element() -> None:
    key = bytes(32)
    words = np.array([5, P, 7, P, P], dtype=np.uint32)
    again = expansion.next_bytes(expansion.keystream(expansion.derived_key("drawn again", key)), 12).view("<u4") % 2**31
    assert expansion._without_p(words.copy(), key).tolist() == [5, again[0], 7, again[1], again[2]]


@settings(max_examples=20)
@given(parts=st.lists(st.binary(max_size=3), max_size=3), cut=st.integers(0, 3))
def test_keys_tell_labels_and_parts_apart(parts, cut) -> None:
    key = expansion.derived_key("a", *parts)
    assert len(key) == hashlib.sha256().digest_size
    assert key != expansion.derived_key("b", *parts)
    assert key != expansion.derived_key("a", *parts, b"")
    if any(parts):
        joined = b"".join(parts)
        other = [joined[:cut], joined[cut:]]
        assert (key == expansion.derived_key("a", *other)) == (parts == other)


@pytest.mark.parametrize("bits", range(31))
def test_each_bit_of_an_element_is_even(bits) -> None:
    """Of 20,000 elements; |z| > 6 has probability 2e-9 for a fair bit."""
    drawn = expansion.field_elements(bytes([7]) * 32, 20_000)
    ones = int(((drawn >> np.uint32(bits)) & 1).sum())
    assert abs(ones - 10_000) < 6 * np.sqrt(20_000) / 2

"""Oblivious transfer: the receiver gets what it chose, and the correlation is the sender's secret."""

import nacl.bindings as group
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.garbling import chosen
from protocols.crypto.oblivious_transfer import (
    COLUMNS,
    POINT_BYTES,
    BaseReceiver,
    BaseSender,
    CorrelatedReceiver,
    CorrelatedSender,
    bits_of,
)
from protocols.errors import MalformedMessage
from tests.harness.seeded import seeded_source


def secret_of(seed):
    return np.random.default_rng(seed).integers(0, 2**64, 2, dtype=np.uint64)


def correlated(seed=1):
    """Both sides of an extension, from base transfers."""
    secret = secret_of(seed)
    sender = BaseSender(seeded_source(seed, 1))
    receiver = BaseReceiver(sender.message, bits_of(secret), seeded_source(seed, 2))
    return CorrelatedReceiver(sender.keys(receiver.message)), CorrelatedSender(bits_of(secret), receiver.keys), secret


def test_a_base_receiver_gets_the_key_that_it_chose_and_only_that() -> None:
    bits = bits_of(secret_of(3))
    sender = BaseSender(seeded_source(1))
    receiver = BaseReceiver(sender.message, bits, seeded_source(2))
    pairs = sender.keys(receiver.message)
    assert [pair[bit] for pair, bit in zip(pairs, bits.tolist(), strict=True)] == receiver.keys
    assert len({key for pair in pairs for key in pair}) == 2 * COLUMNS


def test_bits_of_a_secret_are_in_the_order_of_its_words() -> None:
    secret = np.array([0b1101, 1 << 63], dtype=np.uint64)
    assert np.flatnonzero(bits_of(secret)).tolist() == [0, 2, 3, 127]


@given(seed=st.integers(0, 2**32), counts=st.lists(st.integers(0, 70), min_size=1, max_size=3))
@settings(max_examples=10)
def test_labels_differ_by_the_secret_exactly_where_the_bit_is_set(seed, counts) -> None:
    receiver, sender, secret = correlated(seed)
    for number, count in enumerate(counts):
        bits = np.random.default_rng((seed, number)).random(count) < 0.5
        active, message = receiver.extend(bits)
        assert len(message) == CorrelatedSender.message_bytes(count)
        zeros = sender.extend(message, count)
        np.testing.assert_array_equal(active, zeros ^ chosen(bits, secret))
        assert len(np.unique(zeros, axis=0)) == count


def test_transfers_of_several_calls_have_nothing_in_common() -> None:
    receiver, _, _ = correlated()
    bits = np.zeros(64, dtype=bool)
    first, second = receiver.extend(bits)[0], receiver.extend(bits)[0]
    assert not (first[:, None] == second[None]).all(axis=-1).any()


def test_flipping_one_bit_of_the_matrix_changes_one_label_where_the_secret_is_set() -> None:
    bits = np.zeros(16, dtype=bool)
    for column in (0, 77, 127):
        receiver, sender, secret = correlated()
        active, message = receiver.extend(bits)
        flipped = bytearray(message)
        flipped[2 * column + 1] ^= 1 << 3
        difference = sender.extend(bytes(flipped), 16) ^ active
        expected = np.zeros((16, 2), dtype=np.uint64)
        if bits_of(secret)[column]:
            expected[11, column // 64] = np.uint64(1) << np.uint64(column % 64)
        np.testing.assert_array_equal(difference, expected)


NO_POINTS = {
    "zero": bytes(32),
    "the neutral element": b"\x01" + bytes(31),
    "not canonical": b"\xff" * 32,
    "of order two": b"\xec" + b"\xff" * 30 + b"\x7f",
    "outside the subgroup": group.crypto_core_ed25519_add(
        group.crypto_scalarmult_ed25519_base_noclamp(b"\x05" + bytes(31)), b"\xec" + b"\xff" * 30 + b"\x7f"
    ),
}


@pytest.mark.parametrize("name", NO_POINTS)
def test_what_is_no_point_of_the_group_is_refused(name) -> None:
    sender = BaseSender(seeded_source(1))
    with pytest.raises(MalformedMessage, match="does not hold a point"):
        BaseReceiver(NO_POINTS[name], bits_of(secret_of(1)), seeded_source(2))
    honest = BaseReceiver(sender.message, bits_of(secret_of(1)), seeded_source(2)).message
    with pytest.raises(MalformedMessage, match="does not hold a point"):
        sender.keys(honest[: 5 * POINT_BYTES] + NO_POINTS[name] + honest[6 * POINT_BYTES :])


@pytest.mark.parametrize("bit", [False, True])
def test_a_point_that_tells_nothing_but_cancels_is_no_error(bit) -> None:
    """A receiver that answers with the offer itself gets one key of two, as always."""
    sender = BaseSender(seeded_source(1))
    keys = sender.keys(sender.message * COLUMNS)
    assert len({pair[bit] for pair in keys}) == COLUMNS

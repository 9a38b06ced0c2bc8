"""Oblivious transfer: the receiver gets what it chose, and the correlation is the sender's secret."""

from itertools import product

import nacl.bindings as group
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.edwards import POINT_BYTES
from protocols.crypto.garbling import chosen
from protocols.crypto.oblivious_transfer import (
    ANSWER_BYTES,
    CHALLENGE_BYTES,
    COLUMNS,
    BaseReceiver,
    BaseSender,
    CorrelatedReceiver,
    CorrelatedSender,
    _hashes,
    bits_of,
)
from protocols.errors import MalformedMessage
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source


def secret_of(seed):
    return np.random.default_rng(seed).integers(0, 2**64, 2, dtype=np.uint64)


def correlated(seed=1):
    """Both sides of an extension, as from base transfers."""
    secret, source = secret_of(seed), seeded_source(seed, 1)
    pairs = [(source(32), source(32)) for _ in range(COLUMNS)]
    keys = [pair[bit] for pair, bit in zip(pairs, bits_of(secret).tolist(), strict=True)]
    return CorrelatedReceiver(pairs, seeded_source(seed, 2)), CorrelatedSender(bits_of(secret), keys), secret


def checked(receiver, sender, message, count, challenge=bytes(range(CHALLENGE_BYTES))):
    """The sender's labels of zero."""
    sender.receive(message, count)
    answer = receiver.answer(challenge)
    assert len(answer) == ANSWER_BYTES
    return sender.checked(challenge, answer)


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
        zeros = checked(receiver, sender, message, count)
        np.testing.assert_array_equal(active, zeros ^ chosen(bits, secret))
        assert len(np.unique(zeros, axis=0)) == count


def test_transfers_of_several_calls_have_nothing_in_common() -> None:
    receiver, _, _ = correlated()
    bits = np.zeros(64, dtype=bool)
    first = receiver.extend(bits)[0]
    receiver.answer(bytes(CHALLENGE_BYTES))
    second = receiver.extend(bits)[0]
    assert not (first[:, None] == second[None]).all(axis=-1).any()


class Inconsistent:
    """A receiver that puts other bits into some columns than into the rest, and guesses the secret's bits of these."""

    def __init__(self, receiver, columns, guesses):
        self.receiver, self.columns, self.guesses = receiver, columns, guesses

    def extend(self, bits, flipped=3):
        active, message = self.receiver.extend(bits)
        matrix = np.frombuffer(message, np.uint8).reshape(COLUMNS, -1).copy()
        matrix[self.columns, flipped // 8] ^= 1 << flipped % 8
        self.error = np.zeros((1, matrix.shape[1]), np.uint8)
        self.error[0, flipped // 8] = 1 << flipped % 8
        return active, matrix.tobytes()

    def answer(self, challenge):
        """What passes if the guesses are right: the hash of the error, where a bit of the secret is set."""
        hashes = np.frombuffer(self.receiver.answer(challenge), np.uint8).reshape(COLUMNS + 1, -1).copy()
        for column, guess in zip(self.columns, self.guesses, strict=True):
            if guess:
                hashes[column] ^= _hashes(challenge, self.error)[0]
        return hashes.tobytes()


def test_an_inconsistent_matrix_passes_only_for_who_guessed_the_secrets_bits() -> None:
    """Each column in which it cheats halves its chances: all 2^4 guesses, of which the right one passes."""
    columns, passed = [0, 40, 77, 127], []
    for guesses in product([False, True], repeat=4):
        receiver, sender, secret = correlated()
        receiver = Inconsistent(receiver, columns, guesses)
        _, message = receiver.extend(np.zeros(16, dtype=bool))
        try:
            checked(receiver, sender, message, 16)
            passed.append(list(guesses))
        except MalformedMessage:
            continue
    assert passed == [bits_of(secret)[columns].tolist()]


def test_an_inconsistent_matrix_with_an_honest_answer_passes_only_where_the_secrets_bit_is_zero() -> None:
    bits = np.random.default_rng(1).random(300) < 0.5
    for column in (0, 1, 2, 3, 64, 126, 127):
        receiver, sender, secret = correlated()
        receiver = Inconsistent(receiver, [column], [False])
        _, message = receiver.extend(bits, flipped=column)
        if bits_of(secret)[column]:
            with refuses(MalformedMessage, "inconsistent"):
                checked(receiver, sender, message, 300)
        else:
            assert len(checked(receiver, sender, message, 300)) == 300


def test_the_hash_is_ghash_of_the_field_of_2_to_the_128() -> None:
    """Against multiplication bit by bit, NIST SP 800-38D, algorithm 1."""
    challenge, rows = bytes(range(16)), np.random.default_rng(2).integers(0, 256, (3, 48), dtype=np.uint8)
    key = int.from_bytes(Cipher(algorithms.AES(challenge), modes.ECB()).encryptor().update(bytes(16)), "big")

    def times(left, right):
        product, shifted = 0, right
        for bit in range(127, -1, -1):
            product ^= shifted if left >> bit & 1 else 0
            shifted = shifted >> 1 ^ (0xE1 << 120 if shifted & 1 else 0)
        return product

    for row, hashed in zip(rows, _hashes(challenge, rows), strict=True):
        total = 0
        for block in row.reshape(-1, 16):
            total = times(total ^ int.from_bytes(block.tobytes(), "big"), key)
        # The block of the length, which is the same for all rows of a length, is left out; its factor stays.
        assert times(total, key).to_bytes(16, "big") == hashed.tobytes()


def test_the_answer_hides_the_bits() -> None:
    """Fresh bits at the end of the vector make its hash uniform: the same bits give other hashes each time."""
    seen = set()
    for seed in range(50):
        pairs = [(bytes([1, at]) * 16, bytes([2, at]) * 16) for at in range(COLUMNS)]
        receiver = CorrelatedReceiver(pairs, seeded_source(seed))
        receiver.extend(np.zeros(100, dtype=bool))
        seen.add(receiver.answer(bytes(16))[-16:])
    assert len(seen) == 50
    octets = np.frombuffer(b"".join(seen), np.uint8)
    assert 350 < np.unpackbits(octets).sum() / 8 < 450


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
    with refuses(MalformedMessage, "point"):
        BaseReceiver(NO_POINTS[name], bits_of(secret_of(1)), seeded_source(2))
    honest = BaseReceiver(sender.message, bits_of(secret_of(1)), seeded_source(2)).message
    with pytest.raises(MalformedMessage, match=r"point of the group|points of the curve|neutral element"):
        sender.keys(honest[: 5 * POINT_BYTES] + NO_POINTS[name] + honest[6 * POINT_BYTES :])

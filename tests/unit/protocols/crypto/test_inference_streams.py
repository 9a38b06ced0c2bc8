"""Streams: the standard's vector, and uniform elements of F_p."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.stats import chi2

from protocols.crypto.field import P
from protocols.crypto.prg import Stream


class Repeating(Stream):
    """A stream of given words, then zeros."""

    def __init__(self, words):
        self._words = list(words)

    def _next(self, shape, dtype):
        count = int(np.prod(shape))
        taken, self._words = self._words[:count], self._words[count:]
        return np.array(taken + [0] * (count - len(taken)), dtype=dtype).reshape(shape)


def test_a_stream_is_aes_in_counter_mode_from_zero() -> None:
    encryptor = Cipher(algorithms.AES(bytes(range(16))), modes.ECB()).encryptor()
    blocks = b"".join(encryptor.update(i.to_bytes(16, "big")) for i in range(4))
    stream = Stream(bytes(range(16)))
    assert stream.octets((16,)).tobytes() + stream.words((3, 4)).tobytes() == blocks


def test_arrays_follow_each_other_whatever_their_sizes() -> None:
    whole, parts = Stream(bytes(16)).octets((1000,)), Stream(bytes(16))
    pieces = [parts.octets((n,)) for n in (1, 0, 15, 17, 300)] + [parts.octets((667,))]
    assert (np.concatenate(pieces) == whole).all()


def test_field_elements_skip_the_prime_and_use_31_bits() -> None:
    found = Repeating([5, P, 2**31 + 7, 2**32 - 1, P, 9]).field((4,))
    assert found.tolist() == [5, 0, 7, 9]


def test_field_elements_are_uniform() -> None:
    """Chi-squared over 1,024 cells; false alarms 1e-6, but the seed is fixed."""
    elements = Stream(b"a seed of sixtee").field((200_000,))
    assert elements.max() < P
    counts = np.bincount((elements.astype(np.int64) * 1024 // P), minlength=1024)
    expected = len(elements) / 1024
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 1023)


@pytest.mark.parametrize("bit", range(128))
def test_every_bit_of_a_seed_changes_the_stream(bit) -> None:
    seed = bytearray(16)
    seed[bit // 8] ^= 1 << bit % 8
    assert (Stream(bytes(seed)).octets((64,)) != Stream(bytes(16)).octets((64,))).mean() > 0.8

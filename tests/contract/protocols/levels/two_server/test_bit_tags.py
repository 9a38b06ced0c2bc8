"""Macs of entered bits: equal on both servers only for the bits of the bound number."""

import numpy as np

from protocols.crypto.field import BITS, P, plus, times
from protocols.crypto.garbling import LabelHash
from protocols.levels.two_server.noisy_argmax import evaluator_tags, garbler_tags


def uniform(rng, *shape):
    return rng.integers(0, P, shape).astype(np.uint32)


def entered(rng, *, flip=0, wrong=None):
    """What both servers compare of the bits of a number that is bound, and the bits. wrong: a bit that is converted
    falsely.
    """
    numbers, alphas, public = uniform(rng, 6), uniform(rng, 2), uniform(rng, 6)
    macs = uniform(rng, 2, 6)
    keys = plus(times(alphas[:, None], numbers), macs)
    doubled = plus(plus(numbers, numbers), public) ^ np.array([flip, 0, 0, 0, 0, 0], dtype=np.uint32)
    bits = (doubled >> np.arange(BITS, dtype=np.uint32)[:, None] & 1).astype(bool)
    zeros = rng.integers(0, 2**64, (BITS, 6, 2), dtype=np.uint64)
    offset = rng.integers(0, 2**64, 2, dtype=np.uint64) | np.array([1, 0], dtype=np.uint64)
    hashing = LabelHash(rng.bytes(16))
    own, message = garbler_tags(zeros, offset, alphas, hashing, first=0)
    if wrong is not None:
        sent = np.frombuffer(message, dtype="<u4").reshape(2, BITS, 6).copy()
        sent[0, wrong, 2:3] = plus(sent[0, wrong, 2:3], np.array([9], dtype=np.uint32))
        message = sent.tobytes()
    active = zeros ^ (bits[..., None] * offset)
    tags = evaluator_tags(active, bits, message, hashing, first=0, repetitions=2)
    garblers = plus(plus(own, times(alphas[:, None], public)), plus(keys, keys))
    return (plus(tags, plus(macs, macs)) == garblers).all(), bits


def test_bits_of_the_bound_number_give_both_servers_the_same() -> None:
    rng = np.random.default_rng(5)
    assert all(entered(rng)[0] for _ in range(10))


def test_an_evaluator_that_enters_other_bits_is_noticed() -> None:
    rng = np.random.default_rng(6)
    assert not any(entered(rng, flip=1 << bit)[0] for bit in range(BITS))


def test_a_garbler_that_alters_the_conversion_of_a_bit_is_noticed_exactly_where_it_is_set() -> None:
    rng = np.random.default_rng(7)
    for bit in range(BITS):
        equal, bits = entered(rng, wrong=bit)
        assert equal == (not bits[bit, 2])

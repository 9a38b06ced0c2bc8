"""The prototype of authenticated inputs: the bits that enter a circuit are those of the bound number."""

from __future__ import annotations

import numpy as np

from benchmarks.authenticated_inputs.bit_tags import evaluator_secret, evaluator_tags, garbler_secret, garbler_tags
from benchmarks.authenticated_inputs.linear_macs import Held, Kept
from protocols.crypto.field import BITS, P, plus, times
from protocols.crypto.hashing import LabelHash


def element(value):
    return np.array([value], dtype=np.uint32)


def uniform(rng, *shape):
    return rng.integers(0, P, shape).astype(np.uint32)


def entered(rng, *, flip=0, wrong=None):
    """Both secrets of the comparison of bits with a bound number, and the bits. wrong: a bit whose c is altered."""
    numbers, alphas = uniform(rng, 6), uniform(rng, 2)
    macs = uniform(rng, 2, 6)
    held, kept = Held(numbers, macs), Kept(alphas, plus(times(alphas[:, None], numbers), macs))
    public = uniform(rng, 6)
    doubled = plus(plus(numbers, numbers), public) ^ np.array([flip, 0, 0, 0, 0, 0], dtype=np.uint32)
    bits = (doubled >> np.arange(BITS, dtype=np.uint32)[:, None] & 1).astype(bool)
    zeros = rng.integers(0, 2**64, (BITS, 6, 2), dtype=np.uint64)
    offset = rng.integers(0, 2**64, 2, dtype=np.uint64) | np.array([1, 0], dtype=np.uint64)
    hashing = LabelHash(rng.bytes(16))
    keys, message = garbler_tags(zeros, offset, alphas, hashing, first=0)
    sent = np.frombuffer(message, dtype="<u4").reshape(2, BITS, 6).copy()
    if wrong is not None:
        sent[0, wrong, 2:3] = plus(sent[0, wrong, 2:3], element(9))
    active = zeros ^ (bits[..., None] * offset)
    tags = evaluator_tags(active, bits, sent, hashing, first=0)
    return evaluator_secret(tags, held), garbler_secret(keys, kept, public), bits


def test_bits_of_the_bound_number_give_both_servers_the_same_secret():
    rng = np.random.default_rng(5)
    for _ in range(10):
        evaluators, garblers, _ = entered(rng)
        assert evaluators == garblers


def test_an_evaluator_that_enters_other_bits_is_noticed():
    rng = np.random.default_rng(6)
    for bit in range(BITS):
        evaluators, garblers, _ = entered(rng, flip=1 << bit)
        assert evaluators != garblers


def test_a_garbler_that_alters_the_conversion_of_a_bit_is_noticed_exactly_where_it_is_set():
    rng = np.random.default_rng(7)
    for bit in range(BITS):
        evaluators, garblers, bits = entered(rng, wrong=bit)
        assert (evaluators == garblers) == (not bits[bit, 2])

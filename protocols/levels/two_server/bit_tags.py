"""Macs of the numbers whose bits enter a circuit, out of the same transfers by which they enter.

A wire's bit b entered by a correlated transfer: the evaluator has L = K ^ b D, the garbler K and its offset D. With H a
hash into F_p, the garbler sends c = H(K) - H(K ^ D) + 2^k alpha for the bit of weight 2^k; the evaluator computes H(L)
+ b c = H(K) + b 2^k alpha. Added up over the bits of a number d, the evaluator holds alpha d + sum H(K), and the
garbler, which knows alpha and all K, the key sum H(K): macs as in linear_macs.py, with the sign of the mac reversed.

Then d = 2 (x + noise) + a public number may be compared with what the input check bound (circuit_inputs.py): both sides
compute what the evaluator's macs leave over, and agreement.py compares it by a test that tells them only whether it is
equal. A garbler that sends another c gets an evaluator with b = 1 to hold another mac: if it guessed the bits of all
such c it goes on, and otherwise the batch ends. So it learns one bit of its choice about the evaluator's input, for the
price of a batch in both logs, as in dual execution itself.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, UInt32, UInt64
from numpy import ndarray

from protocols.crypto.field import BITS, P, minus, plus, reduced, times
from protocols.crypto.hashing import LabelHash
from protocols.crypto.wire_arrays import elements

# Tweaks of this use of the hash; gates count from 0.
_FIRST_TWEAK = 1 << 63
_FOUR = np.array([4], dtype=np.uint32)
_BIT_VALUES = np.uint32(1) << np.arange(BITS, dtype=np.uint32)


def garbler_tags(
    zeros: UInt64[ndarray, "31 *numbers 2"], offset: UInt64[ndarray, "2"], alphas: UInt32[ndarray, " repetitions"],
    hashing: LabelHash, *, first: int,
) -> tuple[UInt32[ndarray, "repetitions *numbers"], bytes]:  # fmt: skip
    """The keys of the numbers, and the message to the evaluator. first: how many numbers of the session precede."""
    shape = zeros.shape[1:-1]
    keys = np.zeros((len(alphas), *shape), dtype=np.uint32)
    message = np.empty((len(alphas), BITS, *shape), dtype="<u4")
    both = hashing.permuted(zeros), hashing.permuted(zeros ^ offset)
    for repetition, alpha in enumerate(alphas):
        tweaks = _tweaks(repetition, shape, first)
        of_zero, of_one = (_field(hashing.finished(each, tweaks)) for each in both)
        powers = times(_BIT_VALUES, np.full(BITS, alpha, dtype=np.uint32))
        message[repetition] = plus(minus(of_zero, of_one), powers.reshape(BITS, *(1,) * len(shape)))
        keys[repetition] = _added(of_zero)
    return keys, message.tobytes()


def evaluator_tags(
    active: UInt64[ndarray, "31 *numbers 2"], bits: Bool[ndarray, "31 *numbers"], message: bytes, hashing: LabelHash,
    *, first: int, repetitions: int,
) -> UInt32[ndarray, "repetitions *numbers"]:  # fmt: skip
    """alpha d + key of each number. message: the garbler's. Raises MalformedMessage unless it is of field elements."""
    permuted = hashing.permuted(active)
    tags = []
    for repetition, sent in enumerate(elements(message, (repetitions, *bits.shape))):
        own = _field(hashing.finished(permuted, _tweaks(repetition, bits.shape[1:], first)))
        tags.append(_added(plus(own, sent * bits.astype(np.uint32))))
    return np.stack(tags)


def message_bytes(numbers: int, *, repetitions: int) -> int:
    """The length of a garbler's message about so many numbers."""
    return 4 * repetitions * BITS * numbers


def _tweaks(repetition: int, shape: tuple[int, ...], first: int) -> UInt64[ndarray, "31 *numbers"]:
    count = int(np.prod(shape))
    numbers = first + np.arange(count, dtype=np.uint64).reshape(shape)
    bits = np.arange(BITS, dtype=np.uint64).reshape(BITS, *(1,) * len(shape))
    return np.uint64(_FIRST_TWEAK) + (numbers * np.uint64(BITS) + bits) * np.uint64(4) + np.uint64(repetition)


def _field(hashes: UInt64[ndarray, "*wires 2"]) -> UInt32[ndarray, "*wires"]:
    """128 bits modulo p: 2^64 is 4. Within 2^-97 of uniform."""
    return plus(reduced(hashes[..., 0]), times(reduced(hashes[..., 1]), _FOUR))


def _added(values: UInt32[ndarray, "31 *numbers"]) -> UInt32[ndarray, "*numbers"]:
    return (values.astype(np.uint64).sum(axis=0) % np.uint64(P)).astype(np.uint32)

"""The hash of wire labels: fixed-key AES made tweakable circular correlation robust.

H(x, i) = pi(pi(x) ^ i) ^ pi(x), with pi = AES-128 under a public key: TMMO of Guo, Katz, Wang & Yu 2020, "Efficient and
secure multiparty computation from fixed-key block ciphers" (IEEE S&P), which is tweakable circular correlation robust
for inputs that an adversary chooses, if pi is an ideal permutation. One AES call (pi(x ^ i) ^ x ^ i) would be cheaper
but needs naturally derived keys, and here the labels of inputs come from known seeds.

Guo et al. 2020, "Better concrete security for half-gates garbling (in the multi-instance setting)" (CRYPTO): with one
key for everybody, C gates over all sessions and T calls of AES leave about T C / 2^128. The key is therefore drawn at
the start of each session. Then C counts the hashes of one session (2^22 for 1,000 queries of 10 classes, 2^26 for 150),
and work done before the session is useless: above 100 bits.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from jaxtyping import UInt64
from numpy import ndarray

KEY_BYTES = 16
_BLOCK_BYTES = 16

# A label is 128 bits: two little-endian words on the last axis.
Labels = UInt64[ndarray, "*wires 2"]


class LabelHash:
    """H under one key. Inputs and results are arrays of labels, contiguous and of any shape."""

    def __init__(self, key: bytes) -> None:
        # Labels are single blocks of high entropy under a public permutation, which is what this mode applies.
        self._encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()

    def permuted(self, labels: UInt64[ndarray, "*wires 2"]) -> UInt64[ndarray, "*wires 2"]:
        """pi of each label."""
        labels = np.ascontiguousarray(labels)
        if not labels.size:
            return labels
        buffer = np.empty(labels.nbytes + _BLOCK_BYTES, dtype=np.uint8)
        flat = memoryview(labels.reshape(-1).view(np.uint8))  # type: ignore[arg-type]  # an array has a buffer
        self._encryptor.update_into(flat, memoryview(buffer))  # type: ignore[arg-type]  # as above
        return buffer[: labels.nbytes].view(np.uint64).reshape(labels.shape)

    def finished(
        self, permuted: UInt64[ndarray, "*wires 2"], tweaks: UInt64[ndarray, "*tweaked"]
    ) -> UInt64[ndarray, "*wires 2"]:
        """H from pi(x): tweaks, below 2^64, broadcast against the wires."""
        tweaked = permuted.copy()
        tweaked[..., 0] ^= tweaks
        result = self.permuted(tweaked)
        result ^= permuted
        return result

"""Keys and key streams: HKDF with SHA-256 (RFC 5869), X25519 (RFC 7748), ChaCha20 (RFC 8439).

A secret that two parties agree on is not uniform. Its keys are the one-step derivation of NIST SP 800-56C Rev. 2,
section 4.1, option 1, with SHA-512: one call where HKDF takes three, and a party needs two per neighbour and batch.

Everything that a party needs in one batch is derived from one secret of 32 random bytes, so it keeps nothing else.
"""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from numpy import ndarray

from protocols.errors import MalformedMessage

KEY_BYTES = 32
_LABEL = b"conclave secure sum 1 "
# The counter of SP 800-56C.
_FIRST_BLOCK = (1).to_bytes(4, "big")


def derived(secret: bytes, purpose: bytes, about: bytes) -> bytes:
    """32 bytes for one purpose, derived from a uniformly random secret."""
    return HKDFExpand(hashes.SHA256(), KEY_BYTES, _LABEL + purpose + b"\n" + about).derive(secret)


def agreed(key: X25519PrivateKey, public_key: bytes) -> bytes:
    """The X25519 secret. Raises MalformedMessage for a public key of low order, which gives none."""
    try:
        return key.exchange(X25519PublicKey.from_public_bytes(public_key))
    except ValueError:
        raise MalformedMessage("a public key has low order; allowed: keys that X25519 agrees with") from None


def pairwise(secret: bytes, purpose: bytes, about: bytes, *, keys: int) -> bytes:
    """`keys` (1 or 2) times 32 bytes for one purpose, derived from the 32 bytes that X25519 or ECDH gives."""
    assert len(secret) == KEY_BYTES  # otherwise secret and purpose could run together
    assert keys in (1, 2)  # SHA-512 gives no more at once
    fixed_info = _LABEL + purpose + b"\n" + about + keys.to_bytes(4, "big")
    return hashlib.sha512(_FIRST_BLOCK + secret + fixed_info).digest()[: keys * KEY_BYTES]


def same(left: bytes, right: bytes) -> bool:
    """Whether two byte strings are equal, in a time that does not depend on their content."""
    return hmac.compare_digest(left, right)


def key_stream(key: bytes, count: int, *, bits: int) -> ndarray:
    """`count` words of 8, 32 or 64 bits of a key's one ChaCha20 stream. A key is used for one purpose only."""
    words = np.empty(count, dtype=f"<u{bits // 8}")
    _fill(key, np.zeros_like(words), words)
    return words


class MaskSum:
    """A ring vector to which masks are added and from which they are subtracted, modulo 2**bits."""

    def __init__(self, cells: int, *, bits: int) -> None:
        self.total = np.zeros(cells, dtype=f"<u{bits // 8}")
        self._zeros, self._mask = np.zeros_like(self.total), np.empty_like(self.total)

    def add(self, key: bytes, *, sign: int) -> None:
        """Adds (sign > 0) or subtracts the key's mask, of which nothing stays in memory but the sum."""
        _fill(key, self._zeros, self._mask)
        (np.add if sign > 0 else np.subtract)(self.total, self._mask, out=self.total)
        self._mask.fill(0)


def _fill(key: bytes, zeros: ndarray, words: ndarray) -> None:
    if words.size:
        encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        encryptor.update_into(memoryview(zeros).cast("B"), memoryview(words).cast("B"))  # type: ignore[arg-type]  # arrays have buffers

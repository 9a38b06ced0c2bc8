"""Uniform field elements and bytes from a short seed: ChaCha20 (RFC 8439) under a key derived for one purpose.

Key = SHA-256(label, context, seed), each with its length before it: streams of different purposes, or of different
batches, have nothing in common, and a seed that is replayed in another batch opens nothing.
"""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from jaxtyping import UInt8, UInt32
from numpy import ndarray

from protocols.crypto.field import P

SEED_BYTES = 16


def derived_key(label: str, *parts: bytes) -> bytes:
    """32 bytes that depend on the label, on every part and on where one part ends."""
    hashed = hashlib.sha256()
    for part in (b"conclave two_server", label.encode(), *parts):
        hashed.update(len(part).to_bytes(8, "little") + part)
    return hashed.digest()


def keystream(key: bytes) -> CipherContext:
    """A stream of which `next_bytes` gives the next bytes. A key is used for one stream only."""
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()


def next_bytes(stream: CipherContext, count: int) -> UInt8[ndarray, " count"]:
    """The next `count` bytes of a keystream."""
    octets = np.zeros(count, dtype=np.uint8)
    if count:
        # A stream cipher's keystream is the encryption of zeros, and may overwrite them.
        stream.update_into(memoryview(octets), memoryview(octets))  # type: ignore[arg-type]  # an array has a buffer
    return octets


def field_elements(key: bytes, count: int) -> UInt32[ndarray, " count"]:
    """`count` independent uniform elements of F_p.

    Words of 31 bits; p itself, once in 2^31 words, is drawn again from a stream of its own, so the law is exact.
    """
    words = next_bytes(keystream(key), 4 * count).view("<u4") & np.uint32(P)
    return _without_p(words, key)


def _without_p(words: UInt32[ndarray, " count"], key: bytes) -> UInt32[ndarray, " count"]:
    over = np.flatnonzero(words == P)
    again = keystream(derived_key("drawn again", key)) if over.size else None
    while again is not None and over.size:
        words[over] = next_bytes(again, 4 * over.size).view("<u4") & np.uint32(P)
        over = over[words[over] == P]
    return words

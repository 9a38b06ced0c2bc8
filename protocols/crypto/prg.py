"""Streams of random bytes and field elements from short seeds: ChaCha20 (RFC 8439) and AES-128 in counter mode.

Uniform field elements and bytes from a short seed: ChaCha20 (RFC 8439) under a key derived for one purpose.

Key = SHA-256(label, context, seed), each with its length before it: streams of different purposes, or of different
batches, have nothing in common, and a seed that is replayed in another batch opens nothing.

Long random arrays from short seeds: AES-128 in counter mode (NIST SP 800-38A), one stream per seed.

Dealer and party expand the same seed to the same arrays, so the querying party only needs a seed. A hundred bytes or so
are needed per number, and AES is three times as fast here as the ChaCha20 of other streams.

A deterministic stream of random bytes from a 32-byte seed: ChaCha20 (RFC 8439) under a key that HKDF derives.

A server stores the seed of its noise and can draw the identical noise again; to anyone without the seed the bytes look
uniform.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from jaxtyping import UInt8, UInt32
from numpy import ndarray

from protocols.crypto.field import P
from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput

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


class Stream:
    """The bytes of one seed, in order. A seed is used for one stream only."""

    def __init__(self, seed: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()

    def octets(self, shape: tuple[int, ...]) -> UInt8[ndarray, "..."]:
        """Uniform bytes."""
        return self._next(shape, "<u1")

    def words(self, shape: tuple[int, ...], dtype: str = "<u4") -> ndarray:
        """Uniform words of an unsigned little-endian dtype."""
        return self._next(shape, dtype)

    def field(self, shape: tuple[int, ...]) -> UInt32[ndarray, "..."]:
        """Uniform elements of F_p: words of 31 bits, in which the value p is skipped."""
        elements = self._next((math.prod(shape),), "<u4") & np.uint32(P)
        while (over := np.flatnonzero(elements == P)).size:
            elements[over] = self._next((over.size,), "<u4") & np.uint32(P)
        return elements.reshape(shape)

    def _next(self, shape: tuple[int, ...], dtype: str) -> ndarray:
        count = math.prod(shape) * np.dtype(dtype).itemsize
        return next_bytes(self._encryptor, count).view(dtype).reshape(shape)


STREAM_SEED_BYTES = 32


def expanded_source(seed: bytes, *, label: str) -> RandomSource:
    """The keystream of (seed, label) from its start; each call to the source continues where the last one ended.

    Streams of different labels are independent: the label is the HKDF info (RFC 5869), so one seed may serve several
    purposes. Drawing twice from the same (seed, label) gives the same bytes: that is its purpose, and why a seed must
    belong to one query batch. Raises InvalidInput unless seed has 32 bytes and label is not empty.
    """
    if len(seed) != STREAM_SEED_BYTES:
        raise InvalidInput(f"a seed of {len(seed)} bytes; allowed: {STREAM_SEED_BYTES}")
    if not label:
        raise InvalidInput("the stream's label is empty; allowed: one that says what the stream is for")
    key = HKDF(algorithm=SHA256(), length=32, salt=b"conclave stream", info=label.encode()).derive(seed)
    stream = keystream(key)
    return lambda count: stream.update(bytes(count))

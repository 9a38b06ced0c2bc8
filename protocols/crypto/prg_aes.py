"""Long random arrays from short seeds: AES-128 in counter mode (NIST SP 800-38A), one stream per seed.

Dealer and party expand the same seed to the same arrays, so the querying party only needs a seed. A hundred bytes or so
are needed per number, and AES is three times as fast here as the ChaCha20 of other streams.
"""

from __future__ import annotations

import math

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from jaxtyping import UInt8, UInt32
from numpy import ndarray

from protocols.crypto.field import P
from protocols.crypto.prg_chacha import next_bytes

SEED_BYTES = 16


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
